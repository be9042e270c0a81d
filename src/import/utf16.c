/* SPDX-License-Identifier: BSD-2-Clause */
/* From UTF-16 to UTF-8 (RFC 2781, RFC 3629); see utf16.h. */
#include "import/utf16.h"

#include <errno.h>
#include <stdlib.h>

#define MARK_BYTES  2
#define REPLACEMENT 0xfffdu

bool hl_utf16_detect(const uint8_t *bytes, size_t size)
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

int hl_utf16_decode(const uint8_t *bytes, size_t size, uint8_t **ret_text, size_t *ret_size)
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
