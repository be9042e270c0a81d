/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process: what it has mapped, which of its pages are present, and who in it cuts objects from
 * memory mapped for itself.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- what a process has mapped: /proc/PID/maps ---- */

enum hl_map_flag {
	HL_MAP_READ = 1 << 0,
	HL_MAP_WRITE = 1 << 1,
	HL_MAP_EXEC = 1 << 2,
	HL_MAP_SHARED = 1 << 3,
	HL_MAP_RECORDER = 1 << 4,   /* heapline's own; set by hl_maps_mark_recorder() */
	HL_MAP_NORESERVE = 1 << 5,  /* made by MAP_NORESERVE; set as the one above it */
	HL_MAP_HUGE_PAGES = 1 << 6, /* of hugetlbfs; set so, too */
};

struct hl_map {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	uint64_t inode;	 /* 0: no file */
	uint32_t dev_major, dev_minor;
	uint32_t flags; /* enum hl_map_flag */
	bool deleted;	/* the file has no name any more; ${path} is the one it had */
	char *path;	/* as the target sees it; "[heap]", "[stack]", "[vdso]" ...; "" for none */
};

/* In rising order of address, without overlaps. Zero-initialize for an empty one. */
struct hl_maps {
	struct hl_map *maps;
	size_t count, capacity;
};

/*
 * Reads the mappings of ${pid}. 0; -ESRCH when there is no such process, or it is a zombie; -EACCES
 * when they may not be read; -ENOMEM. A sentence in ${err}. ${ret_maps} is to be released.
 */
int hl_maps_read(pid_t pid, struct hl_maps *ret_maps, struct hl_error *err);

/* The same from the text of such a file, ${length} bytes: lines that make no sense are an error
 * (-EBADMSG). Of mappings that overlap the later one begins where the one before ends. */
int hl_maps_parse(const char *text, size_t length, struct hl_maps *ret_maps, struct hl_error *err);

/* The mapping that holds ${address}, or NULL. */
const struct hl_map *hl_maps_find(const struct hl_maps *maps, uint64_t address);

/*
 * Marks mappings of the recorder of ${pid} with HL_MAP_RECORDER, and with HL_MAP_NORESERVE what was made so, if there is a recorder.
 * Returns whether there is one. Marks mappings of hugetlbfs with HL_MAP_HUGE_PAGES in all processes that have pages of it.
 * What smaps does not tell stays without a mark.
 */
bool hl_maps_mark_recorder(pid_t pid, struct hl_maps *maps);

/*
 * Bytes in RAM of these mappings: what heapline's recorder adds to the RSS of ${pid}; 0 without a recorder, or where its smaps
 * cannot be read. The kernel looks at each page of the process, which takes some milliseconds for a GiB.
 */
int64_t hl_maps_recorder_bytes(pid_t pid);

/* The same for whoever asks again and again; zero-initialize. */
struct hl_recorder_memory {
	int64_t bytes;		    /* when it was last looked at */
	uint64_t looked_ns, cpu_ns; /* when that was, and what it took */
	uint64_t shared_pages;	    /* of the process then */
};

#define HL_RECORDER_MEMORY_UNASKED 300 /* parts of the time */
#define HL_RECORDER_MEMORY_ASKED   50

/* Looks at the recorder of ${pid}, so seldom that it takes one of ${parts} of a processor at most. Returns whether it has. Of a
 * process that has ended the last figure stays. */
bool hl_recorder_memory_look(struct hl_recorder_memory *memory, pid_t pid, unsigned parts);

/* Whether a file is mapped whose name is ${name}, or that with a version behind a dot. */
bool hl_maps_have_file(const struct hl_maps *maps, const char *name);

/* Whether the process is a 32-bit one, by where it lies. */
bool hl_maps_are_32_bit(const struct hl_maps *maps);

/* Whether both are of the same file: device and inode, which is not 0. */
bool hl_maps_same_file(const struct hl_map *a, const struct hl_map *b);

/*
 * Opens the file that ${map} of ${pid} maps for reading, whatever has become of its name: by
 * /proc/PID/map_files or exe, else by its path below /proc/PID/root when that still is the same file.
 * A descriptor (close-on-exec) or a negative errno: -ENOENT when the file cannot be reached by
 * either way. A target in another mount namespace is not an obstacle.
 */
int hl_maps_open_file(pid_t pid, const struct hl_map *map);

/*
 * Opens the regular file at ${path} as ${pid} sees it, for reading: symbolic links do not lead out
 * of its root, and nothing else is opened, since devices may do things when opened. A descriptor
 * (close-on-exec) or a negative errno: -ENOENT for what is not a regular file.
 */
int hl_maps_open_path(pid_t pid, const char *path);

/* The same of ${path} as this process sees it, symbolic links followed. */
int hl_maps_open_regular(const char *path);

/* A path by which the kernel finds the same file, for those that take no descriptor: uprobes. The
 * text is valid as long as the mapping lives. -ENOENT as above, -ENAMETOOLONG. */
int hl_maps_file_path(pid_t pid, const struct hl_map *map, char *ret_path, size_t capacity);

void hl_maps_release(struct hl_maps *maps);

/* ---- pagemap ---- */

/*
 * Which pages of a process are in memory.
 *
 * PAGEMAP_SCAN (kernel 6.7) passes over addresses without pages at once and knows the zero page
 * (the huge one since 6.17); where it is missing /proc/PID/pagemap is read, and the zero page is
 * known only with CAP_SYS_ADMIN. Either takes about 5 ms for a GiB of which half is in memory, most
 * of it to tell pages of files from others. Neither faults a page in, nor changes anything in the
 * target.
 */

enum hl_page_kind {
	HL_PAGE_ANON = 1 << 0,
	HL_PAGE_FILE = 1 << 1, /* of a file, or shared memory that is one */
	HL_PAGE_HUGE = 1 << 2,
	HL_PAGE_BESIDE_RSS =
		1 << 3, /* of hugetlbfs, which RSS does not count; set by readers of memory */
};

/* A run of pages that are in memory and alike; the zero page is not in memory. */
struct hl_page_run {
	uint64_t start, end; /* addresses */
	uint32_t kind;	     /* enum hl_page_kind */
};

/* Present pages in rising order. Zero-initialize for an empty one. */
struct hl_pages {
	struct hl_page_run *runs;
	size_t count, capacity;
	uint64_t page_count;
};

struct hl_pagemap;

/* Opens the page map of ${pid}. -EACCES, -ESRCH, -ENOMEM with a sentence. One thread at a time. */
int hl_pagemap_open(pid_t pid, struct hl_pagemap **ret_pagemap, struct hl_error *err);

/* "PAGEMAP_SCAN" or "pagemap". */
const char *hl_pagemap_method(const struct hl_pagemap *pagemap);

/* Whether addresses without pages take next to no time; otherwise a TiB of them takes seconds. */
bool hl_pagemap_passes_over_holes(const struct hl_pagemap *pagemap);

/* Reads pagemap from now on, as on kernels without PAGEMAP_SCAN. Runs are never HL_PAGE_HUGE then.
 */
void hl_pagemap_avoid_scan(struct hl_pagemap *pagemap);

/* Whether the zero page can be told from others; else it counts as present. */
bool hl_pagemap_knows_zero_page(const struct hl_pagemap *pagemap);

/* Appends the present pages in [${start}, ${end}), page-aligned and after what is there. 0,
 * -ESRCH when the process has ended, or a negative errno. */
int hl_pagemap_scan(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
		    struct hl_pages *pages);

/* Appends in the same way the pages that were swapped out, all of them HL_PAGE_ANON. */
int hl_pagemap_scan_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
			    struct hl_pages *pages);

/* Appends both. */
int hl_pagemap_scan_with_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
				 struct hl_pages *pages);

/* Whether the page at ${address} is among them. Binary search. */
bool hl_pages_contain(const struct hl_pages *pages, uint64_t address);

/* Present pages within [${start}, ${end}). */
uint64_t hl_pages_count_in(const struct hl_pages *pages, uint64_t start, uint64_t end);

/* Bytes of [${start}, ${end}) that lie on present pages. ${cursor}, 0 at first, is where the last
 * call found its place: calls in rising order of address cost next to nothing. */
uint64_t hl_pages_bytes_in(const struct hl_pages *pages, uint64_t start, uint64_t end,
			   size_t *cursor);

void hl_pages_release(struct hl_pages *pages);
void hl_pagemap_free(struct hl_pagemap *pagemap); /* NULL is fine */

/* ---- own memory ---- */

/* Who, in a process, cuts objects from memory that it maps for itself, so that malloc does not show them, and 'heapline
 * attach' does. */

#define HL_OWN_MEMORY_MAX 64 /* bytes of its name, with the NUL */

struct hl_own_memory {
	char what[HL_OWN_MEMORY_MAX]; /* that is recorded, as "the allocator of NAME" */
	const char
		*by_malloc; /* a clause: how to start it so that it allocates by malloc; or NULL */
	/* Of a guest: they are recorded from its next call of malloc on, and are a part of RSS by name. */
	bool is_objects;
	const char *
		listed_by; /* of those: the option of 'heapline heap' that lists them now; or NULL */
};

/* Of the program at ${executable}, and where ${maps} are not NULL, of process ${pid}, whose maps they are. False: there is
 * nothing that is known. */
bool hl_own_memory_find(const char *executable, pid_t pid, const struct hl_maps *maps,
			struct hl_own_memory *ret_own);

/* Whether a process with ${maps} has a file of a runtime whose functions 'heapline attach' names, and a trace from outside
 * does not. */
bool hl_own_memory_has_scripts(const struct hl_maps *maps);

/* Whether it runs services, each a part that has scripts of its own. */
bool hl_own_memory_has_services(const struct hl_maps *maps);
