/* SPDX-License-Identifier: BSD-2-Clause */
/* The head of every report; see summary.h. */
#include "view/summary.h"

#include "base/names.h"
#include "guests/traits.h"
#include "profile/profile.h"
#include "recording/recording.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COMMAND_MAX 1024 /* bytes of a command that is cut off */
#define COMMAND_MIN 20	 /* columns for it, however narrow the terminal is */
#define NS_PER_MS   1000000u
#define MODES_MAX   96 /* bytes of the names of all modes */

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

/* ---- JSON ---- */

static void recording_member(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_profile_counters replaced = replaced_total(profile);
	char start[HL_FORMAT_MAX];

	hl_emit_about(emit, hl_profile_text(profile, profile->name),
		      profile->process_count ? profile->processes[0].pid : 0);
	hl_emit_object(emit, "recording");
	hl_emit_text(emit, "name", hl_profile_text(profile, profile->name));
	hl_emit_text(emit, "source", hl_profile_text(profile, profile->source));
	hl_emit_text(emit, "command", hl_profile_text(profile, profile->command));
	hl_emit_integer(emit, "pid", profile->process_count ? profile->processes[0].pid : 0);
	hl_emit_text(emit, "start",
		     profile->start_realtime_ns ? hl_format_time(profile->start_realtime_ns, start)
						: "");
	hl_emit_text(emit, "mode", hl_profile_text(profile, profile->mode));
	hl_emit_integer(emit, "sample_bytes", profile->sample_bytes);
	hl_emit_integer(emit, "duration_ms", (int64_t)(profile->duration_ns / NS_PER_MS));
	hl_emit_integer(emit, "processes", profile->process_count);
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
	hl_emit_boolean(emit, "complete", profile->complete);
	if (profile->snapshot)
		hl_emit_boolean(emit, "snapshot", true);
	if (profile->attached)
		hl_emit_boolean(emit, "attached", true);
	if (profile->reset_ns)
		hl_emit_integer(emit, "reset_ms", (int64_t)(profile->reset_ns / NS_PER_MS));
	if (profile->running)
		hl_emit_boolean(emit, "running", true);
	hl_emit_array(emit, "warnings");
	for (size_t i = 0; i < profile->warning_count; i++)
		hl_emit_text(emit, NULL, hl_profile_text(profile, profile->warnings[i]));
	hl_emit_array_end(emit);
	hl_emit_object_end(emit);
}

static void value_member(struct hl_emit *emit, const char *value, const char *unit, int64_t figure)
{
	char name[HL_FORMAT_MAX];

	snprintf(name, sizeof(name), "%s_%s", value, unit);
	hl_emit_integer(emit, name, figure);
}

/* Of ${total}, what ${profile} knows. */
static void total_member(struct hl_emit *emit, const char *key, const struct hl_profile *profile,
			 const struct hl_profile_counters *total)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	bool has_pages = kind && hl_trace_kind_counts_pages(kind);

	hl_emit_object(emit, key);
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
			int64_t figure =
				hl_profile_figure(total, (enum hl_value)value, (enum hl_unit)unit);
			if (!profile->known[value][unit])
				continue;
			value_member(emit, hl_value_names[value], hl_unit_names[unit], figure);
			if (unit == HL_UNIT_OBJECTS && value == HL_VALUE_INUSE)
				value_member(emit, hl_value_names[value], "blocks", figure);
		}
	if (total == &profile->total && profile->requests)
		hl_emit_unsigned(emit, "requests", profile->requests);
	if (has_pages)
		hl_emit_integer(emit, "pages",
				hl_profile_figure(total, HL_VALUE_INUSE, HL_UNIT_OBJECTS));
	/* What a trace says of the whole process. */
	for (size_t i = 0; total == &profile->total && i < profile->figure_count; i++) {
		const char *name = hl_profile_text(profile, profile->figures[i].name);
		if (!has_pages || strcmp(name, "pages") != 0)
			hl_emit_integer(emit, name, profile->figures[i].value);
	}
	hl_emit_object_end(emit);
}

void hl_summary_members(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	struct hl_lost lost = profile->lost;

	lost.events += profile->lost_log_events;
	recording_member(emit, profile);
	if (profile->moment)
		hl_emit_integer(emit, "at_ms", profile->moment_ms);
	if (profile->base) {
		hl_emit_object(emit, "base");
		hl_emit_text(emit, "name", hl_profile_text(profile, profile->base_name));
		if (profile->base_source)
			hl_emit_text(emit, "source",
				     hl_profile_text(profile, profile->base_source));
		if (profile->base_moment)
			hl_emit_integer(emit, "at_ms", profile->base_moment_ms);
		hl_emit_integer(emit, "duration_ms",
				(int64_t)(profile->base_duration_ns / NS_PER_MS));
		total_member(emit, "total", profile, &profile->base_total);
		hl_emit_object_end(emit);
	}
	if (options) {
		hl_emit_text(emit, "value", hl_value_names[options->value]);
		hl_emit_text(emit, "unit", hl_unit_names[options->unit]);
	}
	if (profile->filter) {
		hl_emit_text(emit, "filter", hl_profile_text(profile, profile->filter));
		total_member(emit, "unfiltered_total", profile, &profile->unfiltered_total);
	}
	if (profile->plumbing_folded)
		hl_emit_boolean(emit, "plumbing_folded", true);
	total_member(emit, "total", profile, &profile->total);
	hl_emit_object(emit, "lost");
	for (size_t i = 0; i < HL_LOST_COUNT; i++)
		if (!hl_lost_counters[i].pack_section || hl_lost_value(&lost, i))
			hl_emit_integer(emit, hl_lost_counters[i].key, hl_lost_value(&lost, i));
	if (profile->script_unmatched)
		hl_emit_integer(emit, "script_unmatched", profile->script_unmatched);
	hl_emit_integer(emit, "unrecorded_children", profile->unrecorded_children);
	hl_emit_object_end(emit);
}

void hl_summary_origin(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_emit_text(emit, "host", hl_profile_text(profile, profile->host));
	hl_emit_text(emit, "kernel", hl_profile_text(profile, profile->kernel));
	hl_emit_text(emit, "tool_version", hl_profile_text(profile, profile->tool_version));
}

void hl_summary_figure_names(struct hl_emit *emit, const char *key,
			     const struct hl_profile *profile)
{
	char name[32];

	hl_emit_array(emit, key);
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
			snprintf(name, sizeof(name), "%s_%s", hl_value_names[value],
				 hl_unit_names[unit]);
			if (hl_profile_knows(profile, (enum hl_value)value, (enum hl_unit)unit))
				hl_emit_text(emit, NULL, name);
		}
	hl_emit_array_end(emit);
}

const char *hl_summary_symbols(const struct hl_profile *profile,
			       const struct hl_profile_module *module)
{
	if (profile->imported)
		return "imported";
	if (module->script)
		return "script";
	return module->used ? hl_symbols_source_name(module->symbols) : "unused";
}

/* ---- text ---- */

void hl_summary_figure(const struct hl_profile *profile, const struct hl_profile_figure *figure,
		       char words[HL_SUMMARY_FIGURE_MAX], char value[HL_SUMMARY_FIGURE_MAX])
{
	const char *name = hl_profile_text(profile, figure->name), *unit = hl_figure_unit(name);
	bool is_unit = !strcmp(name, unit);
	size_t length = is_unit ? strlen(name) : strlen(name) - strlen(unit) - 1;
	char text[HL_FORMAT_MAX];

	snprintf(words, HL_SUMMARY_FIGURE_MAX, "%.*s", (int)length, name);
	for (char *at = words; (at = strchr(at, '_'));)
		*at = ' ';
	if (!strcmp(unit, "bytes"))
		snprintf(value, HL_SUMMARY_FIGURE_MAX, "%s", hl_format_bytes(figure->value, text));
	else
		snprintf(value, HL_SUMMARY_FIGURE_MAX, "%s%s%s",
			 hl_format_count(figure->value, text), is_unit ? "" : " ",
			 is_unit			? ""
			 : strcmp(unit, "percent") != 0 ? unit
							: "%");
}

size_t hl_summary_stack_count(const struct hl_profile *profile)
{
	size_t count = 0;

	for (size_t i = 0; i < profile->node_count; i++)
		count += hl_profile_counters_any(&profile->counters[i]) ||
			 (profile->base && hl_profile_counters_any(&profile->base[i]));
	return count;
}

/* "mem-fast then log-fast": the first mode, and those that processes were switched to. */
static const char *modes_text(const struct hl_profile *profile, char buffer[MODES_MAX])
{
	snprintf(buffer, MODES_MAX, "%s", hl_profile_text(profile, profile->mode));
	for (size_t i = 0; i < profile->mark_count; i++) {
		const char *mark = hl_profile_text(profile, profile->marks[i].name);
		if (strncmp(mark, HL_MODE_MARK, strlen(HL_MODE_MARK)) != 0)
			continue;
		const char *mode = mark + strlen(HL_MODE_MARK);
		size_t used = strlen(buffer);
		if (strcmp(mode, "closed") != 0 && !strstr(buffer, mode) &&
		    used + strlen(" then ") + strlen(mode) < MODES_MAX)
			snprintf(buffer + used, MODES_MAX - used, " then %s", mode);
	}
	return buffer;
}

/* "NAME: COMMAND (MODE, PID, END, DURATION)", the command cut off where the terminal is too narrow
 * for all of it. */
static void target_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char duration[HL_FORMAT_MAX], modes[MODES_MAX], rest[256], shortened[COMMAND_MAX];
	const char *name = hl_profile_text(profile, profile->name);
	const char *command = hl_profile_text(profile, profile->command);
	const char *mode = modes_text(profile, modes);

	if (profile->imported) {
		size_t stacks = hl_summary_stack_count(profile);
		hl_emit_line(emit, "%s: %s, %s stack%s", name,
			     hl_profile_text(profile, profile->source),
			     hl_format_count((int64_t)stacks, rest), hl_format_plural(stacks));
		return;
	}
	if (profile->process_count != 1) {
		snprintf(rest, sizeof(rest), "%s, %s", mode,
			 hl_format_duration(profile->duration_ns, duration));
	} else {
		const struct hl_profile_process *process = &profile->processes[0];
		command = hl_profile_text(profile, process->command);
		command = *command ? command : "unknown program";
		hl_format_duration(process->duration_ns, duration);
		if (process->pid)
			snprintf(rest, sizeof(rest), "%s, pid %u, %s, %s", mode, process->pid,
				 hl_profile_text(profile, process->end), duration);
		else if (hl_trace_kind_of_profile(profile)) /* of a control group */
			snprintf(rest, sizeof(rest), "%s, %s", mode, duration);
		else /* of a log without the process' own file */
			snprintf(rest, sizeof(rest), "%s%sprocess %u, %s", mode, *mode ? ", " : "",
				 process->sequence, duration);
	}
	size_t width = hl_emit_width(emit), others = strlen(name) + strlen(rest) + strlen(":  ()");
	if (width)
		command = hl_format_shortened(
			command, width > others + COMMAND_MIN ? width - others : COMMAND_MIN,
			shortened, sizeof(shortened));
	hl_emit_line(emit, "%s: %s (%s)", name, command, rest);
}

/* ---- totals ---- */

/* ${has_noun}: whether the number of blocks says that it is one. */
static const char *figures_text(const struct hl_profile *profile,
				struct hl_aggregate_figures figures, enum hl_value value,
				bool has_noun, char buffer[HL_SUMMARY_FIGURES_MAX])
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	bool bytes = hl_profile_knows(profile, value, HL_UNIT_BYTES);
	bool objects = hl_profile_knows(profile, value, HL_UNIT_OBJECTS);
	char size[HL_FORMAT_MAX] = "", count[HL_FORMAT_MAX] = "";

	if (bytes)
		hl_format_bytes(figures.bytes, size);
	if (objects)
		hl_format_count(figures.objects, count);
	has_noun = has_noun && objects;
	snprintf(buffer, HL_SUMMARY_FIGURES_MAX, "%s%s%s%s%s%s", size,
		 bytes && objects ? " in " : "", count, has_noun ? " " : "",
		 has_noun ? kind ? kind->noun : "block" : "",
		 has_noun ? hl_format_plural((uint64_t)figures.objects) : "");
	return buffer;
}

const char *hl_summary_figures(const struct hl_profile *profile,
			       struct hl_aggregate_figures figures, enum hl_value value,
			       char buffer[HL_SUMMARY_FIGURES_MAX])
{
	return figures_text(profile, figures, value, true, buffer);
}

static bool knows(const struct hl_profile *profile, enum hl_value value)
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

void hl_summary_totals_line(struct hl_emit *emit, const struct hl_profile *profile,
			    const char *begin, const struct hl_profile_counters *total)
{
	static const enum hl_value values[] = {HL_VALUE_PEAK, HL_VALUE_INUSE, HL_VALUE_ALLOC};
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	bool is_own = total == &profile->total; /* and not what it is compared with */
	bool is_at_end = profile->complete && !profile->moment && !profile->imported &&
			 (is_own || !profile->base_snapshot);
	char figures[HL_SUMMARY_FIGURES_MAX], caveat[HL_SUMMARY_CAVEAT_MAX];
	char count[HL_FORMAT_MAX];
	struct line line = {0};

	for (size_t i = 0; i < HL_COUNT_OF(values); i++) {
		enum hl_value value = values[i];
		bool is_first = !line.used;
		if (!knows(profile, value))
			continue;
		put(&line, "%s", is_first ? "" : "; ");
		if (value == HL_VALUE_PEAK && is_own && sums_peaks(profile))
			put(&line, "sum of the peaks of %zu processes", profile->process_count);
		else if (value == HL_VALUE_PEAK)
			put(&line, "peak");
		else if (kind)
			put(&line, "%s", kind->word);
		else if (value == HL_VALUE_INUSE)
			put(&line, is_at_end ? "in use at the end" : "in use");
		else
			put(&line, "allocated");
		figures_text(profile, hl_aggregate_figures_of(total, value), value, is_first,
			     figures);
		put(&line, " %s%s", figures,
		    is_own ? hl_summary_caveat(profile, value, caveat) : "");
	}
	if (knows(profile, HL_VALUE_TEMPORARY)) {
		hl_format_count(total->temporary_objects, count);
		if (line.used)
			put(&line, ", %s of them temporary", count);
		else
			put(&line, "%s temporary block%s", count,
			    hl_format_plural((uint64_t)total->temporary_objects));
	}
	if (line.used)
		hl_emit_line(emit, "%s%s", begin, line.text);
}

static void filter_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	/* The first that is known says most about what is left. */
	static const enum hl_value values[] = {HL_VALUE_PEAK, HL_VALUE_INUSE, HL_VALUE_ALLOC,
					       HL_VALUE_TEMPORARY};
	const char *filter = hl_profile_text(profile, profile->filter);
	enum hl_value value = values[0];
	char left[HL_SUMMARY_FIGURES_MAX], all[HL_SUMMARY_FIGURES_MAX], requests[64] = "";
	char count[HL_FORMAT_MAX];

	if (!profile->filter)
		return;
	if (profile->requests)
		snprintf(requests, sizeof(requests), " by %s request%s that ended",
			 hl_format_count(profile->requests, count),
			 hl_format_plural(profile->requests));
	for (size_t i = 1; i < HL_COUNT_OF(values) && !knows(profile, value); i++)
		value = values[i];
	hl_summary_figures(profile, hl_aggregate_figures_of(&profile->total, value), value, left);
	hl_summary_figures(profile, hl_aggregate_figures_of(&profile->unfiltered_total, value),
			   value, all);
	if (strcmp(left, all) != 0)
		hl_emit_line(emit, "%s: %s %s%s, of %s", filter,
			     value == HL_VALUE_INUSE ? "in use" : hl_value_names[value], left,
			     requests, all);
	else
		hl_emit_line(emit, "%s%s", filter,
			     requests); /* which hid frames, but left all stacks */
}

/* The line that says that frames of allocation plumbing were folded; none where none were. */
static void summary_plumbing_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (profile->plumbing_folded)
		hl_emit_line(emit,
			     "allocation plumbing (operator new, xmalloc, ...) is folded into "
			     "its callers; --plumbing shows it");
	if (profile->host_folded)
		hl_emit_line(emit,
			     "frames of %s that each service is run by are left out; --plumbing "
			     "shows them",
			     hl_guest_host()->language);
}

/* Only where threads were chosen: all of a process together frees no more than it allocated. */
static bool has_negative_figures(const struct hl_profile *profile)
{
	for (size_t i = 0; !profile->imported && i < profile->node_count; i++) {
		const struct hl_profile_counters *counters = &profile->counters[i];
		if (counters->alloc_bytes < counters->free_bytes ||
		    counters->alloc_objects < counters->free_objects || counters->peak_bytes < 0 ||
		    counters->peak_objects < 0)
			return true;
	}
	return false;
}

void hl_summary_negative_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);

	hl_emit_line(emit, "%s",
		     kind && kind->negative  ? kind->negative
		     : profile->sample_bytes ? "negative: estimates of what has been freed again"
					     : "negative figures: a thread freed blocks that "
					       "others had allocated");
}

/* A log is one process'; of several, somebody may have meant another one. */
static void add_process(struct hl_notices *notices, const struct hl_profile *profile)
{
	if (profile->recorded_process_number && profile->recorded_process_count > 1)
		hl_notices_add(notices,
			       "process %zu of %zu, pid %u, alone; --process shows another, "
			       "'heapline info' lists them",
			       profile->recorded_process_number, profile->recorded_process_count,
			       profile->processes[0].pid);
}

void hl_summary_facts(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_notices process = {0};
	char sample[HL_FORMAT_MAX];

	target_line(emit, profile);
	add_process(&process, profile);
	hl_notices_emit(&process, emit);
	if (profile->moment)
		hl_emit_line(emit, "%s", hl_profile_text(profile, profile->moment));
	if (profile->base) {
		hl_emit_line(emit, "compared with %s%s%s%s%s",
			     hl_profile_text(profile, profile->base_name),
			     profile->base_source ? ": " : "",
			     hl_profile_text(profile, profile->base_source),
			     profile->base_moment ? " " : "",
			     hl_profile_text(profile, profile->base_moment));
		hl_summary_totals_line(emit, profile, "before: ", &profile->base_total);
	}
	hl_summary_totals_line(emit, profile, profile->base ? "now: " : "", &profile->total);
	filter_line(emit, profile);
	summary_plumbing_line(emit, profile);
	if (profile->process_count > 1)
		hl_emit_line(emit,
			     "sums over %zu processes; --process shows one, 'heapline info' lists "
			     "them",
			     profile->process_count);
	if (profile->sample_bytes)
		hl_emit_line(emit, "sampled about every %s: figures are estimates",
			     hl_format_bytes(profile->sample_bytes, sample));
	if (has_negative_figures(profile))
		hl_summary_negative_line(emit, profile);
}

void hl_summary_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_notices notices = {0};

	hl_summary_facts(emit, profile);
	hl_notices_of_profile(&notices, profile);
	hl_notices_emit(&notices, emit);
}

/* The same of a value of pages, with what is in no row. */
static void pages_line(struct hl_emit *emit, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	bool is_resident = options->value == HL_VALUE_RESIDENT;
	char total[HL_FORMAT_MAX], unknown[HL_FORMAT_MAX];

	hl_emit_line(
		emit, "showing %s bytes (%s of live blocks %s %s); --value chooses others",
		hl_value_words[options->value],
		hl_format_bytes(hl_profile_figure(&profile->total, options->value, options->unit),
				total),
		is_resident ? "in RAM" : "on swap",
		profile->running ? "now" : "when the snapshot was taken");
	if (is_resident && profile->resident_unknown_bytes)
		hl_emit_line(emit,
			     "%s more in RAM are of blocks whose stack is not known: allocated "
			     "before the recording began, or newer than its last save",
			     hl_format_bytes((int64_t)profile->resident_unknown_bytes, unknown));
	if (profile->resident_is_mean)
		hl_emit_line(emit, "the allocator cannot be asked for the size of each block: some "
				   "count with the mean of their stack's");
}

void hl_summary_value_line(struct hl_emit *emit, const struct hl_profile *profile,
			   const struct hl_view_options *options)
{
	static const char *const meanings[] = {
		[HL_VALUE_INUSE] = "not freed when the recording ended",
		[HL_VALUE_ALLOC] = "freed since or not",
		[HL_VALUE_PEAK] = "in use when the total was highest",
		[HL_VALUE_TEMPORARY] = "freed at once, before the thread allocated again",
		[HL_VALUE_SLACK] = "set aside by the allocator beyond what was requested",
	};
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	const char *meaning = meanings[options->value];

	if (hl_value_is_of_pages(options->value)) {
		pages_line(emit, profile, options);
		return;
	}
	if (options->value == HL_VALUE_INUSE && profile->snapshot)
		meaning = "not freed when the snapshot was taken";
	else if (options->value == HL_VALUE_INUSE && profile->imported)
		meaning = "allocated and not freed";
	else if (options->value == HL_VALUE_INUSE && !profile->complete && !profile->imported)
		meaning = "not freed at the last save";
	if (kind)
		hl_emit_line(emit, "showing what was %s in %s; --unit chooses", kind->word,
			     hl_unit_names[options->unit]);
	else if (profile->moment)
		hl_emit_line(emit, "showing what was in use at that moment in %s; --unit %s",
			     hl_unit_names[options->unit],
			     options->unit == HL_UNIT_BYTES ? "objects counts blocks"
							    : "bytes adds up their sizes");
	else
		hl_emit_line(emit, "showing %s %s (%s)%s%s; --value and --unit choose others",
			     hl_value_words[options->value], hl_unit_names[options->unit], meaning,
			     options->value_reason ? ", " : "",
			     options->value_reason ? options->value_reason : "");
}

bool hl_summary_is_empty(const struct hl_profile *profile)
{
	return !hl_profile_counters_any(&profile->total) &&
	       !(profile->base && hl_profile_counters_any(&profile->base_total));
}

/* ---- begin and end ---- */

static int begin(const struct hl_profile *profile, const struct hl_view_options *options,
		 const char *schema, enum hl_emit_form text_form, struct hl_emit **ret_emit)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : text_form, options->color,
			    schema, &emit);
	if (r < 0)
		return r;
	hl_table_figures(emit, profile, options->value, options->unit);
	hl_summary_members(emit, profile, options);
	hl_summary_lines(emit, profile);
	*ret_emit = emit;
	return 0;
}

int hl_summary_begin(const struct hl_profile *profile, const struct hl_view_options *options,
		     const char *schema, struct hl_emit **ret_emit)
{
	return begin(profile, options, schema, HL_EMIT_TABLE, ret_emit);
}

int hl_summary_begin_lines(const struct hl_profile *profile, const struct hl_view_options *options,
			   const char *schema, struct hl_emit **ret_emit)
{
	return begin(profile, options, schema, HL_EMIT_LINES, ret_emit);
}

void hl_summary_names(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_notices notices = {0};

	hl_notices_of_names(&notices, profile);
	hl_notices_emit(&notices, emit);
}

int hl_summary_end(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_summary_names(emit, profile);
	return hl_emit_finish(emit);
}

void hl_summary_notices(struct hl_notices *notices, const struct hl_profile *profile)
{
	add_process(notices, profile);
	hl_notices_of_profile(notices, profile);
}

int hl_summary_note(const struct hl_profile *profile, const struct hl_view_options *options)
{
	struct hl_notices notices = {0};

	hl_summary_notices(&notices, profile);
	return hl_notices_put(&notices, options->notes);
}

int hl_summary_fail(const struct hl_profile *profile, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s",
			    hl_profile_text(profile, profile->name), strerror(-code));
}
