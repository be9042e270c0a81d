/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes as hexadecimal digits, the high half first. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a hexadecimal digit, of either case; -1 for any other character. */
static inline int hl_hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	digit = (char)(digit | 0x20); /* to lower case */
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Writes 2 * ${count} lower-case digits and a NUL to ${ret_text}, which it returns. */
static inline char *hl_hex_format(char *ret_text, const uint8_t *bytes, size_t count)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < count; i++) {
		ret_text[2 * i] = digits[bytes[i] >> 4];
		ret_text[2 * i + 1] = digits[bytes[i] & 15];
	}
	ret_text[2 * count] = '\0';
	return ret_text;
}

/*
 * The bytes of ${length} digits at ${text}, of which there may be ${capacity}: how many they are,
 * or -EINVAL with ${ret_bytes} undefined when they are too many or the text is something else.
 */
static inline int hl_hex_parse(const char *text, size_t length, uint8_t *ret_bytes, size_t capacity)
{
	if (length % 2 || length / 2 > capacity)
		return -EINVAL;
	for (size_t i = 0; i < length / 2; i++) {
		int high = hl_hex_digit(text[2 * i]), low = hl_hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return -EINVAL;
		ret_bytes[i] = (uint8_t)(high << 4 | low);
	}
	return (int)(length / 2);
}
