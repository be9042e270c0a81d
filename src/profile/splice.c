/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes a profile's stacks again: without plumbing, or with frames of scripts among native ones; see filter.h. */
#include "profile/filter.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "profile/builder.h"
#include "symbols/symbols.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* ---- counters, rows, sizes and totals on the nodes of another tree ---- */

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

/* ---- allocation plumbing ---- */

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

/* ---- frames of scripts ---- */

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
