/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits on test cases, `heapline check --per-test`. A case is what a process noted between hl_case_begin() and hl_case_end()
 * (base/case_file.h); or, where nobody noted any, a process that the command started, with all that it started.
 */
#pragma once

#include "view/check.h"

/* A test as its runner knows it. */
struct hl_check_test {
	char *name;
	char **command; /* NULL-terminated */
};

struct hl_check_cases_settings {
	const struct hl_check_limit
		*limits; /* HL_CHECK_PEAK, _INUSE, _ALLOCS and _PER_STACK, without a focus */
	size_t limit_count;
	const char *path;	   /* of the recording */
	const char *directory;	   /* of files of cases */
	bool has_processes;	   /* where no case is noted, each process is one */
	const char *baseline_path; /* a report as JSON; NULL: none */
	double allow_percent;
	const struct hl_check_test *tests; /* names of processes by their commands */
	size_t test_count;
};

struct hl_check_case {
	char *name;
	uint32_t pid;
	bool is_process; /* else noted by the program */
	bool is_dropped; /* not in the end */
	bool is_open;	 /* it had not ended when its process did: figures are not known */
	uint64_t peak_bytes, allocations, allocated_bytes, kept_blocks, kept_bytes;
	uint64_t lost;			   /* events that could not be counted */
	struct hl_check_verdict *verdicts; /* limits that were crossed */
	size_t verdict_count;
	uint64_t time_ns; /* of its begin */
	size_t part;	  /* see check_cases.c */
};

struct hl_check_cases {
	struct hl_check_case *cases; /* in the order in which they began */
	size_t count, capacity;
	size_t crossed, open, unknown; /* cases; unknown: not in the baseline */
	size_t inexact;	      /* cases that the program noted, and of which events were lost */
	char *refused;	      /* the sentence about a process that could not note its cases; NULL */
	size_t refused_count; /* of such processes */
	char **not_run;	      /* names of cases that the baseline has alone */
	size_t not_run_count;
	bool has_baseline;
	bool was_named; /* by the program */
};

/* Reads and judges cases. Free them with hl_check_cases_free(). 0 or a negative errno with a sentence: -ENODATA where there is no
 * case. */
int hl_check_cases_run(const struct hl_check_cases_settings *settings,
		       struct hl_check_cases **ret_cases, struct hl_error *err);
/* Whether ${path} can be the baseline, before a long run. 0 or a negative errno with a sentence. */
int hl_check_cases_try_baseline(const char *path, struct hl_error *err);
void hl_check_cases_free(struct hl_check_cases *cases); /* NULL is fine */

/* Same contracts as hl_check_view() and those beside it. The JSON is what a baseline is. */
int hl_check_cases_view(const struct hl_check_cases *cases, const struct hl_emit_options *options);
void hl_check_cases_write_junit(const struct hl_check_cases *cases, FILE *out);
void hl_check_cases_write_markdown(const struct hl_check_cases *cases, FILE *out);

/* "2 of 1,000 test cases crossed a limit". Returns ${text}. */
#define HL_CHECK_CASES_VERDICT_MAX 200
const char *hl_check_cases_verdict(const struct hl_check_cases *cases,
				   char text[HL_CHECK_CASES_VERDICT_MAX]);

/* The sentence about cases that the baseline has alone, "" where there are none. Returns ${text}. */
#define HL_CHECK_CASES_NOT_RUN_MAX 512
const char *hl_check_cases_not_run(const struct hl_check_cases *cases,
				   char text[HL_CHECK_CASES_NOT_RUN_MAX]);

/* The cases for people, those that crossed a limit or did not end first, then by peak: places in cases[], to be freed. NULL
 * for want of memory. */
size_t *hl_check_cases_order(const struct hl_check_cases *cases);
