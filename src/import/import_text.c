/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines and numbers of text files; see import_text.h. */
#include "import/import_text.h"

#include "base/hex.h"

#include <errno.h>
#include <string.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* UTF-8's, which editors of other systems write */

struct hl_import_lines hl_import_lines_of(const struct hl_import_input *input)
{
	const char *text = (const char *)input->bytes;
	size_t mark = strlen(BYTE_ORDER_MARK);

	if (input->size < mark || memcmp(text, BYTE_ORDER_MARK, mark) != 0)
		mark = 0;
	return (struct hl_import_lines){.next = text + mark, .end = text + input->size};
}

bool hl_import_lines_next(struct hl_import_lines *lines, struct hl_import_line *ret_line)
{
	if (lines->next == lines->end)
		return false;
	const char *text = lines->next;
	const char *newline = memchr(text, '\n', (size_t)(lines->end - text));
	const char *end = newline ? newline : lines->end;
	lines->next = newline ? newline + 1 : end;
	if (end > text && end[-1] == '\r')
		end--;
	*ret_line = (struct hl_import_line){text, hl_import_trim(text, end), ++lines->number};
	return true;
}

bool hl_import_is_blank(char letter)
{
	return letter == ' ' || letter == '\t';
}

const char *hl_import_skip_blanks(const char *text, const char *end)
{
	while (text < end && hl_import_is_blank(*text))
		text++;
	return text;
}

const char *hl_import_trim(const char *text, const char *end)
{
	while (end > text && hl_import_is_blank(end[-1]))
		end--;
	return end;
}

int hl_import_number(const char *text, const char *end, int64_t *ret_number, const char **ret_end)
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

int hl_import_hex(const char *text, const char *end, uint64_t *ret_number, const char **ret_end)
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

int hl_import_fail(const struct hl_import_input *input, int code, struct hl_error *err)
{
	if (code == -ENOMEM)
		hl_error_set(err, code, "cannot read '%s': out of memory", input->name);
	return code;
}
