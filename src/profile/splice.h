/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts the frames of scripts where they belong. A recording keeps them below the innermost native
 * frame (recorder/script.h); a reader wants to see them in place of the calls of the interpreter
 * that ran them.
 *
 *	group	frames of scripts from one that native code called up to the next such one: what
 *		one call of the interpreter's main function runs
 *
 * The innermost group belongs to the innermost call of the main function, and so on outward. Labels of
 * blocks, their type and their service, come to stand before the outermost frame, in this order; filter.h says
 * which of them stay.
 */
#pragma once

#include "profile/profile.h"

enum hl_stack_kind {
	HL_STACK_MIXED,	 /* groups in place of calls of the main function; the interpreter's other
			    frames are left out */
	HL_STACK_NATIVE, /* native frames alone */
	HL_STACK_SCRIPT, /* frames of scripts alone; "[native]" for stacks without any */
};

/* "mixed", "native", "script", NULL; by enum hl_stack_kind. */
extern const char *const hl_stack_kind_names[];

struct hl_node_ids;

/*
 * Gives ${profile} stacks of ${kind}; ${follow}, unless NULL, follows, see filter.h. Where calls and
 * groups of a runtime are not as many, what is left over stays as it is, outermost, and counts in
 * lost.script_unmatched. Once a profile has been spliced another call changes nothing. 0 or -ENOMEM,
 * after which the profile is good for hl_profile_free() alone.
 */
int hl_splice(struct hl_profile *profile, enum hl_stack_kind kind,
	      const struct hl_node_ids *follow);
