/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts what a test case uses: blocks that are allocated between its begin and its end, by whatever thread. They are kept in
 * a table of their own, so that blocks of before are told from them; HL_MODE_CASE sends events here while a case is open.
 * A lock makes figures of several threads exact. Nothing of it is in a forked child.
 */
#pragma once

#include "base/case_file.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hl_recorder;
struct hl_case;

/* A table with open addressing, which is full at three quarters. Zero-initialize. */
struct hl_case_table {
	void *slots;
	uint32_t bits; /* 2^bits slots, where there are any */
	uint32_t used;
};

struct hl_cases {
	_Atomic uint32_t lock;
	bool is_open, is_ending;
	bool opens; /* the recorder was closed before, and is to be so again */
	bool rises; /* nothing was freed since the peak */
	uint32_t number;
	uint32_t marks;		     /* peaks so far that something was freed after */
	struct hl_case_table blocks; /* in use, by address */
	struct hl_case_table stacks; /* places in counts[], + 1, by node */
	struct hl_case_count *counts;
	uint32_t count, capacity;
	char *window; /* of the file; NULL: none so far */
	uint64_t window_start, window_used;
	uint64_t inuse_bytes, peak_bytes, allocations, allocated_bytes, kept_blocks, lost;
	uint32_t name_bytes;
	char name[1024];
};

/* Where the files of this process and its forked children are; NULL: nowhere. */
void hl_cases_set_directory(const char *path);

/* An event of a block of ${node} while HL_MODE_CASE is set. Inside hl_thread_enter(). */
void hl_cases_alloc(struct hl_recorder *recorder, const void *block, uint32_t node, uint64_t bytes);
void hl_cases_free(struct hl_recorder *recorder, const void *block, uint32_t node);
