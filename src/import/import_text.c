/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines and numbers of text files; see import_text.h. */
#include "import/import_text.h"

#include "base/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* UTF-8's, which editors of other systems write */

struct hl_import_lines hl_import_text_lines(const struct hl_import_input *input)
{
	const char *text = (const char *)input->bytes;
	size_t mark = strlen(BYTE_ORDER_MARK);

	if (input->size < mark || memcmp(text, BYTE_ORDER_MARK, mark) != 0)
		mark = 0;
	return (struct hl_import_lines){.next = text + mark, .end = text + input->size};
}

bool hl_import_text_next(struct hl_import_lines *lines, struct hl_import_line *ret_line)
{
	if (lines->next == lines->end)
		return false;
	const char *text = lines->next;
	const char *newline = memchr(text, '\n', (size_t)(lines->end - text));
	const char *end = newline ? newline : lines->end;
	lines->next = newline ? newline + 1 : end;
	if (end > text && end[-1] == '\r')
		end--;
	*ret_line = (struct hl_import_line){text, hl_import_text_trim(text, end), ++lines->number};
	return true;
}

bool hl_import_text_begins(const struct hl_import_line *line, const char *mark)
{
	size_t length = strlen(mark);

	return (size_t)(line->end - line->text) >= length && !memcmp(line->text, mark, length);
}

bool hl_import_text_is_blank(char letter)
{
	return letter == ' ' || letter == '\t';
}

const char *hl_import_text_skip_blanks(const char *text, const char *end)
{
	while (text < end && hl_import_text_is_blank(*text))
		text++;
	return text;
}

const char *hl_import_text_trim(const char *text, const char *end)
{
	while (end > text && hl_import_text_is_blank(end[-1]))
		end--;
	return end;
}

int hl_import_text_number(const char *text, const char *end, int64_t *ret_number,
			  const char **ret_end)
{
	bool negative = text < end && *text == '-';
	const char *digits = text + negative, *at = digits;
	int64_t number = 0;

	for (; at < end && *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, *at - '0', &number))
			return -ERANGE;
	if (at == digits)
		return -EINVAL;
	*ret_number = negative ? -number : number;
	*ret_end = at;
	return 0;
}

int hl_import_text_hex(const char *text, const char *end, uint64_t *ret_number,
		       const char **ret_end)
{
	bool prefixed = end - text > 2 && text[0] == '0' && (text[1] | 0x20) == 'x';
	const char *digits = prefixed ? text + 2 : text, *at = digits;
	uint64_t number = 0;

	for (; at < end && hl_hex_digit(*at) >= 0; at++) {
		if (number >> 60)
			return -ERANGE;
		number = number << 4 | (uint64_t)hl_hex_digit(*at);
	}
	if (at == digits)
		return -EINVAL;
	*ret_number = number;
	*ret_end = at;
	return 0;
}

/* ---- from UTF-16 to UTF-8 (RFC 2781, RFC 3629) ---- */

#define MARK_BYTES  2
#define REPLACEMENT 0xfffdu

bool hl_import_text_is_utf16(const uint8_t *bytes, size_t size)
{
	return size >= MARK_BYTES &&
	       ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff));
}

static uint32_t unit_at(const uint8_t *bytes, size_t at)
{
	bool is_little = bytes[0] == 0xff;

	return (uint32_t)bytes[at + is_little] << 8 | bytes[at + !is_little];
}

static bool is_high(uint32_t unit)
{
	return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(uint32_t unit)
{
	return unit >= 0xdc00 && unit < 0xe000;
}

static uint8_t *put(uint8_t *text, uint32_t letter)
{
	if (letter < 0x80) {
		*text++ = (uint8_t)letter;
		return text;
	}
	if (letter >= 0x10000) {
		*text++ = (uint8_t)(0xf0 | letter >> 18);
		*text++ = (uint8_t)(0x80 | (letter >> 12 & 0x3f));
	} else if (letter >= 0x800) {
		*text++ = (uint8_t)(0xe0 | letter >> 12);
	} else {
		*text++ = (uint8_t)(0xc0 | letter >> 6);
		*text++ = (uint8_t)(0x80 | (letter & 0x3f));
		return text;
	}
	*text++ = (uint8_t)(0x80 | (letter >> 6 & 0x3f));
	*text++ = (uint8_t)(0x80 | (letter & 0x3f));
	return text;
}

int hl_import_text_from_utf16(const uint8_t *bytes, size_t size, uint8_t **ret_text,
			      size_t *ret_size)
{
	uint8_t *text = malloc(size / 2 * 3 + 1), *end = text; /* a unit takes 3 bytes at most */

	if (!text)
		return -ENOMEM;
	for (size_t at = MARK_BYTES; at + 1 < size; at += 2) {
		uint32_t letter = unit_at(bytes, at);
		uint32_t next = at + 3 < size ? unit_at(bytes, at + 2) : 0;
		if (is_high(letter) && is_low(next)) {
			letter = 0x10000 + ((letter - 0xd800) << 10) + (next - 0xdc00);
			at += 2;
		} else if (is_high(letter) || is_low(letter)) {
			letter = REPLACEMENT;
		}
		end = put(end, letter);
	}
	*end = '\0';
	*ret_text = text;
	*ret_size = (size_t)(end - text);
	return 0;
}
