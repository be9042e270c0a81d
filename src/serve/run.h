/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs verbs of heapline for requests, each in a process of its own: what a damaged recording or a
 * heap of gigabytes costs ends with it.
 */
#pragma once

#include "base/error.h"
#include "base/user.h"

#include <stddef.h>
#include <stdint.h>

#define HL_RUN_SECONDS_MAX 60
#define HL_RUN_BYTES_MAX   (UINT64_C(256) << 20) /* of output */
#define HL_RUN_AT_ONCE	   4

/* What is run, and for whom. */
struct hl_run {
	const char *verb;
	char *const *arguments;	    /* after the verb; NULL-terminated */
	const struct hl_user *user; /* as whom it reads; NULL: as this process */
	int stop_fd,
		client_fd; /* it ends when the first can be read, and when the second was hung up; -1: none */
};

/*
 * Runs a verb and returns a descriptor of what it wrote, ${ret_bytes} long, which the caller closes. A negative errno with
 * a sentence: -EBUSY (too many are running), -ETIMEDOUT, -ECANCELED (nobody wants it any more), -EINVAL (a usage
 * error), -EIO (it failed; the sentence is its own). Thread-safe; waits up to ten seconds for others that run.
 */
int hl_run_verb(const struct hl_run *run, uint64_t *ret_bytes, struct hl_error *err);

/*
 * Waits until ${fd} can be read (-1: for nothing but what follows) or ${deadline_ns} of CLOCK_MONOTONIC. 0; -ETIMEDOUT, -ECANCELED, or
 * another negative errno.
 */
int hl_run_wait(const struct hl_run *run, int fd, uint64_t deadline_ns);
