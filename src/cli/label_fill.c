/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Labels blocks in use with their types, or ages, in a recording that counts them without. A label is a node below
 * that of the stack, as if the recorder had known it at the allocation. What has been freed stays at the stack.
 */
#include "cli/live_fill.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "heap/owners/block_owners.h"
#include "recording/recording.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <string.h>

struct labelling {
	struct hl_recording_process *process;
	const struct hl_inuse_labels *labels;
	size_t node_capacity, value_capacity, site_capacity, name_capacity;
	uint32_t provider; /* of the labels */
	uint32_t no_name;  /* the index of "" in site_names */
	uint32_t *sites;   /* by name of a label, its site; 0: none yet */
	uint32_t *first;   /* by node: a value of it is values[first - 1], */
	uint32_t *next;	   /* by value: and another one values[next - 1]; 0: there is none */
	struct hl_block_sum *rows; /* by node: of the labels that are not moved yet */
};

/* ---- labels ---- */

static int add_name(struct labelling *labelling, const char *text, uint32_t *ret_index)
{
	struct hl_recording_process *process = labelling->process;
	char *name = strdup(text);

	if (!name || HL_ARRAY_APPEND(process->site_names, process->site_name_count,
				     labelling->name_capacity, name) < 0) {
		free(name);
		return -ENOMEM;
	}
	*ret_index = process->site_name_count - 1;
	return 0;
}

static int find_provider(struct labelling *labelling)
{
	struct hl_recording_process *process = labelling->process;
	size_t capacity = process->provider_count;

	for (uint32_t i = 0; i < process->provider_count; i++)
		if (!strcmp(process->providers[i].name, labelling->labels->provider)) {
			labelling->provider = i;
			return 0;
		}
	if (process->provider_count == HL_RECORDING_PROVIDERS_MAX)
		return -E2BIG;
	char *name = strdup(labelling->labels->provider);
	if (!name || HL_ARRAY_RESERVE(process->providers, capacity, capacity + 1) < 0) {
		free(name);
		return -ENOMEM;
	}
	labelling->provider = process->provider_count++;
	process->providers[labelling->provider] = (struct hl_recording_provider){.name = name};
	return 0;
}

static int find_site(struct labelling *labelling, uint32_t label, uint32_t *ret_site)
{
	struct hl_recording_process *process = labelling->process;
	uint32_t *site = &labelling->sites[label], name;

	if (*site) {
		*ret_site = *site;
		return 0;
	}
	if (process->site_count == HL_RECORDING_SITES_MAX)
		return -E2BIG;
	int r = add_name(labelling, hl_strings_text(labelling->labels->names, label), &name);
	if (r == 0)
		r = HL_ARRAY_APPEND(process->sites, process->site_count, labelling->site_capacity,
				    (struct hl_recording_site){.provider = labelling->provider,
							       .function = name,
							       .source = labelling->no_name});
	*ret_site = *site = process->site_count;
	return r;
}

/* ---- nodes ---- */

static int add_node(struct labelling *labelling, uint32_t parent, uint64_t frame, uint32_t *ret_id)
{
	struct hl_recording_process *process = labelling->process;

	if (process->node_count == HL_RECORDING_NODES_MAX)
		return -E2BIG;
	int r = HL_ARRAY_APPEND(process->nodes, process->node_count, labelling->node_capacity,
				(struct hl_recording_node){.frame = frame, .parent = parent});
	*ret_id = process->node_count;
	return r;
}

/* The node of blocks of ${label} of the stack ${id}. Size classes stay innermost. */
static int make_node(struct labelling *labelling, uint32_t id, uint32_t label, uint32_t *ret_id)
{
	const struct hl_recording_node stack = labelling->process->nodes[id - 1];
	uint32_t site, size_class;
	bool has_size = hl_frame_key_is_size(stack.frame, &size_class);

	int r = find_site(labelling, label, &site);
	if (r == 0)
		r = add_node(labelling, has_size ? stack.parent : id,
			     hl_site_frame_key(site, false), ret_id);
	return r == 0 && has_size ? add_node(labelling, *ret_id, stack.frame, ret_id) : r;
}

/* ---- values ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What ${value} has in use, as far as it was allocated there. */
static uint64_t in_use(uint64_t allocated, uint64_t freed)
{
	return allocated > freed ? allocated - freed : 0;
}

/* Where not each size is known, bytes of rows are estimates. If the rows of a stack have all of its blocks, theirs add up to
 * the sum of the stack, which is known. */
static uint64_t bytes_of(struct labelling *labelling, const struct hl_inuse_label *row, uint32_t id)
{
	const struct hl_block_sum rows = labelling->rows[id];
	struct hl_block_sum left = {0};

	for (uint32_t i = labelling->first[id]; i; i = labelling->next[i - 1]) {
		const struct hl_recording_value *value = &labelling->process->values[i - 1];
		left.blocks += (int64_t)(value->alloc_objects - value->free_objects);
		left.bytes += (int64_t)(value->alloc_bytes - value->free_bytes);
	}
	labelling->rows[id].blocks -= (int64_t)row->blocks;
	labelling->rows[id].bytes -= (int64_t)row->bytes;
	if (left.blocks <= 0 || left.bytes <= 0)
		return row->bytes;
	if (row->blocks >= (uint64_t)left.blocks)
		return (uint64_t)left.bytes;
	return rows.blocks == left.blocks && rows.bytes > 0
		       ? (uint64_t)((__uint128_t)row->bytes * (uint64_t)left.bytes /
				    (uint64_t)rows.bytes)
		       : row->bytes;
}

/* Moves what is in use of the stack of ${row} to its label, from one thread after the other: who allocated which
 * block is not known. The process went on between the counters and the blocks, so there may be less. */
static int move(struct labelling *labelling, const struct hl_inuse_label *row, uint32_t id)
{
	struct hl_recording_process *process = labelling->process;
	uint64_t blocks = row->blocks, bytes = bytes_of(labelling, row, id);
	uint32_t node;

	int r = make_node(labelling, id, row->name, &node);
	for (uint32_t i = labelling->first[id]; i && r == 0 && (blocks || bytes);
	     i = labelling->next[i - 1]) {
		struct hl_recording_value *value = &process->values[i - 1];
		struct hl_recording_value moved = {
			.node = node,
			.thread = value->thread,
			.alloc_objects =
				least(blocks, in_use(value->alloc_objects, value->free_objects)),
			.alloc_bytes = least(bytes, in_use(value->alloc_bytes, value->free_bytes)),
		};
		if (!moved.alloc_objects && !moved.alloc_bytes)
			continue;
		blocks -= moved.alloc_objects;
		bytes -= moved.alloc_bytes;
		value->alloc_objects -= moved.alloc_objects;
		value->alloc_bytes -= moved.alloc_bytes;
		r = HL_ARRAY_APPEND(process->values, process->value_count,
				    labelling->value_capacity, moved);
	}
	return r;
}

/* ---- all of it ---- */

static int find_values(struct labelling *labelling)
{
	const struct hl_recording_process *process = labelling->process;

	labelling->first = calloc(process->node_count + (size_t)1, sizeof(*labelling->first));
	labelling->next = calloc(process->value_count + (size_t)1, sizeof(*labelling->next));
	labelling->rows = calloc(process->node_count + (size_t)1, sizeof(*labelling->rows));
	labelling->sites = calloc(labelling->labels->names->count + 1, sizeof(*labelling->sites));
	if (!labelling->first || !labelling->next || !labelling->rows || !labelling->sites)
		return -ENOMEM;
	for (uint32_t i = 0; i < process->value_count; i++) {
		uint32_t *first = &labelling->first[process->values[i].node];
		labelling->next[i] = *first;
		*first = i + 1;
	}
	return 0;
}

int hl_label_fill(struct hl_recording_process *process, const struct hl_inuse_labels *labels)
{
	struct labelling labelling = {.process = process,
				      .labels = labels,
				      .node_capacity = process->node_count,
				      .value_capacity = process->value_count,
				      .site_capacity = process->site_count,
				      .name_capacity = process->site_name_count};
	uint64_t count = hl_block_owners_count(labels->owners);
	HL_FREED uint32_t *ids = calloc(count, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	if (!hl_block_owners_match(labels->owners, process->nodes, process->node_count, ids))
		return -ESRCH;
	int r = find_values(&labelling);
	if (r == 0 && labels->count && (r = find_provider(&labelling)) == 0)
		r = add_name(&labelling, "", &labelling.no_name);
	for (size_t i = 0; i < labels->count && r == 0; i++) {
		const struct hl_inuse_label *row = &labels->rows[i];
		struct hl_block_sum *sum =
			&labelling.rows[row->number < count ? ids[row->number] : 0];
		sum->blocks += (int64_t)row->blocks;
		sum->bytes += (int64_t)row->bytes;
	}
	for (size_t i = 0; i < labels->count && r == 0; i++) {
		const struct hl_inuse_label *row = &labels->rows[i];
		if (row->number < count && ids[row->number])
			r = move(&labelling, row, ids[row->number]);
	}
	free(labelling.first);
	free(labelling.next);
	free(labelling.rows);
	free(labelling.sites);
	return r;
}
