/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes a report: the same calls make a table for people, or plain lines, CSV or JSON for other
 * programs, so that these cannot drift apart. Errors (memory, output) are kept and returned by
 * hl_emit_finish(); until then nobody need check.
 *
 *	hl_emit_new()
 *	{ hl_emit_line() | hl_emit_object() hl_emit_text() ... hl_emit_object_end() }
 *	{ hl_table_begin() hl_table_row() ... hl_table_end(), see table.h }
 *	hl_emit_finish()
 */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * ---- JSON as a stream, so that a report of any size needs no memory ----
 * ${key} is NULL for the elements of an array. Write errors stay in the FILE, where ferror() finds them.
 */

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

enum hl_emit_form {
	HL_EMIT_TABLE, /* aligned columns under titles */
	HL_EMIT_LINES, /* cells separated by one space, no titles */
	HL_EMIT_CSV,   /* cells separated by commas below keys, or titles in quotes (RFC 4180) */
	HL_EMIT_JSON,
};

/* A frame of a stack, as JSON has it. Texts are "" and the line 0 when unknown. */
struct hl_emit_frame {
	const char *function, *module, *file;
	uint32_t line; /* of the call site */
};

/* How a row of a table stands out, where there is colour. */
enum hl_emit_emphasis {
	HL_EMIT_HEAVY = 1,    /* bold */
	HL_EMIT_HEAVIEST = 2, /* red */
};

struct hl_emit;

/* As many rows as one reads; all in JSON. */
#define HL_EMIT_ROWS_DEFAULT UINT64_MAX

/* How a report is written that is about no profile; zero is the common case. */
struct hl_emit_options {
	FILE *out;
	bool json, color;
	uint64_t row_limit; /* 0: all; or HL_EMIT_ROWS_DEFAULT */
};

/* A report that is begun, as a table for people or as JSON. 0 or -ENOMEM. */
int hl_emit_open(const struct hl_emit_options *options, const char *schema,
		 struct hl_emit **ret_emit);

/* A report on ${out}. In JSON this begins the outermost object with its ${schema}, "top/1"; other
 * forms need none. 0 or -ENOMEM. */
int hl_emit_new(FILE *out, enum hl_emit_form form, bool color, const char *schema,
		struct hl_emit **ret_emit);

/* Whether the report is JSON, for what its tables alone leave out. */
bool hl_emit_is_json(const struct hl_emit *emit);

/*
 * How many columns the terminal has; 0 when nothing need be cut off: there is none, or a pager
 * scrolls sideways.
 */
size_t hl_emit_width(const struct hl_emit *emit);

/*
 * One line of text, which goes on in a next one where a terminal is too narrow; nothing in the
 * other forms. What a terminal would obey is written as it is in hl_format_put(), here as in every
 * other text.
 */
void hl_emit_line(struct hl_emit *emit, const char *format, ...) HL_PRINTF(2, 3);

/* Like hl_emit_line(), as a warning that is hard to overlook. */
void hl_emit_warning(struct hl_emit *emit, const char *format, ...) HL_PRINTF(2, 3);

/* An empty line of text. */
void hl_emit_blank(struct hl_emit *emit);

/* The line that says that ${count} rows more are shown by "${option} 0"; none for 0. */
void hl_emit_more(struct hl_emit *emit, size_t count, const char *option);

/* How many of ${count} rows are shown: ${limit}, for which ${usual} is the default for people. */
size_t hl_emit_shown(const struct hl_emit *emit, uint64_t limit, uint64_t usual, size_t count);

/* Members of the report, or of an object in it; nothing in text. */
void hl_emit_object(struct hl_emit *emit, const char *key);
void hl_emit_object_end(struct hl_emit *emit);
void hl_emit_array(struct hl_emit *emit, const char *key);
void hl_emit_array_end(struct hl_emit *emit);
void hl_emit_text(struct hl_emit *emit, const char *key, const char *text);
void hl_emit_integer(struct hl_emit *emit, const char *key, int64_t number);
void hl_emit_unsigned(struct hl_emit *emit, const char *key,
		      uint64_t number); /* INT64_MAX at most */
void hl_emit_boolean(struct hl_emit *emit, const char *key, bool truth);
void hl_emit_unknown(struct hl_emit *emit, const char *key); /* null */
void hl_emit_frames(struct hl_emit *emit, const char *key, const struct hl_emit_frame *frames,
		    size_t count);

/*
 * The command that goes on from this report, for a shell: "heapline heap -p 4711"; text has it as a line of its own, JSON as the member "next". Without this,
 * hl_emit_finish() adds to JSON what follows a report of that schema about the subject that hl_emit_about() named. NULL: nothing does.
 */
void hl_emit_next(struct hl_emit *emit, const char *command);

/* What the report is about: a recording, where there is a file ${name}, or else process ${pid}; NULL and 0 where either is unknown. */
void hl_emit_about(struct hl_emit *emit, const char *name, int64_t pid);

/* Whether functions that allocate cannot be traced in that process: nothing that traces them follows then. */
void hl_emit_untraceable(struct hl_emit *emit, bool is_untraceable);

/* Keeps ${error}, unless another one came first; nothing more is written then. */
void hl_emit_fail(struct hl_emit *emit, int error);

/* Ends the report and frees ${emit}. 0, -ENOMEM, or the output's -errno. */
int hl_emit_finish(struct hl_emit *emit);
