/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes tables of frames and sums of stacks; see stack_table.h. */
#include "view/export/stack_table.h"

#include "base/array.h"
#include "view/rows.h"

#include <errno.h>
#include <stdlib.h>

static int find_frame(struct hl_stack_table *table, const struct hl_profile *profile,
		      const struct hl_calltree_node *node, uint32_t *ret_frame)
{
	const struct hl_profile_frame *frame = &profile->frames[node->frame];
	struct hl_export_frame wanted = {node->name, frame->file, frame->line, node->frame};
	uint32_t hash = hl_hash_pair((uint64_t)wanted.file << 32 | wanted.line, wanted.name);
	uint32_t at = hash, id;

	while ((id = hl_index_next(&table->index, hash, &at))) {
		const struct hl_export_frame *known = &table->frames[id];
		if (known->name == wanted.name && known->file == wanted.file &&
		    known->line == wanted.line)
			break;
	}
	if (!id) {
		id = (uint32_t)table->frame_count;
		if (HL_ARRAY_RESERVE(table->frames, table->frame_capacity, id + 1) < 0 ||
		    hl_index_add(&table->index, hash, id) < 0)
			return -ENOMEM;
		table->frames[id] = wanted;
		table->frame_count++;
	}
	*ret_frame = id;
	return 0;
}

int hl_stack_table_init(struct hl_stack_table *table, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	int r = hl_calltree_init_by_line(&table->tree, profile, options->value, options->unit);

	if (r < 0)
		return r;
	table->sums = calloc(table->tree.count, sizeof(*table->sums));
	table->frame_of = calloc(table->tree.count, sizeof(*table->frame_of));
	if (!table->sums || !table->frame_of ||
	    HL_ARRAY_RESERVE(table->frames, table->frame_capacity, 1) < 0)
		return -ENOMEM;
	table->frames[table->frame_count++] = (struct hl_export_frame){0};
	for (size_t i = 0; i < profile->node_count; i++)
		hl_profile_counters_add(&table->sums[table->tree.node_of[i]],
					&profile->counters[i]);
	for (size_t i = 1; r == 0 && i < table->tree.count; i++)
		r = find_frame(table, profile, &table->tree.nodes[i], &table->frame_of[i]);
	return r;
}

void hl_stack_table_release(struct hl_stack_table *table)
{
	hl_calltree_release(&table->tree);
	free(table->sums);
	free(table->frame_of);
	free(table->frames);
	hl_index_release(&table->index);
}

const char *hl_stack_table_name(const struct hl_stack_table *table,
				const struct hl_profile *profile, size_t frame)
{
	return frame ? hl_profile_text(profile, table->frames[frame].name) : HL_KEYS_NO_STACK;
}

int64_t hl_stack_table_figure(const struct hl_stack_table *table, const struct hl_profile *profile,
			      size_t node, enum hl_value value, enum hl_unit unit)
{
	int64_t figure = hl_profile_knows(profile, value, unit)
				 ? hl_profile_figure(&table->sums[node], value, unit)
				 : 0;

	return figure > 0 ? figure : 0;
}

int64_t hl_stack_table_allocated(const struct hl_stack_table *table,
				 const struct hl_profile *profile, size_t node, enum hl_unit unit)
{
	return hl_stack_table_figure(
		table, profile, node,
		hl_profile_knows(profile, HL_VALUE_ALLOC, unit) ? HL_VALUE_ALLOC : HL_VALUE_INUSE,
		unit);
}
