/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads a recording into a profile. */
#include "profile/builder.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "guests/traits.h"
#include "profile/profile.h"
#include "recording/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UNRESOLVED    UINT32_MAX
#define PROGRESS_STEP 1024u

/* One selected process while the tree is being built. */
struct source {
	const struct hl_recording_process *process;
	uint32_t *modules;  /* profile module of modules[i] */
	uint32_t *runtimes; /* profile module of providers[i]; 0: of pools */
	uint32_t *sites;    /* builder frame of site i * 2, and + 1 as an entry; 0: not yet */
	uint32_t *nodes;    /* builder node of node id i; [0] is the root */
	uint32_t *threads;  /* profile thread of threads[i]; UNRESOLVED: not selected */
};

struct loading {
	const struct hl_recording *recording;
	struct hl_profile_selection selection;
	struct hl_builder builder;
	struct source *sources;
	size_t source_count;
};

/* The finished tree while it gets its values. */
struct filling {
	const struct loading *loading;
	struct hl_profile *profile;
	const uint32_t *final_ids; /* by builder node */
	size_t thread_capacity, row_capacity, size_capacity;
};

/* ---- selection ---- */

static bool thread_is_selected(const struct hl_profile_selection *selection,
			       const struct hl_recording_thread *thread)
{
	return !selection->tid || thread->tid == selection->tid;
}

static int select_sources(struct loading *loading, struct hl_error *err)
{
	const struct hl_recording *recording = loading->recording;
	const struct hl_profile_selection *selection = &loading->selection;

	loading->sources = calloc(recording->process_count + 1, sizeof(*loading->sources));
	if (!loading->sources)
		return -ENOMEM;
	for (uint32_t i = 0; i < recording->process_count; i++) {
		const struct hl_recording_process *process = &recording->processes[i];
		bool has_thread = !selection->tid;
		for (uint32_t t = 0; !has_thread && t < process->thread_count; t++)
			has_thread = thread_is_selected(selection, &process->threads[t]);
		if (has_thread && (!selection->pid || process->pid == selection->pid) &&
		    (!selection->by_sequence || process->sequence == selection->sequence))
			loading->sources[loading->source_count++].process = process;
	}
	if (loading->source_count ||
	    (!selection->pid && !selection->by_sequence && !selection->tid))
		return 0;
	return hl_profile_selection_fail(selection, recording->name, err);
}

/* ---- the tree ---- */

/* Adds a place in a script below the builder's node ${parent}. */
static int map_site(struct hl_builder *builder, struct source *source, uint32_t parent,
		    uint64_t key, uint32_t number, uint32_t *ret_node)
{
	const struct hl_recording_process *process = source->process;

	if (!number || number > process->site_count)
		return hl_builder_node(builder, parent, HL_BUILDER_PSEUDO, 0, ret_node);
	uint32_t *frames = &source->sites[(size_t)number * 2];
	if (!*frames) {
		const struct hl_recording_site *site = &process->sites[number - 1];
		const char *file = process->site_names[site->source];
		const struct hl_symbols_frame symbol = {
			.function = process->site_names[site->function],
			.function_file = file,
			.function_line = site->first_line,
			.file = file,
			.line = site->line,
		};
		uint32_t runtime = source->runtimes[site->provider];
		enum hl_frame_part part = hl_frame_part_of_site(process, site, false);
		int r = part == HL_PART_ENDED
				? hl_builder_label(builder, "[ended]", runtime, part, &frames[0])
			: hl_frame_part_is_label((uint8_t)part)
				? hl_builder_label(builder, symbol.function, runtime, part,
						   &frames[0])
			: runtime
				? hl_builder_site(builder, &symbol, runtime, &frames[0], &frames[1])
				: hl_builder_frame(builder, &symbol, 0, 0, &frames[0]);
		if (part != HL_PART_SCRIPT)
			frames[1] = frames[0];
		if (r < 0)
			return r;
	}
	return hl_builder_child(builder, parent, frames[key & HL_SITE_ENTRY ? 1 : 0], ret_node);
}

/* Adds the frames of scripts that the node ${innermost}, which stands below the root, and those outward of it have. What
 * is no such frame, in what is damaged, becomes a place that could not be told. */
static int map_path(struct hl_builder *builder, struct source *source, uint32_t parent,
		    uint32_t innermost, uint32_t *ret_node)
{
	const struct hl_recording_process *process = source->process;
	uint64_t keys[HL_SCRIPT_DEPTH_MAX];
	size_t depth = 0;
	int r = 0;

	for (uint32_t at = innermost; depth < HL_COUNT_OF(keys) && (at || !depth);) {
		bool is_there = at && at <= process->node_count;
		keys[depth++] = is_there ? process->nodes[at - 1].frame : hl_site_frame_key(0, 0);
		at = is_there ? process->nodes[at - 1].parent : 0;
	}
	while (r == 0 && depth-- > 0) {
		uint32_t site;
		if (!hl_frame_key_is_site(keys[depth], &site))
			site = 0;
		r = map_site(builder, source, parent, keys[depth], site, &parent);
	}
	if (r == 0)
		*ret_node = parent;
	return r;
}

static int compare_code(const void *key, const void *element)
{
	const uint64_t *address = key;
	const struct hl_recording_code *code = element;

	return (*address > code->address) - (*address < code->address);
}

/* Adds an address outside every module, by the name that its runtime gave it. */
static int map_code(struct hl_builder *builder, const struct hl_recording_process *process,
		    uint32_t parent, uint64_t address, uint32_t *ret_node)
{
	const struct hl_recording_code *code =
		process->code_count ? bsearch(&address, process->code, process->code_count,
					      sizeof(*process->code), compare_code)
				    : NULL;
	struct hl_symbols_frame symbol;
	uint32_t frame;

	if (!code)
		return hl_builder_node(builder, parent, 0, address, ret_node);
	HL_FREED char *name = strdup(code->name);
	if (!name)
		return -ENOMEM;
	hl_symbols_split(name, &symbol);
	int r = hl_builder_frame(builder, &symbol, 0, address, &frame);
	return r < 0 ? r : hl_builder_child(builder, parent, frame, ret_node);
}

/* Says of a native frame whether it is an interpreter's. */
static void mark_interpreter(struct hl_builder *builder, const struct source *source, uint64_t pc,
			     uint32_t module, uint64_t address)
{
	const struct hl_recording_process *process = source->process;

	for (uint32_t i = 0; i < process->provider_count; i++) {
		enum hl_frame_part part = hl_frame_part_of_code(&process->providers[i], pc);
		if (part != HL_PART_NATIVE)
			hl_builder_mark(builder, module, address, part, source->runtimes[i]);
	}
}

/* Adds the node ${id}, whose parent is known already. */
static int map_node(struct hl_builder *builder, struct source *source, uint32_t id)
{
	const struct hl_recording_process *process = source->process;
	const struct hl_recording_node *node = &process->nodes[id - 1];
	uint64_t address = node->frame & HL_FRAME_PC_MASK;
	uint64_t number = node->frame >> HL_MODULE_SHIFT;
	uint32_t module = 0, size_class, site, path;

	if (!hl_frame_key_is_valid(node->frame, process->module_count))
		return -EBADMSG;
	if (hl_frame_key_is_size(node->frame, &size_class)) {
		source->nodes[id] = source->nodes[node->parent];
		return 0;
	}
	if (hl_frame_key_is_site(node->frame, &site))
		return map_site(builder, source, source->nodes[node->parent], node->frame, site,
				&source->nodes[id]);
	if (hl_frame_key_is_path(node->frame, &path))
		return map_path(builder, source, source->nodes[node->parent], path,
				&source->nodes[id]);
	if (number == HL_MODULE_SCRIPT) {
		module = HL_BUILDER_PSEUDO;
	} else if (number) {
		module = source->modules[number - 1];
		address -= process->modules[number - 1].load_bias;
	}
	int r = module ? hl_builder_node(builder, source->nodes[node->parent], module, address,
					 &source->nodes[id])
		       : map_code(builder, process, source->nodes[node->parent], address,
				  &source->nodes[id]);
	if (r == 0 && number != HL_MODULE_SCRIPT)
		mark_interpreter(builder, source, node->frame & HL_FRAME_PC_MASK, module, address);
	return r;
}

static int map_nodes(struct hl_builder *builder, struct source *source,
		     struct hl_progress *progress)
{
	uint32_t count = source->process->node_count;
	/* Of a node's ancestors that are not there yet: parents may have larger ids than children. */
	HL_FREED uint32_t *path = calloc((size_t)count + 1, sizeof(*path));
	size_t depth = 0;

	source->nodes = calloc((size_t)count + 1, sizeof(*source->nodes));
	if (!path || !source->nodes || hl_builder_reserve(builder, count) < 0)
		return -ENOMEM;
	for (uint32_t id = 1; id <= count; id++)
		source->nodes[id] = UNRESOLVED;
	for (uint32_t id = 1; id <= count; id++) {
		if (id % PROGRESS_STEP == 0)
			hl_progress_report(progress, "naming functions", id, count);
		for (uint32_t at = id; source->nodes[at] == UNRESOLVED;) {
			if (depth == count)
				return -EBADMSG; /* a cycle */
			path[depth++] = at;
			at = source->process->nodes[at - 1].parent;
			if (at > count)
				return -EBADMSG;
		}
		while (depth > 0) {
			int r = map_node(builder, source, path[--depth]);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int map_runtimes(struct hl_builder *builder, struct source *source)
{
	const struct hl_recording_process *process = source->process;
	int r = 0;

	if (!process->provider_count)
		return 0;
	source->runtimes = calloc(process->provider_count, sizeof(*source->runtimes));
	source->sites = calloc(process->site_count + (size_t)1, 2 * sizeof(*source->sites));
	if (!source->runtimes || !source->sites)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < process->provider_count; i++)
		if (hl_frame_part_of_provider(&process->providers[i]) != HL_PART_NATIVE)
			r = hl_builder_runtime(builder, process->providers[i].name,
					       &source->runtimes[i]);
	return r;
}

/* What a log names and the process does not, as it may where its recorder was killed. */
static int name_log(struct hl_builder *builder, const struct hl_recording_process *process,
		    const struct hl_log_state *log)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < log->node_count; i++) {
		uint64_t frame = log->nodes[i].frame, number = frame >> HL_MODULE_SHIFT;
		uint32_t module;
		if (!log->nodes[i].defined || !number || number > log->module_count)
			continue;
		const struct hl_log_module *of = &log->modules[number - 1];
		const struct hl_file_print print = hl_history_names_print(process, number - 1, of);
		r = hl_builder_module(builder, of->path, of->build_id, of->build_id_bytes, &print,
				      &module);
		if (r == 0)
			r = hl_builder_name(builder, module,
					    (frame & HL_FRAME_PC_MASK) - of->load_bias);
	}
	return r;
}

/* ---- values ---- */

static int add_threads(struct filling *filling, struct source *source, uint32_t *ret_count)
{
	const struct hl_recording_process *process = source->process;
	struct hl_profile *profile = filling->profile;
	uint32_t count = 0;

	source->threads = calloc((size_t)process->thread_count + 1, sizeof(*source->threads));
	if (!source->threads || HL_ARRAY_RESERVE(profile->threads, filling->thread_capacity,
						 profile->thread_count + process->thread_count) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < process->thread_count; i++) {
		const struct hl_recording_thread *recorded = &process->threads[i];
		char name[sizeof(recorded->name) + 48];
		int length = snprintf(name, sizeof(name), "%.*s", (int)sizeof(recorded->name),
				      recorded->name);
		struct hl_profile_thread thread = {
			.process = (uint32_t)profile->process_count,
			.tid = recorded->tid,
			.earlier_threads = recorded->earlier_threads,
		};
		source->threads[i] = UNRESOLVED;
		if (!thread_is_selected(&filling->loading->selection, recorded))
			continue;
		if (recorded->earlier_threads) /* which had ended, and count in its figures */
			snprintf(name + length, sizeof(name) - (size_t)length, " and %u earlier %s",
				 recorded->earlier_threads,
				 recorded->earlier_threads == 1 ? "one" : "ones");
		if (hl_strings_intern(&profile->strings, name, &thread.name) < 0)
			return -ENOMEM;
		source->threads[i] = (uint32_t)profile->thread_count;
		profile->threads[profile->thread_count++] = thread;
		count += 1 + recorded->earlier_threads;
	}
	*ret_count = count;
	return 0;
}

/* Adds ${counters} of the recorded node ${id} and a recorded thread to all sums that they are part
 * of. */
static int add_counters(struct filling *filling, const struct source *source, uint32_t id,
			uint32_t thread_index, const struct hl_profile_counters *counters,
			struct hl_profile_counters *total)
{
	const struct hl_recording_process *process = source->process;
	struct hl_profile *profile = filling->profile;
	uint32_t size_class;

	if (id > process->node_count || thread_index >= process->thread_count)
		return -EBADMSG;
	uint32_t thread = source->threads[thread_index];
	if (thread == UNRESOLVED)
		return 0;
	uint32_t node = filling->final_ids[source->nodes[id]];
	hl_profile_counters_add(&profile->counters[node], counters);
	hl_profile_counters_add(&profile->threads[thread].total, counters);
	hl_profile_counters_add(total, counters);
	if (filling->loading->selection.keep_rows &&
	    HL_ARRAY_APPEND(profile->rows, profile->row_count, filling->row_capacity,
			    (struct hl_profile_row){node, thread, *counters}) < 0)
		return -ENOMEM;
	if (id && hl_frame_key_is_size(process->nodes[id - 1].frame, &size_class))
		return HL_ARRAY_APPEND(
			profile->sizes, profile->size_count, filling->size_capacity,
			(struct hl_profile_size){node, thread, size_class, *counters});
	return 0;
}

static int add_value(struct filling *filling, const struct source *source,
		     const struct hl_recording_value *value, struct hl_profile_counters *total)
{
	const struct hl_profile_counters counters = {
		.alloc_bytes = (int64_t)value->alloc_bytes,
		.alloc_objects = (int64_t)value->alloc_objects,
		.free_bytes = (int64_t)value->free_bytes,
		.free_objects = (int64_t)value->free_objects,
		.peak_bytes = value->peak_bytes,
		.peak_objects = value->peak_objects,
		.temporary_objects = (int64_t)value->temporary_objects,
		.slack_bytes = value->slack_bytes,
	};

	return add_counters(filling, source, value->node, value->thread, &counters, total);
}

/* Pages know no threads: a stack's count with the thread that has most of its blocks in use. */
static int add_resident(struct filling *filling, const struct source *source,
			struct hl_profile_counters *total)
{
	const struct hl_recording_process *process = source->process;
	HL_FREED uint32_t *threads = calloc(process->node_count + (size_t)1, sizeof(*threads));
	HL_FREED uint64_t *most = calloc(process->node_count + (size_t)1, sizeof(*most));
	int r = threads && most ? 0 : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		uint64_t inuse = value->alloc_bytes - value->free_bytes;
		if ((int64_t)inuse > (int64_t)most[value->node]) {
			most[value->node] = inuse;
			threads[value->node] = value->thread;
		}
	}
	for (uint32_t i = 0; r == 0 && process->thread_count && i < process->resident_count; i++) {
		const struct hl_recording_resident *of = &process->resident[i];
		const struct hl_profile_counters counters = {
			.resident_bytes = (int64_t)of->resident_bytes,
			.swapped_bytes = (int64_t)of->swapped_bytes,
		};
		r = add_counters(filling, source, of->node, threads[of->node], &counters, total);
	}
	return r;
}

/* ---- interpreters whose own memory was not seen ---- */

/* Allocations of what scripts call, from which on one of the interpreter itself is to be expected; and of the interpreter
 * itself, from which on a call of its main function is. */
#define UNSEEN_MIN 1000

/* The guest of which it is known which code of it calls the host's allocator; NULL: none. */
static const struct hl_guest_traits *find_allocating(const struct loading *loading)
{
	for (size_t i = 0; i < loading->source_count; i++) {
		const struct hl_recording_process *process = loading->sources[i].process;
		for (uint32_t p = 0; p < process->provider_count; p++)
			if (process->providers[p].alloc_end)
				return hl_guest_of_provider(process->providers[p].name);
	}
	return NULL;
}

/* Where scripts run and nothing was allocated by the interpreter itself, the host gives it memory that the
 * recorder does not see. */
static int warn_of_unseen(struct hl_profile *profile, const struct loading *loading)
{
	enum { RUNS = 1, ALLOCATES = 2 };
	const struct hl_guest_traits *guest = find_allocating(loading);
	HL_FREED uint8_t *stacks = NULL; /* by node: what is on it */
	int64_t of_scripts = 0;

	if (!guest || !guest->hidden_memory_remedy)
		return 0;
	stacks = calloc(profile->node_count, sizeof(*stacks));
	if (!stacks)
		return -ENOMEM;
	for (size_t i = 1; i < profile->node_count; i++) {
		uint8_t part = profile->frames[profile->nodes[i].frame].part;
		stacks[i] =
			stacks[profile->nodes[i].parent] | (part == HL_PART_EVAL	? RUNS
							    : part == HL_PART_ALLOCATES ? ALLOCATES
											: 0);
		if (profile->counters[i].alloc_objects && stacks[i] & ALLOCATES)
			return 0;
		of_scripts += stacks[i] & RUNS ? profile->counters[i].alloc_objects : 0;
	}
	if (of_scripts < UNSEEN_MIN)
		return 0;
	return hl_profile_warn(profile,
			       "memory of %s itself was not seen: the program gives %s an "
			       "allocator of its own, which does not call malloc; %s",
			       guest->language, guest->language, guest->hidden_memory_remedy);
}

/* ---- interpreters whose scripts were not seen ---- */

/* What allocated with code of an interpreter on its stack. */
struct runs {
	bool has_calls;	    /* of its main function */
	uint64_t allocated; /* blocks */
	uint64_t
		generated; /* of these, below code of no module, behind which the stack was not walked */
};

static void count_runs(struct runs *runs, const struct hl_recording_process *process,
		       const struct hl_recording_provider *provider,
		       const struct hl_recording_value *value)
{
	bool is_interpreter = false;
	uint64_t outermost = 0;

	for (uint32_t at = value->node; at; at = process->nodes[at - 1].parent) {
		outermost = process->nodes[at - 1].frame;
		if (outermost >> HL_MODULE_SHIFT == HL_MODULE_SCRIPT)
			continue;
		enum hl_frame_part part =
			hl_frame_part_of_code(provider, outermost & HL_FRAME_PC_MASK);
		runs->has_calls |= part == HL_PART_EVAL;
		is_interpreter |= part == HL_PART_INTERPRETER;
	}
	if (is_interpreter)
		runs->allocated += value->alloc_objects;
	if (is_interpreter && outermost >> HL_MODULE_SHIFT == HL_MODULE_NONE)
		runs->generated += value->alloc_objects;
}

/* All scripts are run by the main function: where many stacks have code of the interpreter and none that, it is
 * elsewhere. */
static int warn_of_runs(struct hl_profile *profile, const struct hl_recording_process *process,
			const struct hl_recording_provider *provider,
			const struct hl_guest_traits *guest)
{
	const char *path = process->executable;
	struct runs runs = {0};
	int r = 0;

	for (uint32_t i = 0; i < process->value_count; i++)
		count_runs(&runs, process, provider, &process->values[i]);
	for (uint32_t i = 0; i < process->module_count; i++)
		if (provider->eval_start - process->modules[i].start <
		    process->modules[i].end - process->modules[i].start)
			path = process->modules[i].path;
	if (guest->hidden_loop_remedy && runs.allocated >= UNSEEN_MIN && !runs.has_calls)
		r = hl_profile_warn(profile,
				    "the loop that runs %s was not found in '%s': stacks of "
				    "scripts of process %u are [native]; %s",
				    guest->language, path, process->pid, guest->hidden_loop_remedy);
	if (r == 0 && guest->generated_remedy && runs.generated >= UNSEEN_MIN)
		r = hl_profile_warn(profile,
				    "process %u ran code that %s's JIT had made, whose stacks "
				    "are not read: %" PRIu64 " allocations below it are [native]; "
				    "%s",
				    process->pid, guest->language, runs.generated,
				    guest->generated_remedy);
	return r;
}

static int warn_of_native(struct hl_profile *profile, const struct hl_recording_process *process)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < process->provider_count; i++) {
		const struct hl_recording_provider *provider = &process->providers[i];
		const struct hl_guest_traits *guest =
			provider->eval_end ? hl_guest_of_provider(provider->name) : NULL;
		if (guest && (guest->hidden_loop_remedy || guest->generated_remedy))
			r = warn_of_runs(profile, process, provider, guest);
	}
	return r;
}

/* ---- all of it ---- */

static int build_tree(struct loading *loading)
{
	const struct hl_profile_selection *selection = &loading->selection;
	struct hl_builder *builder = &loading->builder;
	int r = hl_builder_init(builder);

	builder->files = selection->files;
	builder->names = selection->names;
	builder->directory = loading->recording->directory;
	for (size_t i = 0; r == 0 && i < loading->source_count; i++) {
		struct source *source = &loading->sources[i];
		const struct hl_recording_process *process = source->process;
		size_t number = (size_t)(process - loading->recording->processes);
		source->modules = calloc(process->module_count + 1, sizeof(*source->modules));
		if (!source->modules)
			return -ENOMEM;
		for (uint32_t m = 0; r == 0 && m < process->module_count; m++) {
			const struct hl_recording_module *module = &process->modules[m];
			r = hl_builder_module(builder, module->path, module->build_id,
					      module->build_id_bytes, &module->print,
					      &source->modules[m]);
		}
		if (r == 0)
			r = map_runtimes(builder, source);
		if (r == 0)
			r = map_nodes(builder, source, selection->progress);
		if (r == 0 && selection->logs && selection->logs[number])
			r = name_log(builder, process, selection->logs[number]);
	}
	return r;
}

static int fill_process(struct filling *filling, struct source *source)
{
	struct hl_profile *profile = filling->profile;
	struct hl_profile_process *process = &profile->processes[profile->process_count];

	int r = hl_profile_describe_process(profile, source->process, process);
	if (r == 0)
		r = add_threads(filling, source, &process->thread_count);
	for (uint32_t i = 0; r == 0 && i < source->process->value_count; i++)
		r = add_value(filling, source, &source->process->values[i], &process->total);
	if (r == 0 && source->process->knows_resident) {
		hl_profile_know_pages(profile);
		profile->resident_is_mean |= source->process->resident_is_mean;
		profile->resident_unknown_bytes += source->process->resident_unknown_bytes;
		r = add_resident(filling, source, &process->total);
	}
	if (r < 0)
		return r;
	hl_profile_counters_add(&profile->total, &process->total);
	hl_lost_add(&profile->lost, &process->lost);
	profile->complete = profile->complete && process->complete;
	profile->process_count++;
	return 0;
}

static int fill_profile(struct hl_profile *profile, const struct loading *loading,
			const uint32_t *final_ids)
{
	struct filling filling = {.loading = loading, .profile = profile, .final_ids = final_ids};
	int r = hl_profile_describe_recording(profile, loading->recording);

	hl_profile_know_recorded(profile, loading->recording->mode);
	profile->processes = calloc(loading->source_count + 1, sizeof(*profile->processes));
	if (!profile->processes)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < loading->source_count; i++)
		r = fill_process(&filling, &loading->sources[i]);
	profile->unfiltered_total = profile->total;
	if (r == 0 && loading->selection.tid)
		r = hl_profile_warn_of_earlier_threads(profile);
	if (r == 0)
		r = warn_of_unseen(profile, loading);
	for (size_t i = 0; r == 0 && i < loading->source_count; i++)
		r = warn_of_native(profile, loading->sources[i].process);
	return r < 0 ? r : hl_profile_warn_of_pauses(profile);
}

static void release_loading(struct loading *loading)
{
	for (size_t i = 0; i < loading->source_count; i++) {
		free(loading->sources[i].modules);
		free(loading->sources[i].runtimes);
		free(loading->sources[i].sites);
		free(loading->sources[i].nodes);
		free(loading->sources[i].threads);
	}
	free(loading->sources);
	hl_builder_release(&loading->builder);
}

int hl_profile_load(const struct hl_recording *recording,
		    const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		    struct hl_error *err)
{
	HL_CLEANUP(release_loading) struct loading loading = {.recording = recording};
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_FREED uint32_t *final_ids = NULL;

	if (selection)
		loading.selection = *selection;
	int r = select_sources(&loading, err);
	if (r == 0)
		r = build_tree(&loading);
	if (r == 0)
		r = hl_builder_finish(&loading.builder, &final_ids, &profile);
	if (r == 0)
		r = fill_profile(profile, &loading, final_ids);
	if (r == 0 && loading.selection.ret_nodes) {
		/* The final node of each node id of the only process, in the order of ids. */
		const struct source *source = &loading.sources[0];
		size_t count = loading.source_count == 1 ? source->process->node_count : 0;
		uint32_t *nodes = calloc(count + 1, sizeof(*nodes));
		for (size_t i = 1; nodes && i <= count; i++)
			nodes[i] = final_ids[source->nodes[i]];
		if (nodes)
			*loading.selection.ret_nodes = nodes;
		if (nodes && loading.selection.ret_node_count)
			*loading.selection.ret_node_count = count + 1;
		r = nodes ? 0 : -ENOMEM;
	}
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	if (r == -EBADMSG)
		hl_error_set(err, r,
			     "cannot use '%s': its call tree contradicts itself; the "
			     "recording is damaged",
			     recording->name);
	if (r == -ENOMEM)
		hl_error_set(err, r, "cannot load '%s': out of memory", recording->name);
	return r;
}
