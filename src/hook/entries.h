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
 * Looks in files alone, by /proc/PID/map_files: no name of a file and no namespace matters. The
 * program's own functions come before those of a library, a library's before libc's. Symbols come
 * from .dynsym, .symtab and the separate debug file. 0; -ENOENT with a sentence when no malloc and
 * free are found.
 */
int hl_entries_find(pid_t pid, const struct hl_maps *maps, struct hl_entries *ret_entries,
		    struct hl_error *err);
