/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What words are called by the types that programs declare: from a variable by the type of each pointer
 * to the next block, for as long as types are known.
 */
#pragma once

#include "heap/graph/root_names.h"
#include "symbols/symbols_types.h"

struct hl_declared_types;

/* Memory of which the type is known. */
struct hl_declared {
	uint64_t address; /* 0: nothing is known */
	Dwarf_Die type;
};

/* Both must outlive the types. Debug information of a file is read when first needed. 0 or -ENOMEM. */
int hl_declared_types_new(struct hl_root_names *names, struct hl_strings *strings,
			  struct hl_declared_types **ret_types);

/* The variable that has ${address}. 0 or -ENOMEM. */
int hl_declared_types_variable(struct hl_declared_types *types, uint64_t address,
			       struct hl_declared *ret_variable);

/* An object at ${address} of the class ${name}, whose virtual table is at ${table}. 0 or -ENOMEM. */
int hl_declared_types_object(struct hl_declared_types *types, uint64_t address, const char *name,
			     uint64_t table, struct hl_declared *ret_object);

/*
 * The word at ${word}, whose value is ${value}, in a block that ends at ${end} and of which ${object} is
 * known, or in a variable (${end} 0). ${ret_member} is what it is called, in the strings:
 * "stats.buckets[17]", in variables ".stats.buckets[17]"; 0: nothing. ${ret_target} (may be NULL) is what it
 * points to. 0 or -ENOMEM.
 */
int hl_declared_types_word(struct hl_declared_types *types, const struct hl_declared *object,
			   uint64_t end, uint64_t word, uint64_t value, uint32_t *ret_member,
			   struct hl_declared *ret_target);

/* The name of the type; 0: it has none. 0 or -ENOMEM. */
int hl_declared_types_name(struct hl_declared_types *types, const struct hl_declared *object,
			   uint32_t *ret_name);

void hl_declared_types_free(struct hl_declared_types *types); /* NULL is fine */
