/* SPDX-License-Identifier: BSD-2-Clause */
/* Other tools' text files: their encoding, and lines and numbers, which are read where they lie in
 * memory. */
#pragma once

#include "import/importer.h"

/* A line without what ends it: newline, carriage return, blanks. */
struct hl_import_line {
	const char *text, *end;
	uint64_t number; /* from 1 */
};

/* The lines that are still to be read. */
struct hl_import_lines {
	const char *next, *end;
	uint64_t number; /* of the line that was read last */
};

/* Begins at the first line of ${input}, after a byte order mark. */
struct hl_import_lines hl_import_text_lines(const struct hl_import_input *input);

/* The next line in ${ret_line}; false when there is none. */
bool hl_import_text_next(struct hl_import_lines *lines, struct hl_import_line *ret_line);

bool hl_import_text_begins(const struct hl_import_line *line, const char *mark);

bool hl_import_text_is_blank(char letter); /* space or tab */

/* The first letter in ${text} .. ${end} that is not a blank. */
const char *hl_import_text_skip_blanks(const char *text, const char *end);

/* The end of ${text} .. ${end} without trailing blanks. */
const char *hl_import_text_trim(const char *text, const char *end);

/*
 * Reads the decimal number, which may be negative, that ${text} .. ${end} begins with. 0, with what
 * follows it in ${ret_end}; -EINVAL when there is none; -ERANGE when it does not fit into 64 bits.
 */
int hl_import_text_number(const char *text, const char *end, int64_t *ret_number,
			  const char **ret_end);

/* The same for a hexadecimal one without sign, with or without "0x". */
int hl_import_text_hex(const char *text, const char *end, uint64_t *ret_number,
		       const char **ret_end);

/* Whether ${bytes} begin with the byte order mark of UTF-16, in either order: editors and shells of
 * other systems write such text. */
bool hl_import_text_is_utf16(const uint8_t *bytes, size_t size);

/*
 * The text that follows the mark, as UTF-8 in ${ret_text}, to be freed, with a NUL byte after it.
 * Halves of characters become U+FFFD; an odd last byte is dropped. 0 or -ENOMEM.
 */
int hl_import_text_from_utf16(const uint8_t *bytes, size_t size, uint8_t **ret_text,
			      size_t *ret_size);
