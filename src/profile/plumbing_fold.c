/* SPDX-License-Identifier: BSD-2-Clause */
/* Folds allocation plumbing into its callers; see filter.h. */
#include "profile/filter.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "symbols/plumbing.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Makes the tree of what is left: ${receiver} says which node gets the figures of each. Kept are
 * nodes that keep or get figures and those above them, in their order, so a subtree ends where the
 * next node that is kept begins.
 */
static int rebuild(struct hl_profile *profile, uint32_t *receiver, const struct hl_node_ids *follow)
{
	HL_FREED bool *kept = calloc(profile->node_count, sizeof(*kept));
	HL_FREED uint32_t *ids = calloc(profile->node_count + 1, sizeof(*ids));

	if (!kept || !ids)
		return -ENOMEM;
	kept[0] = true;
	for (size_t i = profile->node_count; i-- > 0;) {
		kept[i] |= receiver[i] == i;
		if (kept[i])
			kept[profile->nodes[i].parent] = true;
	}
	for (size_t i = 0; i < profile->node_count; i++)
		ids[i + 1] = ids[i] + kept[i];
	uint32_t count = ids[profile->node_count];
	struct hl_profile_node *nodes = calloc(count, sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	for (size_t i = 0; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		if (kept[i])
			nodes[ids[i]] = (struct hl_profile_node){
				.parent = ids[node->parent],
				.end = ids[node->end],
				.frame = node->frame,
			};
		receiver[i] = ids[receiver[i]];
	}
	return hl_retree(profile, nodes, count, receiver, NULL, follow);
}

static const struct hl_profile_frame *frame_of(const struct hl_profile *profile, uint32_t node)
{
	return &profile->frames[profile->nodes[node].frame];
}

/* By function; NULL without memory. To be freed. */
bool *hl_plumbing_find(const struct hl_profile *profile)
{
	bool *is_plumbing = calloc(profile->function_count + 1, sizeof(*is_plumbing));
	HL_FREED bool *is_recorder = calloc(profile->module_count + 1, sizeof(*is_recorder));
	struct hl_plumbing plumbing;

	if (!is_plumbing || !is_recorder) {
		free(is_plumbing);
		return NULL;
	}
	for (size_t i = 0; i < profile->module_count; i++)
		is_recorder[i] =
			hl_path_is_recorder(hl_profile_text(profile, profile->modules[i].path));
	hl_plumbing_init(&plumbing);
	for (size_t i = 1; i < profile->function_count; i++) {
		const struct hl_profile_function *function = &profile->functions[i];
		is_plumbing[i] =
			!profile->modules[function->module].script &&
			(is_recorder[function->module] ||
			 hl_plumbing_matches(&plumbing, hl_profile_text(profile, function->name)));
	}
	return is_plumbing;
}

int hl_plumbing_fold(struct hl_profile *profile, const struct hl_node_ids *follow)
{
	HL_FREED bool *is_plumbing = hl_plumbing_find(profile);
	HL_FREED uint32_t *receiver = calloc(profile->node_count + 1, sizeof(*receiver));
	bool folds = false;

	if (!is_plumbing || !receiver)
		return -ENOMEM;
	profile->folds_plumbing = true;
	for (uint32_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		bool is_outermost = !node->parent ||
				    hl_frame_part_is_label(frame_of(profile, node->parent)->part);
		bool folded = is_plumbing[frame_of(profile, i)->function] && !is_outermost;
		receiver[i] = folded ? receiver[node->parent] : i;
		folds |= folded;
	}
	if (!folds)
		return 0;
	int r = rebuild(profile, receiver, follow);
	profile->plumbing_folded = r == 0;
	return r;
}
