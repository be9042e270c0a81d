/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the memory of a process that is in RAM lies, by part: facts of its allocator, its threads, its files, its runtimes. */
#pragma once

#include "guests/outside.h"
#include "heap/memory.h"
#include "heap/places.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose private memory is that is neither glibc's nor a stack; `other` where no fact says it. */
enum hl_anonymous_kind {
	HL_ANONYMOUS_VARIABLES, /* .data and .bss, and other pages of ELF files that were written to */
	HL_ANONYMOUS_FILE,	/* written pages of other files that are mapped privately */
	HL_ANONYMOUS_CODE,
	HL_ANONYMOUS_GUESTS, /* and following: memory of hl_guests_outside[0] and following */
	HL_ANONYMOUS_V8 = HL_ANONYMOUS_GUESTS + HL_GUESTS_OUTSIDE_MAX,
	HL_ANONYMOUS_JAVA,
	HL_ANONYMOUS_JVM,
	HL_ANONYMOUS_GO,
	HL_ANONYMOUS_BREAK,
	HL_ANONYMOUS_OTHER,
	HL_ANONYMOUS_COUNT,
};

/* As reports show it: "Go's heap". NULL: no guest has such memory. Equal names are equal pointers. */
const char *hl_rss_anonymous_name(size_t kind);

/* The guest whose memory is of this kind; NULL: none. */
const struct hl_guest_outside *hl_rss_guest(size_t kind);

/* Of parts whose mappings have names. */
extern const char hl_rss_files_name[], hl_rss_shared_name[];

#define HL_RSS_MAPPING_NAME_MAX 96

/* What a large mapping, or all of one file, has in RAM. */
struct hl_rss_mapping {
	const char *part; /* one of the names above */
	char name
		[HL_RSS_MAPPING_NAME_MAX]; /* "memfd:frames", "cache.bin (tmpfs)"; "": it has none */
	uint64_t start;			   /* of the first one */
	uint64_t mapped_bytes;		   /* in RAM or not */
	uint64_t bytes;			   /* in RAM */
	uint64_t huge_bytes;		   /* of these, in transparent huge pages */
};

/* What the kernel counts beside the parts of RSS, or across them; zero: nothing, or it does not say. */
struct hl_rss_beside {
	uint64_t huge_page_bytes;    /* of hugetlbfs, not in RSS */
	uint64_t swap_bytes;	     /* private and shared memory, not in RSS */
	uint64_t page_table_bytes;   /* not in RSS */
	uint64_t kernel_stack_bytes; /* not in RSS */
	uint64_t lazy_free_bytes;    /* in RSS until the kernel takes them back (MADV_FREE) */
	uint64_t transparent_bytes;  /* in RSS, in transparent huge pages */
	uint64_t shared_bytes,
		pss_bytes; /* in RSS: pages that others map, too; RSS divided among those */
};

/* Where resident memory is. The sum of all is rss_bytes. */
struct hl_heap_rss {
	uint64_t rss_bytes;
	uint64_t live_bytes, cached_bytes, free_bytes;
	uint64_t overhead_bytes; /* headers, arenas' own */
	uint64_t unscanned_bytes;
	uint64_t other_allocator_bytes; /* of src/allocators, where one is there */
	uint64_t recorder_bytes;	/* heapline's own, in a program under `record` */
	uint64_t stack_bytes, file_bytes, shared_bytes, anonymous_bytes; /* not heap */
	uint64_t code_bytes;			/* of file_bytes, what can be executed */
	uint64_t anonymous[HL_ANONYMOUS_COUNT]; /* whose the last are: their sum */
	uint64_t largest_start, largest_bytes;	/* of those without an owner */
	uint64_t piece_bytes; /* of pools, outside of malloc's heap: a part of other parts */
	struct hl_rss_beside beside;
	struct hl_rss_mapping *mappings; /* the largest of each part, by part and bytes, falling */
	size_t mapping_count, mapping_capacity;
};

/* Runtimes that are loaded. */
struct hl_runtimes {
	bool has_v8, has_jvm;
	struct hl_jvm jvm;
};

struct hl_runtimes hl_rss_find_runtimes(struct hl_memory *memory);

/* Who has mapped [${start}, ${end}), a part of ${map} that is neither glibc's nor in a place, of which ${pages} are in
 * memory; ${map} is one of the maps of ${memory}. */
enum hl_anonymous_kind hl_rss_kind(struct hl_memory *memory, const struct hl_runtimes *runtimes,
				   const struct hl_map *map, uint64_t start, uint64_t end,
				   const struct hl_pages *pages);

/* Reads what the kernel counts of process ${pid} beside the parts; what cannot be read stays 0. */
void hl_rss_read_beside(pid_t pid, struct hl_rss_beside *ret_beside);

/* The same from the texts of /proc/PID/smaps_rollup and status; either may be empty. */
void hl_rss_parse_beside(const char *rollup, const char *status, struct hl_rss_beside *ret_beside);
