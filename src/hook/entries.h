/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the functions of a process by which it allocates. */
#pragma once

#include "base/error.h"
#include "process/maps.h"
#include "region/attached.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_entry {
	enum hl_hook hook;
	uint64_t address; /* in the process */
	uint64_t bytes;	  /* of the function; 0 when its symbol does not say */
	char name[64];	  /* of the symbol */
	char module[64];  /* the file's name, for messages */
};

#define HL_ENTRIES_MAX 64

/* What is known of a process' allocator before it is entered. */
struct hl_entries {
	struct hl_entry entries[HL_ENTRIES_MAX]; /* each address once */
	uint32_t count;
	char allocator[64];	/* "glibc", "musl", "jemalloc" ..., for messages */
	uint64_t usable_size;	/* 0: there is none */
	uint64_t find_object;	/* _dl_find_object; 0: there is none */
	uint64_t clock_gettime; /* of the vdso; 0: there is none */
	uint64_t program_headers, program_header_count; /* AT_PHDR, AT_PHNUM */
	uint64_t program_entry;				/* AT_ENTRY */
	uint64_t stack_end; /* of the main thread: __libc_stack_end, or the end of [stack] */
	bool has_glibc_chunks;
	bool is_static;
};

/*
 * Looks into the files that are mapped, whatever their names and namespaces are, and at what the
 * dynamic linker has made of calls, in the process' memory: nothing is stopped or changed. Of each
 * hook there is one function: the one that the program's calls lead to, which is its own, a
 * library's or libc's. Symbols come from .dynsym, and for the program from .symtab and its separate
 * debug file as well.
 *
 * A program may bring its own malloc() and free() and have others call libc's for aligned blocks.
 * Those are found if anything in the process calls them; then ${usable_size} is 0, since neither
 * allocator's function may see the blocks of the other one.
 *
 * 0; -ENOENT with a sentence when no malloc and free are found; -EACCES, -ESRCH, -ENOMEM.
 */
int hl_entries_find(pid_t pid, const struct hl_maps *maps, struct hl_entries *ret_entries,
		    struct hl_error *err);
