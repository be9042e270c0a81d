/* SPDX-License-Identifier: BSD-2-Clause */
/* Long texts on a terminal go through a pager, as git does it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct hl_pager {
	pid_t pid; /* 0: there is none */
	FILE *out; /* the pager, or standard output */
	int input; /* what the pager reads; the minder's */
	bool minded;
	pthread_t minder; /* waits for the pager, so that nothing is lost when it cannot run */
};

/*
 * Starts $HEAPLINE_PAGER, else $PAGER, else less, if standard output is a terminal that can do more
 * than a "dumb" one. A blank variable or "cat" is no pager. What a pager that fails leaves unread
 * is written to standard output. Cannot fail: out is always good. ${pager} must not move until its
 * release.
 */
void hl_pager_init(struct hl_pager *pager);

/* Waits until the reader has seen enough. The output is closed. */
void hl_pager_release(struct hl_pager *pager);
