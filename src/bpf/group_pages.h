/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pages that a memory control group and its subgroups are charged with, those of files by file, as the kernel's own
 * array of struct page has them. Nothing is stopped, faulted in or read into the page cache. Needs root (CAP_BPF,
 * CAP_PERFMON, CAP_SYS_ADMIN) and BTF.
 */
#pragma once

#include "base/error.h"
#include "bpf/group_shared.h"
#include "process/cgroup.h"

struct hl_group_file {
	uint64_t address;	/* of the kernel's struct inode */
	uint64_t device, inode; /* those of stat(2); on btrfs the device is another */
	bool is_memory;		/* tmpfs, memfd, System V, MAP_SHARED */
	bool is_deleted;	/* from its directory */
	/* Charged to the group. */
	uint64_t bytes, active_bytes, dirty_bytes, mapped_bytes, locked_bytes;
	char *path; /* from the root of its file system; NULL: the kernel has no name of it at hand */
	char system[16]; /* type of the file system; "" where that was not found */
};

struct hl_group_pages {
	struct hl_group_file *files; /* by address, rising */
	size_t file_count, file_capacity;
	struct hl_group_cache *caches; /* slab, by kind of object */
	size_t cache_count, cache_capacity;
	uint64_t bytes[HL_GROUP_KINDS];
	uint64_t removed_bytes; /* of these, charged to subgroups that have been removed */
	uint64_t lost_bytes;	/* of files for which there was no room */
};

/*
 * Reads them. 0, or a negative errno with a sentence: -EPERM, -ENOTSUP where the kernel's pages are not those that are
 * known. Takes a tenth of a second for 24 GiB of RAM. To be freed by hl_group_pages_free().
 */
int hl_group_pages_read(const struct hl_cgroup *group, struct hl_group_pages **ret_pages,
			struct hl_error *err);

/* The file whose inode the kernel has at ${address}, or NULL. */
struct hl_group_file *hl_group_pages_at(const struct hl_group_pages *pages, uint64_t address);

void hl_group_pages_free(struct hl_group_pages *pages); /* NULL is fine */

/* ---- for programs that include group.bpf.h ---- */

struct bpf_map;
struct bpf_program;

/* What group.bpf.h has in a loaded object. */
struct hl_page_scanner {
	const struct bpf_program *note_process, *page_given, *scan_frames, *name_inode;
	const struct bpf_map *inodes, *caches, *groups;
	struct hl_group_scan *scan;
	struct hl_inode_name *name;
	volatile uint64_t *given_page;
};

/* That of a skeleton. */
#define HL_PAGE_SCANNER(skeleton)                                                              \
	{                                                                                      \
		.note_process = (skeleton)->progs.note_process,                                \
		.page_given = (skeleton)->progs.page_given,                                    \
		.scan_frames = (skeleton)->progs.scan_frames,                                  \
		.name_inode = (skeleton)->progs.name_inode, .inodes = (skeleton)->maps.inodes, \
		.caches = (skeleton)->maps.caches, .groups = (skeleton)->maps.groups,          \
		.scan = &(skeleton)->bss->scan, .name = &(skeleton)->bss->name,                \
		.given_page = &(skeleton)->bss->given_page,                                    \
	}

/*
 * Before the object of ${inodes} is loaded: makes room for the files that ${group} may have in memory. What the kernel
 * keeps for programs is charged to the control group that this process is in: 0; -ENOSPC with a sentence where that
 * has too little left for it and ${other_bytes}; or another negative errno.
 */
int hl_page_scanner_size(struct bpf_map *inodes, const struct hl_cgroup *group,
			 uint64_t other_bytes, struct hl_error *err);

/* Finds where the kernel has its pages. 0 or a negative errno, as of hl_group_pages_read() without a sentence. */
int hl_page_scanner_start(const struct hl_page_scanner *scanner, const struct hl_cgroup *group);

/* Reads all pages, of files without their names, and empties the tables. 0 or a negative errno. */
int hl_page_scanner_read(const struct hl_page_scanner *scanner, struct hl_group_pages **ret_pages);

/* Finds the name of a file that was read: its path, unless the kernel has none, or another inode lies there now. 0 or a negative errno. */
int hl_page_scanner_name(const struct hl_page_scanner *scanner, struct hl_group_file *file);

/* The first number that is above those of all frames; 0: not known. */
uint64_t hl_page_frames_end(void);
