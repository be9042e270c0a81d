/* SPDX-License-Identifier: BSD-2-Clause */
/* What fuzz targets that read files need: a file, and a directory to write containers in. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* So that a report names the line. */
#define require(holds)                    \
	do {                              \
		if (!(holds))             \
			__builtin_trap(); \
	} while (0)

/* A file with ${size} ${bytes}; the same one again each time. */
static inline int scratch_file(const uint8_t *bytes, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
	return fd;
}

static char scratch_path[] = "/tmp/heapline-fuzz-XXXXXX";

static inline void remove_scratch_directory(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", scratch_path);
	unlink(path);
	rmdir(scratch_path);
}

/* A directory that is removed at the end, with a file called "file" in it. */
static inline int scratch_directory(void)
{
	static int fd = -1;

	if (fd < 0 && mkdtemp(scratch_path)) {
		fd = open(scratch_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		atexit(remove_scratch_directory);
	}
	return fd;
}
