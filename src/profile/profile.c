/* SPDX-License-Identifier: BSD-2-Clause */
/* What every view asks of a profile; see profile.h. */
#include "profile/profile.h"

#include "profile/trace_kind.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const hl_value_names[] = {"inuse", "alloc", "peak", "temporary", "slack", NULL};
const char *const hl_value_words[] = {"in use,", "allocated", "peak", "temporary", "slack"};
const char *const hl_unit_names[] = {"bytes", "objects", NULL};

void hl_profile_free(struct hl_profile *profile)
{
	if (!profile)
		return;
	hl_strings_release(&profile->strings);
	free(profile->warnings);
	free(profile->marks);
	free(profile->figures);
	free(profile->processes);
	free(profile->modules);
	free(profile->functions);
	free(profile->frames);
	free(profile->nodes);
	free(profile->counters);
	free(profile->threads);
	free(profile->rows);
	free(profile->sizes);
	free(profile->base);
	free(profile);
}

int hl_profile_warn(struct hl_profile *profile, const char *format, ...)
{
	HL_FREED char *sentence = NULL;
	uint32_t *warnings =
		reallocarray(profile->warnings, profile->warning_count + 1, sizeof(*warnings));
	va_list args;

	if (!warnings)
		return -ENOMEM;
	profile->warnings = warnings;
	va_start(args, format);
	int length = vasprintf(&sentence, format, args);
	va_end(args);
	if (length < 0) {
		sentence = NULL;
		return -ENOMEM;
	}
	int r = hl_strings_intern(&profile->strings, sentence, &warnings[profile->warning_count]);
	if (r == 0)
		profile->warning_count++;
	return r;
}

int hl_profile_warn_of_earlier_threads(struct hl_profile *profile)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		if (thread->earlier_threads)
			r = hl_profile_warn(profile,
					    "the figures of thread %u include those of %u that "
					    "ended before it began",
					    thread->tid, thread->earlier_threads);
	}
	return r;
}

int hl_profile_selection_fail(const struct hl_profile_selection *selection, const char *name,
			      struct hl_error *err)
{
	char process[64] = "", pid[16] = "", sequence[16] = "";

	/* "process 4711", "process 4711/2", "process /2" */
	if (selection->pid)
		snprintf(pid, sizeof(pid), "%u", selection->pid);
	if (selection->by_sequence)
		snprintf(sequence, sizeof(sequence), "/%u", selection->sequence);
	if (selection->pid || selection->by_sequence)
		snprintf(process, sizeof(process), "process %s%s", pid, sequence);
	if (selection->tid)
		return hl_error_set(err, -ESRCH,
				    "no thread %u%s%s in '%s'; 'heapline top --by thread' lists "
				    "them",
				    selection->tid, process[0] ? " of " : "", process, name);
	if (!process[0])
		return hl_error_set(err, -ESRCH, "no process in '%s'", name);
	return hl_error_set(err, -ESRCH, "no %s in '%s'; 'heapline info' lists them%s", process,
			    name,
			    selection->by_sequence ? "" : ", and '-p /SEQ' picks one by its order");
}

bool hl_profile_has_unit(enum hl_value value, enum hl_unit unit)
{
	if (value == HL_VALUE_TEMPORARY)
		return unit == HL_UNIT_OBJECTS;
	if (value == HL_VALUE_SLACK)
		return unit == HL_UNIT_BYTES;
	return true;
}

static void know(struct hl_profile *profile, enum hl_value value)
{
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
		profile->known[value][unit] = hl_profile_has_unit(value, (enum hl_unit)unit);
}

void hl_profile_know_all(struct hl_profile *profile)
{
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		know(profile, (enum hl_value)value);
}

void hl_profile_know_recorded(struct hl_profile *profile, const char *mode)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of(mode);

	if (!kind) {
		hl_profile_know_all(profile);
		return;
	}
	know(profile, kind->value);
}

void hl_profile_counters_add(struct hl_profile_counters *sum,
			     const struct hl_profile_counters *more)
{
	sum->alloc_bytes += more->alloc_bytes;
	sum->alloc_objects += more->alloc_objects;
	sum->free_bytes += more->free_bytes;
	sum->free_objects += more->free_objects;
	sum->peak_bytes += more->peak_bytes;
	sum->peak_objects += more->peak_objects;
	sum->temporary_objects += more->temporary_objects;
	sum->slack_bytes += more->slack_bytes;
}

bool hl_profile_counters_any(const struct hl_profile_counters *counters)
{
	static const struct hl_profile_counters none;
	return memcmp(counters, &none, sizeof(none)) != 0;
}

static bool tree_is_valid(const struct hl_profile *profile)
{
	const struct hl_profile_node *nodes = profile->nodes;

	if (!profile->node_count || nodes[0].end != profile->node_count || nodes[0].frame)
		return false;
	for (uint32_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *parent = &nodes[nodes[i].parent];
		if (nodes[i].parent >= i || nodes[i].end <= i || nodes[i].end > parent->end)
			return false;
		if (!nodes[i].frame || nodes[i].frame >= profile->frame_count)
			return false;
	}
	return true;
}

static bool frames_are_valid(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->frame_count; i++)
		if (!profile->frames[i].function ||
		    profile->frames[i].function >= profile->function_count)
			return false;
	for (size_t i = 1; i < profile->function_count; i++)
		if (!profile->functions[i].name ||
		    profile->functions[i].module >= profile->module_count)
			return false;
	return true;
}

static bool totals_are_valid(const struct hl_profile *profile)
{
	struct hl_profile_counters sum = {0};

	for (size_t i = 0; i < profile->node_count; i++) {
		sum.alloc_bytes += profile->counters[i].alloc_bytes;
		sum.free_objects += profile->counters[i].free_objects;
		sum.peak_bytes += profile->counters[i].peak_bytes;
	}
	return sum.alloc_bytes == profile->total.alloc_bytes &&
	       sum.free_objects == profile->total.free_objects &&
	       sum.peak_bytes == profile->total.peak_bytes;
}

bool hl_profile_is_valid(const struct hl_profile *profile)
{
	return tree_is_valid(profile) && frames_are_valid(profile) && totals_are_valid(profile);
}
