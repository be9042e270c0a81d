/* SPDX-License-Identifier: BSD-2-Clause */
/* What the name of a mark may be: short, on one line, and nothing that a terminal would obey. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define HL_MARK_MAX 239 /* bytes */

/* Begins the name of a mark that is set where the mode was switched; the mode follows. */
#define HL_MODE_MARK "mode "

/* A control character of ASCII, or U+0080 to U+009F in UTF-8. ${text} ends with a NUL. */
static inline int hl_mark_is_control(const char *text)
{
	uint8_t first = (uint8_t)text[0], second = (uint8_t)text[1];
	return first < 0x20 || first == 0x7f || (first == 0xc2 && second >= 0x80 && second < 0xa0);
}

/*
 * Bytes of the name ${text}, of which no more than HL_MARK_MAX + 1 are read; -EINVAL when it is
 * empty or holds a control character, -ENAMETOOLONG when it is too long. Async-signal-safe.
 */
static inline int hl_mark_length(const char *text)
{
	int length = 0;

	for (; text[length]; length++) {
		if (length == HL_MARK_MAX)
			return -ENAMETOOLONG;
		if (hl_mark_is_control(text + length))
			return -EINVAL;
	}
	return length ? length : -EINVAL;
}
