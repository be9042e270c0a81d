/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sources of owners share: names of addresses, blocks counted by owner, rows, the region
 * of a recorder. */
#pragma once

#include "base/index.h"
#include "collector/region_read.h"
#include "heap/heap.h"
#include "heap/owners/owners.h"
#include "process/maps.h"
#include "recording/recording.h"
#include "region/block_format.h"

/* ---- owner_names.c: which library, which function, in a running process ---- */

struct hl_owner_names;

/* Where code lies: texts are valid until the names are freed. */
struct hl_owner_name {
	const char *file, *function;
	const char *source; /* the file of the line, or NULL */
	bool is_plumbing;   /* as far as callers are asked for in its place */
	uint32_t outer;	    /* how many functions this one was inlined into */
};

/* Without ${plumbing} a function's caller is asked for where the function is allocation plumbing.
 * 0; -ESRCH, -EACCES, -ENOMEM with a sentence. */
int hl_owner_names_new(pid_t pid, bool plumbing, struct hl_owner_names **ret_names,
		       struct hl_error *err);

/* The mappings, as they were when the names were made. */
const struct hl_maps *hl_owner_names_maps(const struct hl_owner_names *names);

/* Whether code is mapped at ${address}. */
bool hl_owner_names_is_code(const struct hl_owner_names *names, uint64_t address);

/* The one address of mapped code whose lower 32 bits are ${low}; 0 when there is none, or several.
 */
uint64_t hl_owner_names_whole(const struct hl_owner_names *names, uint32_t low);

/* Names the code at ${address}: the innermost function that is not plumbing, of those inlined there.
 * 0 or -ENOMEM. */
int hl_owner_names_find(struct hl_owner_names *names, uint64_t address,
			struct hl_owner_name *ret_name);

/* The same by an address in the file ${path} of ${module}, wherever it is mapped; not the innermost
 * one, but the one ${outward} of it. */
int hl_owner_names_find_in_file(struct hl_owner_names *names, const char *path,
				const struct hl_recording_module *module, uint64_t address,
				uint32_t outward, struct hl_owner_name *ret_name);

void hl_owner_names_free(struct hl_owner_names *names); /* NULL is fine */

/* ---- owners.c: blocks counted by a number that stands for their owner ---- */

struct hl_owner_count {
	uint64_t key;
	uint64_t blocks, bytes;
	struct hl_log2_histogram histogram;
};

/* All zero but ${shape} is empty. */
struct hl_owner_counts {
	struct hl_log2_shape shape;
	struct hl_owner_count *counts;
	size_t count, capacity;
	struct hl_index index;
	size_t last; /* where the last block was counted: the next one's owner is often the same */
};

/* Counts ${blocks} blocks of ${bytes} each. 0 or -ENOMEM. */
int hl_owner_counts_add(struct hl_owner_counts *counts, uint64_t key, uint64_t bytes,
			uint64_t blocks);

void hl_owner_counts_release(struct hl_owner_counts *counts);

/* Adds ${count} to the row of ${origin} and ${type}. 0 or -ENOMEM. */
struct hl_owner_rows {
	struct hl_allocations *allocations;
	struct hl_index index; /* of its rows, by origin and type */
};

int hl_owner_rows_add(struct hl_owner_rows *rows, const char *origin, const char *type,
		      const struct hl_owner_count *count);

void hl_owner_rows_release(struct hl_owner_rows *rows);

/* Adds a sentence. 0 or -ENOMEM. */
int hl_owners_note(struct hl_owners *owners, const char *format, ...) HL_PRINTF(2, 3);

/* The mapping of a file whose name begins with ${prefix}, with all of ${flags}, or NULL. */
const struct hl_map *hl_owners_find_file(const struct hl_maps *maps, const char *prefix,
					 uint32_t flags);

/* Walks the heap of ${pid} with ${block}, as hl_heap_read(), and keeps in ${owners} which allocator
 * it is and what was not scanned. ${ret_heap} may be NULL; else it is to be freed. */
int hl_owners_walk(pid_t pid, const struct hl_owners_settings *settings,
		   int (*block)(void *context, uint64_t address, uint64_t usable_bytes,
				uint64_t last_word),
		   void *context, struct hl_owners *owners, struct hl_heap **ret_heap,
		   struct hl_error *err);

/* Reads the whole of ${bytes} at ${address} of ${pid}. 0 or a negative errno: -EFAULT when some of
 * it is not there. */
int hl_owners_read_memory(pid_t pid, uint64_t address, void *ret_bytes, size_t bytes);

/* The sources. Each fills ${owners}, which has a shape and no rows. 0; -ENODATA when the process
 * does not have it; or another negative errno with a sentence. */
int hl_owner_recorder_read(pid_t pid, const struct hl_owners_settings *settings,
			   struct hl_owner_names *names, struct hl_owners *owners,
			   struct hl_error *err);
int hl_owner_tags_read(pid_t pid, const struct hl_owners_settings *settings,
		       struct hl_owner_names *names, struct hl_owners *owners,
		       struct hl_error *err);

/* ---- parts of the sources ---- */

struct hl_open_region;

/* Calls ${visit} with the names of the frames of ${node}, those of scripts instead of the interpreter's, the
 * innermost first, until it returns non-zero; returns that. */
int hl_owner_recorder_each_frame(const struct hl_open_region *region, struct hl_owner_names *names,
				 uint32_t node,
				 int (*visit)(void *context, const struct hl_owner_name *name),
				 void *context);

struct hl_owner_tag_names;

/* The names of tags in ${pid}. 0; -ENODATA when the library for tags is not there; -ENOMEM, or what
 * reading failed with. */
int hl_owner_tag_names_new(pid_t pid, const struct hl_owner_names *names,
			   struct hl_owner_tag_names **ret_tags);

/* Names what ${word} stands for, a word of the library; without a function when that is nothing. 0
 * or -ENOMEM. */
int hl_owner_tag_names_find(const struct hl_owner_tag_names *tags, struct hl_owner_names *names,
			    uint64_t word, struct hl_owner_name *ret_name);

void hl_owner_tag_names_free(struct hl_owner_tag_names *tags); /* NULL is fine */

/* ---- owner_recorder.c: the region of a recorder in another process ---- */

/*
 * A copy: header, modules, strings, threads, nodes and cells as they are now. Whoever may read the
 * process' memory may do this; its file, which has no name, is not needed.
 */
struct hl_open_region {
	pid_t pid;
	uint64_t address; /* in the process */
	void *base;	  /* of the copy */
	size_t bytes;
	struct hl_region_header layout; /* a copy, checked */
	struct hl_region_view view;
	struct hl_recording_process scripts; /* its sites and their runtimes, and nothing else */
};

/* 0; -ENODATA when there is no recorder in ${pid}, or one of another version; or a negative errno.
 */
int hl_open_region(pid_t pid, const struct hl_owner_names *names,
		   struct hl_open_region *ret_region);

static inline const struct hl_region_header *
hl_open_region_header(const struct hl_open_region *region)
{
	return region->base;
}

/* Whether pools have cut pieces, as far as the recorder knows. */
static inline bool hl_open_region_has_pieces(const struct hl_open_region *region)
{
	return atomic_load(&hl_open_region_header(region)->mode) & HL_MODE_PIECES;
}

/* Copies the header again. 0 or a negative errno. */
int hl_open_region_refresh(struct hl_open_region *region);

void hl_open_region_release(struct hl_open_region *region);

/* That of ${owners}, and theirs; NULL where tags are the source. */
const struct hl_open_region *hl_block_owners_region(const struct hl_block_owners *owners);

/* ---- block_reader.c: its block table, read while the process goes on ---- */

struct hl_block_reader;

/*
 * ${array}, ${hash}: where the tables are in process ${pid}; array 0: there is only the hash. What
 * the hash holds is read now. Only pages that are in memory are read. ${maps}, the process' mappings,
 * tell blocks of functions that rules name from others; NULL: no rules. Returns 0, -ENOMEM, -EBADMSG
 * when a table contradicts itself, or the error of process_vm_readv() or hl_pagemap_open().
 */
int hl_block_reader_new(pid_t pid, const struct hl_maps *maps, uint64_t array, uint64_t hash,
			struct hl_block_reader **ret_reader);

/* The same of all tables that ${header} leads to. */
int hl_block_reader_open(pid_t pid, const struct hl_maps *maps,
			 const struct hl_region_header *header,
			 struct hl_block_reader **ret_reader);

/* Pieces of pools, and other blocks of rules. */
struct hl_block_sum hl_block_reader_sum_ruled(const struct hl_block_reader *reader);

/* Whether one of them begins at ${address}. */
bool hl_block_reader_has_ruled(const struct hl_block_reader *reader, uint64_t address);

bool hl_block_reader_has_array(const struct hl_block_reader *reader);

/* The block at ${address}, of which ${usable} bytes may be used. Fast when called in rising order
 * of address. False when it is in neither table. */
bool hl_block_reader_find(struct hl_block_reader *reader, uint64_t address, uint64_t usable,
			  struct hl_block *ret_block);

/* A block of the table, as far as that knows it. */
struct hl_listed_block {
	uint64_t address;
	uint64_t most_bytes; /* up to the next block; UINT64_MAX: it is the last one */
	uint64_t requested;  /* has_size */
	uint32_t node;
	uint32_t slack; /* usable bytes that were not requested, else */
	bool has_size;
	bool is_ruled; /* see struct hl_owned_block */
};

typedef int hl_listed_block_visit(void *context, const struct hl_listed_block *block);

/* Calls ${visit} with each block of both tables, in rising order of address, until it returns non-
 * zero; returns that, -ENOMEM, or as process_vm_readv. */
int hl_block_reader_each(struct hl_block_reader *reader, hl_listed_block_visit *visit,
			 void *context);

void hl_block_reader_free(struct hl_block_reader *reader); /* NULL is fine */

/* ---- stamps: what a guest of the recorder keeps beside blocks ---- */

/* Where ${region} says that the guest ${id} (enum hl_guest_id) has what it stamps blocks by; 0: it does not, or ${region} is NULL. */
uint64_t hl_guest_table_address(const struct hl_open_region *region, uint32_t id);

/* Zero but for the first two. */
struct hl_stamp_reader {
	pid_t pid;
	uint64_t array; /* where struct hl_block_array lies in the process */
	struct hl_stamp_plane {
		uint64_t leaf_number, leaf,
			page; /* where the last stamp was; numbers are from 1 on */
		uint32_t stamps[HL_BLOCK_PAGE_ENTRIES];
	} planes[HL_BLOCK_PLANES];
};

/* The stamp of the block at ${address}; 0: there was never one. Fast when called in rising order of address. */
uint32_t hl_stamp_read(struct hl_stamp_reader *reader, uint64_t address);

/* ---- how large its blocks are, where no allocator can be asked ---- */

/* What each node of ${view} has in use, by the counters: by id, to be freed. ${ret_damaged}, which may
 * be NULL: how many counters no recorder can have counted; they are left out. 0 or -ENOMEM. */
int hl_block_sums_read(const struct hl_region_view *view, struct hl_block_sum **ret_sums,
		       uint64_t *ret_damaged);

struct hl_block_sizes;

/* Reads the counters in ${region} and the table. 0, -ENOMEM, or as hl_block_reader_each(). */
int hl_block_sizes_new(const struct hl_open_region *region, struct hl_block_reader *blocks,
		       struct hl_block_sizes **ret_sizes);

struct hl_block_size {
	uint64_t bytes;	     /* requested ones of the hash, else usable ones */
	uint64_t requested;  /* of ${bytes} */
	uint64_t most_bytes; /* it cannot have more */
	bool is_exact;	     /* else ${bytes} and ${requested} are the mean of its stack */
};

/* Once per block: what is left of the mean is spread over the blocks of a stack, so that their
 * ${requested} add up to what the counters have. */
struct hl_block_size hl_block_sizes_next(struct hl_block_sizes *sizes,
					 const struct hl_listed_block *block);

void hl_block_sizes_free(struct hl_block_sizes *sizes); /* NULL is fine */
