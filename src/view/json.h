/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes JSON as a stream, so that a report of any size needs no memory. ${key} is NULL for the
 * elements of an array. Write errors stay in the FILE, where ferror() finds them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hl_json {
	FILE *out;
	unsigned depth;
	bool has_members;  /* of the innermost object or array */
	bool is_in_markup; /* within XML or HTML, where '<', '>' and '&' have a meaning */
};

void hl_json_open(struct hl_json *json, const char *key, char bracket); /* '{' or '[' */
void hl_json_close(struct hl_json *json, char bracket);			/* '}' or ']' */
void hl_json_integer(struct hl_json *json, const char *key, int64_t number);
void hl_json_null(struct hl_json *json, const char *key);
void hl_json_boolean(struct hl_json *json, const char *key, bool truth);

/* What is not UTF-8 in ${text} becomes U+FFFD. */
void hl_json_text(struct hl_json *json, const char *key, const char *text);
