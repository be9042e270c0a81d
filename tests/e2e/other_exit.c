/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that takes the place of _exit(): the status is one more. */
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"), noreturn)) void _exit(int status)
{
	for (;;)
		syscall(SYS_exit_group, status + 1);
}
