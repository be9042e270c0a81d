/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds logs and what is known of their processes, and makes a profile of a moment of a log; see open.h. */
#include "open/open.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "import/importer.h"
#include "log/log.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

static int out_of_memory(const char *path, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
}

/* ---- processes that are known by their logs alone ---- */

/* Whether a log that begins at ${start_ns} cannot be of the recording, because it began before it or
 * after its end. Files of logs do not say more. */
static bool is_foreign(const struct hl_recording *recording, uint64_t start_ns)
{
	return start_ns < recording->start_realtime_ns ||
	       (recording->complete &&
		start_ns - recording->start_realtime_ns > recording->duration_ns);
}

static bool is_known(const struct hl_recording *recording, uint32_t sequence)
{
	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].sequence == sequence)
			return true;
	return false;
}

/* The first process of a recording is the one that 'record' was asked to run. */
static int add_process(struct hl_recording *recording, uint32_t sequence, const struct hl_log *log)
{
	const struct hl_log_point *last =
		log->point_count ? &log->points[log->point_count - 1] : NULL;
	size_t capacity = recording->process_count;
	struct hl_recording_process process = {
		.sequence = sequence,
		.executable = strdup(""),
		.command = hl_recording_copy_words(sequence == 0 ? recording->command : NULL),
		.start_realtime_ns = log->start_realtime_ns,
		.duration_ns = last ? (last->number + 1) * HL_INTERVAL_TICKS * NS_PER_MS : 0,
		.complete = true,
		.end = HL_END_UNKNOWN,
		.value_count = 1,
		.values = calloc(1, sizeof(*process.values)),
	};

	if (!process.executable || !process.command || !process.values ||
	    HL_ARRAY_RESERVE(recording->processes, capacity, recording->process_count + (size_t)1) <
		    0) {
		hl_recording_process_release(&process);
		return -ENOMEM;
	}
	if (!recording->start_realtime_ns) {
		recording->start_realtime_ns = process.start_realtime_ns;
		recording->duration_ns = process.duration_ns;
	}
	for (size_t i = 0; i < log->point_count; i++)
		if (log->points[i].max_bytes > process.values[0].peak_bytes)
			process.values[0].peak_bytes = log->points[i].max_bytes;
	recording->processes[recording->process_count++] = process;
	return 0;
}

static int by_sequence(const void *left, const void *right)
{
	const struct hl_recording_process *a = left, *b = right;

	return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

/* Adds the processes that have a log alone. A log that cannot be read is an error only if it is the
 * only one. */
static int add_processes(struct hl_log_source *source, struct hl_error *err)
{
	struct hl_recording *recording = source->log.recording;
	const struct hl_log_place *place = &source->log.place;
	uint32_t known = recording->process_count;
	bool has_meta = recording->start_realtime_ns != 0;
	struct hl_error why = {0};
	int failure = 0;

	for (size_t i = 0; i < place->file_count; i++) {
		const struct hl_log_file *file = &place->files[i];
		struct hl_log *log;
		if (file->kind != &hl_log_segments ||
		    (i && file[-1].kind == file->kind && file[-1].process == file->process) ||
		    is_known(recording, file->process))
			continue;
		int r = hl_log_open(place, file->process, NULL, &log, &why);
		if (r == 0) {
			r = has_meta && is_foreign(recording, log->start_realtime_ns)
				    ? hl_recording_warn(recording,
							"a process is left out: '%s' is of another "
							"recording",
							file->name)
				    : add_process(recording, file->process, log);
			hl_log_free(log);
		} else {
			failure = r;
		}
		if (r == -ENOMEM)
			return out_of_memory(place->path, err);
	}
	if (!recording->process_count && failure)
		return hl_error_set(err, failure, "%s", why.text);
	if (recording->process_count > known)
		qsort(recording->processes, recording->process_count, sizeof(*recording->processes),
		      by_sequence);
	return 0;
}

/* An empty recording, with a warning that says that it is not known what was recorded. */
static int make_recording(const char *path, struct hl_recording **ret_recording,
			  struct hl_error *err)
{
	struct hl_recording *recording = calloc(1, sizeof(*recording));

	if (!recording)
		return out_of_memory(path, err);
	recording->name = strdup(path);
	recording->tool_version = strdup("");
	recording->host = strdup("");
	recording->kernel = strdup("");
	recording->mode = strdup("");
	recording->complete = true;
	recording->warnings = calloc(2, sizeof(*recording->warnings));
	if (recording->warnings)
		recording->warnings[0] =
			strdup("there is no " HL_META_FILE " beside the log: what was run, in "
			       "which mode and where is not known");
	*ret_recording = recording;
	return recording->name && recording->tool_version && recording->host && recording->kernel &&
			       recording->mode && recording->warnings && recording->warnings[0]
		       ? 0
		       : out_of_memory(path, err);
}

/* ---- directories, packed recordings, segments ---- */

static int open_directory(struct hl_log_source *source, const char *path, struct hl_error *err)
{
	struct hl_error why = {0};

	int r = hl_recording_open(path, &source->log.recording, &why);
	if (r < 0 && r != -ENOENT)
		return hl_error_set(err, r, "%s", why.text);
	int opened = hl_log_place_open_directory(&source->log.place, path, err);
	if (opened < 0)
		return opened;
	/* Without a recording.hlm it may be segments that were copied. They come last in order. */
	const struct hl_log_place *place = &source->log.place;
	if (r == -ENOENT &&
	    (!place->file_count || place->files[place->file_count - 1].kind != &hl_log_segments))
		return hl_error_set(err, r, "%s", why.text);
	if (r == -ENOENT)
		r = make_recording(path, &source->log.recording, err);
	return r < 0 ? r : add_processes(source, err);
}

/* The recording in the directory of ${path}, if the segment belongs to it; else NULL. 0 or
 * -ENOMEM. */
static int open_neighbour(const char *path, const struct hl_segment_header *header,
			  struct hl_recording **ret_recording)
{
	struct hl_recording *recording;
	HL_FREED char *copy = strdup(path);

	int r = copy ? hl_recording_open(dirname(copy), &recording, NULL) : -ENOMEM;
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	bool is_foreign = false;
	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].sequence == header->process)
			is_foreign = recording->processes[i].start_realtime_ns !=
				     header->start_realtime_ns;
	if (is_foreign)
		hl_recording_free(recording);
	else
		*ret_recording = recording;
	return 0;
}

static int open_segment(struct hl_log_source *source, struct hl_input *input, struct hl_error *err)
{
	char name[HL_SEGMENT_NAME_MAX];
	struct hl_segment_header header;

	int r = hl_input_make_file(input, err);
	if (r < 0)
		return r;
	if (input->head_size < sizeof(header))
		return hl_error_set(err, -ENODATA, "cannot use '%s': it was cut off in its header",
				    input->name);
	memcpy(&header, input->head, sizeof(header));
	const char *wrong = hl_log_files_check_header(&hl_log_segments, header.process, &header);
	if (wrong)
		return hl_error_set(err, -EBADMSG, "cannot use '%s': %s", input->name, wrong);
	hl_log_files_name(&hl_log_segments, &header, name);
	r = hl_log_place_open_file(&source->log.place, input->fd, input->name);
	if (r == 0)
		r = hl_log_place_add(&source->log.place, name, 0, input->size);
	if (r == 0 && !input->is_stdin)
		r = open_neighbour(input->name, &header, &source->log.recording);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", input->name, strerror(-r));
	if (!source->log.recording)
		r = make_recording(input->name, &source->log.recording, err);
	return r < 0 ? r : add_processes(source, err);
}

bool hl_log_source_is_segment(const struct hl_input *input)
{
	return hl_input_begins_with(input, HL_SEGMENT_MAGIC, strlen(HL_SEGMENT_MAGIC));
}

int hl_log_source_refuse_events(const char *name, struct hl_error *err)
{
	HL_FREED char *copy = strdup(name);
	const char *directory = copy ? dirname(copy) : "";
	char meta[PATH_MAX];

	snprintf(meta, sizeof(meta), "%s/" HL_META_FILE, directory);
	if (*directory && access(meta, F_OK) == 0)
		return hl_error_set(err, -EINVAL,
				    "cannot read '%s' alone: it holds events of a recording, which "
				    "'heapline events %s' reads",
				    name, directory);
	return hl_error_set(err, -EINVAL,
			    "cannot read '%s' alone: it holds events of a recording; put it back "
			    "beside " HL_META_FILE ", and give that directory to 'heapline events'",
			    name);
}

int hl_log_source_open_input(struct hl_log_source *source, struct hl_input *input,
			     struct hl_error *err)
{
	*source = HL_LOG_SOURCE_NONE;
	if (hl_pack_detect(input->head, input->head_size)) {
		int r = hl_input_make_file(input, err);
		if (r == 0)
			r = hl_pack_read(input->fd, input->name, NULL, &source->packed, err);
		if (r == 0)
			r = hl_pack_log_read(input->fd, input->name, source->packed, &source->log,
					     err);
		if (r == 0 && hl_known_names_init(&source->names, source->packed) < 0)
			r = out_of_memory(input->name, err);
		return r;
	}
	if (hl_log_source_is_segment(input))
		return open_segment(source, input, err);
	if (hl_input_begins_with(input, HL_EVENTS_MAGIC, strlen(HL_EVENTS_MAGIC)))
		return hl_log_source_refuse_events(input->name, err);
	const char *foreign = hl_import_foreign(&(struct hl_import_input){
		.name = input->name, .bytes = input->head, .size = input->head_size});
	if (foreign)
		return hl_error_set(err, -EINVAL, "'%s' has no log: it is %s", input->name,
				    foreign);
	return hl_error_set(err, -EINVAL,
			    "'%s' has no log: only recordings, packed or not, and segments of "
			    "logs, memlog-*.hll, can be shown over time",
			    input->name);
}

int hl_log_source_open(struct hl_log_source *source, const char *path, struct hl_error *err)
{
	HL_CLEANUP(hl_input_close) struct hl_input input = HL_INPUT_NONE;

	*source = HL_LOG_SOURCE_NONE;
	if (hl_input_is_directory(path))
		return open_directory(source, path, err);
	int r = hl_input_open(&input, path, err);
	return r < 0 ? r : hl_log_source_open_input(source, &input, err);
}

void hl_log_source_release(struct hl_log_source *source)
{
	hl_known_names_release(&source->names);
	hl_profile_free(source->packed);
	hl_pack_log_release(&source->log);
}

/* ---- which log ---- */

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

static bool keeps_log(const struct hl_recording *recording)
{
	return !strncmp(recording->mode, "log-", strlen("log-"));
}

/* Says why there is no log, or no interval in it; ${why} where nothing more is known. */
static int fail(const struct hl_log_source *source, int r, const struct hl_error *why,
		struct hl_error *err)
{
	const struct hl_recording *recording = source->log.recording;
	const char *path = source->log.place.path;

	if (recording->running && (r == -ENODATA || (r == -ENOENT && keeps_log(recording))))
		return hl_error_set(err, r,
				    "the log in '%s' holds no interval yet: the first is written "
				    "after 100 ms; try again in a moment",
				    path);
	if (recording->running && r == -ENOENT && recording->process_count)
		return hl_error_set(err, r,
				    "'%s' holds no log so far: 'heapline ctl -p %u mode log-fast' "
				    "begins one, whose first interval is written after 100 ms",
				    path, recording->processes[0].pid);
	if (r == -ENOENT && keeps_log(recording) && source->log.place.is_directory)
		return hl_error_set(err, r,
				    "'%s' was recorded in mode %s, but the files of this log, "
				    "memlog-*.hll, are not in it; put them back, or see 'heapline "
				    "top %s', which does without",
				    path, recording->mode, path);
	return hl_error_set(err, r, "%s", why->text);
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
	HL_FREED struct candidate *candidates =
		calloc((size_t)recording->process_count + 1, sizeof(*candidates));
	struct hl_error why = {0};
	struct hl_log *log = NULL;
	size_t count = 0, tried = 0;
	int r = -ENOENT;

	if (!candidates)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", place->path);
	for (uint32_t i = 0; i < recording->process_count; i++) {
		struct candidate candidate = {&recording->processes[i], 0};
		if ((selection->pid && candidate.process->pid != selection->pid) ||
		    (selection->by_sequence && candidate.process->sequence != selection->sequence))
			continue;
		for (uint32_t value = 0; value < candidate.process->value_count; value++)
			candidate.peak += candidate.process->values[value].peak_bytes;
		candidates[count++] = candidate;
	}
	process.tid = 0; /* logs do not tell threads apart */
	bool may_come = recording->running && keeps_log(recording) && !selection->pid &&
			!selection->by_sequence;
	if (!count && !may_come)
		return hl_profile_selection_fail(&process, place->path, err);
	qsort(candidates, count, sizeof(*candidates), highest_first);
	while (r == -ENOENT && tried < count) {
		const struct hl_recording_process *candidate = candidates[tried++].process;
		options.start_realtime_ns = candidate->start_realtime_ns;
		why.text[0] = '\0';
		r = hl_log_open(place, candidate->sequence, &options, &log, &why);
	}
	if (r == 0 && !log->point_count) {
		hl_log_free(log);
		r = hl_error_set(
			&why, log->damaged ? -EBADMSG : -ENODATA,
			log->damaged
				? "the log in '%s' is damaged: none of its intervals can be read"
				: "the log in '%s' holds no interval",
			place->path);
	}
	if (r < 0)
		return fail(source, r, &why, err);
	*ret_process = candidates[tried - 1].process;
	*ret_log = log;
	return 0;
}

/* ---- from a state to a profile ---- */

/* Copies modules, nodes and values; ${recorded} is the process as its recording has it. */
static int copy_state(const struct hl_log_state *state, const struct hl_recording_process *recorded,
		      struct hl_recording_process *process)
{
	process->modules = calloc(state->module_count + 1, sizeof(*process->modules));
	process->nodes = calloc(state->node_count + 1, sizeof(*process->nodes));
	process->values = calloc(state->node_count + 1, sizeof(*process->values));
	process->threads = calloc(1, sizeof(*process->threads));
	if (!process->modules || !process->nodes || !process->values || !process->threads)
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
	process->thread_count = 1;
	for (size_t i = 1; i < state->node_count; i++) {
		/* A node that the log mentions without defining it keeps its place, as code of no
		 * module. */
		process->nodes[process->node_count++] =
			(struct hl_recording_node){state->nodes[i].frame, state->nodes[i].parent};
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

/* What the log says of scripts, for a process of which nothing else is there. Texts stay the state's. 0 or -ENOMEM. */
static int copy_sites(const struct hl_log_state *state, struct hl_recording_process *process)
{
	uint32_t count = state->site_count ? (uint32_t)state->site_count - 1 : 0;

	process->providers = calloc(HL_SCRIPT_PROVIDERS_MAX, sizeof(*process->providers));
	process->sites = calloc(count + (size_t)1, sizeof(*process->sites));
	process->site_names = calloc(2 * (size_t)count + 1, sizeof(*process->site_names));
	if (!process->providers || !process->sites || !process->site_names)
		return -ENOMEM;
	for (; process->provider_count < state->provider_count; process->provider_count++) {
		const struct hl_region_provider *from = &state->providers[process->provider_count];
		process->providers[process->provider_count] = (struct hl_recording_provider){
			.name = (char *)from->name,
			.eval_start = from->eval_start,
			.eval_end = from->eval_end,
			.cold_start = from->cold_start,
			.cold_end = from->cold_end,
			.text_start = from->text_start,
			.text_end = from->text_end,
			.alloc_start = from->alloc_start,
			.alloc_end = from->alloc_end,
		};
	}
	process->site_names[process->site_name_count++] = (char *)"";
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_log_site *from = &state->sites[i + 1];
		struct hl_recording_site *to = &process->sites[process->site_count++];
		if (!from->function)
			continue;
		*to = (struct hl_recording_site){from->provider, process->site_name_count,
						 process->site_name_count + 1, from->line,
						 from->first_line};
		process->site_names[process->site_name_count++] = (char *)from->function;
		process->site_names[process->site_name_count++] = (char *)from->source;
	}
	return 0;
}

/* Says that names of scripts are missing: nothing but segments is there, which older versions wrote without them. */
static int warn_of_scripts(struct hl_profile *profile, const struct hl_log_state *state,
			   const struct hl_recording_process *recorded)
{
	uint32_t site;

	for (size_t i = 1; i < state->node_count; i++)
		if (state->nodes[i].defined && hl_frame_key_is_site(state->nodes[i].frame, &site) &&
		    site > recorded->site_count)
			return hl_profile_warn(
				profile,
				"names of scripts are [unknown], as these segments do not hold "
				"them: put the recording's process-%" PRIu32 "-*.hlp beside the "
				"segments, or 'heapline pack' the recording",
				recorded->sequence);
	return 0;
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
	copy.knows_resident = false; /* it is of other nodes, and of now */
	of_one.processes = &copy;
	of_one.process_count = 1;
	bool log_names_scripts = !process->site_count && state->site_count;
	int r = copy_state(state, process, &copy);
	if (r == 0 && log_names_scripts)
		r = copy_sites(state, &copy);
	r = r == 0 ? hl_profile_load(&of_one, &all, &profile, err)
		   : hl_error_set(err, r, "cannot load '%s': out of memory", recording->name);
	free(copy.modules);
	free(copy.nodes);
	free(copy.values);
	free(copy.threads);
	if (log_names_scripts) {
		free(copy.providers);
		free(copy.sites);
		free(copy.site_names);
	}
	if (r < 0)
		return r;
	profile->recorded_process_count = recording->process_count;
	profile->recorded_process_number = (size_t)(process - recording->processes) + 1;
	/* A log knows what was in use, but not who allocated it, and nothing else. */
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS] = true;
	profile->thread_count = profile->processes[0].thread_count = 0;
	if ((!log_names_scripts && warn_of_scripts(profile, state, process) < 0) ||
	    (source->packed && hl_strings_intern(&profile->strings, HL_PACK_SOURCE "recording",
						 &profile->source) < 0)) {
		hl_profile_free(profile);
		if (ret_nodes) {
			free(*ret_nodes);
			*ret_nodes = NULL;
		}
		return hl_error_set(err, -ENOMEM, "cannot load '%s': out of memory",
				    recording->name);
	}
	*ret_profile = profile;
	return 0;
}

/* ---- a moment ---- */

static int find_interval(const struct hl_log *log, const struct hl_moment *at, const char *path,
			 uint64_t *ret_number, struct hl_error *err)
{
	const struct hl_log_point *first = log->points, *highest = first;
	const struct hl_log_point *last = &log->points[log->point_count - 1];

	for (const struct hl_log_point *point = first; point <= last; point++)
		if (point->max_bytes > highest->max_bytes)
			highest = point;
	uint64_t number = at->kind == HL_MOMENT_PEAK ? highest->number : at->ms / HL_INTERVAL_TICKS;
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

/* Says which moment the profile shows. ${state_tick} is when the state was reached; in an interval
 * in which nothing happened, every tick is the maximum. */
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

int hl_moment_load(const struct hl_log_source *source, const struct hl_profile_selection *selection,
		   struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_log_state_free_at) struct hl_log_state *state = NULL;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_CLEANUP(hl_log_free_at) struct hl_log *log = NULL;
	const struct hl_recording_process *process;
	const char *path = source->log.place.path;
	uint64_t number = 0;

	if (selection->tid)
		return hl_error_set(err, -EINVAL,
				    "cannot select a thread at a moment: the log of '%s' does not "
				    "tell threads apart",
				    path);
	int r = hl_moment_open_log(source, selection, &process, &log, err);
	if (r == 0)
		r = find_interval(log, &selection->at, path, &number, err);
	if (r == 0)
		r = hl_log_state_at(log, number, HL_LOG_AT_MAX, &state, err);
	if (r == 0)
		r = hl_moment_profile(source, process, state, selection, &profile, NULL, err);
	if (r == 0)
		r = describe(profile, &log->points[number - log->points[0].number], state->tick);
	if (r < 0)
		return r;
	profile->lost_log_events = log->lost_events;
	*ret_profile = HL_TAKE(profile);
	return 0;
}
