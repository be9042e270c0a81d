/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs verbs of heapline for requests, each in a process of its own: what a damaged recording or a
 * heap of gigabytes costs ends with it.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define HL_RUN_SECONDS_MAX 60
#define HL_RUN_BYTES_MAX   (UINT64_C(256) << 20) /* of output */
#define HL_RUN_AT_ONCE	   4

/*
 * Runs ${verb}, with ${arguments} after it (NULL-terminated), and returns a descriptor of what it
 * wrote, ${ret_bytes} long, which the caller closes. A negative errno with a sentence: -EBUSY (too
 * many are running), -ETIMEDOUT, -EINVAL (a usage error), -EIO (it failed; the sentence is its own).
 * Thread-safe; waits up to ten seconds for others that run.
 */
int hl_run_verb(const char *verb, char *const *arguments, uint64_t *ret_bytes,
		struct hl_error *err);
