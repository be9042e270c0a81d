/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes UTF-8; see text.h. */
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\uFFFD"

int hl_utf8_length(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	int length = 4;

	if (at[0] < 0x80)
		length = 1;
	else if (at[0] < 0xc2 || at[0] >= 0xf5)
		length = 0; /* no sequence begins so */
	else if (at[0] < 0xf0)
		length = at[0] < 0xe0 ? 2 : 3;
	for (int i = 1; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
	bool surrogate = at[0] == 0xed && at[1] >= 0xa0;
	bool beyond = at[0] == 0xf4 && at[1] >= 0x90;
	return overlong || surrogate || beyond ? 0 : length;
}

int hl_utf8_decode(const char *text, uint32_t *ret_code_point)
{
	static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	const unsigned char *at = (const unsigned char *)text;
	int length = hl_utf8_length(text);

	if (length == 0)
		return 0;
	uint32_t code_point = at[0] & first_bits[length];
	for (int i = 1; i < length; i++)
		code_point = code_point << 6 | (at[i] & 0x3f);
	*ret_code_point = code_point;
	return length;
}

char *hl_utf8_clean(const char *text)
{
	char *clean = malloc(strlen(text) * strlen(REPLACEMENT) + 1), *end = clean;

	for (; clean && *text; text++) {
		int length = hl_utf8_length(text);
		end = mempcpy(end, length ? text : REPLACEMENT,
			      length ? (size_t)length : strlen(REPLACEMENT));
		text += length ? length - 1 : 0;
	}
	if (clean)
		*end = '\0';
	return clean;
}

bool hl_utf8_is_control(uint32_t code_point)
{
	bool changes_direction = (code_point >= 0x202a && code_point <= 0x202e) ||
				 (code_point >= 0x2066 && code_point <= 0x2069);

	return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) || changes_direction;
}
