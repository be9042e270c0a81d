/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads packed recordings and trusts nothing in them; see pack.h. */
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "pack/pack_sections.h"
#include "profile/builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- selections: processes and threads out of a whole profile ---- */

#define GONE UINT32_MAX

/* By its old index: where each process, thread or node that stays goes. */
struct selecting {
	struct hl_profile *profile;
	const struct hl_profile_selection *selection;
	uint32_t *processes, *threads, *nodes;
};

static bool thread_is_selected(const struct selecting *selecting, size_t thread)
{
	uint32_t tid = selecting->selection->tid;

	return !tid || selecting->profile->threads[thread].tid == tid;
}

static bool process_is_selected(const struct selecting *selecting, uint32_t index)
{
	const struct hl_profile_selection *selection = selecting->selection;
	const struct hl_profile *profile = selecting->profile;
	const struct hl_profile_process *process = &profile->processes[index];

	if (selection->pid && process->pid != selection->pid)
		return false;
	if (selection->by_sequence && process->sequence != selection->sequence)
		return false;
	if (!selection->tid)
		return true;
	for (size_t i = 0; i < profile->thread_count; i++)
		if (profile->threads[i].process == index && thread_is_selected(selecting, i))
			return true;
	return false;
}

static void keep_processes(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < profile->process_count; i++)
		selecting->processes[i] = process_is_selected(selecting, i) ? kept++ : GONE;
	for (size_t i = 0; i < profile->process_count; i++)
		if (selecting->processes[i] != GONE)
			profile->processes[selecting->processes[i]] = profile->processes[i];
	profile->process_count = kept;
}

static void keep_threads(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;
	uint32_t kept = 0;

	for (size_t i = 0; i < profile->thread_count; i++) {
		struct hl_profile_thread thread = profile->threads[i];
		thread.process = selecting->processes[thread.process];
		selecting->threads[i] = GONE;
		if (thread.process == GONE || !thread_is_selected(selecting, i))
			continue;
		selecting->threads[i] = kept;
		profile->threads[kept++] = thread;
	}
	profile->thread_count = kept;
}

/* Marks ${node} if ${thread}, whatever thread was selected, is of a selected process. */
static void mark_node(struct selecting *selecting, uint32_t node, uint32_t thread)
{
	if (selecting->processes[selecting->profile->threads[thread].process] != GONE)
		selecting->nodes[node] = 1;
}

/* Marks the nodes of selected processes: those with figures, and their ancestors. */
static void mark_nodes(struct selecting *selecting)
{
	const struct hl_profile *profile = selecting->profile;

	for (size_t i = 0; i < profile->row_count; i++)
		mark_node(selecting, profile->rows[i].node, profile->rows[i].thread);
	for (size_t i = 0; i < profile->size_count; i++)
		mark_node(selecting, profile->sizes[i].node, profile->sizes[i].thread);
	for (size_t i = profile->node_count; i-- > 1;)
		if (selecting->nodes[i])
			selecting->nodes[profile->nodes[i].parent] = 1;
	selecting->nodes[0] = 1;
}

static void keep_nodes(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;
	uint32_t *new_ids = selecting->nodes, kept = 0;

	/* From marks to new ids; a node that goes has the id of the next one that stays. */
	for (size_t i = 0; i < profile->node_count; i++) {
		uint32_t stays = new_ids[i];
		new_ids[i] = kept;
		kept += stays;
	}
	new_ids[profile->node_count] = kept;
	for (size_t i = 0; i < profile->node_count; i++) {
		struct hl_profile_node node = profile->nodes[i];
		if (new_ids[i + 1] == new_ids[i])
			continue;
		node.parent = new_ids[node.parent];
		node.end = new_ids[node.end];
		profile->nodes[new_ids[i]] = node;
		if (profile->base)
			profile->base[new_ids[i]] = profile->base[i];
	}
	profile->node_count = kept;
}

static void keep_rows(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;
	size_t kept = 0;

	for (size_t i = 0; i < profile->row_count; i++) {
		struct hl_profile_row row = profile->rows[i];
		row.thread = selecting->threads[row.thread];
		row.node = selecting->nodes[row.node];
		if (row.thread != GONE)
			profile->rows[kept++] = row;
	}
	profile->row_count = kept;
	kept = 0;
	for (size_t i = 0; i < profile->size_count; i++) {
		struct hl_profile_size size = profile->sizes[i];
		size.thread = selecting->threads[size.thread];
		size.node = selecting->nodes[size.node];
		if (size.thread != GONE)
			profile->sizes[kept++] = size;
	}
	profile->size_count = kept;
}

/* Nobody needs the symbols of modules that no stack passes through any more. */
static void release_modules(struct hl_profile *profile)
{
	for (size_t i = 0; i < profile->module_count; i++)
		profile->modules[i].used = false;
	for (size_t i = 1; i < profile->node_count; i++) {
		uint32_t function = profile->frames[profile->nodes[i].frame].function;
		profile->modules[profile->functions[function].module].used = true;
	}
	for (size_t i = 0; i < profile->module_count; i++)
		if (!profile->modules[i].used)
			profile->modules[i].symbols_reason = 0;
}

/*
 * Leaves of a whole profile what ${selection} wants, sums not included. 0, -ENOMEM, or -ESRCH when
 * that is nothing.
 */
static int select_profile(struct hl_profile *profile, const struct hl_profile_selection *selection)
{
	if (!selection->pid && !selection->by_sequence && !selection->tid)
		return 0;
	if (!profile->thread_count)
		profile->row_count = 0; /* rows of no thread are of no process */
	HL_FREED uint32_t *processes = calloc(profile->process_count + 1, sizeof(*processes));
	HL_FREED uint32_t *threads = calloc(profile->thread_count + 1, sizeof(*threads));
	HL_FREED uint32_t *nodes = calloc(profile->node_count + 1, sizeof(*nodes));
	struct selecting selecting = {profile, selection, processes, threads, nodes};

	if (!processes || !threads || !nodes)
		return -ENOMEM;
	keep_processes(&selecting);
	if (!profile->process_count)
		return -ESRCH;
	mark_nodes(&selecting); /* by processes of threads, which get new numbers next */
	keep_threads(&selecting);
	keep_nodes(&selecting);
	keep_rows(&selecting);
	release_modules(profile);
	return selection->tid ? hl_profile_warn_of_earlier_threads(profile) : 0;
}

/* ---- sums ---- */

/* Makes all sums of ${profile} from its rows. */
static void sum_rows(struct hl_profile *profile)
{
	for (size_t i = 0; i < profile->row_count; i++) {
		const struct hl_profile_row *row = &profile->rows[i];
		hl_profile_counters_add(&profile->counters[row->node], &row->counters);
		hl_profile_counters_add(&profile->total, &row->counters);
		if (row->thread != HL_PACK_NO_THREAD)
			hl_profile_counters_add(&profile->threads[row->thread].total,
						&row->counters);
	}
	for (size_t i = 0; i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		struct hl_profile_process *process = &profile->processes[thread->process];
		process->thread_count += 1 + thread->earlier_threads;
		hl_profile_counters_add(&process->total, &thread->total);
	}
	for (size_t i = 0; i < profile->process_count; i++)
		hl_lost_add(&profile->lost, &profile->processes[i].lost);
	for (size_t i = 0; profile->base && i < profile->node_count; i++)
		hl_profile_counters_add(&profile->base_total, &profile->base[i]);
	profile->unfiltered_total = profile->total;
}

/* ---- reading ---- */

struct reading {
	struct hl_container container;
	struct hl_profile *profile;
	struct hl_error *err;
};

static int damage(const struct reading *reading, const char *reason)
{
	return hl_error_set(reading->err, -EBADMSG, "cannot read '%s': %s", reading->container.path,
			    reason);
}

static int out_of_memory(const struct reading *reading)
{
	return hl_error_set(reading->err, -ENOMEM, "cannot read '%s': out of memory",
			    reading->container.path);
}

/* ---- sections ---- */

/* Equal texts must have equal ids, so none may come twice; id 0 is the empty text. */
static int load_texts(struct reading *reading)
{
	struct hl_strings *strings = &reading->profile->strings;
	uint32_t expected = 1, id;
	HL_FREED void *section = NULL;
	size_t size;

	int r = hl_container_load(&reading->container, HL_PACK_TEXTS, HL_PACK_TEXT_MAX, &section,
				  &size, reading->err);
	if (r < 0)
		return r;
	const char *bytes = section;
	if (size && bytes[size - 1])
		return damage(reading, "its last text has no end");
	for (size_t at = 0; at < size; at += strlen(bytes + at) + 1) {
		if (hl_strings_intern(strings, bytes + at, &id) < 0)
			return out_of_memory(reading);
		if (id != expected++)
			return damage(reading, "a text is empty or there twice");
	}
	return 0;
}

/* Elements ${first} and following of an array; those before are zero. */
static int load_structs(struct reading *reading, uint32_t type, const struct hl_columns *columns,
			size_t first, void *ret_structs, size_t *ret_count)
{
	return hl_columns_read(columns, &reading->container, type, HL_PACK_ROWS_MAX, first,
			       ret_structs, ret_count, reading->err);
}

/* Fills columns of ${count} structs that exist; older files do not have the section. */
static int load_more(struct reading *reading, uint32_t type, const struct hl_columns *columns,
		     void *structs, size_t count)
{
	const struct hl_container *container = &reading->container;
	HL_FREED void *bytes = NULL;
	uint32_t at = 0;
	size_t size;

	while (at < container->header.section_count && container->table[at].type != type)
		at++;
	if (at == container->header.section_count)
		return 0;
	int r = hl_container_load(&reading->container, type, count * columns->row_bytes, &bytes,
				  &size, reading->err);
	if (r < 0)
		return r;
	if (size != count * columns->row_bytes)
		return damage(reading, "a section ends within a row");
	hl_columns_join(columns, bytes, count, structs);
	return 0;
}

/* ---- the tree ---- */

/* Ends the subtrees that do not hold ${id}, whose parent is ${depth} - 1 deep; that parent. */
static uint32_t close_subtrees(struct hl_profile_node *nodes, uint32_t id, uint32_t last_depth,
			       uint32_t depth)
{
	uint32_t at = id - 1;

	for (; last_depth >= depth; last_depth--) {
		nodes[at].end = id;
		at = nodes[at].parent;
	}
	return at;
}

static int load_nodes(struct reading *reading)
{
	struct hl_profile *profile = reading->profile;
	HL_FREED struct hl_pack_node *packed = NULL;
	uint32_t depth = 0;

	int r = load_structs(reading, HL_PACK_NODES, &hl_pack_node_columns, 1, &packed,
			     &profile->node_count);
	if (r < 0) {
		profile->node_count = 0;
		return r;
	}
	uint32_t count = (uint32_t)profile->node_count;
	struct hl_profile_node *nodes = profile->nodes = calloc(count, sizeof(*nodes));
	profile->counters = calloc(count, sizeof(*profile->counters));
	if (!nodes || !profile->counters)
		return out_of_memory(reading);
	for (uint32_t i = 1; i < count; i++) {
		if (packed[i].depth == 0 || packed[i].depth > depth + 1)
			return damage(reading, "its call tree is not in preorder");
		if (packed[i].frame == 0 || packed[i].frame >= profile->frame_count)
			return damage(reading, "a node names a frame that is not there");
		nodes[i].parent = close_subtrees(nodes, i, depth, packed[i].depth);
		nodes[i].frame = packed[i].frame;
		depth = packed[i].depth;
	}
	close_subtrees(nodes, count, depth, 1);
	nodes[0].end = count;
	return 0;
}

/* ---- references ---- */

static bool is_text(const struct hl_profile *profile, uint32_t id)
{
	return id == 0 || id < profile->strings.count;
}

static bool names_are_valid(const struct hl_profile *profile)
{
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		if (!is_text(profile, module->path) || !is_text(profile, module->symbols_reason) ||
		    module->build_id_bytes > sizeof(module->build_id) ||
		    (uint32_t)module->symbols > HL_SYMBOLS_DWARF)
			return false;
	}
	for (size_t i = 1; i < profile->function_count; i++) {
		const struct hl_profile_function *function = &profile->functions[i];
		if (!function->name || !is_text(profile, function->name) ||
		    !is_text(profile, function->file) || function->module >= profile->module_count)
			return false;
	}
	for (size_t i = 1; i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		if (!frame->function || frame->function >= profile->function_count ||
		    !is_text(profile, frame->file))
			return false;
	}
	return true;
}

/* Which modules are runtimes follows from the frames that are theirs. */
static bool scripts_are_valid(struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		if (frame->part > HL_PART_LAST || frame->provider >= profile->module_count ||
		    (frame->part != HL_PART_NATIVE) != (frame->provider != 0))
			return false;
		if (frame->provider)
			profile->modules[frame->provider].script = true;
	}
	return true;
}

/* Rows have threads where the profile knows some; ${no_thread}: they have none. */
static bool rows_are_valid(const struct hl_profile *profile, const struct hl_profile_row *rows,
			   size_t count, bool no_thread)
{
	for (size_t i = 0; i < count; i++)
		if (rows[i].node >= profile->node_count ||
		    (no_thread ? rows[i].thread != HL_PACK_NO_THREAD
			       : rows[i].thread >= profile->thread_count))
			return false;
	return true;
}

static bool figures_are_valid(const struct hl_profile *profile)
{
	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		if (!is_text(profile, process->command) || !is_text(profile, process->executable) ||
		    !is_text(profile, process->end))
			return false;
	}
	for (size_t i = 0; i < profile->thread_count; i++)
		if (profile->threads[i].process >= profile->process_count ||
		    !is_text(profile, profile->threads[i].name))
			return false;
	for (size_t i = 0; i < profile->size_count; i++)
		if (profile->sizes[i].node >= profile->node_count ||
		    (profile->sizes[i].thread >= profile->thread_count &&
		     (!profile->imported || profile->sizes[i].thread)) ||
		    profile->sizes[i].size_class >= HL_SIZE_CLASS_COUNT)
			return false;
	return rows_are_valid(profile, profile->rows, profile->row_count, !profile->thread_count);
}

/* ---- all of it ---- */

static int load_names(struct reading *reading)
{
	struct hl_profile *profile = reading->profile;

	int r = load_structs(reading, HL_PACK_MODULES, &hl_pack_module_columns, 1,
			     &profile->modules, &profile->module_count);
	if (r == 0)
		r = load_more(reading, HL_PACK_PRINTS, &hl_pack_print_columns, profile->modules + 1,
			      profile->module_count - 1);
	if (r == 0)
		r = load_structs(reading, HL_PACK_FUNCTIONS, &hl_pack_function_columns, 1,
				 &profile->functions, &profile->function_count);
	if (r == 0)
		r = load_structs(reading, HL_PACK_FRAMES, &hl_pack_frame_columns, 1,
				 &profile->frames, &profile->frame_count);
	if (r == 0)
		r = load_more(reading, HL_PACK_SCRIPTS, &hl_pack_script_columns,
			      profile->frames + 1, profile->frame_count - 1);
	if (r < 0)
		return r;
	if (!names_are_valid(profile) || !scripts_are_valid(profile))
		return damage(reading, "its names refer to what is not there");
	return hl_function_labels_set(profile) < 0 ? out_of_memory(reading) : 0;
}

static int load_figures(struct reading *reading)
{
	struct hl_profile *profile = reading->profile;

	int r = load_structs(reading, HL_PACK_PROCESSES, &hl_pack_process_columns, 0,
			     &profile->processes, &profile->process_count);
	if (r == 0)
		r = load_more(reading, HL_PACK_INHERITED, &hl_pack_inherited_columns,
			      profile->processes, profile->process_count);
	for (size_t i = 0; r == 0 && i < HL_LOST_COUNT; i++)
		if (hl_lost_counters[i].pack_section)
			r = load_more(reading, hl_lost_counters[i].pack_section,
				      &hl_pack_lost_columns[i], profile->processes,
				      profile->process_count);
	if (r == 0)
		r = load_structs(reading, HL_PACK_THREADS, &hl_pack_thread_columns, 0,
				 &profile->threads, &profile->thread_count);
	if (r == 0)
		r = load_structs(reading, HL_PACK_ROWS, &hl_pack_row_columns, 0, &profile->rows,
				 &profile->row_count);
	if (r == 0)
		r = load_more(reading, HL_PACK_RESIDENT, &hl_pack_resident_columns, profile->rows,
			      profile->row_count);
	if (r == 0)
		r = load_structs(reading, HL_PACK_SIZES, &hl_pack_size_columns, 0, &profile->sizes,
				 &profile->size_count);
	if (r < 0)
		return r;
	if (!figures_are_valid(profile))
		return damage(reading, "its figures refer to what is not there");
	return 0;
}

static int load_all(struct reading *reading)
{
	struct hl_profile *profile = reading->profile;
	HL_FREED struct hl_profile_row *rows = NULL;
	HL_FREED void *meta = NULL;
	bool compared = false;
	size_t size, count;

	int r = load_texts(reading);
	if (r == 0)
		r = hl_container_load(&reading->container, HL_PACK_META, HL_PACK_TEXT_MAX, &meta,
				      &size, reading->err);
	if (r == 0)
		r = hl_pack_meta_read(meta, size, reading->container.path, profile, &compared,
				      reading->err);
	if (r == 0)
		r = load_names(reading);
	if (r == 0)
		r = load_nodes(reading);
	if (r == 0)
		r = load_figures(reading);
	if (r < 0 || !compared)
		return r;
	r = load_structs(reading, HL_PACK_BASE, &hl_pack_row_columns, 0, &rows, &count);
	if (r < 0)
		return r;
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	if (!profile->base)
		return out_of_memory(reading);
	if (!rows_are_valid(profile, rows, count, true))
		return damage(reading, "its figures refer to what is not there");
	for (size_t i = 0; i < count; i++)
		hl_profile_counters_add(&profile->base[rows[i].node], &rows[i].counters);
	return 0;
}

/* Names the packed file as the profile's source. */
static int set_name(struct reading *reading)
{
	struct hl_profile *profile = reading->profile;
	const char *source = hl_profile_text(profile, profile->source);
	char packed[64];

	int r = hl_strings_intern(&profile->strings, reading->container.path, &profile->name);
	if (r == 0 && !profile->imported &&
	    strncmp(source, HL_PACK_SOURCE, strlen(HL_PACK_SOURCE)) != 0) {
		snprintf(packed, sizeof(packed), HL_PACK_SOURCE "%s", source);
		r = hl_strings_intern(&profile->strings, packed, &profile->source);
	}
	return r < 0 ? out_of_memory(reading) : 0;
}

bool hl_pack_detect(const uint8_t *bytes, size_t size)
{
	return hl_container_detect(bytes, size, HL_KIND_PACK);
}

int hl_pack_read(int fd, const char *name, const struct hl_profile_selection *selection,
		 struct hl_profile **ret_profile, struct hl_error *err)
{
	struct reading reading = {.err = err};

	int r = hl_container_open(&reading.container, fd, name, HL_KIND_PACK, err);
	if (r < 0)
		return r;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = calloc(1, sizeof(*profile));
	reading.profile = profile;
	r = profile ? load_all(&reading) : out_of_memory(&reading);
	if (r == 0)
		r = set_name(&reading);
	if (r < 0)
		return r;
	r = selection ? select_profile(profile, selection) : 0;
	if (r == -ESRCH)
		return hl_profile_selection_fail(selection, name, err);
	if (r < 0)
		return out_of_memory(&reading);
	sum_rows(profile);
	if (!selection || !selection->keep_rows || !profile->thread_count) {
		free(profile->rows);
		profile->rows = NULL;
		profile->row_count = 0;
	}
	*ret_profile = HL_TAKE(profile);
	return 0;
}
