/* SPDX-License-Identifier: BSD-2-Clause */
/* What stands at the head of every report: whose profile it is, its totals, and what is missing or doubtful. */
#pragma once

#include "base/compiler.h"
#include "open/history.h"
#include "profile/calltree.h"
#include "profile/profile.h"
#include "view/emit.h"
#include "view/view.h"

/* ---- notices ---- */

/*
 * What is missing or doubtful in a profile or a log, a sentence each. Reports have them in their
 * head; pictures and files have them among their own texts or beside themselves.
 *
 *	struct hl_notices notices = {0};
 *	hl_notices_of_profile(&notices, profile);
 *	hl_notices_emit(&notices, emit);
 */

struct hl_notice {
	char *text;
	bool is_warning; /* must not be overlooked */
};

/* Zero-initialized ones are empty. */
struct hl_notices {
	struct hl_notice *notices;
	size_t count, capacity;
	int error; /* -ENOMEM when one of them found no room */
};

/* Adds a sentence: a warning, or what is merely worth knowing. */
void hl_notices_warn(struct hl_notices *notices, const char *format, ...) HL_PRINTF(2, 3);
void hl_notices_add(struct hl_notices *notices, const char *format, ...) HL_PRINTF(2, 3);

/*
 * Adds all that is missing or doubtful in ${profile}; that it began in the middle comes first. What
 * JSON must have as well is a warning of the profile: hl_profile_warn().
 */
void hl_notices_of_profile(struct hl_notices *notices, const struct hl_profile *profile);

/* Adds how many events a log lacks; nothing when it has all. */
void hl_notices_of_log_loss(struct hl_notices *notices, const struct hl_profile *profile);

/* Adds which modules have no line numbers or no names; nothing when all have. */
void hl_notices_of_names(struct hl_notices *notices, const struct hl_profile *profile);

#define HL_NOTICES_REASON_MAX 384

/* Why no frame of ${profile} is of a script, and what helps: a clause. Returns ${text}. */
const char *hl_notices_no_scripts(const struct hl_profile *profile,
				  char text[HL_NOTICES_REASON_MAX]);

/* Writes them as lines of ${emit}, which keeps the error of a lack of memory, and releases them. */
void hl_notices_emit(struct hl_notices *notices, struct hl_emit *emit);

/* The same as a text of its own on ${out}. 0 or -ENOMEM. */
int hl_notices_put(struct hl_notices *notices, FILE *out);

void hl_notices_release(struct hl_notices *notices);

/* ---- the head of views of a log, what is missing in it, and the note at the end ---- */

/* Begins the report of ${schema}, such as "peaks/1": its members, and the lines of its head. 0 or
 * -ENOMEM. */
int hl_history_head_begin(const struct hl_history *history, const struct hl_view_options *options,
			  const char *schema, struct hl_emit **ret_emit);

/* The code and sentence for a report that could not be written. */
int hl_history_head_fail(const struct hl_history *history, int code, struct hl_error *err);

/* JSON members recording, total, lost, log and marks. */
void hl_history_head_members(struct hl_emit *emit, const struct hl_history *history);

/* The lines of what is missing alone, on options->notes, for output that has no place for them. */
int hl_history_head_note(const struct hl_history *history, const struct hl_view_options *options);

/* Adds what is missing in the log, lost events aside. */
void hl_history_head_notices(struct hl_notices *notices, const struct hl_history *history);

/* Adds how many files of another recording (${foreign}, the first of them ${foreign_name}) and how
 * many older files of this one (${ignored}) are not used; ${noun} says what one of the latter is.
 * Nothing where there are none. */
void hl_history_head_unused(struct hl_notices *notices, uint32_t foreign, const char *foreign_name,
			    uint32_t ignored, const char *noun);

/* "1.5 MiB at 300 ms": the highest maximum of the range, or its first one. */
const struct hl_log_point *hl_history_head_peak(const struct hl_history *history);

static inline uint64_t hl_history_head_ms(const struct hl_log_point *point)
{
	return point->number * HL_INTERVAL_TICKS;
}

/* ---- summary ---- */

/* What stands at the head of every report: whose profile it is, its totals, and what is missing. */

/*
 * Begins the report of ${schema}, "top/1", about ${profile}, and how figures are shown in it: its
 * members, and the lines of its head. 0 or -ENOMEM.
 */
int hl_summary_begin(const struct hl_profile *profile, const struct hl_view_options *options,
		     const char *schema, struct hl_emit **ret_emit);

/* The same for a view whose text is plain lines, without a head. */
int hl_summary_begin_lines(const struct hl_profile *profile, const struct hl_view_options *options,
			   const char *schema, struct hl_emit **ret_emit);

/* Ends it, as hl_emit_finish() does, after the lines on names. */
int hl_summary_end(struct hl_emit *emit, const struct hl_profile *profile);

/*
 * JSON members recording, total, lost; base, when two profiles are compared; filter and
 * unfiltered_total, when there was one; and value and unit, unless ${options} is NULL. Totals have
 * the figures that the profile knows.
 */
void hl_summary_members(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options);

/* JSON members host, kernel, tool_version: where and with what ${profile} was recorded. */
void hl_summary_origin(struct hl_emit *emit, const struct hl_profile *profile);

/* A JSON array ${key} of the figures that are known: "inuse_bytes", ... */
void hl_summary_figure_names(struct hl_emit *emit, const char *key,
			     const struct hl_profile *profile);

/* Where the names of ${module} come from, unless no stack passes through it. */
const char *hl_summary_symbols(const struct hl_profile *profile,
			       const struct hl_profile_module *module);

#define HL_SUMMARY_FIGURE_MAX 96 /* room for either of the texts below */

/* What ${figure} is of, "rss growth", and its ${value}: "1,234 pages". */
void hl_summary_figure(const struct hl_profile *profile, const struct hl_profile_figure *figure,
		       char words[HL_SUMMARY_FIGURE_MAX], char value[HL_SUMMARY_FIGURE_MAX]);

/* Lines for people: target and totals; with hl_summary_lines() what is missing, too. */
void hl_summary_facts(struct hl_emit *emit, const struct hl_profile *profile);
void hl_summary_lines(struct hl_emit *emit, const struct hl_profile *profile);

/* Adds which of several processes this is, where only one can be shown, and what is missing. */
void hl_summary_notices(struct hl_notices *notices, const struct hl_profile *profile);

/* Writes them to options->notes, for views whose own text has no place for them. */
int hl_summary_note(const struct hl_profile *profile, const struct hl_view_options *options);

/* One line, behind ${begin}, of the ${total} of ${profile} or of what it is compared with. */
void hl_summary_totals_line(struct hl_emit *emit, const struct hl_profile *profile,
			    const char *begin, const struct hl_profile_counters *total);

/* The line that says why figures can be less than nothing. */
void hl_summary_negative_line(struct hl_emit *emit, const struct hl_profile *profile);

/* The line that says which value is shown, and how to see another. */
void hl_summary_value_line(struct hl_emit *emit, const struct hl_profile *profile,
			   const struct hl_view_options *options);

/* The lines of hl_notices_of_names(). */
void hl_summary_names(struct hl_emit *emit, const struct hl_profile *profile);

#define HL_SUMMARY_FIGURES_MAX 80 /* room for the text below */

/* "1.5 MiB in 3 blocks", or as much of ${figures} as ${profile} knows of ${value}. */
const char *hl_summary_figures(const struct hl_profile *profile,
			       struct hl_aggregate_figures figures, enum hl_value value,
			       char buffer[HL_SUMMARY_FIGURES_MAX]);

#define HL_SUMMARY_CAVEAT_MAX 96 /* room for the text below */

/* What must be said beside the total of ${value} where it sums up several processes, or "". */
const char *hl_summary_caveat(const struct hl_profile *profile, enum hl_value value,
			      char buffer[HL_SUMMARY_CAVEAT_MAX]);

/* How many stacks have any figures, in either profile if two are compared. */
size_t hl_summary_stack_count(const struct hl_profile *profile);

/* Whether there is nothing to show: no figure but zero, of either profile if two are compared. */
bool hl_summary_is_empty(const struct hl_profile *profile);

/* The code and sentence for a report that could not be written. */
int hl_summary_fail(const struct hl_profile *profile, int code, struct hl_error *err);
