/* SPDX-License-Identifier: BSD-2-Clause */
/* How formats and sentences write bytes and numbers: hexadecimal digits, LEB128, "1,234". */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type of a section, as the four letters that its first bytes are. */
#define HL_FOURCC(a, b, c, d) \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/* ---- bytes as hexadecimal digits, the high half first ---- */

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

/* ---- numbers in sentences ---- */

#define HL_GROUPED_MAX 27 /* bytes of the longest, with the NUL */

/* Writes ${number} as "1,234,567" to ${ret_text}, which it returns. */
static inline const char *hl_grouped(char ret_text[HL_GROUPED_MAX], uint64_t number)
{
	char backward[HL_GROUPED_MAX];
	size_t length = 0, digits = 0;

	do {
		if (digits && digits % 3 == 0)
			backward[length++] = ',';
		backward[length++] = (char)('0' + number % 10);
		digits++;
	} while (number /= 10);
	for (size_t i = 0; i < length; i++)
		ret_text[i] = backward[length - 1 - i];
	ret_text[length] = '\0';
	return ret_text;
}

/* ---- numbers in LEB128, seven bits a byte, and zigzag for signed ones ---- */

#define HL_VARINT_MAX 10u /* bytes of the longest number */

/* Writes ${number} to ${bytes}, which has room for HL_VARINT_MAX; returns how many it took. */
static inline size_t hl_varint_put(uint8_t *bytes, uint64_t number)
{
	size_t count = 0;

	for (; number >= 0x80; number >>= 7)
		bytes[count++] = (uint8_t)(number | 0x80);
	bytes[count++] = (uint8_t)number;
	return count;
}

/* Reads from *${at}, which it moves on; false at ${end}, or where no number of 64 bits stands. */
static inline bool hl_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *ret_number)
{
	uint64_t number = 0;
	const uint8_t *byte = *at;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (byte == end)
			return false;
		number |= (uint64_t)(*byte & 0x7f) << shift;
		if (*byte++ < 0x80) {
			if (shift == 63 && byte[-1] > 1)
				return false;
			*at = byte;
			*ret_number = number;
			return true;
		}
	}
	return false;
}

static inline uint64_t hl_zigzag(int64_t number)
{
	return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static inline int64_t hl_unzigzag(uint64_t number)
{
	return (int64_t)(number >> 1 ^ (0 - (number & 1)));
}
