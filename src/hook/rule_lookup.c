/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks for what rules name; see rule_lookup.h. */
#include "hook/rule_lookup.h"

#include "base/names.h"

#include <errno.h>
#include <string.h>

struct lookup {
	const struct hl_objects *objects;
	const struct hl_hook_rules *rules;
	size_t first_name;
	const struct hl_object *allocator;
};

void hl_rule_lookup_names(const struct hl_hook_rules *rules, const char **ret_names)
{
	for (size_t i = 0; i < rules->count; i++) {
		ret_names[HL_RULE_LOOKUP_NAMES * i] = rules->rules[i].symbol;
		ret_names[HL_RULE_LOOKUP_NAMES * i + 1] = rules->rules[i].when;
	}
}

static size_t symbol_of(const struct lookup *lookup, size_t rule)
{
	return lookup->first_name + HL_RULE_LOOKUP_NAMES * rule;
}

static bool holds(const struct lookup *lookup, size_t rule)
{
	bool is_there = lookup->rules->rules[rule].holds;

	for (size_t i = 0; i < lookup->objects->count && lookup->rules->rules[rule].when[0]; i++)
		is_there |= hl_object_symbol_is_function(
			&lookup->objects->objects[i].symbols[symbol_of(lookup, rule) + 1]);
	return is_there;
}

/* "libpool.so" is libpool.so.3, too. */
static bool is_module(const struct hl_object *object, const char *module)
{
	const char *name = hl_path_basename(object->map->path);
	size_t length = strlen(module);

	return strncmp(name, module, length) == 0 && (!name[length] || name[length] == '.');
}

/*
 * An allocator that serves malloc() may have prefixed functions within, which see the same calls
 * once more. They count if another object calls them.
 */
static bool is_within(const struct lookup *lookup, const struct hl_object *object, size_t rule)
{
	const struct hl_objects *objects = lookup->objects;

	if (lookup->rules->rules[rule].is_asked || lookup->rules->rules[rule].is_beside ||
	    object != lookup->allocator)
		return false;
	for (size_t i = 0; i < objects->count; i++)
		if (&objects->objects[i] != object &&
		    objects->objects[i].symbols[symbol_of(lookup, rule)].is_requested)
			return false;
	return true;
}

static struct hl_definition find_function(const struct lookup *lookup, size_t index)
{
	const struct hl_objects *objects = lookup->objects;
	const struct hl_hook_rule *rule = &lookup->rules->rules[index];
	size_t name = symbol_of(lookup, index);
	struct hl_definition found = {0};

	for (size_t i = 0; i < objects->count && !found.object; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		uint64_t address = rule->address + object->bias;
		/* A recorder that is linked exports what allocators do, and passes calls on. */
		if (!rule->is_asked && is_module(object, "libheapline.so"))
			continue;
		/* An address without a module is the program's. */
		if (rule->module[0] ? !is_module(object, rule->module) : rule->address && i > 0)
			continue;
		if (rule->address && hl_objects_has_code(objects, object, address))
			found = (struct hl_definition){object, address, 0};
		else if (hl_object_symbol_is_function(symbol) && !is_within(lookup, object, index))
			found = hl_objects_definition(objects, name,
						      symbol->is_indirect ? symbol->reached
									  : symbol->address);
	}
	return found;
}

static bool is_loaded(const struct hl_objects *objects, const char *module)
{
	for (size_t i = 0; i < objects->count; i++)
		if (is_module(&objects->objects[i], module))
			return true;
	return false;
}

/* One function of a requested preset is enough: versions differ. */
static bool is_missing(const struct hl_hook_rules *rules, const struct hl_definition *found,
		       size_t index)
{
	const struct hl_hook_rule *rule = &rules->rules[index];
	bool is_there = found[index].object != NULL;

	for (size_t i = 0; i < rules->count && rule->preset[0]; i++)
		is_there |= found[i].object && strcmp(rules->rules[i].preset, rule->preset) == 0;
	return rule->is_asked && !is_there;
}

int hl_rule_lookup(const struct hl_objects *objects, struct hl_hook_rules *rules, size_t first_name,
		   const struct hl_object *allocator, bool may_come,
		   struct hl_definition *ret_found, struct hl_error *err)
{
	struct lookup lookup = {objects, rules, first_name, allocator};

	for (size_t i = 0; i < rules->count; i++)
		if (!rules->rules[i].tells && holds(&lookup, i)) {
			rules->rules[i].holds = true;
			ret_found[i] = find_function(&lookup, i);
		}
	for (size_t i = 0; i < rules->count; i++) {
		struct hl_hook_rule *rule = &rules->rules[i];
		rule->is_awaited = is_missing(rules, ret_found, i);
		if (rule->is_awaited &&
		    (!may_come || !rule->module[0] || is_loaded(objects, rule->module)))
			return hl_error_set(err, -ENOENT,
					    "process '%d' has no function '%s'%s%s%s, which --hook "
					    "names; 'nm' lists the functions of a file that is not "
					    "stripped%s",
					    (int)objects->pid, rule->symbol,
					    rule->module[0] ? " in '" : "", rule->module,
					    rule->module[0] ? "'" : "",
					    may_come ? ", and a library that is loaded later is "
						       "to be named: 'malloc=LIBRARY!NAME'"
						     : "");
	}
	return 0;
}

/* In one library that was loaded later; such a function has been called by nobody yet. */
static struct hl_definition find_in(const struct lookup *lookup, const struct hl_object *object,
				    size_t index)
{
	const struct hl_hook_rule *rule = &lookup->rules->rules[index];
	const struct hl_object_symbol *symbol = &object->symbols[symbol_of(lookup, index)];
	uint64_t address = rule->address + object->bias;

	if (rule->module[0] ? !is_module(object, rule->module) : rule->address != 0)
		return (struct hl_definition){0};
	if (rule->address)
		return hl_objects_has_code(lookup->objects, object, address)
			       ? (struct hl_definition){object, address, 0}
			       : (struct hl_definition){0};
	/* What an indirect function becomes is not known before it is called. */
	return hl_object_symbol_is_function(symbol) && !symbol->is_indirect
		       ? (struct hl_definition){object, symbol->address, symbol->bytes}
		       : (struct hl_definition){0};
}

bool hl_rule_lookup_next(const struct hl_objects *objects, const struct hl_hook_rules *rules,
			 struct hl_rule_visit *visit, size_t *ret_rule,
			 struct hl_definition *ret_found)
{
	const struct lookup lookup = {objects, rules, visit->first_name, NULL};

	for (; visit->object < objects->count; visit->object++, visit->rule = 0)
		while (visit->rule < rules->count) {
			size_t rule = visit->rule++;
			if (visit->tells_alone && !rules->rules[rule].tells)
				continue;
			if (!holds(&lookup, rule))
				continue;
			*ret_found = find_in(&lookup, &objects->objects[visit->object], rule);
			*ret_rule = rule;
			if (ret_found->object)
				return true;
		}
	return false;
}

bool hl_rule_lookup_is_usual(const struct hl_hook_rule *rule)
{
	return !rule->size_at && !rule->count_at && !rule->pointer_at && !rule->has_size &&
	       !rule->resets;
}

bool hl_rule_lookup_serves(const struct hl_hook_rules *rules, const struct hl_definition *found,
			   bool is_asked)
{
	bool allocates = false, frees = false;

	for (size_t i = 0; i < rules->count; i++) {
		const struct hl_hook_rule *rule = &rules->rules[i];
		bool is_usual = hl_rule_lookup_is_usual(rule);
		if (rule->tells || rule->resets || !found[i].object || rule->is_asked != is_asked)
			continue;
		/* Blocks that are freed or moved unseen would be counted for good. */
		if (!is_usual && (rule->call == HL_HOOK_FREE || rule->call == HL_HOOK_REALLOC))
			return false;
		allocates |= is_usual && rule->call == HL_HOOK_MALLOC;
		frees |= rule->call == HL_HOOK_FREE;
	}
	return allocates && frees;
}
