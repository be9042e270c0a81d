/* SPDX-License-Identifier: BSD-2-Clause */
/* Puts nodes of one address together again; see pprof_locations.h. */
#include "view/pprof_locations.h"

#include "base/array.h"

static uint32_t module_of(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	return profile->functions[frame->function].module;
}

/* Whether ${node} is inlined where its parent is; a filter may have taken that frame away. */
static bool is_inlined(const struct hl_profile *profile, uint32_t node)
{
	uint32_t parent = profile->nodes[node].parent;
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	const struct hl_profile_frame *outer = &profile->frames[profile->nodes[parent].frame];

	return frame->inlined && parent && frame->address == outer->address &&
	       module_of(profile, frame) == module_of(profile, outer);
}

static int intern(struct hl_pprof_locations *locations, uint32_t frame, uint32_t outer,
		  uint32_t *ret_location)
{
	uint32_t hash = hl_hash_pair(frame, outer), at = hash, id;

	while ((id = hl_index_next(&locations->index, hash, &at)))
		if (locations->all[id].frame == frame && locations->all[id].outer == outer) {
			*ret_location = id;
			return 0;
		}
	if (HL_ARRAY_RESERVE(locations->all, locations->capacity, locations->count + 1) < 0 ||
	    hl_index_add(&locations->index, hash, (uint32_t)locations->count) < 0)
		return -ENOMEM;
	locations->all[locations->count] =
		(struct hl_pprof_location){.frame = frame, .outer = outer};
	*ret_location = (uint32_t)locations->count++;
	return 0;
}

static int locate_nodes(struct hl_pprof_locations *locations, const struct hl_profile *profile)
{
	int r = 0;

	for (uint32_t i = 1; r == 0 && i < profile->node_count; i++) {
		uint32_t outer =
			is_inlined(profile, i) ? locations->of_node[profile->nodes[i].parent] : 0;
		r = intern(locations, profile->nodes[i].frame, outer, &locations->of_node[i]);
	}
	return r;
}

/* Backwards, so that it is known of every node whether figures lie below it. */
static int mark_used(struct hl_pprof_locations *locations, const struct hl_profile *profile)
{
	bool *is_called_from = calloc(profile->node_count, sizeof(*is_called_from));

	if (!is_called_from)
		return -ENOMEM;
	for (uint32_t i = (uint32_t)profile->node_count; i-- > 1;) {
		if (!is_called_from[i] && !hl_profile_counters_any(&profile->counters[i]))
			continue;
		locations->all[locations->of_node[i]].used = true;
		is_called_from[hl_pprof_locations_caller(locations, profile, i)] = true;
	}
	free(is_called_from);
	return 0;
}

int hl_pprof_locations_init(struct hl_pprof_locations *locations, const struct hl_profile *profile)
{
	*locations = (struct hl_pprof_locations){
		.count = 1,
		.of_node = calloc(profile->node_count, sizeof(*locations->of_node)),
	};
	if (!locations->of_node || HL_ARRAY_RESERVE(locations->all, locations->capacity, 1) < 0)
		return -ENOMEM;
	locations->all[0] = (struct hl_pprof_location){0};
	int r = locate_nodes(locations, profile);
	return r < 0 ? r : mark_used(locations, profile);
}

void hl_pprof_locations_release(struct hl_pprof_locations *locations)
{
	free(locations->all);
	free(locations->of_node);
	hl_index_release(&locations->index);
	*locations = (struct hl_pprof_locations){0};
}

uint32_t hl_pprof_locations_caller(const struct hl_pprof_locations *locations,
				   const struct hl_profile *profile, uint32_t node)
{
	for (uint32_t at = locations->of_node[node]; at; at = locations->all[at].outer)
		node = profile->nodes[node].parent;
	return node;
}
