/* SPDX-License-Identifier: BSD-2-Clause */
/* Moves counters, rows, sizes and totals to the nodes of another tree; see filter.h. */
#include "profile/filter.h"

#include <errno.h>
#include <stdlib.h>

struct moving {
	struct hl_profile *profile;
	const uint32_t *new_node;
	const bool *chosen;
};

static bool is_chosen(const struct moving *moving, uint32_t node)
{
	return !moving->chosen || moving->chosen[node];
}

static void sum_counters(const struct moving *moving, const struct hl_profile_counters *from,
			 struct hl_profile_counters *to, struct hl_profile_counters *total)
{
	if (moving->chosen)
		*total = (struct hl_profile_counters){0};
	for (uint32_t i = 0; i < moving->profile->node_count; i++) {
		if (!is_chosen(moving, i) || !hl_profile_counters_any(&from[i]))
			continue;
		hl_profile_counters_add(&to[moving->new_node[i]], &from[i]);
		if (moving->chosen)
			hl_profile_counters_add(total, &from[i]);
	}
}

/* Rows, the sizes and totals of threads, and ids that somebody else keeps. */
static void move_rows(const struct moving *moving, const struct hl_node_ids *follow)
{
	struct hl_profile *profile = moving->profile;
	bool has_rows = profile->row_count;
	size_t kept = 0;

	for (size_t i = 0; i < profile->row_count; i++) {
		struct hl_profile_row row = profile->rows[i];
		if (!is_chosen(moving, row.node))
			continue;
		row.node = moving->new_node[row.node];
		profile->rows[kept++] = row;
	}
	profile->row_count = kept;
	kept = 0;
	for (size_t i = 0; i < profile->size_count; i++) {
		struct hl_profile_size size = profile->sizes[i];
		if (!is_chosen(moving, size.node))
			continue;
		size.node = moving->new_node[size.node];
		profile->sizes[kept++] = size;
	}
	profile->size_count = kept;
	for (size_t i = 0; moving->chosen && i < profile->thread_count; i++)
		profile->threads[i].total = (struct hl_profile_counters){0};
	for (size_t i = 0; moving->chosen && i < profile->row_count; i++)
		hl_profile_counters_add(&profile->threads[profile->rows[i].thread].total,
					&profile->rows[i].counters);
	if (moving->chosen && !has_rows)
		profile->thread_count = 0; /* without rows a thread's share is unknown */
	for (size_t i = 0; follow && i < follow->count; i++) {
		uint32_t id = follow->ids[i];
		if (id != HL_NODE_LEFT_OUT)
			follow->ids[i] =
				is_chosen(moving, id) ? moving->new_node[id] : HL_NODE_LEFT_OUT;
	}
}

int hl_retree(struct hl_profile *profile, struct hl_profile_node *nodes, size_t count,
	      const uint32_t *new_node, const bool *chosen, const struct hl_node_ids *follow)
{
	const struct moving moving = {profile, new_node, chosen};
	struct hl_profile_counters *counters = calloc(count, sizeof(*counters)), *base = NULL;

	if (profile->base)
		base = calloc(count, sizeof(*base));
	if (!counters || (profile->base && !base)) {
		free(nodes);
		free(counters);
		free(base);
		return -ENOMEM;
	}
	sum_counters(&moving, profile->counters, counters, &profile->total);
	if (base)
		sum_counters(&moving, profile->base, base, &profile->base_total);
	move_rows(&moving, follow);
	free(profile->nodes);
	free(profile->counters);
	free(profile->base);
	profile->nodes = nodes;
	profile->counters = counters;
	profile->base = base;
	profile->node_count = count;
	return 0;
}
