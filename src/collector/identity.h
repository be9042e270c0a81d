/* SPDX-License-Identifier: BSD-2-Clause */
/* Who a process is, from /proc. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_identity {
	uint32_t parent_pid;
	char *executable; /* "" when unknown */
	char **command;	  /* NULL-terminated */
};

/* What cannot be read is left empty. 0 or -ENOMEM. */
int hl_identity_read(pid_t pid, struct hl_identity *ret_identity);

void hl_identity_release(struct hl_identity *identity);
