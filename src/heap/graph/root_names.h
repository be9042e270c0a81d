/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the memory is called in which a program begins to look for its blocks: variables by their
 * symbols, thread-local ones too, frames of stacks by their functions, other mappings.
 */
#pragma once

#include "base/strings.h"
#include "heap/memory.h"

#include <elfutils/libdw.h>

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
	struct user_regs_struct registers;
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
