/* SPDX-License-Identifier: BSD-2-Clause */
/* Escapes bytes for JSON strings; see fields.h. */
#include "recording/fields.h"

#include "base/cleanup.h"
#include "base/encode.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The second byte decides about overlong forms, surrogates and code points past U+10FFFF
 * (Unicode 15, table 3-7). */
static bool second_byte_fits(uint8_t lead, uint8_t second)
{
	switch (lead) {
	case 0xe0:
		return second >= 0xa0;
	case 0xed:
		return second <= 0x9f;
	case 0xf0:
		return second >= 0x90;
	case 0xf4:
		return second <= 0x8f;
	default:
		return true;
	}
}

/* Length of the valid UTF-8 sequence at ${bytes}, 0 when there is none. */
static size_t utf8_length(const uint8_t *bytes, size_t size)
{
	uint8_t lead = bytes[0];
	size_t length = lead < 0x80		       ? 1
			: lead >= 0xc2 && lead <= 0xdf ? 2
			: lead >= 0xe0 && lead <= 0xef ? 3
			: lead >= 0xf0 && lead <= 0xf4 ? 4
						       : 0;

	if (length == 0 || length > size)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length == 1 || second_byte_fits(lead, bytes[1]) ? length : 0;
}

char *hl_text_escape(const char *bytes, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";

	char *text = malloc(3 * size + 1);
	if (!text)
		return NULL;
	char *out = text;
	const uint8_t *next = (const uint8_t *)bytes;
	for (const uint8_t *end = next + size; next < end;) {
		size_t length = *next == '%' ? 0 : utf8_length(next, (size_t)(end - next));
		if (length == 0) {
			*out++ = '%';
			*out++ = digits[*next >> 4];
			*out++ = digits[*next++ & 15];
			continue;
		}
		memcpy(out, next, length);
		out += length;
		next += length;
	}
	*out = '\0';
	return text;
}

/* The byte that the escape at ${text} stands for; 0 unless it is two upper-case digits. */
static int unescape_one(const char *text, const char *end)
{
	if (end - text < 3 || text[1] >= 'a' || text[2] >= 'a')
		return 0;
	int high = hl_hex_digit(text[1]), low = hl_hex_digit(text[2]);
	return high < 0 || low < 0 ? 0 : high << 4 | low;
}

int hl_text_unescape(const char *text, size_t size, char **ret_bytes)
{
	char *bytes = malloc(size + 1);

	if (!bytes)
		return -ENOMEM;
	char *out = bytes;
	for (const char *end = text + size; text < end;) {
		int byte = *text == '%' ? unescape_one(text, end) : (uint8_t)*text;
		if (byte == 0) {
			free(bytes);
			return -EINVAL;
		}
		text += *text == '%' ? 3 : 1;
		*out++ = (char)byte;
	}
	*out = '\0';
	*ret_bytes = bytes;
	return 0;
}

json_t *hl_text_to_json(const char *bytes)
{
	HL_FREED char *text = hl_text_escape(bytes ? bytes : "", bytes ? strlen(bytes) : 0);

	return text ? json_string(text) : NULL;
}

int hl_text_from_json(const json_t *json, char **ret_bytes)
{
	if (!json_is_string(json))
		return -EINVAL;
	return hl_text_unescape(json_string_value(json), json_string_length(json), ret_bytes);
}
