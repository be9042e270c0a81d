/* SPDX-License-Identifier: BSD-2-Clause */
/* Folds allocation plumbing into its callers; see filter.h. */
#include "profile/filter.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "symbols/plumbing.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- which functions are plumbing ---- */

/* "app+0x1234" of the file app: it has no name. */
static bool is_nameless(const struct hl_profile *profile,
			const struct hl_profile_function *function)
{
	const char *name = hl_profile_text(profile, function->name);
	const char *file =
		hl_path_basename(hl_profile_text(profile, profile->modules[function->module].path));
	size_t length = strlen(file);

	return function->module && !strncmp(name, file, length) &&
	       !strncmp(name + length, "+0x", strlen("+0x"));
}

/* By function: calls by plumbing of its own file, less calls by others. */
static void count_calls(const struct hl_profile *profile, const bool *is_plumbing, int64_t *calls)
{
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t called = frame_of(profile, i)->function, parent = profile->nodes[i].parent;
		uint32_t caller = parent ? frame_of(profile, parent)->function : 0;
		bool is_own = parent && profile->functions[caller].module ==
						profile->functions[called].module;
		calls[called] += is_own && is_plumbing[caller] ? 1 : -1;
	}
}

/*
 * Functions without a name that are called by plumbing of their file more often than by others are
 * plumbing, the static functions of an allocator that exports its entry points alone; as often as
 * there are more, which these call.
 */
static int find_nameless(const struct hl_profile *profile, bool *is_plumbing)
{
	HL_FREED int64_t *calls = NULL;
	bool found = true;

	while (found) {
		free(calls);
		calls = calloc(profile->function_count + 1, sizeof(*calls));
		if (!calls)
			return -ENOMEM;
		count_calls(profile, is_plumbing, calls);
		found = false;
		for (size_t i = 1; i < profile->function_count; i++)
			if (calls[i] > 0 && !is_plumbing[i] &&
			    is_nameless(profile, &profile->functions[i]))
				found = is_plumbing[i] = true;
	}
	return 0;
}

/* Adds functions whose names one of ${also} matches. */
static int find_also(const struct hl_profile *profile, const char *const *also, bool *is_plumbing)
{
	for (; also && *also; also++) {
		regex_t expression;
		int r = hl_expression_compile(*also, " of --plumbing-also", &expression, NULL);
		if (r < 0)
			return r;
		for (size_t i = 1; i < profile->function_count; i++) {
			const struct hl_profile_function *function = &profile->functions[i];
			const char *name = hl_profile_text(profile, function->name);
			is_plumbing[i] |= !profile->modules[function->module].script &&
					  regexec(&expression, name, 0, NULL, 0) == 0;
		}
		regfree(&expression);
	}
	return 0;
}

/* By function, to be freed. 0 or -ENOMEM. */
static int find_plumbing(const struct hl_profile *profile, const char *const *also,
			 bool **ret_is_plumbing)
{
	HL_FREED bool *is_plumbing = calloc(profile->function_count + 1, sizeof(*is_plumbing));
	HL_FREED bool *is_module = calloc(profile->module_count + 1, sizeof(*is_module));
	struct hl_plumbing plumbing;

	if (!is_plumbing || !is_module)
		return -ENOMEM;
	for (size_t i = 0; i < profile->module_count; i++)
		is_module[i] =
			hl_plumbing_is_module(hl_profile_text(profile, profile->modules[i].path));
	hl_plumbing_init(&plumbing);
	for (size_t i = 1; i < profile->function_count; i++) {
		const struct hl_profile_function *function = &profile->functions[i];
		is_plumbing[i] =
			!profile->modules[function->module].script &&
			(is_module[function->module] ||
			 hl_plumbing_matches(&plumbing, hl_profile_text(profile, function->name)));
	}
	int r = find_also(profile, also, is_plumbing);
	if (r == 0)
		r = find_nameless(profile, is_plumbing);
	if (r == 0)
		*ret_is_plumbing = HL_TAKE(is_plumbing);
	return r;
}

/* ---- folding ---- */

int hl_plumbing_fold(struct hl_profile *profile, const char *const *also,
		     const struct hl_node_ids *follow)
{
	HL_FREED uint32_t *receiver = calloc(profile->node_count + 1, sizeof(*receiver));
	bool *is_plumbing, folds = false;

	if (!receiver)
		return -ENOMEM;
	int r = find_plumbing(profile, also, &is_plumbing);
	if (r < 0)
		return r;
	free(profile->is_plumbing);
	profile->is_plumbing = is_plumbing;
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
	r = rebuild(profile, receiver, follow);
	profile->plumbing_folded = r == 0;
	return r;
}
