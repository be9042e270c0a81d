/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds a program before its first function and after its last, and whenever it calls
 * stop_at_gate(), to be preloaded: writes a byte to
 * the FIFO at HEAPLINE_TEST_GATE.at and goes on once it has read one from HEAPLINE_TEST_GATE.go.
 * Allocates nothing. Other programs than recorded ones, such as heapline itself, pass.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void stop_at_gate(void);

static void pass_byte(const char *suffix, int flags)
{
	char path[PATH_MAX], byte = 0;

	snprintf(path, sizeof(path), "%s%s", getenv("HEAPLINE_TEST_GATE"), suffix);
	int fd = open(path, flags | O_CLOEXEC);
	ssize_t size = flags == O_WRONLY ? write(fd, &byte, 1) : read(fd, &byte, 1);
	if (fd < 0 || size != 1)
		_exit(99);
	close(fd);
}

__attribute__((visibility("default"), constructor, destructor)) void stop_at_gate(void)
{
	const char *preloaded = getenv("LD_PRELOAD");

	if (!getenv("HEAPLINE_TEST_GATE") || !preloaded || !strstr(preloaded, "libheapline"))
		return;
	pass_byte(".at", O_WRONLY);
	pass_byte(".go", O_RDONLY);
}
