/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes processes and threads out of a whole profile, and makes its sums; see pack_sections.h. */
#include "pack/pack_sections.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GONE UINT32_MAX

/* By its old index: where each process, thread or node that stays goes. */
struct selecting {
	struct hl_profile *profile;
	const struct hl_profile_selection *selection;
	uint32_t *processes, *threads, *nodes;
};

/* ---- processes and threads ---- */

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

/* ---- the tree ---- */

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

/* ---- all of it ---- */

int hl_pack_select(struct hl_profile *profile, const struct hl_profile_selection *selection)
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

void hl_pack_select_sum(struct hl_profile *profile)
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
