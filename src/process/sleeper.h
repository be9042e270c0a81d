/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of other processes that sleep in the kernel. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct hl_sleeper {
	pid_t tid;
	uint64_t switches; /* to other threads, so far: if it was fewer before, it has run since */
	struct user_regs_struct registers; /* that it returns to user space with */
};

/* Who tells which threads of a process sleep. One thread at a time. */
struct hl_sleeper_source {
	/* Lists them all by rising tid; ${ret_sleepers} is to be freed. 0 or a negative errno. */
	int (*read)(void *context, struct hl_sleeper **ret_sleepers, size_t *ret_count);
	void *context;
};
