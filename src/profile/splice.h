/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gives the stacks of a profile the frames of scripts that a view asks for; which these are in a mixed stack,
 * recording/script_stack.h says. Labels of blocks, their type and their service, come to stand before the
 * outermost frame, in this order; filter.h says which of them stay.
 */
#pragma once

#include "profile/profile.h"

enum hl_stack_kind {
	HL_STACK_MIXED,	 /* groups instead of calls of the main function; the interpreter's other
			    frames are left out */
	HL_STACK_NATIVE, /* native frames alone */
	HL_STACK_SCRIPT, /* frames of scripts alone, read or by the names of code that a runtime made;
			    "[native]" for stacks without any */
};

/* "mixed", "native", "script", NULL; by enum hl_stack_kind. */
extern const char *const hl_stack_kind_names[];

struct hl_node_ids;

/*
 * Gives ${profile} stacks of ${kind}; ${follow}, unless NULL, follows, see filter.h. ${folds_host}: stacks of services lose the
 * outermost frames that only run these (symbols/plumbing.h), but for a last one, and profile->host_folded is set. Where calls and
 * groups of a runtime are not as many, what is left over stays as it is, outermost, and counts in
 * profile->script_unmatched. Once a profile has been spliced another call changes nothing. 0 or -ENOMEM,
 * after which the profile is good for hl_profile_free() alone.
 */
int hl_splice(struct hl_profile *profile, enum hl_stack_kind kind, bool folds_host,
	      const struct hl_node_ids *follow);
