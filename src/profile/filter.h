/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses stacks by their frames, and frames within stacks, as pprof does. A frame matches where
 * the extended regular expression is found in its function's name, its file's path or its module's.
 */
#pragma once

#include "profile/profile.h"

#include <regex.h>

/* ---- regular expressions as people give them ---- */

/*
 * Compiles ${text} for matches alone (REG_NOSUB) into ${expression}, to be given to regfree().
 * ${origin} follows the expression in messages, such as " of --focus". 0; -EINVAL with a sentence
 * when it is invalid, or would cost libc too much memory or stack; -ENOMEM.
 */
int hl_expression_compile(const char *text, const char *origin, regex_t *expression,
			  struct hl_error *err);

/* ---- another tree for a profile, whose figures follow their nodes ---- */

/* Ids of nodes that somebody else keeps, and that follow the tree too. */
struct hl_node_ids {
	uint32_t *ids; /* HL_NODE_LEFT_OUT: of a stack that is not in the profile */
	size_t count;
};

#define HL_NODE_LEFT_OUT UINT32_MAX

/*
 * Gives ${profile} the ${count} nodes ${nodes}, which it takes over. ${new_node} says what each old
 * node has become; ${chosen}, by old node, whose figures are left (NULL: all). ${follow} may be
 * NULL. 0; or -ENOMEM, and nothing has changed but that ${nodes} are freed.
 */
int hl_retree(struct hl_profile *profile, struct hl_profile_node *nodes, size_t count,
	      const uint32_t *new_node, const bool *chosen, const struct hl_node_ids *follow);

/*
 * ---- frames of scripts: which these are in a mixed stack, recording/recording.h says ----
 * Labels of blocks, their type and their service, come to stand before the outermost frame, in this order; the filter says
 * which of them stay.
 */

enum hl_stack_kind {
	HL_STACK_MIXED,	 /* groups instead of calls of the main function; the interpreter's other
			    frames are left out */
	HL_STACK_NATIVE, /* native frames alone */
	HL_STACK_SCRIPT, /* frames of scripts alone, read or by the names of code that a runtime made;
			    "[native]" for stacks without any */
};

/* "mixed", "native", "script", NULL; by enum hl_stack_kind. */
extern const char *const hl_stack_kind_names[];

/*
 * Gives ${profile} stacks of ${kind}; ${follow}, unless NULL, follows the tree. ${folds_host}: stacks of services lose the
 * outermost frames that only run these (symbols/symbols.h), but for a last one, and profile->host_folded is set. Where calls and
 * groups of a runtime are not as many, what is left over stays as it is, outermost, and counts in
 * profile->script_unmatched. Once a profile has been spliced another call changes nothing. 0 or -ENOMEM,
 * after which the profile is good for hl_profile_free() alone.
 */
int hl_splice(struct hl_profile *profile, enum hl_stack_kind kind, bool folds_host,
	      const struct hl_node_ids *follow);

/*
 * What allocation plumbing (symbols/symbols.h) allocated goes to its callers: folds the plumbing of all stacks of
 * ${profile}, with that of functions whose names one of ${also} matches (a list that ends with NULL; NULL: no others),
 * keeps in profile->is_plumbing which functions these are, sets profile->plumbing_folded where there was some, and has
 * ${follow}, unless NULL, follow. 0; or a negative errno, after which no stack has changed: -ENOMEM, or that of
 * hl_expression_compile().
 */
int hl_plumbing_fold(struct hl_profile *profile, const char *const *also,
		     const struct hl_node_ids *follow);

/* ---- filters ---- */

#define HL_FILTER_EXPRESSIONS_MAX 8 /* in each role */

/* Expressions; of each role, those that are not used are NULL and come last. */
struct hl_filter {
	enum hl_stack_kind stack; /* which frames of scripts; the rest is chosen among these */
	/* HL_PART_TYPE or HL_PART_SERVICE: the label that stacks begin with; HL_PART_NATIVE: none. */
	enum hl_frame_part root;
	bool root_alone; /* nothing is left of a stack but that */
	/* Keep only blocks whose type, or service, each of these matches. */
	const char *type[HL_FILTER_EXPRESSIONS_MAX];
	const char *service[HL_FILTER_EXPRESSIONS_MAX];
	uint64_t survived; /* keep only blocks that have outlived as many collections; 0: all */
	/* Keep only stacks in which each of these matches some frame. */
	const char *focus[HL_FILTER_EXPRESSIONS_MAX];
	/* Leave out stacks with a frame that one of these matches. */
	const char *ignore[HL_FILTER_EXPRESSIONS_MAX];
	/* Leave frames out that one of these matches; what they hold is their caller's. */
	const char *hide[HL_FILTER_EXPRESSIONS_MAX];
	/* Allocation plumbing is folded, see symbols/symbols.h: no expression matches what is not shown. */
	bool fold_plumbing;
	const char *plumbing_also[HL_FILTER_EXPRESSIONS_MAX + 1]; /* names of more of it */
};

/* Whether it matters to ${filter} of which type blocks are. */
static inline bool hl_filter_asks_types(const struct hl_filter *filter)
{
	return filter->root == HL_PART_TYPE || filter->type[0];
}

/* Whether ${filter} chooses stacks or frames, folding aside. */
bool hl_filter_has_expressions(const struct hl_filter *filter);

/*
 * Whether all expressions of ${filter} are good. 0; -EINVAL with a sentence that names the one that
 * is not; -ENOMEM.
 */
int hl_filter_check(const struct hl_filter *filter, struct hl_error *err);

/*
 * Applies ${filter} to ${profile}. First its stacks become what views show: script frames are put in their places, plumbing is
 * folded. Then the expressions choose among these. Its nodes, counters, rows, sizes and totals are then those of
 * what is left, and the ids of ${follow}, unless NULL, those of its new nodes. 0; as
 * hl_filter_check(); -ENOMEM, after which the profile is good for hl_profile_free() alone.
 */
int hl_filter_apply(const struct hl_filter *filter, struct hl_profile *profile,
		    const struct hl_node_ids *follow, struct hl_error *err);
