/* SPDX-License-Identifier: BSD-2-Clause */
/* The head of every report; see summary.h. */
#include "view/summary.h"

#include "view/format.h"

#include <errno.h>
#include <string.h>

/* ---- JSON ---- */

static void recording_member(struct hl_emit *emit, const struct hl_profile *profile)
{
	char start[HL_FORMAT_MAX];

	hl_emit_object(emit, "recording");
	hl_emit_text(emit, "name", hl_profile_text(profile, profile->name));
	hl_emit_text(emit, "command", hl_profile_text(profile, profile->command));
	hl_emit_integer(emit, "pid", profile->process_count ? profile->processes[0].pid : 0);
	hl_emit_text(emit, "start", hl_format_time(profile->start_realtime_ns, start));
	hl_emit_text(emit, "mode", hl_profile_text(profile, profile->mode));
	hl_emit_integer(emit, "sample_bytes", (int64_t)profile->sample_bytes);
	hl_emit_integer(emit, "duration_ms", (int64_t)(profile->duration_ns / 1000000));
	hl_emit_integer(emit, "processes", (int64_t)profile->process_count);
	hl_emit_boolean(emit, "complete", profile->complete);
	hl_emit_array(emit, "warnings");
	for (size_t i = 0; i < profile->warning_count; i++)
		hl_emit_text(emit, NULL, hl_profile_text(profile, profile->warnings[i]));
	hl_emit_array_end(emit);
	hl_emit_object_end(emit);
}

static void total_member(struct hl_emit *emit, const struct hl_profile_counters *total)
{
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "inuse_bytes", total->alloc_bytes - total->free_bytes);
	hl_emit_integer(emit, "inuse_objects", total->alloc_objects - total->free_objects);
	hl_emit_integer(emit, "alloc_bytes", total->alloc_bytes);
	hl_emit_integer(emit, "alloc_objects", total->alloc_objects);
	hl_emit_integer(emit, "peak_bytes", total->peak_bytes);
	hl_emit_integer(emit, "peak_objects", total->peak_objects);
	hl_emit_integer(emit, "temporary_objects", total->temporary_objects);
	hl_emit_integer(emit, "slack_bytes", total->slack_bytes);
	hl_emit_object_end(emit);
}

static void lost_member(struct hl_emit *emit, const struct hl_profile_lost *lost)
{
	hl_emit_object(emit, "lost");
	hl_emit_integer(emit, "events", (int64_t)lost->events);
	hl_emit_integer(emit, "bytes", (int64_t)lost->bytes);
	hl_emit_integer(emit, "truncated_stacks", (int64_t)lost->truncated_stacks);
	hl_emit_integer(emit, "incomplete_stacks", (int64_t)lost->incomplete_stacks);
	hl_emit_integer(emit, "unmatched_frees", (int64_t)lost->unmatched_frees);
	hl_emit_integer(emit, "modules", (int64_t)lost->modules);
	hl_emit_integer(emit, "unscanned_bytes", (int64_t)lost->unscanned_bytes);
	hl_emit_object_end(emit);
}

void hl_summary_members(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	recording_member(emit, profile);
	if (options) {
		hl_emit_text(emit, "value", hl_value_names[options->value]);
		hl_emit_text(emit, "unit", hl_unit_names[options->unit]);
	}
	total_member(emit, &profile->total);
	lost_member(emit, &profile->lost);
}

/* ---- text ---- */

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void target_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char duration[HL_FORMAT_MAX];
	const char *name = hl_profile_text(profile, profile->name);
	const char *mode = hl_profile_text(profile, profile->mode);

	if (profile->process_count != 1) {
		hl_emit_line(emit, "%s: %s (%s, %s)", name,
			     hl_profile_text(profile, profile->command), mode,
			     hl_format_duration(profile->duration_ns, duration));
		return;
	}
	const struct hl_profile_process *process = &profile->processes[0];
	hl_emit_line(emit, "%s: %s (%s, pid %u, %s, %s)", name,
		     hl_profile_text(profile, process->command), mode, process->pid,
		     hl_profile_text(profile, process->end),
		     hl_format_duration(process->duration_ns, duration));
}

static void totals_line(struct hl_emit *emit, const struct hl_profile_counters *total)
{
	char peak[HL_FORMAT_MAX], peak_count[HL_FORMAT_MAX], inuse[HL_FORMAT_MAX];
	char inuse_count[HL_FORMAT_MAX], alloc[HL_FORMAT_MAX], alloc_count[HL_FORMAT_MAX];
	char temporary[HL_FORMAT_MAX];

	hl_emit_line(emit,
		     "peak %s in %s blocks; in use at the end %s in %s; allocated %s in %s, "
		     "%s of them temporary",
		     hl_format_bytes(total->peak_bytes, peak),
		     hl_format_count(total->peak_objects, peak_count),
		     hl_format_bytes(total->alloc_bytes - total->free_bytes, inuse),
		     hl_format_count(total->alloc_objects - total->free_objects, inuse_count),
		     hl_format_bytes(total->alloc_bytes, alloc),
		     hl_format_count(total->alloc_objects, alloc_count),
		     hl_format_count(total->temporary_objects, temporary));
}

void hl_summary_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	char sample[HL_FORMAT_MAX];

	target_line(emit, profile);
	totals_line(emit, &profile->total);
	if (profile->process_count > 1)
		hl_emit_line(emit,
			     "sums over %zu processes, each at its own peak; --process shows "
			     "one, 'heapline info' lists them",
			     profile->process_count);
	if (profile->sample_bytes)
		hl_emit_line(emit, "sampled about every %s: figures are estimates",
			     hl_format_bytes((int64_t)profile->sample_bytes, sample));
	hl_summary_warnings(emit, profile);
}

void hl_summary_value_line(struct hl_emit *emit, const struct hl_view_options *options)
{
	static const char *const meanings[] = {
		[HL_VALUE_INUSE] = "not freed when the recording ended",
		[HL_VALUE_ALLOC] = "ever allocated",
		[HL_VALUE_PEAK] = "in use when the total was highest",
		[HL_VALUE_TEMPORARY] = "freed at once, before the thread allocated again",
		[HL_VALUE_SLACK] = "set aside by the allocator beyond what was requested",
	};
	hl_emit_line(emit, "showing %s (%s) in %s; --value and --unit choose others",
		     hl_value_names[options->value], meanings[options->value],
		     hl_unit_names[options->unit]);
}

static void lost_warnings(struct hl_emit *emit, const struct hl_profile_lost *lost)
{
	char count[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];

	if (lost->events || lost->bytes)
		hl_emit_warning(emit, "LOST: %s event%s, %s: not in the figures below",
				hl_format_count((int64_t)lost->events, count), plural(lost->events),
				hl_format_bytes((int64_t)lost->bytes, bytes));
	if (lost->truncated_stacks)
		hl_emit_warning(emit, "LOST: the outer frames of %s stack%s, too deep to keep",
				hl_format_count((int64_t)lost->truncated_stacks, count),
				plural(lost->truncated_stacks));
	if (lost->incomplete_stacks)
		hl_emit_warning(emit, "LOST: the outer frames of %s stack%s, not to be unwound",
				hl_format_count((int64_t)lost->incomplete_stacks, count),
				plural(lost->incomplete_stacks));
	if (lost->modules)
		hl_emit_warning(emit, "LOST: the names of %s module%s",
				hl_format_count((int64_t)lost->modules, count),
				plural(lost->modules));
	if (lost->unscanned_bytes)
		hl_emit_warning(emit, "LOST: %s could not be read",
				hl_format_bytes((int64_t)lost->unscanned_bytes, bytes));
	if (lost->unmatched_frees)
		hl_emit_line(emit, "note: %s free%s of blocks whose allocation was not seen",
			     hl_format_count((int64_t)lost->unmatched_frees, count),
			     plural(lost->unmatched_frees));
}

void hl_summary_names_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char names[128] = "";
	size_t used = 0, omitted = 0;

	for (size_t i = 1; i < profile->module_count; i++) {
		const char *path = hl_profile_text(profile, profile->modules[i].path);
		const char *slash = strrchr(path, '/');
		if (!profile->modules[i].used || !slash ||
		    profile->modules[i].symbols == HL_SYMBOLS_DWARF)
			continue;
		if (used + strlen(slash) + 2 > sizeof(names)) {
			omitted++;
			continue;
		}
		used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", slash + 1);
	}
	if (used)
		hl_emit_line(emit, "no debug information for %s%s; 'heapline info' says what helps",
			     names, omitted ? " and others" : "");
}

bool hl_summary_is_empty(const struct hl_profile *profile)
{
	return !profile->total.alloc_objects && !profile->total.free_objects;
}

static void emptiness_warning(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (!profile->recorded_process_count)
		hl_emit_warning(emit, "EMPTY: no process was recorded");
	else if (!strcmp(hl_profile_text(profile, profile->mode), "closed"))
		hl_emit_warning(emit, "EMPTY: recorded in mode 'closed', which counts nothing");
	else
		hl_emit_warning(emit, "EMPTY: not one allocation was recorded");
}

void hl_summary_warnings(struct hl_emit *emit, const struct hl_profile *profile)
{
	if (!profile->complete)
		hl_emit_warning(emit, "INCOMPLETE: the recording was interrupted; figures are "
				      "those of its last save");
	for (size_t i = 0; i < profile->warning_count; i++)
		hl_emit_warning(emit, "WARNING: %s",
				hl_profile_text(profile, profile->warnings[i]));
	for (size_t i = 0; i < profile->process_count; i++)
		if (profile->processes[i].own_malloc)
			hl_emit_warning(emit,
					"UNSEEN: process %u has a malloc of its own, whose "
					"allocations were not seen",
					profile->processes[i].pid);
	if (hl_summary_is_empty(profile))
		emptiness_warning(emit, profile);
	lost_warnings(emit, &profile->lost);
}

int hl_summary_note(const struct hl_profile *profile, const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->notes, HL_EMIT_TABLE, false, &emit);
	if (r < 0)
		return r;
	hl_summary_warnings(emit, profile);
	return hl_emit_finish(emit);
}

int hl_summary_fail(const struct hl_profile *profile, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s",
			    hl_profile_text(profile, profile->name), strerror(-code));
}
