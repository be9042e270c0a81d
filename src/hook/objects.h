/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ELF objects that a process runs: its program and its libraries, in the order in which the
 * dynamic linker searches them, and where they have functions of given names.
 */
#pragma once

#include "base/error.h"
#include "base/index.h"
#include "elf/elf.h"
#include "hook/hook_rules.h"
#include "process/maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What an object knows of a name. */
struct hl_object_symbol {
	uint64_t address; /* in the process; 0: it does not define the name */
	uint64_t bytes;	  /* 0: unknown */
	uint64_t reached; /* where its own calls of the name lead; 0: unknown */
	bool is_exported; /* others may call it by this name */
	bool is_local;	  /* of one source file, or hidden */
	bool is_indirect; /* ${address} is that of its resolver: STT_GNU_IFUNC */
	bool is_data;
	bool is_requested; /* it calls the name by way of the dynamic linker */
};

static inline bool hl_object_symbol_is_function(const struct hl_object_symbol *symbol)
{
	return symbol->address && !symbol->is_data;
}

struct hl_object {
	const struct hl_map
		*map;	  /* of its code, or of its header where that was moved to huge pages */
	uint64_t bias;	  /* what its addresses in the process have more than in the file */
	uint64_t dynamic; /* its dynamic section; 0: it has none */
	uint64_t headers, header_count; /* program headers; 0: not in memory */
	uint64_t entry;
	uint64_t code_start, code_end;	  /* where its code was mapped */
	bool has_loader;		  /* it asks for a dynamic loader */
	bool has_symbols;		  /* any that are not exported */
	uint64_t annotated_word;	  /* of heapline.h, in the process; 0: it has none */
	uint64_t word_addend;		  /* of the relocation of that; 0: it has none */
	struct hl_object_symbol *symbols; /* by name */
};

struct hl_objects {
	pid_t pid;
	int memory; /* /proc/PID/mem */
	const struct hl_maps *maps;
	const char *const *names;
	size_t name_count;
	struct hl_index index;	   /* of names */
	struct hl_object *objects; /* the program is the first */
	size_t count, capacity;
};

/*
 * Reads the objects of which ${maps} has code, and what they know of ${names}; both must outlive
 * ${ret_objects}, which is to be released. Symbols come from .dynsym and .symtab, and for the
 * program from its separate debug file if that has more. 0; -ENOENT when there is no program for
 * this machine; -EACCES, -ESRCH, -ENOMEM.
 */
int hl_objects_read(pid_t pid, const struct hl_maps *maps, const char *const *names,
		    size_t name_count, struct hl_objects *ret_objects, struct hl_error *err);

/* The same of libraries alone, those of ${maps}, in the order of these. No -ENOENT. */
int hl_objects_read_more(pid_t pid, const struct hl_maps *maps, const char *const *names,
			 size_t name_count, struct hl_objects *ret_objects, struct hl_error *err);

/* Where the program's dynamic section has the address of the linker's struct r_debug, or will have
 * it; 0: nowhere. */
uint64_t hl_objects_debug_place(const struct hl_objects *objects);

void hl_objects_release(struct hl_objects *objects);

/* Opens the object's file, both to be closed; NULL when it cannot be read any more. */
Elf *hl_objects_open(const struct hl_objects *objects, const struct hl_map *map, int *ret_fd);

/* Reads the process' memory; false when it is not all there. */
bool hl_objects_peek(const struct hl_objects *objects, uint64_t address, void *bytes, size_t size);

/* A function, and the object that has it; NULL if there is none. */
struct hl_definition {
	const struct hl_object *object;
	uint64_t address, bytes;
};

/* The function called ${name}, a number, that begins at ${address}, or that an indirect function of
 * that name has become. */
struct hl_definition hl_objects_definition(const struct hl_objects *objects, size_t name,
					   uint64_t address);

/* ---- functions that rules name ---- */

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
