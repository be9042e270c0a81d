/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process has mapped: /proc/PID/maps. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
