/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of test cases: where recorders write what each case used, and `heapline check --per-test` reads it. Each process has a file
 * of its own, and maps one window of it after another, so that a record costs no system call and outlives the process. A record's
 * magic is written last; where there is none, the window has no more. A case without a record of its end ended with its process.
 * Numbers are the machine's own: the files live no longer than the command.
 *
 *	case	what happens in one process between hl_case_begin() and hl_case_end(), on all of its threads
 *	kept	of the blocks that were allocated in the case: those that were still in use at its end
 */
#pragma once

#include <stdint.h>

#define HL_ENV_CASES "HEAPLINE_CASES" /* the absolute path of their directory */

/* In a warning of the recording: a process began cases that it could not write down. */
#define HL_CASES_REFUSED "could not note its test cases"

#define HL_CASE_MAGIC	   UINT64_C(0x3130455341434c48) /* "HLCASE01" */
#define HL_CASE_STACKS_MAX 48u
#define HL_CASE_WINDOW	   (UINT32_C(256) << 10)

enum hl_case_record_kind {
	HL_CASE_BEGINS = 1,
	HL_CASE_ENDS,
	HL_CASE_DROPPED, /* it ended, and its figures mean nothing */
};

/* Followed by its stacks, and its name, with zeros up to a multiple of 8 bytes. */
struct hl_case_record {
	uint64_t magic;
	uint32_t bytes; /* of all */
	uint32_t kind;
	uint64_t process_start_ns; /* CLOCK_REALTIME, when its recorder began */
	uint32_t pid;		   /* as the process sees itself */
	uint32_t number;	   /* of the case in its process, from 1 */
	uint64_t time_ns;	   /* CLOCK_MONOTONIC */
	uint64_t allocations, allocated_bytes;
	uint64_t peak_bytes; /* of blocks allocated in the case, in use at once */
	uint64_t kept_blocks, kept_bytes;
	uint64_t lost; /* events that could not be counted */
	uint32_t stack_count;
	uint32_t name_bytes;
};

/* The stacks with most allocations, most at the peak, and most that was kept; none twice. */
struct hl_case_stack {
	uint32_t node; /* of the process */
	uint32_t reserved;
	uint64_t allocations, allocated_bytes;
	uint64_t peak_bytes; /* when the case had most */
	uint64_t kept_blocks, kept_bytes;
};
