/* SPDX-License-Identifier: BSD-2-Clause */
/* What a path says by itself, without a look at the file system. */
#pragma once

#include <stdbool.h>
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
