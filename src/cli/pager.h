/* SPDX-License-Identifier: BSD-2-Clause */
/* Long texts on a terminal go through a pager, as git does it. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

struct hl_pager {
	pid_t pid; /* 0: there is none */
	FILE *out; /* the pager, or standard output */
};

/*
 * Starts $HEAPLINE_PAGER, else $PAGER, else less, if standard output is a terminal. An empty
 * variable or "cat" is no pager; nor is one that cannot be started. Cannot fail: out is always
 * good.
 */
void hl_pager_init(struct hl_pager *pager);

/* Waits until the reader has seen enough. The output is closed. */
void hl_pager_release(struct hl_pager *pager);
