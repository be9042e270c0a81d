/* SPDX-License-Identifier: BSD-2-Clause */
/* What a path says by itself, without a look at the file system. */
#pragma once

#include <string.h>

/* The last part of ${path}; all of it when it ends with a slash. */
static inline const char *hl_path_basename(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}
