/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program that reads the pages of a control group (group.bpf.c) and its loader (group_pages.c) share. */
#pragma once

#include <stdint.h>

#define HL_STRUCT_PAGE_BYTES 64u
/* Frames of one call: a multiple of HL_FRAMES_READ, few enough that a kernel without preemption is not held up. */
#define HL_FRAMES_PER_CALL 16384u
#define HL_FRAMES_READ	   64u

/* Pages that are charged to the group, by what they are. */
enum hl_group_page_kind {
	HL_GROUP_ANONYMOUS,
	HL_GROUP_FILE,	 /* the page cache of files on disks */
	HL_GROUP_SHARED, /* files in memory: tmpfs, memfd, System V, MAP_SHARED */
	HL_GROUP_KERNEL, /* charged as pages: page tables, kernel stacks, pipes; without slab */
	HL_GROUP_OTHER,	 /* on its way to swap or back */
	HL_GROUP_KINDS,
};

/* Of one inode, by its address. In pages. */
struct hl_group_inode {
	uint64_t number, device; /* as the kernel encodes it: major << 20 | minor */
	uint64_t pages, active, dirty, mapped, locked;
	uint64_t is_memory; /* tmpfs and its like */
};

/* Of one kind of the kernel's objects, a struct kmem_cache, by its address. */
struct hl_group_cache {
	uint64_t objects;
	uint32_t object_bytes;	 /* with what the kernel keeps beside it */
	uint32_t is_reclaimable; /* dentries, inodes */
	char name[32];
};

struct hl_group_scan {
	/* Set by the loader. */
	uint64_t page_structs; /* address of the struct page of frame 0 */
	uint64_t group;	       /* inode of its directory */
	uint64_t first;	       /* frame, a multiple of HL_FRAMES_READ */
	uint32_t count;	       /* of frames */
	/* Set by the program. */
	uint32_t is_strange; /* the kernel's struct page is not one that the program knows */
	uint64_t seen;	     /* frames with a struct page */
	uint64_t pages[HL_GROUP_KINDS];
	uint64_t removed; /* of all of them, charged to subgroups that have been removed */
	uint64_t lost;	  /* pages of files for which the table had no room */
};

/* The names of a file and of the directories above it, up to the root of its file system. */
#define HL_INODE_NAMES	   40u
#define HL_INODE_NAME_SIZE 256u

struct hl_inode_name {
	/* Set by the loader: which inode. */
	uint64_t inode, number, device;
	/* Set by the program. */
	uint32_t count;	     /* of names, the file's own first; 0: they are not known */
	uint32_t is_deleted; /* from its directory */
	char system[16];     /* type of the file system; "": it is not that inode any more */
	char names[HL_INODE_NAMES][HL_INODE_NAME_SIZE];
};
