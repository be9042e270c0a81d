/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds what is missing or doubtful in profiles, logs and names, puts it into words, and writes it as text and JSON; see summary.h. */
#include "view/summary.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "guests/traits.h"
#include "profile/profile.h"
#include "view/format.h"
#include "view/rows.h"

#include <errno.h>
#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX     128 /* bytes of the names of modules */
#define WENT_ON_SHOWN 3	  /* processes that went on as other programs */

/* ---- the list ---- */

/* What a terminal would obey is written as hl_format_put() does, wherever the text goes. */
static void add(struct hl_notices *notices, bool is_warning, const char *format, va_list args)
{
	HL_FREED char *sentence = NULL;
	char *text = NULL;
	size_t size;

	if (vasprintf(&sentence, format, args) < 0) {
		sentence = NULL;
		notices->error = -ENOMEM;
		return;
	}
	FILE *out = open_memstream(&text, &size);
	if (out)
		hl_format_put(out, sentence);
	if (!out || fclose(out) != 0 ||
	    HL_ARRAY_APPEND(notices->notices, notices->count, notices->capacity,
			    (struct hl_notice){text, is_warning}) < 0) {
		free(text);
		notices->error = -ENOMEM;
	}
}

void hl_notices_warn(struct hl_notices *notices, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(notices, true, format, args);
	va_end(args);
}

void hl_notices_add(struct hl_notices *notices, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(notices, false, format, args);
	va_end(args);
}

void hl_notices_emit(struct hl_notices *notices, struct hl_emit *emit)
{
	for (size_t i = 0; i < notices->count; i++)
		(notices->notices[i].is_warning ? hl_emit_warning : hl_emit_line)(
			emit, "%s", notices->notices[i].text);
	if (notices->error)
		hl_emit_fail(emit, notices->error);
	hl_notices_release(notices);
}

int hl_notices_put(struct hl_notices *notices, FILE *out)
{
	struct hl_emit *emit;

	int r = hl_emit_new(out, HL_EMIT_TABLE, false, NULL, &emit);
	if (r < 0) {
		hl_notices_release(notices);
		return r;
	}
	hl_notices_emit(notices, emit);
	return hl_emit_finish(emit);
}

void hl_notices_release(struct hl_notices *notices)
{
	for (size_t i = 0; i < notices->count; i++)
		free(notices->notices[i].text);
	free(notices->notices);
	*notices = (struct hl_notices){0};
}

/* ---- what is not in the figures ---- */

#define COLLECT_MAX 192

static const char *format_collect(char text[COLLECT_MAX])
{
	const struct hl_guest_traits *guest = hl_guest_host();

	snprintf(text, COLLECT_MAX,
		 "; collections count while the recording goes on: run as many%s%s%s%s",
		 guest ? ", in " : "", guest ? guest->language : "", guest ? " " : "",
		 guest ? guest->host->collect : "");
	return text;
}

static void add_emptiness(struct hl_notices *notices, const struct hl_profile *profile)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	char collect[COLLECT_MAX];

	if (profile->filter && hl_profile_counters_any(&profile->unfiltered_total))
		hl_notices_warn(notices, "EMPTY: %s leaves no stack%s%s",
				hl_profile_text(profile, profile->filter),
				profile->has_no_types	  ? ": no block has a type; "
				: profile->asks_survivors ? format_collect(collect)
				: profile->plumbing_folded || profile->host_folded
					? "; with --plumbing, functions that are folded "
					  "into their callers match too"
					: "",
				profile->has_no_types ? hl_keys_types_advice(profile) : "");
	else if (profile->imported)
		hl_notices_warn(notices, "EMPTY: there is no stack in the file");
	else if (kind && kind->no_stack && profile->node_count == 1 && !profile->filter)
		hl_notices_warn(notices, "EMPTY: %s%s", kind->no_stack,
				profile->sample_bytes ? ", or not enough to be sampled" : "");
	else if (kind)
		hl_notices_warn(notices, "EMPTY: %s", kind->no_object);
	else if (!profile->recorded_process_count && !profile->complete && !profile->running)
		hl_notices_warn(notices, "EMPTY: the recording ended before its first save; the "
					 "program may have gone on unrecorded");
	else if (!profile->recorded_process_count)
		hl_notices_warn(notices, "EMPTY: no process was recorded");
	else if (!strcmp(hl_profile_text(profile, profile->mode), "closed"))
		hl_notices_warn(notices, "EMPTY: recorded in mode 'closed', which counts nothing");
	else
		hl_notices_warn(notices, "EMPTY: not one allocation was recorded%s",
				profile->reset_ns ? " since the reset, and nothing is in use" : "");
}

void hl_notices_of_log_loss(struct hl_notices *notices, const struct hl_profile *profile)
{
	char count[HL_FORMAT_MAX];

	if (profile->lost_log_events)
		hl_notices_warn(notices,
				"LOST: %s event%s of the log, which the counters have: figures "
				"over time are wrong from then until the log was re-based",
				hl_format_count(profile->lost_log_events, count),
				hl_format_plural(profile->lost_log_events));
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

/* A clause of the interpreter whose frames are there, with a comma before it; "" without one. */
static const char *unmatched_reason(const struct hl_profile *profile)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_traits *guest = hl_guest_traits[i];
		if (guest->unmatched_reason && hl_profile_has_runtime(profile, guest->providers[0]))
			return guest->unmatched_reason;
	}
	return "";
}

/* What more is said of stacks. */
static void add_stack_doubts(struct hl_notices *notices, const struct hl_profile *profile)
{
	char count[HL_FORMAT_MAX];

	if (profile->lost.incomplete_stacks && has_return_probes(profile))
		hl_notices_add(notices,
			       "note: another tool's return probes (uretprobes) hid the callers of "
			       "functions under " HL_PROFILE_RETURN_PROBE);
	if (profile->script_unmatched)
		hl_notices_warn(notices,
				"UNMATCHED: of %s allocation%s script frames and calls of the "
				"interpreter do not fit each other%s; --stack script and --stack "
				"native show both",
				hl_format_count(profile->script_unmatched, count),
				hl_format_plural(profile->script_unmatched),
				unmatched_reason(profile));
	if (profile->has_generations)
		hl_notices_add(notices,
			       "note: a state collects by generations: of its collections only "
			       "the major ones count, since others leave old garbage");
}

/* The sentences of the counters of ${kind} that are not 0. */
static void add_counters(struct hl_notices *notices, const struct hl_profile *profile,
			 enum hl_lost_kind kind)
{
	bool is_trace = hl_trace_kind_of_profile(profile);
	char number[HL_FORMAT_MAX];

	for (size_t i = 0; i < HL_LOST_COUNT; i++) {
		const struct hl_lost_counter *counter = &hl_lost_counters[i];
		uint64_t value = hl_lost_value(&profile->lost, i);
		const char *other = is_trace		? counter->trace
				    : profile->attached ? counter->attached
							: NULL;
		if (!value || counter->kind != kind || !counter->sentence)
			continue;
		(counter->is_bytes ? hl_format_bytes : hl_format_count)((int64_t)value, number);
		(kind == HL_LOST_NOTE ? hl_notices_add : hl_notices_warn)(
			notices, other ? other : counter->sentence, number, hl_format_plural(value),
			value == 1 ? "was" : "were");
	}
}

static void add_losses(struct hl_notices *notices, const struct hl_profile *profile)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	const struct hl_lost *lost = &profile->lost;
	char count[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];

	add_counters(notices, profile, HL_LOST_DAMAGE);
	if (hl_summary_is_empty(profile))
		add_emptiness(notices, profile);
	/* Pages are counted by what is there: only whose doing they are may be lost. */
	if ((lost->events || lost->bytes) && kind && hl_trace_kind_counts_pages(kind))
		hl_notices_warn(notices,
				"LOST: the stacks of %s event%s: their pages are in the total, "
				"and may be in [no fault seen]",
				hl_format_count(lost->events, count),
				hl_format_plural(lost->events));
	else if (lost->events || lost->bytes)
		hl_notices_warn(notices, "LOST: %s event%s, %s: not in the figures below",
				hl_format_count(lost->events, count),
				hl_format_plural(lost->events),
				hl_format_bytes(lost->bytes, bytes));
	hl_notices_of_log_loss(notices, profile);
	add_counters(notices, profile, HL_LOST_LOSS);
	add_stack_doubts(notices, profile);
	add_counters(notices, profile, HL_LOST_NOTE);
}

/* An interpreter that scripts are not read of; NULL: none that is known runs here. */
static const struct hl_code_runtime *unread_interpreter(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->module_count && !profile->imported; i++) {
		const struct hl_code_runtime *runtime =
			hl_code_runtime_of(hl_profile_text(profile, profile->modules[i].path));
		if (runtime && !runtime->start && profile->modules[i].used)
			return runtime;
	}
	return NULL;
}

void hl_notices_of_profile(struct hl_notices *notices, const struct hl_profile *profile)
{
	size_t count = 0;
	char number[HL_FORMAT_MAX];

	if (profile->attached)
		hl_notices_add(notices, "attached at %s; blocks allocated before are not counted",
			       hl_format_time(profile->start_realtime_ns, number));
	if (profile->reset_ns)
		hl_notices_add(
			notices,
			"%s at %s: what was allocated, what was temporary and the peak count "
			"from then on, what is in use from the start",
			profile->process_count > 1 ? "a process was reset" : "reset",
			hl_format_time(profile->start_realtime_ns + profile->reset_ns, number));
	if (profile->snapshot)
		hl_notices_add(notices,
			       "a snapshot, taken while the recording went on: what came after "
			       "it is not in its figures");
	else if (profile->running)
		hl_notices_add(notices, "running: figures are those of the recording's last save");
	else if (!profile->complete && !profile->imported)
		hl_notices_warn(notices, "INCOMPLETE: the recording was interrupted; figures are "
					 "those of its last save");
	for (size_t i = 0; i < profile->warning_count; i++)
		hl_notices_warn(notices, "WARNING: %s",
				hl_profile_text(profile, profile->warnings[i]));
	for (size_t i = 0; i < profile->process_count; i++)
		if (profile->processes[i].own_malloc)
			hl_notices_warn(notices,
					"UNSEEN: process %u has a malloc of its own, whose "
					"allocations were not seen",
					profile->processes[i].pid);
	/* Names a few of the programs that went on, and counts the others. */
	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		const char *went_on = hl_profile_went_on(profile, process);
		if (went_on && count++ < WENT_ON_SHOWN)
			hl_notices_warn(notices, "UNSEEN: pid %u %s", process->pid, went_on);
	}
	if (count > WENT_ON_SHOWN)
		hl_notices_warn(notices,
				"UNSEEN: %s more processes went on as other programs, unrecorded; "
				"'heapline info' lists them",
				hl_format_count((int64_t)(count - WENT_ON_SHOWN), number));
	/* A warning of the recording tells of the refused ones. */
	if (profile->unrecorded_children > profile->refused_children) {
		uint64_t others = profile->unrecorded_children - profile->refused_children;
		hl_notices_warn(notices, "UNSEEN: %s %schild%s ran unrecorded",
				hl_format_count((int64_t)others, number),
				profile->refused_children ? "more " : "", others == 1 ? "" : "ren");
	}
	const struct hl_code_runtime *unread = unread_interpreter(profile);
	if (unread && !profile->no_scripts)
		hl_notices_add(notices,
			       "scripts of %s are not read: their lines are not in stacks, the "
			       "interpreter's own functions are",
			       unread->language);
	add_losses(notices, profile);
}

/* ---- names ---- */

/* Whether ${name} is one of ${names}, which ", " joins: one file can be several modules. */
static bool is_listed(const char *names, const char *name)
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

/* The names of the files without source lines, those that have changed or the others, and whether
 * there are more. */
static void list_nameless(const struct hl_profile *profile, bool changed, char names[NAMES_MAX],
			  bool *ret_more)
{
	size_t used = 0;

	names[0] = '\0';
	*ret_more = false;
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		const char *path = hl_profile_text(profile, module->path);
		const char *name = hl_path_basename(path);
		const char *reason = hl_profile_text(profile, module->symbols_reason);
		bool has_changed =
			module->symbols == HL_SYMBOLS_NONE && strstr(reason, HL_SYMBOLS_CHANGED);
		if (profile->imported || !module->used || name == path ||
		    (profile->folds_plumbing && hl_path_is_recorder(path)) ||
		    module->symbols == HL_SYMBOLS_DWARF || has_changed != changed ||
		    is_listed(names, name))
			continue;
		if (used + strlen(name) + sizeof(", ") > NAMES_MAX)
			*ret_more = true;
		else
			used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", name);
	}
}

/* The runtime that made code, if most of that has no names; or NULL. */
static const struct hl_code_runtime *nameless_code(const struct hl_profile *profile)
{
	size_t named = 0, nameless = 0;

	for (size_t i = 1; i < profile->frame_count && !profile->imported; i++) {
		uint32_t id = profile->frames[i].function;
		const struct hl_profile_function *function = &profile->functions[id];
		if (function->module || !profile->frames[i].address)
			continue;
		if (!strncmp(hl_profile_text(profile, function->name), "0x", 2))
			nameless++;
		else
			named++;
	}
	return nameless > named ? hl_profile_code_runtime(profile) : NULL;
}

/* Whether stacks begin with code in no module, which could not be unwound. */
static bool ends_in_code(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[i].frame];
		if (!profile->nodes[i].parent && frame->address &&
		    !profile->functions[frame->function].module)
			return true;
	}
	return false;
}

/* Its process while that may still run, or 0. */
static uint32_t running_pid(const struct hl_profile *profile)
{
	bool may_run = profile->running || profile->attached || hl_trace_kind_of_profile(profile);

	return may_run && profile->process_count == 1 ? profile->processes[0].pid : 0;
}

/* Whether ${profile} is of a trace, of programs of which no command line has ${option}. */
static bool is_run_without(const struct hl_profile *profile, const char *option)
{
	bool has_option = false;

	for (size_t i = 0; i < profile->process_count; i++)
		has_option =
			has_option ||
			strstr(hl_profile_text(profile, profile->processes[i].command), option);
	return hl_trace_kind_of_profile(profile) && !has_option;
}

static void add_code(struct hl_notices *notices, const struct hl_profile *profile)
{
	const struct hl_code_runtime *runtime = nameless_code(profile);
	char remedy[HL_CODE_RUNTIME_REMEDY_MAX];

	if (runtime)
		hl_notices_add(notices, "code made at run time (%s) has no names: %s",
			       runtime->language,
			       hl_code_runtime_remedy(runtime, running_pid(profile), remedy));
	runtime = hl_profile_code_runtime(profile);
	if (runtime && runtime->whole && is_run_without(profile, runtime->whole))
		hl_notices_add(
			notices,
			"a trace from outside passes over code made at run time (%s) that "
			"keeps no frame pointer: 'heapline attach' sees it, or %s has it keep "
			"one",
			runtime->language, runtime->whole);
	else if (runtime && runtime->whole && profile->lost.incomplete_stacks &&
		 ends_in_code(profile))
		hl_notices_add(notices,
			       "stacks that lost their outer frames end in code made at run time "
			       "(%s): %s keeps them whole",
			       runtime->language, runtime->whole);
}

const char *hl_notices_no_scripts(const struct hl_profile *profile,
				  char text[HL_NOTICES_REASON_MAX])
{
	const struct hl_code_runtime *made = nameless_code(profile);
	const struct hl_code_runtime *unread = unread_interpreter(profile);
	char remedy[HL_CODE_RUNTIME_REMEDY_MAX];

	if (profile->no_scripts)
		snprintf(text, HL_NOTICES_REASON_MAX, "it was recorded with --no-scripts");
	else if (made)
		snprintf(text, HL_NOTICES_REASON_MAX, "code made at run time (%s) has no names: %s",
			 made->language,
			 hl_code_runtime_remedy(made, running_pid(profile), remedy));
	else if (unread)
		snprintf(text, HL_NOTICES_REASON_MAX, "scripts of %s are not read",
			 unread->language);
	else
		snprintf(text, HL_NOTICES_REASON_MAX,
			 profile->warning_count ? "a warning in its head says why"
						: "no interpreter ran whose scripts are read");
	return text;
}

void hl_notices_of_names(struct hl_notices *notices, const struct hl_profile *profile)
{
	char names[NAMES_MAX];
	bool more;

	add_code(notices, profile);

	list_nameless(profile, true, names, &more);
	if (names[0])
		hl_notices_warn(notices,
				"CHANGED since it was recorded: %s%s; functions are shown by their "
				"addresses",
				names, more ? " and others" : "");
	list_nameless(profile, false, names, &more);
	if (names[0])
		hl_notices_add(notices,
			       "no debug information for %s%s; 'heapline info' says what helps",
			       names, more ? " and others" : "");
}

/* ---- head and notes of timeline, peaks and growth ---- */

#define HOLES_SHOWN 3
#define NS_PER_MS   UINT64_C(1000000)

/* A whole log may end that much before its process does, which is told apart no more. */
#define EARLY_END_MS 1000

/* A run of points that could not be written or read. */
struct hole {
	size_t first, end;
};

/* The first hole from point ${from} on; false when there is none. */
static bool next_hole(const struct hl_history *history, size_t from, struct hole *ret_hole)
{
	size_t first = from, end;

	while (first < history->point_count && !history->points[first].missing)
		first++;
	for (end = first; end < history->point_count && history->points[end].missing; end++)
		continue;
	*ret_hole = (struct hole){first, end};
	return first < end;
}

static unsigned long long hole_first_ms(const struct hl_history *history, struct hole hole)
{
	return hl_history_head_ms(&history->points[hole.first]);
}

static unsigned long long hole_last_ms(const struct hl_history *history, struct hole hole)
{
	return hl_history_head_ms(&history->points[hole.end - 1]) + HL_INTERVAL_TICKS - 1;
}

/* The segment that was cut off in ${hole}, or the first of them; NULL: none. */
static const char *cut_segment(const struct hl_history *history, struct hole hole)
{
	const struct hl_log *log = history->log;

	for (size_t i = 0; i < log->cut_count; i++)
		if (log->cuts[i].first <= history->points[hole.end - 1].number &&
		    log->cuts[i].last >= history->points[hole.first].number)
			return log->cuts[i].name;
	return NULL;
}

/* By how much the log of a process that was recorded to its end stops before that; else 0. Idle
 * ends are written, too. */
static uint64_t early_end_ms(const struct hl_history *history)
{
	const struct hl_log_point *last = &history->log->points[history->log->point_count - 1];
	uint64_t end = hl_history_head_ms(last) + HL_INTERVAL_TICKS;
	uint64_t duration = history->process->duration_ns / NS_PER_MS;

	if (!history->source.log.recording->complete || !history->process->complete ||
	    duration <= end + EARLY_END_MS)
		return 0;
	return duration - end;
}

const struct hl_log_point *hl_history_head_peak(const struct hl_history *history)
{
	const struct hl_log_point *peak = history->points;

	for (size_t i = 1; i < history->point_count; i++)
		if (history->points[i].max_bytes > peak->max_bytes)
			peak = &history->points[i];
	return peak;
}

/* ---- JSON ---- */

void hl_history_head_members(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t start = hl_history_start_ms(history);
	struct hole hole = {0};
	char time[HL_FORMAT_MAX];

	hl_summary_members(emit, history->profile, NULL);
	hl_emit_object(emit, "log");
	hl_emit_text(emit, "start",
		     hl_format_time(log->start_realtime_ns + start * NS_PER_MS, time));
	hl_emit_integer(emit, "first_ms", start);
	hl_emit_integer(emit, "last_ms", (int64_t)(start + hl_history_length_ms(history) - 1));
	hl_emit_integer(emit, "interval_ms", HL_INTERVAL_TICKS);
	hl_emit_integer(emit, "segments", log->segment_count);
	hl_emit_integer(emit, "ignored_segments", log->ignored_count);
	hl_emit_integer(emit, "foreign_segments", log->foreign_count);
	hl_emit_integer(emit, "lost_events", log->lost_events);
	hl_emit_integer(emit, "missing_intervals", log->missing_count);
	hl_emit_array(emit, "holes");
	while (next_hole(history, hole.end, &hole)) {
		const char *cut = cut_segment(history, hole);
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "first_ms", (int64_t)hole_first_ms(history, hole));
		hl_emit_integer(emit, "last_ms", (int64_t)hole_last_ms(history, hole));
		if (cut)
			hl_emit_text(emit, "cut_segment", cut);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_boolean(emit, "complete", !log->cut_off && !early_end_ms(history));
	hl_emit_object_end(emit);
	hl_emit_array(emit, "marks");
	for (size_t i = 0; i < log->mark_count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "ms", (int64_t)log->marks[i].tick);
		hl_emit_text(emit, "text", log->marks[i].text);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

/* ---- text ---- */

void hl_history_head_unused(struct hl_notices *notices, uint32_t foreign, const char *foreign_name,
			    uint32_t ignored, const char *noun)
{
	if (foreign == 1)
		hl_notices_warn(notices, "FOREIGN: '%s' is of another recording and is not used",
				foreign_name);
	else if (foreign)
		hl_notices_warn(notices,
				"FOREIGN: '%s' and %u more files are of another recording and are "
				"not used",
				foreign_name, foreign - 1);
	if (ignored)
		hl_notices_warn(notices,
				"GAP: %u older %s%s left out, because what comes after %s is "
				"missing or damaged",
				ignored, noun, ignored == 1 ? " is" : "s are",
				ignored == 1 ? "it" : "them");
}

void hl_history_head_notices(struct hl_notices *notices, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t early_ms = early_end_ms(history);
	struct hole hole = {0};
	size_t hole_count = 0;
	char duration[HL_FORMAT_MAX], more[HL_FORMAT_MAX];

	while (next_hole(history, hole.end, &hole)) {
		const char *cut = cut_segment(history, hole);
		if (hole_count++ >= HOLES_SHOWN)
			continue;
		hl_notices_warn(notices,
				"HOLE: intervals from %llu to %llu ms %s%s%s; of what happened "
				"then, only the outcome is known",
				hole_first_ms(history, hole), hole_last_ms(history, hole),
				cut ? "are missing, because '" : "could not be written",
				cut ? cut : "", cut ? "' was cut off" : "");
	}
	if (hole_count > HOLES_SHOWN)
		hl_notices_warn(notices, "HOLE: and %s more; --json lists them",
				hl_format_count((int64_t)(hole_count - HOLES_SHOWN), more));
	if (log->damaged)
		hl_notices_warn(notices,
				"DAMAGED: '%s' is damaged; the last intervals may be missing",
				log->damaged);
	hl_history_head_unused(notices, log->foreign_count, log->foreign_name, log->ignored_count,
			       "log segment");
	if (early_ms)
		hl_notices_warn(notices,
				"GAP: the log ends %s before the process did: its newest segments "
				"are missing%s",
				hl_format_duration(early_ms * NS_PER_MS, duration),
				log->cut_off ? " or cut off" : "");
	else if (log->cut_off && !log->damaged && !history->source.log.recording->snapshot)
		hl_notices_add(notices, "note: the log has no end: it is still being written, or "
					"its writer was killed");
}

/* ---- begin and end ---- */

#define SPARKLINE_COLUMNS 72
#define SPARKLINE_LEVELS  8

/* The range in one line of text; each column is the highest maximum of its share of the range. */
static void put_sparkline(struct hl_emit *emit, const struct hl_history *history)
{
	static const char *const blocks[SPARKLINE_LEVELS] = {"▁", "▂", "▃", "▄",
							     "▅", "▆", "▇", "█"};
	static const char *const letters[SPARKLINE_LEVELS] = {"_", ".", "-", "~",
							      "=", "+", "*", "#"};

	const char *const *signs = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : letters;
	size_t count = history->point_count, width = hl_emit_width(emit);
	size_t columns = width && width < SPARKLINE_COLUMNS ? width : SPARKLINE_COLUMNS;
	char text[3 * SPARKLINE_COLUMNS + 1] = "", *at = text;
	int64_t bytes[SPARKLINE_COLUMNS] = {0}, most = 0;

	if (count < columns)
		columns = count;
	for (size_t i = 0; i < count; i++) {
		int64_t *column = &bytes[((i + 1) * columns - 1) / count];
		if (history->points[i].max_bytes > *column)
			*column = history->points[i].max_bytes;
		if (*column > most)
			most = *column;
	}
	for (size_t i = 0; i < columns; i++) {
		double height = most ? (double)bytes[i] / (double)most : 0;
		at = stpcpy(at, signs[(size_t)(height * (SPARKLINE_LEVELS - 1) + 0.5)]);
	}
	hl_emit_line(emit, "%s", text);
}

int hl_history_head_begin(const struct hl_history *history, const struct hl_view_options *options,
			  const char *schema, struct hl_emit **ret_emit)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};
	const struct hl_log_point *peak = hl_history_head_peak(history);
	uint64_t start = hl_history_start_ms(history), length = hl_history_length_ms(history);
	struct hl_notices notices = {0};
	char duration[HL_FORMAT_MAX], time[HL_FORMAT_MAX];
	struct hl_emit *emit;

	int r = hl_emit_open(&how, schema, &emit);
	if (r < 0)
		return r;
	hl_history_head_members(emit, history);
	hl_summary_lines(emit, history->profile);
	hl_history_head_notices(&notices, history);
	hl_notices_emit(&notices, emit);
	hl_emit_line(emit, "log from %llu to %llu ms (%s), since %s, highest at %llu ms",
		     (unsigned long long)start, (unsigned long long)(start + length - 1),
		     hl_format_duration(length * NS_PER_MS, duration),
		     hl_format_time(history->log->start_realtime_ns + start * NS_PER_MS, time),
		     (unsigned long long)hl_history_head_ms(peak));
	put_sparkline(emit, history);
	*ret_emit = emit;
	return 0;
}

int hl_history_head_fail(const struct hl_history *history, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s", history->path, strerror(-code));
}

int hl_history_head_note(const struct hl_history *history, const struct hl_view_options *options)
{
	struct hl_notices notices = {0};

	hl_summary_notices(&notices, history->profile);
	hl_history_head_notices(&notices, history);
	return hl_notices_put(&notices, options->notes);
}
