/* SPDX-License-Identifier: BSD-2-Clause */
/* Running processes by the name of their program. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

#define HL_PROCESS_NAME_MAX 64

/* What a process is called: the file name of its argv[0], or, where that is empty, its comm. */
struct hl_named_process {
	pid_t pid;
	char name[HL_PROCESS_NAME_MAX]; /* cut off */
	char comm[16];
};

/*
 * Calls ${visit} for each process but this one and the kernel's threads, in rising order of number,
 * until it returns false. 0 or a negative errno.
 */
int hl_process_each(bool (*visit)(const struct hl_named_process *process, void *context),
		    void *context);

/*
 * The process whose comm or name is ${name}. 0; -ESRCH when there is none, -EEXIST when there are
 * several, which the sentence lists.
 */
int hl_process_by_name(const char *name, pid_t *ret_pid, struct hl_error *err);
