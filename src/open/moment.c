/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns states of logs into recordings of one process, and these into profiles; see moment.h. */
#include "open/moment.h"

#include "profile/history_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which log ---- */

static bool is_selected(const struct hl_profile_selection *selection,
			const struct hl_recording_process *process)
{
	if (selection->pid && process->pid != selection->pid)
		return false;
	return !selection->by_sequence || process->sequence == selection->sequence;
}

static int64_t peak_of(const struct hl_recording_process *process)
{
	int64_t peak = 0;

	for (uint32_t i = 0; i < process->value_count; i++)
		peak += process->values[i].peak_bytes;
	return peak;
}

struct candidate {
	const struct hl_recording_process *process;
	int64_t peak;
};

static int highest_first(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->peak != b->peak)
		return a->peak < b->peak ? 1 : -1;
	return (a->process > b->process) - (a->process < b->process);
}

static size_t list_candidates(const struct hl_recording *recording,
			      const struct hl_profile_selection *selection,
			      struct candidate *candidates)
{
	size_t count = 0;

	for (uint32_t i = 0; i < recording->process_count; i++)
		if (is_selected(selection, &recording->processes[i]))
			candidates[count++] = (struct candidate){&recording->processes[i],
								 peak_of(&recording->processes[i])};
	if (count > 1)
		qsort(candidates, count, sizeof(*candidates), highest_first);
	return count;
}

static int open_first_log(const struct hl_log_place *place, const struct candidate *candidates,
			  size_t count, const struct hl_log_options *options,
			  const struct hl_recording_process **ret_process, struct hl_log **ret_log,
			  struct hl_error *err)
{
	int r = -ENOENT;

	for (size_t i = 0; r == -ENOENT && i < count; i++) {
		struct hl_log_options of_process = *options;
		of_process.start_realtime_ns = candidates[i].process->start_realtime_ns;
		r = hl_log_open(place, candidates[i].process->sequence, &of_process, ret_log, err);
		if (r == 0)
			*ret_process = candidates[i].process;
	}
	return r;
}

int hl_moment_open_log(const struct hl_log_source *source,
		       const struct hl_profile_selection *selection,
		       const struct hl_recording_process **ret_process, struct hl_log **ret_log,
		       struct hl_error *err)
{
	struct hl_log_options options = {.jobs = selection->jobs, .progress = selection->progress};
	const struct hl_recording *recording = source->log.recording;
	const struct hl_log_place *place = &source->log.place;
	struct hl_profile_selection process = *selection;
	struct candidate *candidates =
		calloc((size_t)recording->process_count + 1, sizeof(*candidates));

	if (!candidates)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", place->path);
	process.tid = 0; /* logs do not tell threads apart */
	size_t count = list_candidates(recording, selection, candidates);
	int r = count ? open_first_log(place, candidates, count, &options, ret_process, ret_log,
				       err)
		      : hl_profile_selection_fail(&process, place->path, err);
	free(candidates);
	return r;
}

/* ---- from a state to a profile ---- */

static int copy_modules(const struct hl_log_state *state,
			const struct hl_recording_process *recorded,
			struct hl_recording_process *process)
{
	process->modules = calloc(state->module_count + 1, sizeof(*process->modules));
	if (!process->modules)
		return -ENOMEM;
	for (size_t i = 0; i < state->module_count; i++) {
		const struct hl_log_module *from = &state->modules[i];
		struct hl_recording_module *to = &process->modules[i];
		*to = (struct hl_recording_module){
			.path = (char *)from->path,
			.start = from->start,
			.end = from->end,
			.load_bias = from->load_bias,
			.build_id_bytes = from->build_id_bytes,
			.print = hl_history_names_print(recorded, i, from),
		};
		memcpy(to->build_id, from->build_id, sizeof(to->build_id));
	}
	process->module_count = (uint32_t)state->module_count;
	return 0;
}

/* Nodes that the log mentions without defining them keep their place, as code of no module. */
static int copy_nodes(const struct hl_log_state *state, struct hl_recording_process *process)
{
	size_t count = state->node_count ? state->node_count - 1 : 0;

	process->nodes = calloc(count + 1, sizeof(*process->nodes));
	if (!process->nodes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		process->nodes[i] = (struct hl_recording_node){state->nodes[i + 1].frame,
							       state->nodes[i + 1].parent};
	process->node_count = (uint32_t)count;
	return 0;
}

static int copy_values(const struct hl_log_state *state, struct hl_recording_process *process)
{
	process->values = calloc(state->node_count + 1, sizeof(*process->values));
	process->threads = calloc(1, sizeof(*process->threads));
	if (!process->values || !process->threads)
		return -ENOMEM;
	process->thread_count = 1;
	for (size_t i = 1; i < state->node_count; i++) {
		if (!state->bytes[i] && !state->objects[i])
			continue;
		process->values[process->value_count++] = (struct hl_recording_value){
			.node = (uint32_t)i,
			.alloc_bytes = (uint64_t)state->bytes[i],
			.alloc_objects = (uint64_t)state->objects[i],
		};
	}
	return 0;
}

static void release_copy(struct hl_recording_process *process)
{
	free(process->modules);
	free(process->nodes);
	free(process->values);
	free(process->threads);
}

/* A log knows what was in use, and nothing else. */
static void know_inuse_alone(struct hl_profile *profile)
{
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS] = true;
	profile->thread_count = 0; /* nor who allocated it */
}

int hl_moment_profile(const struct hl_log_source *source,
		      const struct hl_recording_process *process, const struct hl_log_state *state,
		      const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		      uint32_t **ret_nodes, struct hl_error *err)
{
	const struct hl_recording *recording = source->log.recording;
	struct hl_recording_process copy = *process;
	struct hl_recording of_one = *recording;
	struct hl_profile_selection all = {
		.progress = selection->progress,
		.names = source->packed ? &source->names : NULL,
		.ret_nodes = ret_nodes,
	};
	struct hl_profile *profile;

	copy.modules = NULL;
	copy.nodes = NULL;
	copy.values = NULL;
	copy.threads = NULL;
	copy.module_count = copy.node_count = copy.value_count = copy.thread_count = 0;
	of_one.processes = &copy;
	of_one.process_count = 1;
	int r = copy_modules(state, process, &copy);
	if (r == 0)
		r = copy_nodes(state, &copy);
	if (r == 0)
		r = copy_values(state, &copy);
	r = r == 0 ? hl_profile_load(&of_one, &all, &profile, err)
		   : hl_error_set(err, r, "cannot load '%s': out of memory", recording->name);
	release_copy(&copy);
	if (r < 0)
		return r;
	profile->recorded_process_count = recording->process_count;
	profile->recorded_process_number = (size_t)(process - recording->processes) + 1;
	know_inuse_alone(profile);
	if (source->packed && hl_strings_intern(&profile->strings, HL_PACK_SOURCE "recording",
						&profile->source) < 0) {
		hl_profile_free(profile);
		if (ret_nodes)
			free(*ret_nodes);
		return hl_error_set(err, -ENOMEM, "cannot load '%s': out of memory",
				    recording->name);
	}
	*ret_profile = profile;
	return 0;
}

/* ---- a moment ---- */

static const struct hl_log_point *highest_point(const struct hl_log *log)
{
	const struct hl_log_point *highest = log->points;

	for (size_t i = 1; i < log->point_count; i++)
		if (log->points[i].max_bytes > highest->max_bytes)
			highest = &log->points[i];
	return highest;
}

static int find_interval(const struct hl_log *log, const struct hl_moment *at, const char *path,
			 uint64_t *ret_number, struct hl_error *err)
{
	if (!log->point_count)
		return hl_error_set(err, -ERANGE, "the log in '%s' holds no interval yet", path);
	const struct hl_log_point *first = log->points;
	const struct hl_log_point *last = &log->points[log->point_count - 1];
	uint64_t number = at->kind == HL_MOMENT_PEAK ? highest_point(log)->number
						     : at->ms / HL_INTERVAL_TICKS;
	if (number < first->number || number > last->number)
		return hl_error_set(
			err, -ERANGE,
			"%llu ms is not in the log of '%s', which holds %llu to %llu ms",
			(unsigned long long)at->ms, path,
			(unsigned long long)first->number * HL_INTERVAL_TICKS,
			(unsigned long long)(last->number + 1) * HL_INTERVAL_TICKS - 1);
	*ret_number = number;
	return 0;
}

/* Where nothing happened in an interval, all of it is its maximum. ${state_tick} is when it was as
 * the profile says. */
static int describe(struct hl_profile *profile, const struct hl_log_point *point,
		    uint64_t state_tick)
{
	unsigned long long first = point->number * HL_INTERVAL_TICKS;
	unsigned long long tick = state_tick;
	char clause[128];

	if (tick / HL_INTERVAL_TICKS != point->number)
		tick = first;
	if (point->missing)
		snprintf(clause, sizeof(clause),
			 "at %llu ms, in a HOLE of the log: what was in use before it, at %llu ms",
			 tick, (unsigned long long)state_tick);
	else
		snprintf(clause, sizeof(clause), "at %llu ms, the maximum of %llu to %llu ms", tick,
			 first, first + HL_INTERVAL_TICKS);
	profile->moment_ms = tick;
	return hl_strings_intern(&profile->strings, clause, &profile->moment);
}

static int load_at(const struct hl_log_source *source, const struct hl_recording_process *process,
		   const struct hl_log *log, const struct hl_profile_selection *selection,
		   struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_log_state *state;
	struct hl_profile *profile;
	uint64_t number = 0;

	int r = find_interval(log, &selection->at, source->log.place.path, &number, err);
	if (r == 0)
		r = hl_log_state_at(log, number, HL_LOG_AT_MAX, &state, err);
	if (r < 0)
		return r;
	r = hl_moment_profile(source, process, state, selection, &profile, NULL, err);
	if (r == 0) {
		r = describe(profile, &log->points[number - log->points[0].number], state->tick);
		profile->lost.log_events = log->lost_events;
		if (r < 0)
			hl_profile_free(profile);
		else
			*ret_profile = profile;
	}
	hl_log_state_free(state);
	return r;
}

int hl_moment_load(const struct hl_log_source *source, const struct hl_profile_selection *selection,
		   struct hl_profile **ret_profile, struct hl_error *err)
{
	const struct hl_recording_process *process;
	struct hl_log *log;

	if (selection->tid)
		return hl_error_set(err, -EINVAL,
				    "cannot select a thread at a moment: the log of '%s' does not "
				    "tell threads apart",
				    source->log.place.path);
	int r = hl_moment_open_log(source, selection, &process, &log, err);
	if (r < 0)
		return r;
	r = load_at(source, process, log, selection, ret_profile, err);
	hl_log_free(log);
	return r;
}
