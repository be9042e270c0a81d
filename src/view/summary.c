/* SPDX-License-Identifier: BSD-2-Clause */
/* The head of every report; see summary.h. */
#include "view/summary.h"

#include "base/path.h"
#include "profile/trace_kind.h"
#include "recording/recording.h"
#include "view/format.h"
#include "view/summary_totals.h"
#include "view/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COMMAND_MAX   1024 /* bytes of a command that is cut off */
#define COMMAND_MIN   20   /* columns for it, however narrow the terminal is */
#define NS_PER_MS     1000000u
#define WENT_ON_SHOWN 3 /* processes that went on as other programs */
#define PIDS_SHOWN    3 /* of processes that were not recorded, for each reason */
#define REASONS_MAX   8 /* more are listed one by one */

/* ---- JSON ---- */

static void recording_member(struct hl_emit *emit, const struct hl_profile *profile)
{
	char start[HL_FORMAT_MAX];

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
	hl_summary_process_members(emit, profile);
	hl_emit_boolean(emit, "complete", profile->complete);
	if (profile->snapshot)
		hl_emit_boolean(emit, "snapshot", true);
	if (profile->running)
		hl_emit_boolean(emit, "running", true);
	hl_emit_array(emit, "warnings");
	for (size_t i = 0; i < profile->warning_count; i++)
		hl_emit_text(emit, NULL, hl_profile_text(profile, profile->warnings[i]));
	hl_emit_array_end(emit);
	hl_emit_object_end(emit);
}

/* Where objects are pages, they are told as such. */
static void pages_member(struct hl_emit *emit, const struct hl_profile *profile,
			 const struct hl_profile_counters *total)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);

	if (kind && hl_trace_kind_counts_pages(kind))
		hl_emit_integer(emit, "pages",
				hl_profile_figure(total, HL_VALUE_INUSE, HL_UNIT_OBJECTS));
}

static void value_member(struct hl_emit *emit, const char *value, const char *unit, int64_t figure)
{
	char name[HL_FORMAT_MAX];

	snprintf(name, sizeof(name), "%s_%s", value, unit);
	hl_emit_integer(emit, name, figure);
}

/* What a trace says of the whole process; where objects are pages, these are there already. */
static void figure_members(struct hl_emit *emit, const struct hl_profile *profile)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	bool has_pages = kind && hl_trace_kind_counts_pages(kind);

	for (size_t i = 0; i < profile->figure_count; i++) {
		const char *name = hl_profile_text(profile, profile->figures[i].name);
		if (!has_pages || strcmp(name, "pages") != 0)
			hl_emit_integer(emit, name, profile->figures[i].value);
	}
}

/* Of ${total}, what ${profile} knows. */
static void total_member(struct hl_emit *emit, const char *key, const struct hl_profile *profile,
			 const struct hl_profile_counters *total)
{
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
	pages_member(emit, profile, total);
	if (total == &profile->total)
		figure_members(emit, profile);
	hl_emit_object_end(emit);
}

static void base_member(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_emit_object(emit, "base");
	hl_emit_text(emit, "name", hl_profile_text(profile, profile->base_name));
	if (profile->base_moment)
		hl_emit_integer(emit, "at_ms", profile->base_moment_ms);
	hl_emit_integer(emit, "duration_ms", (int64_t)(profile->base_duration_ns / NS_PER_MS));
	total_member(emit, "total", profile, &profile->base_total);
	hl_emit_object_end(emit);
}

static void lost_member(struct hl_emit *emit, const struct hl_profile *profile)
{
	const struct hl_profile_lost *lost = &profile->lost;

	hl_emit_object(emit, "lost");
	hl_emit_integer(emit, "events", (int64_t)(lost->events + lost->log_events));
	hl_emit_integer(emit, "bytes", lost->bytes);
	hl_emit_integer(emit, "truncated_stacks", lost->truncated_stacks);
	hl_emit_integer(emit, "incomplete_stacks", lost->incomplete_stacks);
	hl_emit_integer(emit, "unmatched_frees", lost->unmatched_frees);
	hl_emit_integer(emit, "inherited_frees", lost->inherited_frees);
	hl_emit_integer(emit, "modules", lost->modules);
	hl_emit_integer(emit, "unscanned_bytes", lost->unscanned_bytes);
	hl_emit_integer(emit, "damaged", lost->damaged);
	hl_emit_integer(emit, "unrecorded_children", profile->unrecorded_children);
	hl_emit_object_end(emit);
}

void hl_summary_members(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	recording_member(emit, profile);
	if (profile->moment)
		hl_emit_integer(emit, "at_ms", profile->moment_ms);
	if (profile->base)
		base_member(emit, profile);
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
	lost_member(emit, profile);
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

/* ---- text ---- */

/* What is measured in other units than those below is counted. */
static void format_figure(int64_t number, const char *unit, bool is_named,
			  char value[HL_SUMMARY_FIGURE_MAX])
{
	char text[HL_FORMAT_MAX];

	if (!strcmp(unit, "bytes"))
		snprintf(value, HL_SUMMARY_FIGURE_MAX, "%s", hl_format_bytes(number, text));
	else if (is_named)
		snprintf(value, HL_SUMMARY_FIGURE_MAX, "%s", hl_format_count(number, text));
	else
		snprintf(value, HL_SUMMARY_FIGURE_MAX, "%s %s", hl_format_count(number, text),
			 strcmp(unit, "percent") != 0 ? unit : "%");
}

void hl_summary_figure(const struct hl_profile *profile, const struct hl_profile_figure *figure,
		       char words[HL_SUMMARY_FIGURE_MAX], char value[HL_SUMMARY_FIGURE_MAX])
{
	const char *name = hl_profile_text(profile, figure->name), *unit = hl_figure_unit(name);
	bool is_unit = !strcmp(name, unit);
	size_t length = is_unit ? strlen(name) : strlen(name) - strlen(unit) - 1;

	snprintf(words, HL_SUMMARY_FIGURE_MAX, "%.*s", (int)length, name);
	for (char *at = words; (at = strchr(at, '_'));)
		*at = ' ';
	format_figure(figure->value, unit, is_unit, value);
}

size_t hl_summary_stack_count(const struct hl_profile *profile)
{
	size_t count = 0;

	for (size_t i = 0; i < profile->node_count; i++)
		count += hl_profile_counters_any(&profile->counters[i]) ||
			 (profile->base && hl_profile_counters_any(&profile->base[i]));
	return count;
}

static void imported_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	size_t stacks = hl_summary_stack_count(profile);
	char count[HL_FORMAT_MAX];

	hl_emit_line(emit, "%s: %s, %s stack%s", hl_profile_text(profile, profile->name),
		     hl_profile_text(profile, profile->source), hl_format_count(stacks, count),
		     hl_format_plural(stacks));
}

/* "NAME: COMMAND (REST)", the command cut off where the terminal is too narrow for all of it. */
static void command_line(struct hl_emit *emit, const char *name, const char *command,
			 const char *rest)
{
	size_t width = hl_emit_width(emit), others = strlen(name) + strlen(rest) + strlen(":  ()");
	char shortened[COMMAND_MAX];

	if (width)
		width = width > others + COMMAND_MIN ? width - others : COMMAND_MIN;
	hl_emit_line(emit, "%s: %s (%s)", name,
		     width ? hl_format_shortened(command, width, shortened, sizeof(shortened))
			   : command,
		     rest);
}

static void target_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char duration[HL_FORMAT_MAX], rest[256];
	const char *name = hl_profile_text(profile, profile->name);
	const char *mode = hl_profile_text(profile, profile->mode);

	if (profile->imported) {
		imported_line(emit, profile);
	} else if (profile->process_count != 1) {
		snprintf(rest, sizeof(rest), "%s, %s", mode,
			 hl_format_duration(profile->duration_ns, duration));
		command_line(emit, name, hl_profile_text(profile, profile->command), rest);
	} else {
		const struct hl_profile_process *process = &profile->processes[0];
		const char *command = hl_profile_text(profile, process->command);
		hl_format_duration(process->duration_ns, duration);
		if (process->pid)
			snprintf(rest, sizeof(rest), "%s, pid %u, %s, %s", mode, process->pid,
				 hl_profile_text(profile, process->end), duration);
		else /* of a log without the process' own file */
			snprintf(rest, sizeof(rest), "%s%sprocess %u, %s", mode, *mode ? ", " : "",
				 process->sequence, duration);
		command_line(emit, name, *command ? command : "unknown program", rest);
	}
}

/* The value that says most about what is left of a filtered profile. */
static enum hl_value main_value(const struct hl_profile *profile)
{
	static const enum hl_value values[] = {HL_VALUE_PEAK, HL_VALUE_INUSE, HL_VALUE_ALLOC};

	for (size_t i = 0; i < HL_COUNT_OF(values); i++)
		if (hl_summary_knows(profile, values[i]))
			return values[i];
	return HL_VALUE_TEMPORARY;
}

static void filter_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	const char *filter = hl_profile_text(profile, profile->filter);
	enum hl_value value = main_value(profile);
	char left[HL_SUMMARY_FIGURES_MAX], all[HL_SUMMARY_FIGURES_MAX];

	if (!profile->filter)
		return;
	hl_summary_figures(profile, &profile->total, value, left);
	hl_summary_figures(profile, &profile->unfiltered_total, value, all);
	if (strcmp(left, all) != 0)
		hl_emit_line(emit, "%s: %s %s, of %s", filter, hl_value_names[value], left, all);
	else
		hl_emit_line(emit, "%s", filter); /* which hid frames, but left all stacks */
}

void hl_summary_plumbing_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (profile->plumbing_folded)
		hl_emit_line(emit,
			     "allocation plumbing (operator new, xmalloc, ...) is folded into "
			     "its callers; --plumbing shows it");
}

static void base_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (!profile->base)
		return;
	hl_emit_line(emit, "compared with %s%s%s", hl_profile_text(profile, profile->base_name),
		     profile->base_moment ? " " : "",
		     hl_profile_text(profile, profile->base_moment));
	hl_summary_totals_line(emit, profile, "before: ", &profile->base_total);
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
		     kind && kind->negative ? kind->negative
					    : "negative figures: a thread freed blocks that "
					      "others had allocated");
}

/* A log is one process'; of several, somebody may have meant another one. */
void hl_summary_process_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (profile->recorded_process_number && profile->recorded_process_count > 1)
		hl_emit_line(emit,
			     "process %zu of %zu, pid %u, alone; --process shows another, "
			     "'heapline info' lists them",
			     profile->recorded_process_number, profile->recorded_process_count,
			     profile->processes[0].pid);
}

void hl_summary_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	char sample[HL_FORMAT_MAX];

	target_line(emit, profile);
	hl_summary_process_line(emit, profile);
	if (profile->moment)
		hl_emit_line(emit, "%s", hl_profile_text(profile, profile->moment));
	base_lines(emit, profile);
	hl_summary_totals_line(emit, profile, profile->base ? "now: " : "", &profile->total);
	filter_line(emit, profile);
	hl_summary_plumbing_line(emit, profile);
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
	hl_summary_warnings(emit, profile);
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

	if (options->value == HL_VALUE_INUSE && profile->snapshot)
		meaning = "not freed when the snapshot was taken";
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

void hl_summary_log_warning(struct hl_emit *emit, const struct hl_profile_lost *lost)
{
	char count[HL_FORMAT_MAX];

	if (lost->log_events)
		hl_emit_warning(emit,
				"LOST: %s event%s of the log, which the counters have: figures "
				"over time are wrong from then until the log was re-based",
				hl_format_count(lost->log_events, count),
				hl_format_plural(lost->log_events));
}

/* Pages are counted by what is there: only whose doing they are may be lost. */
static void events_warning(struct hl_emit *emit, const struct hl_profile *profile)
{
	const struct hl_profile_lost *lost = &profile->lost;
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	char count[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];

	if (kind && hl_trace_kind_counts_pages(kind))
		hl_emit_warning(emit,
				"LOST: the stacks of %s event%s: their pages are in the total, "
				"and may be in [no fault seen]",
				hl_format_count(lost->events, count),
				hl_format_plural(lost->events));
	else
		hl_emit_warning(emit, "LOST: %s event%s, %s: not in the figures below",
				hl_format_count(lost->events, count),
				hl_format_plural(lost->events),
				hl_format_bytes(lost->bytes, bytes));
}

/* Whether stacks end where a probe of another tool had taken the return address. */
static bool has_return_probes(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->function_count; i++)
		if (!strcmp(hl_profile_text(profile, profile->functions[i].name),
			    HL_PROFILE_RETURN_PROBE))
			return true;
	return false;
}

static void damage_warning(struct hl_emit *emit, const struct hl_profile_lost *lost)
{
	char count[HL_FORMAT_MAX];

	if (lost->damaged)
		hl_emit_warning(
			emit,
			"DAMAGED: the program overwrote heapline's memory; %s record%s that "
			"cannot be %s left out, and other figures may be wrong",
			hl_format_count(lost->damaged, count), hl_format_plural(lost->damaged),
			lost->damaged == 1 ? "is" : "are");
}

static void lost_warnings(struct hl_emit *emit, const struct hl_profile *profile)
{
	const struct hl_profile_lost *lost = &profile->lost;
	char count[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];

	if (lost->events || lost->bytes)
		events_warning(emit, profile);
	hl_summary_log_warning(emit, lost);
	if (lost->truncated_stacks)
		hl_emit_warning(emit, "LOST: the outer frames of %s stack%s, too deep to keep",
				hl_format_count(lost->truncated_stacks, count),
				hl_format_plural(lost->truncated_stacks));
	if (lost->incomplete_stacks)
		hl_emit_warning(emit,
				"LOST: the outer frames of %s stack%s, which could not be unwound",
				hl_format_count(lost->incomplete_stacks, count),
				hl_format_plural(lost->incomplete_stacks));
	if (lost->incomplete_stacks && has_return_probes(profile))
		hl_emit_line(emit,
			     "note: another tool's return probes (uretprobes) hid the callers of "
			     "functions under " HL_PROFILE_RETURN_PROBE);
	if (lost->modules)
		hl_emit_warning(emit, "LOST: the names of %s module%s",
				hl_format_count(lost->modules, count),
				hl_format_plural(lost->modules));
	if (lost->unscanned_bytes)
		hl_emit_warning(emit, "LOST: %s could not be read",
				hl_format_bytes(lost->unscanned_bytes, bytes));
	if (lost->unmatched_frees)
		hl_emit_line(emit, "note: %s free%s of blocks %s",
			     hl_format_count(lost->unmatched_frees, count),
			     hl_format_plural(lost->unmatched_frees),
			     hl_trace_kind_of_profile(profile)
				     ? "allocated before the trace (harmless)"
				     : "whose allocation was not seen");
	if (lost->inherited_frees)
		hl_emit_line(emit, "note: %s free%s of blocks that forked children inherited",
			     hl_format_count(lost->inherited_frees, count),
			     hl_format_plural(lost->inherited_frees));
}

/* Whether the module's names are missing because its file is another one by now. */
static bool has_changed(const struct hl_profile *profile, const struct hl_profile_module *module)
{
	return module->symbols == HL_SYMBOLS_NONE &&
	       strstr(hl_profile_text(profile, module->symbols_reason), HL_SYMBOLS_CHANGED);
}

/* Whether ${name} is one of ${names}, which ", " joins: one file can be several modules. */
static bool module_name_is_listed(const char *names, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = names; *at; at += strspn(at, ", ")) {
		size_t listed = strcspn(at, ",");
		if (listed == length && !memcmp(at, name, length))
			return true;
		at += listed;
	}
	return false;
}

/* The names of the files without source lines, those that have changed or the others. */
static void list_nameless(const struct hl_profile *profile, bool changed, char names[128],
			  size_t *ret_omitted)
{
	size_t used = 0;

	names[0] = '\0';
	*ret_omitted = 0;
	for (size_t i = 1; i < profile->module_count; i++) {
		const char *path = hl_profile_text(profile, profile->modules[i].path);
		const char *name = hl_path_basename(path);
		if (profile->imported || !profile->modules[i].used || name == path ||
		    profile->modules[i].symbols == HL_SYMBOLS_DWARF ||
		    has_changed(profile, &profile->modules[i]) != changed ||
		    module_name_is_listed(names, name))
			continue;
		if (used + strlen(name) + sizeof(", ") > 128) {
			(*ret_omitted)++;
			continue;
		}
		used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", name);
	}
}

void hl_summary_names_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char names[128];
	size_t omitted;

	list_nameless(profile, true, names, &omitted);
	if (names[0])
		hl_emit_warning(emit,
				"CHANGED since it was recorded: %s%s; functions are shown by their "
				"addresses",
				names, omitted ? " and others" : "");
	list_nameless(profile, false, names, &omitted);
	if (names[0])
		hl_emit_line(emit, "no debug information for %s%s; 'heapline info' says what helps",
			     names, omitted ? " and others" : "");
}

bool hl_summary_is_empty(const struct hl_profile *profile)
{
	return !hl_profile_counters_any(&profile->total) &&
	       !(profile->base && hl_profile_counters_any(&profile->base_total));
}

static void emptiness_warning(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (profile->filter && hl_profile_counters_any(&profile->unfiltered_total))
		hl_emit_warning(emit, "EMPTY: %s leaves no stack",
				hl_profile_text(profile, profile->filter));
	else if (profile->imported)
		hl_emit_warning(emit, "EMPTY: there is no stack in the file");
	else if (hl_trace_kind_of_profile(profile))
		hl_emit_warning(emit, "EMPTY: %s", hl_trace_kind_of_profile(profile)->no_object);
	else if (!profile->recorded_process_count)
		hl_emit_warning(emit, "EMPTY: no process was recorded");
	else if (!strcmp(hl_profile_text(profile, profile->mode), "closed"))
		hl_emit_warning(emit, "EMPTY: recorded in mode 'closed', which counts nothing");
	else
		hl_emit_warning(emit, "EMPTY: not one allocation was recorded");
}

/* Each of a few, and how many others there are. */
static void unrecorded_warnings(struct hl_emit *emit, const struct hl_profile *profile)
{
	size_t count = 0;
	char number[HL_FORMAT_MAX];

	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		const char *went_on = hl_profile_went_on(profile, process);
		if (went_on && count++ < WENT_ON_SHOWN)
			hl_emit_warning(emit, "UNSEEN: pid %u %s", process->pid, went_on);
	}
	if (count > WENT_ON_SHOWN)
		hl_emit_warning(emit,
				"UNSEEN: %s more processes went on as other programs, unrecorded; "
				"'heapline info' lists them",
				hl_format_count((int64_t)(count - WENT_ON_SHOWN), number));
	if (profile->unrecorded_children)
		hl_emit_warning(emit, "UNSEEN: %s child%s ran unrecorded",
				hl_format_count(profile->unrecorded_children, number),
				profile->unrecorded_children == 1 ? "" : "ren");
}

/* Processes that were not recorded for the same reason. */
struct unrecorded {
	const char *reason;
	size_t count;
	unsigned pids[PIDS_SHOWN];
};

/* Counts ${sentence} if it is "process 4711 was not recorded: REASON"; false if it is not, or there
 * are too many reasons. */
static bool count_unrecorded(struct unrecorded groups[REASONS_MAX], const char *sentence)
{
	int length = 0;
	unsigned pid;

	if (sscanf(sentence, "process %u was not recorded: %n", &pid, &length) < 1 || !length)
		return false;
	for (size_t i = 0; i < REASONS_MAX; i++) {
		struct unrecorded *group = &groups[i];
		if (group->count && strcmp(group->reason, sentence + length) != 0)
			continue;
		if (group->count < PIDS_SHOWN)
			group->pids[group->count] = pid;
		group->reason = sentence + length;
		group->count++;
		return true;
	}
	return false;
}

/* What the recording itself says; processes that were not recorded are counted by their reason. */
static void recorded_warnings(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct unrecorded groups[REASONS_MAX] = {0};
	char count[HL_FORMAT_MAX];

	for (size_t i = 0; i < profile->warning_count; i++) {
		const char *sentence = hl_profile_text(profile, profile->warnings[i]);
		if (!count_unrecorded(groups, sentence))
			hl_emit_warning(emit, "WARNING: %s", sentence);
	}
	for (size_t i = 0; i < REASONS_MAX && groups[i].count; i++) {
		const struct unrecorded *group = &groups[i];
		if (group->count <= PIDS_SHOWN)
			for (size_t j = 0; j < group->count; j++)
				hl_emit_warning(emit, "WARNING: process %u was not recorded: %s",
						group->pids[j], group->reason);
		else
			hl_emit_warning(emit,
					"WARNING: %s processes (%u, %u, %u ...) were not recorded: "
					"%s; 'heapline info --json' lists them",
					hl_format_count(group->count, count), group->pids[0],
					group->pids[1], group->pids[2], group->reason);
	}
}

void hl_summary_warnings(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (profile->snapshot)
		hl_emit_line(emit, "a snapshot, taken while the recording went on: what came after "
				   "it is not in its figures");
	else if (profile->running)
		hl_emit_line(emit, "running: figures are those of the recording's last save, which "
				   "comes once a second");
	else if (!profile->complete && !profile->imported)
		hl_emit_warning(emit, "INCOMPLETE: the recording was interrupted; figures are "
				      "those of its last save");
	recorded_warnings(emit, profile);
	for (size_t i = 0; i < profile->process_count; i++)
		if (profile->processes[i].own_malloc)
			hl_emit_warning(emit,
					"UNSEEN: process %u has a malloc of its own, whose "
					"allocations were not seen",
					profile->processes[i].pid);
	unrecorded_warnings(emit, profile);
	damage_warning(emit, &profile->lost);
	if (hl_summary_is_empty(profile))
		emptiness_warning(emit, profile);
	lost_warnings(emit, profile);
}

/* ---- begin and end ---- */

static int begin(const struct hl_profile *profile, const struct hl_view_options *options,
		 const char *schema, enum hl_emit_form text_form, struct hl_emit **ret_emit)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : text_form, options->color,
			    &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, schema);
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

int hl_summary_end(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_summary_names_line(emit, profile);
	return hl_emit_finish(emit);
}

int hl_summary_note(const struct hl_profile *profile, const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->notes, HL_EMIT_TABLE, false, &emit);
	if (r < 0)
		return r;
	hl_summary_process_line(emit, profile);
	hl_summary_warnings(emit, profile);
	return hl_emit_finish(emit);
}

int hl_summary_fail(const struct hl_profile *profile, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s",
			    hl_profile_text(profile, profile->name), strerror(-code));
}
