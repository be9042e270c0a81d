/* SPDX-License-Identifier: BSD-2-Clause */
/* What a seccomp filter says of a system call that has not been made yet. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

struct hl_seccomp_call {
	const char *name;
	int number;
	uint64_t args[6]; /* as they will be, as far as filters look at them */
};

/* Runs a filter for one call, as the kernel does. 0 with what the filter returned, SECCOMP_RET_*; or
 * -EINVAL when it makes no sense. */
int hl_seccomp_run(const struct sock_filter *filter, size_t count, const struct seccomp_data *call,
		   uint32_t *ret_action);

/* The first of ${calls} that ${filter} does not let through unchanged, or NULL. */
const struct hl_seccomp_call *hl_seccomp_find_forbidden(const struct sock_filter *filter,
							size_t filter_count,
							const struct hl_seccomp_call *calls,
							size_t count);
