/* SPDX-License-Identifier: BSD-2-Clause */
/* Marks frames by regular expressions, then rebuilds the tree of what is left; see filter.h. */
#include "profile/filter.h"

#include "profile/builder.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum role {
	FOCUS,
	IGNORE,
	HIDE,
	ROLE_COUNT,
};

static const char *const role_names[ROLE_COUNT] = {"focus", "ignore", "hide"};

struct filtering {
	struct hl_profile *profile;
	const char *texts[ROLE_COUNT]; /* NULL: not asked for */
	regex_t expressions[ROLE_COUNT];
	bool compiled[ROLE_COUNT];
	uint8_t *marks;	    /* by frame: bit 1 << role where it matches */
	bool *chosen;	    /* by node: its stack is chosen */
	uint32_t *new_node; /* by node: what it has become; after finish() in the final order */
	struct hl_builder builder;
};

/* ---- expressions ---- */

static int compile(struct filtering *filtering, struct hl_error *err)
{
	for (int role = 0; role < ROLE_COUNT; role++) {
		const char *text = filtering->texts[role];
		char reason[128];
		if (!text)
			continue;
		int r = regcomp(&filtering->expressions[role], text, REG_EXTENDED | REG_NOSUB);
		if (r == REG_ESPACE)
			return -ENOMEM;
		if (r != 0) {
			regerror(r, &filtering->expressions[role], reason, sizeof(reason));
			return hl_error_set(err, -EINVAL, "bad expression '%s' of --%s: %s", text,
					    role_names[role], reason);
		}
		filtering->compiled[role] = true;
	}
	return 0;
}

static bool matches(const regex_t *expression, const struct hl_profile *profile, uint32_t text)
{
	return text && regexec(expression, hl_profile_text(profile, text), 0, NULL, 0) == 0;
}

static bool function_matches(const regex_t *expression, const struct hl_profile *profile,
			     const struct hl_profile_function *function)
{
	return matches(expression, profile, function->name) ||
	       matches(expression, profile, function->file) ||
	       matches(expression, profile, profile->modules[function->module].path);
}

/* Functions first: they are fewer than frames. */
static int mark_frames(struct filtering *filtering)
{
	const struct hl_profile *profile = filtering->profile;
	uint8_t *functions = calloc(profile->function_count, 1);

	filtering->marks = calloc(profile->frame_count, 1);
	if (!functions || !filtering->marks) {
		free(functions);
		return -ENOMEM;
	}
	for (int role = 0; role < ROLE_COUNT; role++) {
		const regex_t *expression = &filtering->expressions[role];
		uint8_t bit = (uint8_t)(1u << role);
		if (!filtering->compiled[role])
			continue;
		for (size_t i = 1; i < profile->function_count; i++)
			if (function_matches(expression, profile, &profile->functions[i]))
				functions[i] |= bit;
		for (size_t i = 1; i < profile->frame_count; i++)
			if (functions[profile->frames[i].function] & bit ||
			    matches(expression, profile, profile->frames[i].file))
				filtering->marks[i] |= bit;
	}
	free(functions);
	return 0;
}

/* ---- stacks ---- */

static bool has_mark(const struct filtering *filtering, uint32_t node, enum role role)
{
	return filtering->marks[filtering->profile->nodes[node].frame] & 1u << role;
}

/* Whether a frame of each node's stack, its own included, bears the mark of ${role}. */
static bool *mark_stacks(const struct filtering *filtering, enum role role)
{
	const struct hl_profile *profile = filtering->profile;
	bool *marked = calloc(profile->node_count, sizeof(*marked));

	for (uint32_t i = 1; marked && i < profile->node_count; i++)
		marked[i] = marked[profile->nodes[i].parent] || has_mark(filtering, i, role);
	return marked;
}

static int choose_stacks(struct filtering *filtering)
{
	size_t count = filtering->profile->node_count;
	bool *focused = mark_stacks(filtering, FOCUS), *ignored = mark_stacks(filtering, IGNORE);
	int r = -ENOMEM;

	filtering->chosen = calloc(count, sizeof(*filtering->chosen));
	if (focused && ignored && filtering->chosen) {
		for (size_t i = 0; i < count; i++)
			filtering->chosen[i] =
				(!filtering->texts[FOCUS] || focused[i]) && !ignored[i];
		r = 0;
	}
	free(focused);
	free(ignored);
	return r;
}

/* ---- the tree of what is left ---- */

/* The nodes of chosen stacks and those above them. */
static bool *find_kept(const struct filtering *filtering)
{
	const struct hl_profile *profile = filtering->profile;
	bool *kept = calloc(profile->node_count, sizeof(*kept));

	for (size_t i = profile->node_count; kept && i-- > 1;) {
		kept[i] = kept[i] || filtering->chosen[i];
		if (kept[i])
			kept[profile->nodes[i].parent] = true;
	}
	return kept;
}

static int rebuild(struct filtering *filtering)
{
	const struct hl_profile *profile = filtering->profile;
	bool *kept = find_kept(filtering);
	int r = hl_builder_init(&filtering->builder);

	filtering->new_node = calloc(profile->node_count, sizeof(*filtering->new_node));
	if (!kept || !filtering->new_node)
		r = -ENOMEM;
	for (uint32_t i = 1; r == 0 && i < profile->node_count; i++) {
		uint32_t parent = filtering->new_node[profile->nodes[i].parent];
		filtering->new_node[i] = parent;
		if (kept[i] && !has_mark(filtering, i, HIDE))
			r = hl_builder_child(&filtering->builder, parent, profile->nodes[i].frame,
					     &filtering->new_node[i]);
	}
	free(kept);
	return r;
}

static void sum_counters(const struct filtering *filtering, const struct hl_profile_counters *from,
			 struct hl_profile_counters *to, struct hl_profile_counters *total)
{
	for (size_t i = 0; i < filtering->profile->node_count; i++) {
		if (!filtering->chosen[i])
			continue;
		hl_profile_counters_add(&to[filtering->new_node[i]], &from[i]);
		hl_profile_counters_add(total, &from[i]);
	}
}

static void filter_rows(const struct filtering *filtering)
{
	struct hl_profile *profile = filtering->profile;
	size_t kept = 0;

	for (size_t i = 0; i < profile->thread_count; i++)
		profile->threads[i].total = (struct hl_profile_counters){0};
	for (size_t i = 0; i < profile->row_count; i++) {
		struct hl_profile_row row = profile->rows[i];
		if (!filtering->chosen[row.node])
			continue;
		row.node = filtering->new_node[row.node];
		profile->rows[kept++] = row;
		hl_profile_counters_add(&profile->threads[row.thread].total, &row.counters);
	}
	/* Without rows nobody knows what of a thread's is left. */
	if (!profile->row_count)
		profile->thread_count = 0;
	profile->row_count = kept;
}

static void filter_sizes(const struct filtering *filtering)
{
	struct hl_profile *profile = filtering->profile;
	size_t kept = 0;

	for (size_t i = 0; i < profile->size_count; i++) {
		struct hl_profile_size size = profile->sizes[i];
		if (!filtering->chosen[size.node])
			continue;
		size.node = filtering->new_node[size.node];
		profile->sizes[kept++] = size;
	}
	profile->size_count = kept;
}

static void put_tree(struct hl_profile *profile, struct hl_profile *tree,
		     struct hl_profile_counters *base)
{
	free(profile->nodes);
	free(profile->counters);
	free(profile->base);
	profile->nodes = tree->nodes;
	profile->counters = tree->counters;
	profile->node_count = tree->node_count;
	profile->base = base;
	tree->nodes = NULL;
	tree->counters = NULL;
}

static int move_values(struct filtering *filtering, struct hl_profile *tree)
{
	struct hl_profile *profile = filtering->profile;
	struct hl_profile_counters total = {0}, base_total = {0}, *base = NULL;

	if (profile->base) {
		base = calloc(tree->node_count, sizeof(*base));
		if (!base)
			return -ENOMEM;
		sum_counters(filtering, profile->base, base, &base_total);
	}
	sum_counters(filtering, profile->counters, tree->counters, &total);
	filter_rows(filtering);
	filter_sizes(filtering);
	put_tree(profile, tree, base);
	profile->total = total;
	profile->base_total = base_total;
	return 0;
}

static int finish(struct filtering *filtering)
{
	struct hl_profile *tree;
	uint32_t *final_ids;

	int r = hl_builder_finish(&filtering->builder, &final_ids, &tree);
	if (r < 0)
		return r;
	for (size_t i = 0; i < filtering->profile->node_count; i++)
		filtering->new_node[i] = final_ids[filtering->new_node[i]];
	free(final_ids);
	r = move_values(filtering, tree);
	hl_profile_free(tree);
	return r;
}

/* ---- all of it ---- */

/* "focus 'parse', hide 'malloc'" */
static int describe(struct filtering *filtering)
{
	char *clause = NULL;
	size_t size;
	FILE *out = open_memstream(&clause, &size);
	const char *separator = "";

	if (!out)
		return -ENOMEM;
	for (int role = 0; role < ROLE_COUNT; role++)
		if (filtering->texts[role]) {
			fprintf(out, "%s%s '%s'", separator, role_names[role],
				filtering->texts[role]);
			separator = ", ";
		}
	int r = fclose(out) == 0 ? hl_strings_intern(&filtering->profile->strings, clause,
						     &filtering->profile->filter)
				 : -ENOMEM;
	free(clause);
	return r;
}

static void release(struct filtering *filtering)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		if (filtering->compiled[role])
			regfree(&filtering->expressions[role]);
	free(filtering->marks);
	free(filtering->chosen);
	free(filtering->new_node);
	hl_builder_release(&filtering->builder);
}

int hl_filter_apply(const struct hl_filter *filter, struct hl_profile *profile,
		    struct hl_error *err)
{
	struct filtering filtering = {
		.profile = profile,
		.texts =
			{[FOCUS] = filter->focus, [IGNORE] = filter->ignore, [HIDE] = filter->hide},
	};

	if (!filter->focus && !filter->ignore && !filter->hide)
		return 0;
	int r = compile(&filtering, err);
	if (r == 0)
		r = mark_frames(&filtering);
	if (r == 0)
		r = choose_stacks(&filtering);
	if (r == 0)
		r = rebuild(&filtering);
	if (r == 0)
		r = finish(&filtering);
	if (r == 0)
		r = describe(&filtering);
	release(&filtering);
	if (r == -ENOMEM)
		hl_error_set(err, r, "cannot filter '%s': out of memory",
			     hl_profile_text(profile, profile->name));
	return r;
}
