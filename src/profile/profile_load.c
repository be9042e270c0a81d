/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads a recording into a profile. */
#include "profile/builder.h"

#include "base/frame_key.h"
#include "profile/array.h"
#include "profile/recording.h"

#include <stdio.h>
#include <string.h>

#define UNRESOLVED UINT32_MAX

/* One selected process while the tree is being built. */
struct source {
	const struct hl_recording_process *process;
	uint32_t *modules; /* profile module of modules[i] */
	uint32_t *nodes;   /* builder node of node id i; [0] is the root */
};

struct loading {
	const struct hl_recording *recording;
	struct hl_profile_selection selection;
	struct hl_builder builder;
	struct source *sources;
	size_t source_count;
};

/* ---- selection ---- */

static bool is_selected(const struct hl_profile_selection *selection,
			const struct hl_recording_process *process)
{
	if (selection->pid && process->pid != selection->pid)
		return false;
	return !selection->by_sequence || process->sequence == selection->sequence;
}

static bool thread_is_selected(const struct hl_profile_selection *selection,
			       const struct hl_recording_thread *thread)
{
	return !selection->tid || thread->tid == selection->tid;
}

static uint32_t count_threads(const struct hl_profile_selection *selection,
			      const struct hl_recording_process *process)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < process->thread_count; i++)
		count += thread_is_selected(selection, &process->threads[i]);
	return count;
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
		if (is_selected(selection, process) &&
		    (!selection->tid || count_threads(selection, process)))
			loading->sources[loading->source_count++].process = process;
	}
	if (loading->source_count ||
	    (!selection->pid && !selection->by_sequence && !selection->tid))
		return 0;
	return hl_error_set(err, -ESRCH,
			    "no such process or thread in '%s'; 'heapline info' lists them",
			    recording->name);
}

/* ---- the tree ---- */

static int map_modules(struct hl_builder *builder, struct source *source)
{
	const struct hl_recording_process *process = source->process;
	int r = 0;

	source->modules = calloc(process->module_count + 1, sizeof(*source->modules));
	if (!source->modules)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < process->module_count; i++) {
		const struct hl_recording_module *module = &process->modules[i];
		r = hl_builder_module(builder, module->path, module->build_id,
				      module->build_id_bytes, &source->modules[i]);
	}
	return r;
}

/* Adds the node ${id}, whose parent is known already. */
static int map_node(struct hl_builder *builder, struct source *source, uint32_t id)
{
	const struct hl_recording_process *process = source->process;
	const struct hl_recording_node *node = &process->nodes[id - 1];
	uint64_t address = node->frame & HL_FRAME_PC_MASK;
	uint64_t number = node->frame >> HL_MODULE_SHIFT;
	uint32_t module = 0;

	if (!hl_frame_key_is_valid(node->frame, process->module_count))
		return -EBADMSG;
	if (number == HL_MODULE_SCRIPT) {
		module = HL_BUILDER_PSEUDO;
	} else if (number) {
		module = source->modules[number - 1];
		address -= process->modules[number - 1].load_bias;
	}
	return hl_builder_node(builder, source->nodes[node->parent], module, address,
			       &source->nodes[id]);
}

/*
 * Adds the node ${id} and its ancestors that are not there yet. Parents may have larger ids than
 * their children, so the way up is kept in ${path}, which holds node_count ids.
 */
static int map_path(struct hl_builder *builder, struct source *source, uint32_t id, uint32_t *path)
{
	const struct hl_recording_process *process = source->process;
	size_t depth = 0;

	while (source->nodes[id] == UNRESOLVED) {
		if (depth == process->node_count)
			return -EBADMSG; /* a cycle */
		path[depth++] = id;
		id = process->nodes[id - 1].parent;
		if (id > process->node_count)
			return -EBADMSG;
	}
	while (depth > 0) {
		int r = map_node(builder, source, path[--depth]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int map_nodes(struct hl_builder *builder, struct source *source)
{
	uint32_t count = source->process->node_count;
	uint32_t *path = calloc((size_t)count + 1, sizeof(*path));
	int r = hl_builder_reserve(builder, count);

	source->nodes = calloc((size_t)count + 1, sizeof(*source->nodes));
	if (!path || !source->nodes)
		r = -ENOMEM;
	for (uint32_t id = 1; r == 0 && id <= count; id++)
		source->nodes[id] = UNRESOLVED;
	for (uint32_t id = 1; r == 0 && id <= count; id++)
		r = map_path(builder, source, id, path);
	free(path);
	return r;
}

/* ---- values ---- */

static void add_counters(struct hl_profile_counters *sum, const struct hl_profile_counters *more)
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

static struct hl_profile_counters counters_of(const struct hl_recording_value *value)
{
	return (struct hl_profile_counters){
		.alloc_bytes = (int64_t)value->alloc_bytes,
		.alloc_objects = (int64_t)value->alloc_objects,
		.free_bytes = (int64_t)value->free_bytes,
		.free_objects = (int64_t)value->free_objects,
		.peak_bytes = value->peak_bytes,
		.peak_objects = value->peak_objects,
		.temporary_objects = (int64_t)value->temporary_objects,
		.slack_bytes = value->slack_bytes,
	};
}

static int add_values(struct hl_profile *profile, const struct source *source,
		      const struct hl_profile_selection *selection, const uint32_t *final_ids,
		      struct hl_profile_counters *total)
{
	const struct hl_recording_process *process = source->process;

	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		if (value->node > process->node_count || value->thread >= process->thread_count)
			return -EBADMSG;
		if (!thread_is_selected(selection, &process->threads[value->thread]))
			continue;
		struct hl_profile_counters counters = counters_of(value);
		add_counters(&profile->counters[final_ids[source->nodes[value->node]]], &counters);
		add_counters(total, &counters);
	}
	return 0;
}

/* ---- meta data ---- */

static bool is_control(char byte)
{
	return (unsigned char)byte < ' ' || byte == 0x7f;
}

static bool has_control(const char *word)
{
	while (*word && !is_control(*word))
		word++;
	return *word;
}

/* As bash and ksh read it: on one line, and nothing in it that a terminal would obey. */
static void put_escaped(FILE *out, const char *word)
{
	fputs("$'", out);
	for (; *word; word++)
		if (*word == '\n')
			fputs("\\n", out);
		else if (is_control(*word))
			fprintf(out, "\\%03o", (unsigned char)*word);
		else
			fprintf(out, strchr("'\\", *word) ? "\\%c" : "%c", *word);
	fputc('\'', out);
}

/* A word as a shell would need it. */
static void put_word(FILE *out, const char *word)
{
	if (has_control(word)) {
		put_escaped(out, word);
		return;
	}
	if (word[0] && !word[strcspn(word, " '\"\\$`*?[]{}()<>|&;#~!")]) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", out);
		else
			fputc(*word, out);
	fputc('\'', out);
}

static int intern_words(struct hl_strings *strings, char *const *words, uint32_t *ret_id)
{
	char *joined = NULL;
	size_t size;
	FILE *out = open_memstream(&joined, &size);

	if (!out)
		return -ENOMEM;
	for (char *const *word = words; word && *word; word++) {
		if (word != words)
			fputc(' ', out);
		put_word(out, *word);
	}
	int r = fclose(out) == 0 ? hl_strings_intern(strings, joined, ret_id) : -ENOMEM;
	free(joined);
	return r;
}

static int intern_end(struct hl_strings *strings, const struct hl_recording_process *process,
		      uint32_t *ret_id)
{
	char sentence[128];
	const char *signal_name;

	switch (process->end) {
	case HL_END_RUNNING:
		return hl_strings_intern(strings, "was still running", ret_id);
	case HL_END_EXITED:
		snprintf(sentence, sizeof(sentence), "exited with status %d", process->end_status);
		return hl_strings_intern(strings, sentence, ret_id);
	case HL_END_SIGNALED:
		signal_name = sigabbrev_np(process->end_status);
		snprintf(sentence, sizeof(sentence), "killed by signal %d (SIG%s)",
			 process->end_status, signal_name ? signal_name : "?");
		return hl_strings_intern(strings, sentence, ret_id);
	case HL_END_EXEC:
		return hl_strings_intern(strings, "replaced itself by another program (exec)",
					 ret_id);
	case HL_END_UNKNOWN:
		break;
	}
	return hl_strings_intern(strings, "ended", ret_id);
}

static struct hl_profile_lost lost_of(const struct hl_recording_lost *lost)
{
	return (struct hl_profile_lost){
		.events = lost->events,
		.bytes = lost->bytes,
		.truncated_stacks = lost->truncated_stacks,
		.incomplete_stacks = lost->incomplete_stacks,
		.unmatched_frees = lost->unmatched_frees,
		.modules = lost->modules,
		.unscanned_bytes = lost->unscanned_bytes,
	};
}

static void add_lost(struct hl_profile_lost *sum, const struct hl_profile_lost *more)
{
	sum->events += more->events;
	sum->bytes += more->bytes;
	sum->truncated_stacks += more->truncated_stacks;
	sum->incomplete_stacks += more->incomplete_stacks;
	sum->unmatched_frees += more->unmatched_frees;
	sum->modules += more->modules;
	sum->unscanned_bytes += more->unscanned_bytes;
}

static int describe_process(struct hl_profile *profile, const struct hl_recording_process *process,
			    const struct hl_profile_selection *selection,
			    struct hl_profile_process *ret_described)
{
	struct hl_profile_process described = {
		.pid = process->pid,
		.parent_pid = process->parent_pid,
		.sequence = process->sequence,
		.thread_count = count_threads(selection, process),
		.duration_ns = process->duration_ns,
		.complete = process->complete,
		.own_malloc = process->own_malloc,
		.lost = lost_of(&process->lost),
	};
	int r = intern_words(&profile->strings, process->command, &described.command);
	if (r == 0)
		r = hl_strings_intern(&profile->strings, process->executable,
				      &described.executable);
	if (r == 0)
		r = intern_end(&profile->strings, process, &described.end);
	if (r == 0)
		*ret_described = described;
	return r;
}

static int describe_warnings(struct hl_profile *profile, const struct hl_recording *recording)
{
	size_t count = 0;
	int r = 0;

	while (recording->warnings && recording->warnings[count])
		count++;
	profile->warnings = calloc(count + 1, sizeof(*profile->warnings));
	if (!profile->warnings)
		return -ENOMEM;
	for (; r == 0 && profile->warning_count < count; profile->warning_count++)
		r = hl_strings_intern(&profile->strings,
				      recording->warnings[profile->warning_count],
				      &profile->warnings[profile->warning_count]);
	return r;
}

static int describe_recording(struct hl_profile *profile, const struct hl_recording *recording)
{
	const struct {
		const char *text;
		uint32_t *id;
	} texts[] = {
		{recording->name, &profile->name},
		{recording->host, &profile->host},
		{recording->kernel, &profile->kernel},
		{recording->mode, &profile->mode},
		{recording->tool_version, &profile->tool_version},
	};
	int r = intern_words(&profile->strings, recording->command, &profile->command);

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(texts); i++)
		r = hl_strings_intern(&profile->strings, texts[i].text, texts[i].id);
	if (r == 0)
		r = describe_warnings(profile, recording);
	profile->sample_bytes = recording->sample_bytes;
	profile->start_realtime_ns = recording->start_realtime_ns;
	profile->duration_ns = recording->duration_ns;
	profile->recorded_process_count = recording->process_count;
	profile->complete = recording->complete;
	return r;
}

/* ---- all of it ---- */

static int build_tree(struct loading *loading)
{
	int r = hl_builder_init(&loading->builder);

	for (size_t i = 0; r == 0 && i < loading->source_count; i++) {
		r = map_modules(&loading->builder, &loading->sources[i]);
		if (r == 0)
			r = map_nodes(&loading->builder, &loading->sources[i]);
	}
	return r;
}

static int fill_process(struct hl_profile *profile, const struct loading *loading,
			const struct source *source, const uint32_t *final_ids)
{
	struct hl_profile_process *process = &profile->processes[profile->process_count];

	int r = describe_process(profile, source->process, &loading->selection, process);
	if (r == 0)
		r = add_values(profile, source, &loading->selection, final_ids, &process->total);
	if (r < 0)
		return r;
	add_counters(&profile->total, &process->total);
	add_lost(&profile->lost, &process->lost);
	profile->complete = profile->complete && process->complete;
	profile->process_count++;
	return 0;
}

static int fill_profile(struct hl_profile *profile, const struct loading *loading,
			const uint32_t *final_ids)
{
	int r = describe_recording(profile, loading->recording);

	profile->processes = calloc(loading->source_count + 1, sizeof(*profile->processes));
	if (!profile->processes)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < loading->source_count; i++)
		r = fill_process(profile, loading, &loading->sources[i], final_ids);
	return r;
}

static void release_loading(struct loading *loading)
{
	for (size_t i = 0; i < loading->source_count; i++) {
		free(loading->sources[i].modules);
		free(loading->sources[i].nodes);
	}
	free(loading->sources);
	hl_builder_release(&loading->builder);
}

static int load(struct loading *loading, struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile *profile = NULL;
	uint32_t *final_ids = NULL;

	int r = select_sources(loading, err);
	if (r == 0)
		r = build_tree(loading);
	if (r == 0)
		r = hl_builder_finish(&loading->builder, &final_ids, &profile);
	if (r == 0)
		r = fill_profile(profile, loading, final_ids);
	free(final_ids);
	if (r < 0) {
		hl_profile_free(profile);
		return r;
	}
	*ret_profile = profile;
	return 0;
}

int hl_profile_load(const struct hl_recording *recording,
		    const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		    struct hl_error *err)
{
	struct loading loading = {.recording = recording};

	if (selection)
		loading.selection = *selection;
	int r = load(&loading, ret_profile, err);
	release_loading(&loading);
	if (r == -EBADMSG)
		hl_error_set(err, r,
			     "cannot use '%s': its call tree contradicts itself; the "
			     "recording is damaged",
			     recording->name);
	if (r == -ENOMEM)
		hl_error_set(err, r, "cannot load '%s': out of memory", recording->name);
	return r;
}
