/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs whose memory grew though they hardly called malloc: their runtime maps memory for itself. What is recorded or
 * traced of one is empty, or nearly so, and says what would show that memory.
 */
#pragma once

#include "collector/warnings.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_outside_malloc {
	pid_t pid;
	const char *executable;
	bool runs;		  /* has not ended */
	bool ran_before;	  /* when it was looked at first */
	bool is_traced;		  /* from outside, where objects of interpreters are not seen */
	uint64_t allocations;	  /* that were seen */
	int64_t malloc_bytes;	  /* the most in use of these */
	int64_t alloc_bytes;	  /* of all of these: malloc may keep what was freed */
	int64_t rss_growth_bytes; /* meanwhile, of anonymous memory */
};

/* Writes the sentence. False where malloc explains the growth, or there is hardly any. */
bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES]);
