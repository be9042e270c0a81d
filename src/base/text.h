/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts that may be anything: UTF-8 (RFC 3629), and words of command lines as a shell needs them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- UTF-8 (RFC 3629) out of texts that may be anything ---- */

/* Length of the UTF-8 sequence at ${text}, or 0 when it is not valid. */
int hl_utf8_length(const char *text);

/* The same, and the code point in ${ret_code_point}. */
int hl_utf8_decode(const char *text, uint32_t *ret_code_point);

/* A copy of ${text} with U+FFFD for each byte that is not UTF-8, to be freed; NULL for want of memory. */
char *hl_utf8_clean(const char *text);

/*
 * Whether a terminal or a browser may obey ${code_point} instead of showing it: controls (C0, DEL,
 * C1), and the overrides and isolates of direction, with which a name could pose as another one.
 */
bool hl_utf8_is_control(uint32_t code_point);

/* ---- words of command lines, as a shell needs them ---- */

/* Whether a byte of ${word} is a control character of ASCII. */
bool hl_words_has_control(const char *word);

/* Writes ${word}, in quotes where it needs them. */
void hl_words_put(FILE *out, const char *word);
