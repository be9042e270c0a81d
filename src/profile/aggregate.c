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

int hl_aggregate_init(struct hl_aggregate *aggregate, const struct hl_profile *profile,
		      enum hl_value value, const uint32_t *keys, size_t key_count)
{
	if (!keys)
		key_count = profile->function_count;
	HL_FREED struct hl_aggregate_figures *sums = calloc(profile->node_count, sizeof(*sums));
	HL_FREED uint32_t *covered_until = calloc(key_count + 1, sizeof(*covered_until));
	*aggregate = (struct hl_aggregate){
		.flat = calloc(key_count + 1, sizeof(*aggregate->flat)),
		.cum = calloc(key_count + 1, sizeof(*aggregate->cum)),
		.key_count = key_count,
	};
	if (!sums || !covered_until || !aggregate->flat || !aggregate->cum) {
		hl_aggregate_release(aggregate);
		return -ENOMEM;
	}
	for (size_t i = 0; i < profile->node_count; i++)
		sums[i] = hl_aggregate_figures_of(&profile->counters[i], value);
	/* Parents come before their children, so going backwards every subtree is ready in time. */
	for (size_t i = profile->node_count; i-- > 1;)
		hl_aggregate_add(&sums[profile->nodes[i].parent], sums[i]);
	aggregate->total = sums[0];
	/*
	 * A node adds its subtree to its key unless the key already holds a subtree around it: the
	 * nodes up to covered_until[key] lie below a node of the same key.
	 */
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t frame = profile->nodes[i].frame;
		uint32_t key = keys ? keys[frame] : profile->frames[frame].function;
		hl_aggregate_add(&aggregate->flat[key],
				 hl_aggregate_figures_of(&profile->counters[i], value));
		if (i < covered_until[key])
			continue;
		covered_until[key] = profile->nodes[i].end;
		hl_aggregate_add(&aggregate->cum[key], sums[i]);
	}
	return 0;
}

void hl_aggregate_release(struct hl_aggregate *aggregate)
{
	free(aggregate->flat);
	free(aggregate->cum);
	*aggregate = (struct hl_aggregate){0};
}
