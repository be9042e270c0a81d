/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who keeps the blocks of a heap.
 *
 *	holder	a variable, a function's frame on a stack, a mapping, or what the program handed to the kernel,
 *		whose words lead to blocks
 *	held	by a holder: what would become free if the holder let go; so of a block with what
 *		hangs on it. Each block is held by one holder, shared by several, or lost
 *	shared	several holders lead there, each without the others
 *	lost	no holder leads there
 *
 * Unlike for leaks any word into a block counts, be it to its start or its inside.
 */
#pragma once

#include "base/error.h"
#include "base/strings.h"
#include "heap/graph/leaks.h"
#include "heap/heap.h"
#include "heap/memory.h"

#include <elfutils/libdw.h>
#include <regex.h>

/* ---- root names ---- */

/*
 * What the memory is called in which a program begins to look for its blocks: variables by their
 * symbols, thread-local ones too, frames of stacks by their functions, other mappings.
 */

enum hl_root_kind {
	HL_ROOT_VARIABLE,
	HL_ROOT_THREAD_VARIABLE,
	HL_ROOT_FRAME,
	HL_ROOT_MAPPING,
	HL_ROOT_KERNEL, /* "epoll descriptor 5": what the program handed to the kernel */
};

/* Texts are numbers in the strings of hl_root_names_new(). */
struct hl_root_name {
	enum hl_root_kind kind;
	uint32_t name;	 /* variable, function, or what the kernel has; 0: not known */
	uint32_t module; /* the file's name, or that of the mapping */
	uint32_t
		place; /* ".bss+0x40"; of a mapping where it begins, 0: of all that a runtime has */
	uint64_t start, end; /* all of it is called the same */
};

/* A thread as it was stopped, and a copy of its stack from the stack pointer on. */
struct hl_root_thread {
	struct hl_thread_registers registers;
	uint64_t start; /* address of words[0] */
	uint64_t *words;
	size_t count, capacity;
};

struct hl_root_names;

/* Both must outlive the names. Reads the files that ${memory} maps; costlier work is done when first
 * needed. 0 or -ENOMEM. */
int hl_root_names_new(struct hl_memory *memory, struct hl_strings *strings,
		      struct hl_root_names **ret_names);

/* Walks the stacks of ${threads}, which take the place of those given before. 0 or -ENOMEM. */
int hl_root_names_set_threads(struct hl_root_names *names, const struct hl_root_thread *threads,
			      size_t count);

/* 0 or -ENOMEM. What nothing is known of is a mapping without a name. */
int hl_root_names_find(struct hl_root_names *names, uint64_t address,
		       struct hl_root_name *ret_name);

/* The same of word ${number} of the registers of a thread, whose stack pointer is ${sp}: the frame
 * whose value it is. */
int hl_root_names_find_register(struct hl_root_names *names, size_t thread, uint64_t sp,
				unsigned number, struct hl_root_name *ret_name);

/* The file of an address: its number among all, and for thread-local storage how far it is in it. */
struct hl_root_place {
	size_t module;
	bool is_thread_local;
	uint64_t offset;
};

/* False: the address is of no file's data. */
bool hl_root_names_place(struct hl_root_names *names, uint64_t address,
			 struct hl_root_place *ret_place);

size_t hl_root_names_modules(const struct hl_root_names *names);

/* The debug information of a file, as for symbols: its own, a separate file's, or from debuginfod. An address
 * in memory is one of it + ${ret_bias}. NULL: there is none. */
Dwarf *hl_root_names_dwarf(struct hl_root_names *names, size_t module, uint64_t *ret_bias);

void hl_root_names_free(struct hl_root_names *names); /* NULL is fine */

/* ---- holders ---- */

enum hl_holder_kind {
	HL_HOLDER_VARIABLE = HL_ROOT_VARIABLE,
	HL_HOLDER_THREAD_VARIABLE = HL_ROOT_THREAD_VARIABLE,
	HL_HOLDER_FRAME = HL_ROOT_FRAME,
	HL_HOLDER_MAPPING = HL_ROOT_MAPPING,
	HL_HOLDER_KERNEL = HL_ROOT_KERNEL,
	HL_HOLDER_SHARED,
	HL_HOLDER_LOST,
};

#define HL_HOLDER_MEMBERS_MAX 8u

struct hl_holder {
	enum hl_holder_kind kind;
	uint32_t name, module, place; /* as in struct hl_root_name */
	uint32_t label;		      /* the name, else module and place: "bash .bss+0x40" */
	uint64_t start;
	struct hl_leak_sum held;
	struct hl_leak_sum shared; /* what it leads to and others do, too */
	uint32_t branch;	   /* in hl_holders.branches */
	uint64_t first_word; /* where the first word lies that leads to a block; 0: a register */
	uint32_t member;     /* what it is called in the variable, ".buckets[17]"; 0: not known */
	/* Of what is shared: the holders, in hl_holders.holders; more than there is room for are
	 * not told apart, and the count is then 0. */
	uint32_t members[HL_HOLDER_MEMBERS_MAX];
	uint32_t member_count;
};

/* Blocks that hang on the same, of one class, or of none and similar sizes; a chain of such blocks is
 * one branch. */
struct hl_holder_branch {
	uint32_t parent;	     /* branch; 0, which is the whole, is its own */
	uint32_t holder;	     /* if it stands for one: its index + 1 */
	uint32_t type;		     /* class, in hl_holders.names; 0: not known */
	uint64_t size_min, size_max; /* usable bytes of each block */
	struct hl_leak_sum own, held;
	uint32_t children, child_count; /* in hl_holders.children, the largest first */
};

/* One step from a holder to a block. */
struct hl_holder_step {
	uint64_t address; /* of a block; of a holder the word's, 0 if that is a register */
	uint64_t offset; /* of the word that leads on: from the block, or from the start of a holder
			     that has one: a variable or a mapping */
	uint64_t size;	 /* usable bytes of the block */
	uint32_t type;	 /* of the block, in names; 0: not known */
	uint32_t
		member; /* what the word is called in the block or variable: "stats.buckets[17]", of a
			    variable ".stats.buckets[17]"; 0: not known */
	uint32_t holder; /* of the first step: its index + 1 */
	/* The process went on, and the word leads elsewhere now: it has no name, and no offset. */
	bool is_stale;
};

struct hl_holders {
	struct hl_heap *heap;
	struct hl_strings names;
	struct hl_holder *holders; /* in no order; see branches[0] */
	size_t holder_count, holder_capacity;
	struct hl_holder_branch *branches; /* [0] is the whole, of which holders are the children */
	size_t branch_count, branch_capacity;
	uint32_t *children;
	struct hl_leak_sum live;     /* all live blocks */
	struct hl_leak_sum selected; /* those that were asked for: the sum of all holders */
	uint64_t edges;
	struct hl_holder_step *chain; /* to settings->address; empty: it is lost */
	size_t chain_count, chain_capacity;
	uint64_t stopped_ns;
};

/* What is asked for; zero: all blocks. */
struct hl_holders_settings {
	bool stop;			     /* all threads are stopped meanwhile */
	bool reads_swapped, reads_unaligned; /* as in hl_leaks_settings */
	bool names_words;     /* first words of variables are called by their members */
	uint64_t address;     /* the block that it lies in alone */
	uint64_t size;	      /* blocks of malloc(size) */
	const regex_t *type;  /* blocks whose class it matches; NULL: any */
	const regex_t *stack; /* blocks allocated by a stack of which it matches a function */
};

/*
 * Reads ${pid}, or the core file ${core} if that is not NULL. 0 or a negative errno with a sentence,
 * as hl_heap_read(); -ENODATA: no block is at the address, or stacks are not known. Memory: 48 bytes
 * for each block and 8 for each word that leads to one.
 */
int hl_holders_read(pid_t pid, const char *core, const struct hl_holders_settings *settings,
		    struct hl_holders **ret_holders, struct hl_error *err);

void hl_holders_free(struct hl_holders *holders); /* NULL is fine */
