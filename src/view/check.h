/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits on what a recorded program used, and what became of them. Figures that are counts of the
 * program itself are the same in each run that does the same.
 */
#pragma once

#include "base/error.h"
#include "profile/profile.h"
#include "view/emit.h"
#include "view/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum hl_check_kind {
	HL_CHECK_PEAK,	    /* bytes in use at the peak */
	HL_CHECK_INUSE,	    /* bytes in use at the end */
	HL_CHECK_ALLOCS,    /* allocations in all */
	HL_CHECK_PER_STACK, /* bytes in use at the end that one stack has allocated */
	HL_CHECK_GROWTH,    /* bytes per minute of steady growth; needs a log */
	HL_CHECK_RSS,	    /* bytes resident at most; needs a log */
	HL_CHECK_LOST, /* bytes that nothing leads to; of a recording by 'heapline leaks', or by 'record --leaks' */
	HL_CHECK_COUNT,
};

/* By kind, as options and files call them. */
extern const char *const hl_check_names[HL_CHECK_COUNT];

static inline bool hl_check_needs_log(enum hl_check_kind kind)
{
	return kind == HL_CHECK_GROWTH || kind == HL_CHECK_RSS;
}

struct hl_check_limit {
	enum hl_check_kind kind;
	const char *title; /* what a file calls the limits it belongs to; NULL */
	const char *focus; /* only stacks with a frame that this expression matches; NULL: all */
	uint64_t most;
	bool is_of_baseline; /* ${most} is not yet known: it is what the baseline has, and more */
};

struct hl_check_verdict {
	struct hl_check_limit limit;
	uint64_t figure;
	bool is_crossed;
	/* The stack that has most of the figure, beside a baseline that grew most: one line, and its
	 * own share; NULL where there is none. */
	char *blame;
	int64_t blame_figure;
};

/* See hl_check_leave_out(). */
#define HL_CHECK_LEFT_OUT_MAX 16 /* a name for each kind, and the end */
struct hl_check_left_out {
	const char *what; /* "Node.js' start"; NULL: none */
	uint64_t bytes;
};

struct hl_check {
	struct hl_check_verdict *verdicts;
	size_t count, crossed;
	struct hl_profile *profile; /* the recording, all of it but ${left_out} */
	struct hl_check_left_out
		left_out[HL_CHECK_LEFT_OUT_MAX]; /* the first without a name ends them */
	bool is_kept;				 /* it can be looked at afterwards */
	/* Which has a flaw, it (or its log) or the baseline, so that figures may be too small: the
	 * path, as long as hl_check_settings and the profile live; NULL: none has. */
	const char *flawed;
	const char *flaw;		 /* HL_CHECK_DAMAGED or "was interrupted" */
	bool is_damaged, is_interrupted; /* one of these is */
};

struct hl_check_settings {
	const struct hl_check_limit *limits;
	size_t limit_count;
	const char *path;     /* of the recording */
	bool is_kept;	      /* it stays there */
	const char *baseline; /* of an earlier one; NULL where no limit is of it */
	double allow_percent; /* by which a figure may exceed the baseline's */
};

/* Checks a recording. Free it with hl_check_free(). 0 or a negative errno with a sentence. */
int hl_check_run(const struct hl_check_settings *settings, struct hl_check **ret_check,
		 struct hl_error *err);
void hl_check_free(struct hl_check *check);

/*
 * Counts as freed what runtimes allocate for themselves and keep to the end: the emergency pool of libstdc++, what the
 * start of an interpreter allocates before any script runs, and what a runtime allocates without a program's code. Adds to
 * ${left_out} what was in use by that.
 * ${profile} has not been filtered yet.
 */
void hl_check_leave_out(struct hl_profile *profile,
			struct hl_check_left_out left_out[HL_CHECK_LEFT_OUT_MAX]);

/* "1.5 MiB", "1,234", "2.0 KiB/min". Returns ${buffer}. */
#define HL_CHECK_FORMAT_MAX (HL_FORMAT_MAX + 8)
const char *hl_check_format(enum hl_check_kind kind, uint64_t number,
			    char buffer[HL_CHECK_FORMAT_MAX]);

/* The figure and what it may be at most: exactly, where they differ by less than the rounding. */
void hl_check_format_both(const struct hl_check_verdict *verdict, char figure[HL_CHECK_FORMAT_MAX],
			  char most[HL_CHECK_FORMAT_MAX]);

/* "peak", "allocs of the baseline (parser)". */
void hl_check_put_name(FILE *out, const struct hl_check_limit *limit);

/* The verdicts as a table or JSON. 0 or a negative errno. */
int hl_check_view(const struct hl_check *check, const struct hl_emit_options *options);

/* The same for a server that shows results of tests, and for a pull request. The caller checks
 * ${out} for errors. */
void hl_check_write_junit(const struct hl_check *check, FILE *out);
void hl_check_write_markdown(const struct hl_check *check, FILE *out);
