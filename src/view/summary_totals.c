/* SPDX-License-Identifier: BSD-2-Clause */
/* Totals in words, and what several processes need beside them; see summary_totals.h. */
#include "view/summary_totals.h"

#include "profile/trace_kind.h"
#include "view/format.h"
#include "view/summary.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- several processes ---- */

/* Whether the peak is a sum of figures that were not reached at one moment. */
static bool sums_peaks(const struct hl_profile *profile)
{
	return profile->process_count > 1 && !profile->moment;
}

static const struct hl_profile_process *highest_process(const struct hl_profile *profile)
{
	const struct hl_profile_process *highest = &profile->processes[0];

	for (size_t i = 1; i < profile->process_count; i++)
		if (profile->processes[i].total.peak_bytes > highest->total.peak_bytes)
			highest = &profile->processes[i];
	return highest;
}

/* What programs had in use when exec took their memory away; all 0 when there was none. */
static struct hl_profile_counters replaced_total(const struct hl_profile *profile)
{
	struct hl_profile_counters sum = {0};

	for (size_t i = 0; !profile->moment && i < profile->process_count; i++)
		if (hl_profile_was_replaced(profile, &profile->processes[i]))
			hl_profile_counters_add(&sum, &profile->processes[i].total);
	return sum;
}

void hl_summary_process_members(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_profile_counters replaced = replaced_total(profile);

	if (sums_peaks(profile)) {
		const struct hl_profile_process *highest = highest_process(profile);
		hl_emit_integer(emit, "highest_peak_bytes", highest->total.peak_bytes);
		hl_emit_integer(emit, "highest_peak_pid", highest->pid);
	}
	if (hl_profile_counters_any(&replaced)) {
		hl_emit_integer(emit, "replaced_inuse_bytes",
				hl_profile_figure(&replaced, HL_VALUE_INUSE, HL_UNIT_BYTES));
		hl_emit_integer(emit, "replaced_inuse_objects",
				hl_profile_figure(&replaced, HL_VALUE_INUSE, HL_UNIT_OBJECTS));
	}
}

/* ---- text ---- */

/* ${has_noun}: whether the number of blocks says that it is one. */
static const char *figures_text(const struct hl_profile *profile,
				const struct hl_profile_counters *total, enum hl_value value,
				bool has_noun, char buffer[HL_SUMMARY_FIGURES_MAX])
{
	int64_t blocks = hl_profile_figure(total, value, HL_UNIT_OBJECTS);
	bool bytes = hl_profile_knows(profile, value, HL_UNIT_BYTES);
	bool objects = hl_profile_knows(profile, value, HL_UNIT_OBJECTS);
	char size[HL_FORMAT_MAX] = "", count[HL_FORMAT_MAX] = "";

	if (bytes)
		hl_format_bytes(hl_profile_figure(total, value, HL_UNIT_BYTES), size);
	if (objects)
		hl_format_count(blocks, count);
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	snprintf(buffer, HL_SUMMARY_FIGURES_MAX, "%s%s%s%s%s%s", size,
		 bytes && objects ? " in " : "", count, objects && has_noun ? " " : "",
		 objects && has_noun ? kind ? kind->noun : "block" : "",
		 objects && has_noun ? hl_format_plural((uint64_t)blocks) : "");
	return buffer;
}

const char *hl_summary_figures(const struct hl_profile *profile,
			       const struct hl_profile_counters *total, enum hl_value value,
			       char buffer[HL_SUMMARY_FIGURES_MAX])
{
	return figures_text(profile, total, value, true, buffer);
}

bool hl_summary_knows(const struct hl_profile *profile, enum hl_value value)
{
	return hl_profile_knows(profile, value, HL_UNIT_BYTES) ||
	       hl_profile_knows(profile, value, HL_UNIT_OBJECTS);
}

const char *hl_summary_caveat(const struct hl_profile *profile, enum hl_value value,
			      char buffer[HL_SUMMARY_CAVEAT_MAX])
{
	struct hl_profile_counters replaced = replaced_total(profile);
	int64_t inuse = hl_profile_figure(&replaced, HL_VALUE_INUSE, HL_UNIT_BYTES);
	char bytes[HL_FORMAT_MAX];

	buffer[0] = '\0';
	if (profile->filter) /* processes have no figures without the stacks that it left out */
		return buffer;
	if (value == HL_VALUE_PEAK && sums_peaks(profile)) {
		const struct hl_profile_process *highest = highest_process(profile);
		snprintf(buffer, HL_SUMMARY_CAVEAT_MAX, ", the highest %s (pid %u)",
			 hl_format_bytes(highest->total.peak_bytes, bytes), highest->pid);
	} else if (value == HL_VALUE_INUSE && inuse) {
		snprintf(buffer, HL_SUMMARY_CAVEAT_MAX,
			 ", of which %s went when a program was replaced by exec",
			 hl_format_bytes(inuse, bytes));
	}
	return buffer;
}

/* The totals, in room for all that is said of them. */
struct line {
	char text[8 * HL_SUMMARY_FIGURES_MAX];
	size_t used;
};

static HL_PRINTF(2, 3) void put(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int length =
		vsnprintf(line->text + line->used, sizeof(line->text) - line->used, format, args);
	va_end(args);
	if (length > 0 && (size_t)length < sizeof(line->text) - line->used)
		line->used += (size_t)length;
}

static void put_part(struct line *line, const struct hl_profile *profile,
		     const struct hl_profile_counters *total, enum hl_value value, bool is_first)
{
	bool is_own = total == &profile->total; /* and not what it is compared with */
	char figures[HL_SUMMARY_FIGURES_MAX], caveat[HL_SUMMARY_CAVEAT_MAX] = "";

	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);

	put(line, "%s", is_first ? "" : "; ");
	if (value == HL_VALUE_PEAK && is_own && sums_peaks(profile))
		put(line, "sum of the peaks of %zu processes", profile->process_count);
	else if (value == HL_VALUE_PEAK)
		put(line, "peak");
	else if (kind)
		put(line, "%s", kind->word);
	else if (value == HL_VALUE_INUSE)
		put(line, profile->moment || !profile->complete || profile->imported
				  ? "in use"
				  : "in use at the end");
	else
		put(line, "allocated");
	put(line, " %s%s", figures_text(profile, total, value, is_first, figures),
	    is_own ? hl_summary_caveat(profile, value, caveat) : "");
}

static void put_totals(struct line *line, const struct hl_profile *profile,
		       const struct hl_profile_counters *total)
{
	static const enum hl_value values[] = {HL_VALUE_PEAK, HL_VALUE_INUSE, HL_VALUE_ALLOC};
	bool is_first = true;
	char count[HL_FORMAT_MAX];

	for (size_t i = 0; i < HL_COUNT_OF(values); i++) {
		if (!hl_summary_knows(profile, values[i]))
			continue;
		put_part(line, profile, total, values[i], is_first);
		is_first = false;
	}
	if (!hl_summary_knows(profile, HL_VALUE_TEMPORARY))
		return;
	hl_format_count(total->temporary_objects, count);
	if (is_first)
		put(line, "%s temporary block%s", count,
		    hl_format_plural((uint64_t)total->temporary_objects));
	else
		put(line, ", %s of them temporary", count);
}

void hl_summary_totals_line(struct hl_emit *emit, const struct hl_profile *profile,
			    const char *begin, const struct hl_profile_counters *total)
{
	struct line line = {0};

	put_totals(&line, profile, total);
	if (line.used)
		hl_emit_line(emit, "%s%s", begin, line.text);
}
