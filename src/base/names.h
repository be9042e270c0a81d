/* SPDX-License-Identifier: BSD-2-Clause */
/* Names: the last part of a path, and what a mark may be called. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The last part of ${path}; all of it when it ends with a slash. */
static inline const char *hl_path_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Whether ${path} is that of the dynamic loader that comes with glibc. */
static inline bool hl_path_is_glibc_loader(const char *path)
{
	const char *name = hl_path_basename(path);

	return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld-2.", 5) == 0;
}

/* Whether ${path} is that of heapline's own recorder. */
static inline bool hl_path_is_recorder(const char *path)
{
	return strncmp(hl_path_basename(path), "libheapline.so", 14) == 0;
}

/* A mark's name is short, on one line, and holds nothing that a terminal would obey. */
#define HL_MARK_MAX 239 /* bytes */

/* Begins the name of a mark that is set where the mode was switched; the mode follows. */
#define HL_MODE_MARK   "mode "
#define HL_CLOSED_MARK HL_MODE_MARK "closed" /* nothing is recorded from here on */

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
