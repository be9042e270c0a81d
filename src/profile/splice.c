/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes other stacks of native frames and those of scripts; see splice.h. */
#include "profile/splice.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/builder.h"
#include "profile/filter.h"
#include "symbols/plumbing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const hl_stack_kind_names[] = {"mixed", "native", "script", NULL};

#define NATIVE_NAME "[native]"

struct splicing {
	struct hl_profile *profile;
	enum hl_stack_kind kind;
	struct hl_builder tree;	     /* of the new stacks; its frames are the profile's */
	uint32_t *new_node;	     /* by node of the profile: of the tree */
	struct hl_stack_frame *path; /* of one stack, outermost first; ids are those of frames */
	uint32_t *ids;		     /* those that the new stack has */
	size_t path_capacity, id_count, id_capacity;
	bool folds_host;       /* what runs services is left out */
	uint32_t native_frame; /* "[native]"; 0: not made yet */
};

static void release_splicing(struct splicing *splicing)
{
	hl_builder_release(&splicing->tree);
	free(splicing->new_node);
	free(splicing->path);
	free(splicing->ids);
}

/* The frame of "[native]", for stacks that are of no script. */
static int make_native_frame(struct splicing *splicing)
{
	struct hl_profile *profile = splicing->profile;
	struct hl_profile_function function = {0};
	size_t functions = profile->function_count, frames = profile->frame_count;

	if (splicing->native_frame)
		return 0;
	if (hl_strings_intern(&profile->strings, NATIVE_NAME, &function.name) < 0 ||
	    HL_ARRAY_RESERVE(profile->functions, functions, functions + 1) < 0)
		return -ENOMEM;
	function.label = function.name;
	profile->functions[profile->function_count] = function;
	if (HL_ARRAY_RESERVE(profile->frames, frames, frames + 1) < 0)
		return -ENOMEM;
	profile->frames[profile->frame_count] =
		(struct hl_profile_frame){.function = (uint32_t)profile->function_count++};
	splicing->native_frame = (uint32_t)profile->frame_count++;
	return 0;
}

/* ---- one stack ---- */

/* The path of a node without its labels. */
struct stack {
	struct hl_script_stack path;
	uint32_t type, service, age; /* frames; 0: none */
};

/* Reads the path of ${node}. */
static int read_stack(struct splicing *splicing, uint32_t node, struct stack *ret_stack)
{
	const struct hl_profile *profile = splicing->profile;
	size_t depth = 0;

	for (uint32_t at = node; at; at = profile->nodes[at].parent)
		depth++;
	if (HL_ARRAY_RESERVE(splicing->path, splicing->path_capacity, depth + 1) < 0)
		return -ENOMEM;
	struct stack stack = {0};
	size_t first = depth;
	for (uint32_t at = node; at; at = profile->nodes[at].parent) {
		uint32_t id = profile->nodes[at].frame;
		const struct hl_profile_frame *frame = &profile->frames[id];
		if (frame->part == HL_PART_TYPE)
			stack.type = id;
		else if (frame->part == HL_PART_SERVICE)
			stack.service = id;
		else if (frame->part == HL_PART_AGE)
			stack.age = id;
		else
			splicing->path[--first] =
				(struct hl_stack_frame){id, frame->provider, frame->part};
	}
	stack.path = hl_script_stack(splicing->path + first, depth - first);
	*ret_stack = stack;
	return 0;
}

static int put(struct splicing *splicing, uint32_t *node, uint32_t frame)
{
	const struct hl_profile_frame *frames = splicing->profile->frames;

	/* Who called it has done its service: the frame of the place itself is the one before. */
	if (frames[frame].part == HL_PART_ENTRY && frames[frame - 1].part == HL_PART_SCRIPT &&
	    frames[frame - 1].function == frames[frame].function &&
	    frames[frame - 1].line == frames[frame].line)
		frame--;
	return hl_builder_child(&splicing->tree, *node, frame, node);
}

/* ---- the frames that are left ---- */

static void take_run(struct splicing *splicing, const struct hl_script_stack *path, size_t from,
		     size_t to)
{
	for (size_t i = from; i < to; i++)
		splicing->ids[splicing->id_count++] = path->frames[i].id;
}

/* The native frames that belong to scripts: code that a runtime generated. */
static void take_made_scripts(struct splicing *splicing, const struct hl_script_stack *path)
{
	const struct hl_profile *profile = splicing->profile;

	for (size_t i = 0; i < path->scripts; i++)
		if (hl_profile_is_script(profile, &profile->frames[path->frames[i].id]))
			take_run(splicing, path, i, i + 1);
	if (!splicing->id_count)
		splicing->ids[splicing->id_count++] = splicing->native_frame;
}

/* Calls whose functions have ended have no place. */
static void take_scripts(struct splicing *splicing, const struct hl_script_stack *path)
{
	for (size_t i = path->scripts; i < path->rest; i++)
		if (path->frames[i].part != HL_PART_ENDED)
			take_run(splicing, path, i, i + 1);
	if (!splicing->id_count)
		take_made_scripts(splicing, path);
}

static void take_frames(struct splicing *splicing, const struct hl_script_stack *path,
			bool *ret_unmatched)
{
	bool has_scripts = path->scripts < path->rest;

	splicing->id_count = 0;
	if (splicing->kind == HL_STACK_MIXED && has_scripts) {
		splicing->id_count = hl_script_stack_mix(path, splicing->ids, ret_unmatched);
		return;
	}
	if (splicing->kind == HL_STACK_SCRIPT)
		take_scripts(splicing, path);
	else
		take_run(splicing, path, 0, path->scripts);
	take_run(splicing, path, path->rest, path->count);
}

/* How many outermost frames only run the service. One is left. */
static size_t count_host(const struct splicing *splicing)
{
	const struct hl_profile *profile = splicing->profile;
	size_t count = 0;

	for (; count + 1 < splicing->id_count; count++) {
		uint32_t id = profile->frames[splicing->ids[count]].function;
		const struct hl_profile_function *function = &profile->functions[id];
		if (!hl_plumbing_runs_services(
			    hl_profile_text(profile, function->name),
			    hl_profile_text(profile, profile->modules[function->module].path),
			    hl_profile_text(profile, function->file)))
			break;
	}
	return count;
}

/* Gives ${node} its new one. */
static int splice_node(struct splicing *splicing, uint32_t node, bool *ret_unmatched)
{
	uint32_t *to = &splicing->new_node[node];
	struct stack stack;

	*ret_unmatched = false;
	int r = read_stack(splicing, node, &stack);
	if (r == 0 && stack.type)
		r = hl_builder_child(&splicing->tree, *to, stack.type, to);
	if (r == 0 && stack.service)
		r = hl_builder_child(&splicing->tree, *to, stack.service, to);
	if (r == 0 && stack.age)
		r = hl_builder_child(&splicing->tree, *to, stack.age, to);
	if (r < 0)
		return r;
	size_t host = 0;
	if (HL_ARRAY_RESERVE(splicing->ids, splicing->id_capacity, stack.path.count + 1) < 0)
		return -ENOMEM;
	take_frames(splicing, &stack.path, ret_unmatched);
	if (stack.service && splicing->folds_host)
		host = count_host(splicing);
	splicing->profile->host_folded |= host > 0;
	for (size_t i = host; r == 0 && i < splicing->id_count; i++)
		r = put(splicing, to, splicing->ids[i]);
	return r;
}

/* ---- all of them ---- */

static bool has_scripts(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->module_count; i++)
		if (profile->modules[i].script)
			return true;
	return false;
}

/* The nodes that somebody refers to; all others need no stack. */
static bool *find_wanted(const struct hl_profile *profile, const struct hl_node_ids *follow)
{
	bool *wanted = calloc(profile->node_count, sizeof(*wanted));

	if (!wanted)
		return NULL;
	for (size_t i = 1; i < profile->node_count; i++)
		wanted[i] = hl_profile_counters_any(&profile->counters[i]) ||
			    (profile->base && hl_profile_counters_any(&profile->base[i]));
	for (size_t i = 0; i < profile->row_count; i++)
		wanted[profile->rows[i].node] = true;
	for (size_t i = 0; i < profile->size_count; i++)
		wanted[profile->sizes[i].node] = true;
	for (size_t i = 0; follow && i < follow->count; i++)
		if (follow->ids[i] != HL_NODE_LEFT_OUT)
			wanted[follow->ids[i]] = true;
	return wanted;
}

static int splice_all(struct splicing *splicing, const struct hl_node_ids *follow)
{
	struct hl_profile *profile = splicing->profile;
	HL_FREED bool *wanted = find_wanted(profile, follow);
	int r = wanted ? 0 : -ENOMEM;

	if (r == 0 && splicing->kind == HL_STACK_SCRIPT)
		r = make_native_frame(splicing);
	for (uint32_t i = 1; r == 0 && i < profile->node_count; i++) {
		bool unmatched = false;
		if (wanted[i])
			r = splice_node(splicing, i, &unmatched);
		if (unmatched)
			profile->script_unmatched += (uint64_t)profile->counters[i].alloc_objects;
	}
	return r;
}

int hl_splice(struct hl_profile *profile, enum hl_stack_kind kind, bool folds_host,
	      const struct hl_node_ids *follow)
{
	HL_CLEANUP(release_splicing)
	struct splicing splicing = {.profile = profile, .kind = kind, .folds_host = folds_host};
	HL_FREED uint32_t *final_ids = NULL;
	struct hl_profile *tree = NULL;

	if (profile->spliced || (kind != HL_STACK_SCRIPT && !has_scripts(profile)))
		return 0;
	splicing.new_node = calloc(profile->node_count, sizeof(*splicing.new_node));
	int r = splicing.new_node ? hl_builder_init(&splicing.tree) : -ENOMEM;
	if (r == 0)
		r = splice_all(&splicing, follow);
	if (r == 0)
		r = hl_builder_finish(&splicing.tree, &final_ids, &tree);
	if (r < 0)
		return r;
	for (size_t i = 0; i < profile->node_count; i++)
		splicing.new_node[i] = final_ids[splicing.new_node[i]];
	r = hl_retree(profile, HL_TAKE(tree->nodes), tree->node_count, splicing.new_node, NULL,
		      follow);
	hl_profile_free(tree);
	profile->spliced = r == 0;
	return r;
}
