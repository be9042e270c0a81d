/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes other stacks of native frames and those of scripts; see splice.h. */
#include "profile/splice.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/builder.h"
#include "profile/filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const hl_stack_kind_names[] = {"mixed", "native", "script", NULL};

#define NATIVE_NAME "[native]"

struct splicing {
	struct hl_profile *profile;
	enum hl_stack_kind kind;
	struct hl_builder tree; /* of the new stacks; its frames are the profile's */
	uint32_t *new_node;	/* by node of the profile: of the tree */
	uint32_t *path;		/* frames of one stack, outermost first */
	size_t path_capacity;
	uint32_t native_frame; /* "[native]"; 0: not made yet */
};

static void release_splicing(struct splicing *splicing)
{
	hl_builder_release(&splicing->tree);
	free(splicing->new_node);
	free(splicing->path);
}

static const struct hl_profile_frame *frame_at(const struct splicing *splicing, size_t place)
{
	return &splicing->profile->frames[splicing->path[place]];
}

static bool is_script(const struct hl_profile_frame *frame)
{
	return frame->part == HL_PART_SCRIPT || frame->part == HL_PART_ENTRY;
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
	profile->functions[profile->function_count] = function;
	if (HL_ARRAY_RESERVE(profile->frames, frames, frames + 1) < 0)
		return -ENOMEM;
	profile->frames[profile->frame_count] =
		(struct hl_profile_frame){.function = (uint32_t)profile->function_count++};
	splicing->native_frame = (uint32_t)profile->frame_count++;
	return 0;
}

/* ---- one stack ---- */

/* A path: native frames up to ${scripts}, those of scripts up to ${rest}, then what says by which
 * way memory came. */
struct stack {
	size_t scripts, rest, end;
	uint32_t type, service; /* frames of labels, which are not part of the path; 0: none */
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
		uint32_t frame = profile->nodes[at].frame;
		if (profile->frames[frame].part == HL_PART_TYPE)
			stack.type = frame;
		else if (profile->frames[frame].part == HL_PART_SERVICE)
			stack.service = frame;
		else
			splicing->path[--first] = frame;
	}
	depth -= first;
	memmove(splicing->path, splicing->path + first, depth * sizeof(*splicing->path));
	stack.end = depth;
	while (stack.scripts < depth && !is_script(frame_at(splicing, stack.scripts)))
		stack.scripts++;
	stack.rest = stack.scripts;
	while (stack.rest < depth && is_script(frame_at(splicing, stack.rest)))
		stack.rest++;
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

static int put_run(struct splicing *splicing, uint32_t *node, size_t from, size_t to)
{
	int r = 0;

	for (size_t i = from; r == 0 && i < to; i++)
		r = put(splicing, node, splicing->path[i]);
	return r;
}

/* Where the group that begins at ${from} ends; groups of several runtimes follow each other. */
static size_t end_of_group(const struct splicing *splicing, const struct stack *stack, size_t from)
{
	size_t at = from + 1;

	while (at < stack->rest && frame_at(splicing, at)->part == HL_PART_SCRIPT &&
	       frame_at(splicing, at)->provider == frame_at(splicing, from)->provider)
		at++;
	return at;
}

/* The groups of one runtime in one stack, and the calls of its main function. */
struct match {
	uint32_t runtime;
	size_t groups, calls;
	size_t next; /* where its next group begins */
};

#define RUNTIMES_MAX 8 /* groups of more are put at the end */

static size_t count_matches(const struct splicing *splicing, const struct stack *stack,
			    struct match matches[RUNTIMES_MAX])
{
	size_t count = 0;

	for (size_t at = stack->scripts; at < stack->rest; at = end_of_group(splicing, stack, at)) {
		uint32_t runtime = frame_at(splicing, at)->provider;
		size_t i = 0;
		while (i < count && matches[i].runtime != runtime)
			i++;
		if (i == RUNTIMES_MAX)
			break;
		if (i == count)
			matches[count++] = (struct match){.runtime = runtime, .next = at};
		matches[i].groups++;
	}
	for (size_t at = 0; at < stack->scripts; at++)
		for (size_t i = 0; i < count; i++)
			matches[i].calls += frame_at(splicing, at)->part == HL_PART_EVAL &&
					    frame_at(splicing, at)->provider == matches[i].runtime;
	return count;
}

/* The runtime of ${place} among the matches, if that is a frame of an interpreter; or NULL. */
static struct match *match_of(const struct splicing *splicing, size_t place, struct match *matches,
			      size_t count)
{
	const struct hl_profile_frame *frame = frame_at(splicing, place);

	for (size_t i = 0; i < count; i++)
		if (frame->part != HL_PART_NATIVE && frame->provider == matches[i].runtime)
			return &matches[i];
	return NULL;
}

static int put_group(struct splicing *splicing, const struct stack *stack, struct match *match,
		     uint32_t *node)
{
	size_t end = end_of_group(splicing, stack, match->next);

	int r = put_run(splicing, node, match->next, end);
	match->next = end;
	match->groups--;
	return r;
}

/* One call of the main function: its group, and before the first call all that have none. */
static int put_call(struct splicing *splicing, const struct stack *stack, struct match *match,
		    size_t place, uint32_t *node)
{
	int r = 0;

	if (match->calls-- > match->groups)
		return put(splicing, node, splicing->path[place]);
	while (r == 0 && match->groups > match->calls)
		r = put_group(splicing, stack, match, node);
	return r;
}

static int put_mixed(struct splicing *splicing, const struct stack *stack, uint32_t *node,
		     bool *ret_unmatched)
{
	struct match matches[RUNTIMES_MAX];
	size_t count = count_matches(splicing, stack, matches);
	bool is_allocator = false;
	int r = 0;

	*ret_unmatched = false;
	for (size_t i = 0; i < count; i++)
		*ret_unmatched |= matches[i].calls != matches[i].groups;
	for (size_t at = 0; r == 0 && at < stack->scripts; at++) {
		struct match *match = match_of(splicing, at, matches, count);
		if (match)
			is_allocator = frame_at(splicing, at)->part == HL_PART_ALLOCATES;
		bool is_call = match && frame_at(splicing, at)->part == HL_PART_EVAL;
		/* The outermost frame stays, an interpreter's own, too: it is that of stacks without
		 * scripts. */
		if ((!match && !is_allocator) || (at == 0 && !is_call))
			r = put(splicing, node, splicing->path[at]);
		else if (is_call)
			r = put_call(splicing, stack, match, at, node);
	}
	/* Groups without any call of a main function. */
	for (size_t i = 0; i < count; i++)
		while (r == 0 && matches[i].groups)
			r = put_group(splicing, stack, &matches[i], node);
	return r;
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
	if (r < 0)
		return r;
	if (splicing->kind == HL_STACK_MIXED && stack.scripts < stack.rest)
		r = put_mixed(splicing, &stack, to, ret_unmatched);
	else if (splicing->kind != HL_STACK_SCRIPT)
		r = put_run(splicing, to, 0, stack.scripts);
	else if (stack.scripts < stack.rest)
		r = put_run(splicing, to, stack.scripts, stack.rest);
	else if (node)
		r = put(splicing, to, splicing->native_frame);
	return r < 0 ? r : put_run(splicing, to, stack.rest, stack.end);
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
			profile->lost.script_unmatched +=
				(uint64_t)profile->counters[i].alloc_objects;
	}
	return r;
}

int hl_splice(struct hl_profile *profile, enum hl_stack_kind kind, const struct hl_node_ids *follow)
{
	HL_CLEANUP(release_splicing) struct splicing splicing = {.profile = profile, .kind = kind};
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
