/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes processes and threads out of a whole profile, and sums up what is left; see
 * pack_sections.h. */
#include "pack/pack_sections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GONE UINT32_MAX

/* Where everything goes that stays, by its old index. */
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
static void mark_node(struct selecting *selecting, const uint32_t *process_of_thread, uint32_t node,
		      uint32_t thread)
{
	if (selecting->processes[process_of_thread[thread]] != GONE)
		selecting->nodes[node] = 1;
}

/* Marks the nodes of selected processes: those with figures, and their ancestors. */
static void mark_nodes(struct selecting *selecting, const uint32_t *process_of_thread)
{
	const struct hl_profile *profile = selecting->profile;

	for (size_t i = 0; i < profile->row_count; i++)
		mark_node(selecting, process_of_thread, profile->rows[i].node,
			  profile->rows[i].thread);
	for (size_t i = 0; i < profile->size_count; i++)
		mark_node(selecting, process_of_thread, profile->sizes[i].node,
			  profile->sizes[i].thread);
	for (size_t i = profile->node_count; i-- > 1;)
		if (selecting->nodes[i])
			selecting->nodes[profile->nodes[i].parent] = 1;
	selecting->nodes[0] = 1;
}

/* From marks to new ids; that of a node that goes is the next one's that stays. */
static uint32_t number_nodes(struct selecting *selecting)
{
	uint32_t kept = 0;

	for (size_t i = 0; i < selecting->profile->node_count; i++) {
		uint32_t stays = selecting->nodes[i];
		selecting->nodes[i] = kept;
		kept += stays;
	}
	selecting->nodes[selecting->profile->node_count] = kept;
	return kept;
}

static void keep_nodes(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;
	const uint32_t *new_ids = selecting->nodes;
	uint32_t kept = number_nodes(selecting);

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

/* Modules that no stack passes through any more are those whose symbols nobody wants. */
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

static int select_all(struct selecting *selecting)
{
	struct hl_profile *profile = selecting->profile;

	if (!profile->thread_count)
		profile->row_count = 0; /* rows of no thread are of no process */
	uint32_t *process_of_thread = calloc(profile->thread_count + 1, sizeof(*process_of_thread));

	selecting->processes = calloc(profile->process_count + 1, sizeof(*selecting->processes));
	selecting->threads = calloc(profile->thread_count + 1, sizeof(*selecting->threads));
	selecting->nodes = calloc(profile->node_count + 1, sizeof(*selecting->nodes));
	int r = process_of_thread && selecting->processes && selecting->threads && selecting->nodes
			? 0
			: -ENOMEM;
	if (r == 0) {
		for (size_t i = 0; i < profile->thread_count; i++)
			process_of_thread[i] = profile->threads[i].process;
		keep_processes(selecting);
		keep_threads(selecting);
		r = profile->process_count ? 0 : -ESRCH;
	}
	if (r == 0) {
		mark_nodes(selecting, process_of_thread);
		keep_nodes(selecting);
		keep_rows(selecting);
		release_modules(profile);
	}
	free(process_of_thread);
	free(selecting->processes);
	free(selecting->threads);
	free(selecting->nodes);
	return r;
}

int hl_pack_select(struct hl_profile *profile, const struct hl_profile_selection *selection)
{
	struct selecting selecting = {.profile = profile, .selection = selection};

	if (!selection->pid && !selection->by_sequence && !selection->tid)
		return 0;
	int r = select_all(&selecting);
	return r == 0 && selection->tid ? hl_profile_warn_of_earlier_threads(profile) : r;
}

/* ---- sums ---- */

static void add_lost(struct hl_profile_lost *sum, const struct hl_profile_lost *more)
{
	sum->events += more->events;
	sum->bytes += more->bytes;
	sum->truncated_stacks += more->truncated_stacks;
	sum->incomplete_stacks += more->incomplete_stacks;
	sum->unmatched_frees += more->unmatched_frees;
	sum->inherited_frees += more->inherited_frees;
	sum->modules += more->modules;
	sum->unscanned_bytes += more->unscanned_bytes;
	sum->damaged += more->damaged;
}

void hl_pack_sum(struct hl_profile *profile)
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
		process->thread_count++;
		hl_profile_counters_add(&process->total, &thread->total);
	}
	for (size_t i = 0; i < profile->process_count; i++)
		add_lost(&profile->lost, &profile->processes[i].lost);
	for (size_t i = 0; profile->base && i < profile->node_count; i++)
		hl_profile_counters_add(&profile->base_total, &profile->base[i]);
	profile->unfiltered_total = profile->total;
}
