/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the functions of a process that rules name. */
#pragma once

#include "hook/hook_rules.h"
#include "hook/objects.h"

/* Names of a rule that objects are to be read for: its symbol, and the one that it depends on. */
#define HL_RULE_LOOKUP_NAMES 2u

void hl_rule_lookup_names(const struct hl_hook_rules *rules, const char **ret_names);

/*
 * The functions of all rules that hold in ${ret_found}, by rule; others stay as they are. The names
 * of the rules begin at ${first_name}. ${allocator} is the object of the process' free(), or NULL:
 * presets leave out its functions that it calls itself alone. 0, or -ENOENT when `--hook` names
 * what is not there; where libraries ${may_come}, what it names in one that is not there is awaited. Rules that hold
 * here hold from then on.
 */
int hl_rule_lookup(const struct hl_objects *objects, struct hl_hook_rules *rules, size_t first_name,
		   const struct hl_object *allocator, bool may_come,
		   struct hl_definition *ret_found, struct hl_error *err);

/* Visits all functions in each of the objects that rules name, as those of libraries that were loaded
 * later, and have not been called yet. Zero-initialize but for what is said. */
struct hl_rule_visit {
	size_t first_name;   /* where the names of the rules begin; given */
	bool tells_alone;    /* functions of heapline.h alone; given */
	size_t object, rule; /* to be looked at next */
};

bool hl_rule_lookup_next(const struct hl_objects *objects, const struct hl_hook_rules *rules,
			 struct hl_rule_visit *visit, size_t *ret_rule,
			 struct hl_definition *ret_found);

/* Whether its arguments are where those of the usual function are. */
bool hl_rule_lookup_is_usual(const struct hl_hook_rule *rule);

/* Whether what was found of the rules that are asked for, or of the others, has a malloc and a free
 * that can stand for the usual ones. */
bool hl_rule_lookup_serves(const struct hl_hook_rules *rules, const struct hl_definition *found,
			   bool is_asked);
