/* SPDX-License-Identifier: BSD-2-Clause */
/* One backward pass sums subtrees, one forward pass gives them to keys; see aggregate.h. */
#include "profile/aggregate.h"

#include <errno.h>
#include <stdlib.h>

struct hl_aggregate_figures hl_aggregate_figures_of(const struct hl_profile_counters *counters,
						    enum hl_value value)
{
	return (struct hl_aggregate_figures){
		.bytes = hl_profile_figure(counters, value, HL_UNIT_BYTES),
		.objects = hl_profile_figure(counters, value, HL_UNIT_OBJECTS),
	};
}

static uint32_t key_of(const struct hl_profile *profile, const uint32_t *keys, uint32_t node)
{
	uint32_t frame = profile->nodes[node].frame;
	return keys ? keys[frame] : profile->frames[frame].function;
}

/* Parents come before their children, so going backwards every subtree is ready in time. */
static void sum_subtrees(const struct hl_profile *profile,
			 const struct hl_profile_counters *counters, enum hl_value value,
			 struct hl_aggregate_figures *sums)
{
	for (size_t i = 0; i < profile->node_count; i++)
		sums[i] = hl_aggregate_figures_of(&counters[i], value);
	for (size_t i = profile->node_count; i-- > 1;)
		hl_aggregate_add(&sums[profile->nodes[i].parent], sums[i]);
}

/*
 * A node adds its subtree to its key unless the key already holds a subtree around it: the nodes up
 * to covered_until[key] lie below a node of the same key.
 */
static void give_to_keys(struct hl_aggregate *aggregate, const struct hl_profile *profile,
			 const struct hl_profile_counters *counters, enum hl_value value,
			 const uint32_t *keys, const struct hl_aggregate_figures *sums,
			 uint32_t *covered_until)
{
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t key = key_of(profile, keys, i);
		hl_aggregate_add(&aggregate->flat[key],
				 hl_aggregate_figures_of(&counters[i], value));
		if (i < covered_until[key])
			continue;
		covered_until[key] = profile->nodes[i].end;
		hl_aggregate_add(&aggregate->cum[key], sums[i]);
	}
}

static int sum_up(struct hl_aggregate *aggregate, const struct hl_profile *profile,
		  const struct hl_profile_counters *counters, enum hl_value value,
		  const uint32_t *keys, size_t key_count)
{
	if (!keys)
		key_count = profile->function_count;
	struct hl_aggregate_figures *sums = calloc(profile->node_count, sizeof(*sums));
	uint32_t *covered_until = calloc(key_count + 1, sizeof(*covered_until));
	*aggregate = (struct hl_aggregate){
		.flat = calloc(key_count + 1, sizeof(*aggregate->flat)),
		.cum = calloc(key_count + 1, sizeof(*aggregate->cum)),
		.key_count = key_count,
	};
	int r = -ENOMEM;
	if (sums && covered_until && aggregate->flat && aggregate->cum) {
		sum_subtrees(profile, counters, value, sums);
		give_to_keys(aggregate, profile, counters, value, keys, sums, covered_until);
		aggregate->total = sums[0];
		r = 0;
	}
	free(sums);
	free(covered_until);
	if (r < 0)
		hl_aggregate_release(aggregate);
	return r;
}

int hl_aggregate_init(struct hl_aggregate *aggregate, const struct hl_profile *profile,
		      enum hl_value value, const uint32_t *keys, size_t key_count)
{
	return sum_up(aggregate, profile, profile->counters, value, keys, key_count);
}

int hl_aggregate_init_base(struct hl_aggregate *aggregate, const struct hl_profile *profile,
			   enum hl_value value, const uint32_t *keys, size_t key_count)
{
	return sum_up(aggregate, profile, profile->base, value, keys, key_count);
}

void hl_aggregate_release(struct hl_aggregate *aggregate)
{
	free(aggregate->flat);
	free(aggregate->cum);
	*aggregate = (struct hl_aggregate){0};
}
