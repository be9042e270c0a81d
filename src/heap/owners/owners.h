/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who allocated what of a process: its live blocks by owner, single blocks, slabs of allocators that keep such,
 * and the part of each stack in RAM.
 */
#pragma once

#include "allocators/traits.h"
#include "base/error.h"
#include "base/strings.h"
#include "heap/carriers.h"
#include "heap/heap.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- owners ---- */

/*
 * Who owns the live blocks of a process: from the block table of a recorder inside it, from the
 * words of the tag shim; else unknown.
 *
 *	origin	the library, or the program, whose code called the allocator
 *	type	the function there, or the tag that the program had set
 */

enum hl_owners_source {
	HL_OWNERS_RECORDER, /* sizes are what was asked for */
	HL_OWNERS_TAGS,	    /* sizes are what may be used, without the word */
	HL_OWNERS_NONE,	    /* sizes alone, in one row */
};

struct hl_owners {
	struct hl_allocations allocations;
	enum hl_owners_source source;
	bool hides_functions; /* which allocate: nothing can trace them, as struct hl_heap has it */
	bool sizes_are_means; /* each block counts with the mean size of its call site */
	char allocator[96];   /* "glibc 2.36"; "" when it did not matter */
	uint64_t unknown_blocks, unknown_bytes; /* live blocks without an owner; in no row */
	char **notes;				/* NULL-terminated sentences, or NULL */
};

struct hl_owners_settings {
	struct hl_log2_shape shape; /* width 0: 128, 18 */
	bool stop;		    /* as in struct hl_heap_settings */
	bool plumbing;		    /* name operator new and the like, not their callers */
};

/* Reads ${pid} from the best source there is. 0 or a negative errno with a sentence, as
 * hl_heap_read(). */
int hl_owners_read(pid_t pid, const struct hl_owners_settings *settings,
		   struct hl_owners **ret_owners, struct hl_error *err);

void hl_owners_free(struct hl_owners *owners); /* NULL is fine */

/* ---- who allocated single blocks of a process, from the same sources ---- */

struct hl_block_owners;
struct hl_maps;

/* Opens the best source that ${pid} has. 0; -ENODATA when it has neither a recorder nor tags; or a
 * negative errno with a sentence. */
int hl_block_owners_new(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err);

enum hl_owners_source hl_block_owners_source(const struct hl_block_owners *owners);

/* Whether no block of the program can be older than what ${owners} know. */
bool hl_block_owners_know_all(const struct hl_block_owners *owners);

/* The number of the stack or tag that allocated the live block at ${address}; 0: it is not known. */
uint64_t hl_block_owners_find(struct hl_block_owners *owners, uint64_t address,
			      uint64_t usable_bytes);

/* A block by the recorder's table alone, whatever allocator it is of. */
struct hl_owned_block {
	uint64_t address, bytes;
	uint64_t requested;  /* of ${bytes}; of all blocks of a stack the sum of its counters */
	uint64_t most_bytes; /* it cannot have more; of the last block this may be UINT64_MAX */
	uint64_t number;     /* of its stack */
	bool is_exact;	     /* else ${bytes} and ${requested} are the mean of the stack's blocks */
	bool is_ruled; /* of a function that a rule names: it may lie in a block of malloc() */
};

typedef int hl_owned_block_visit(void *context, const struct hl_owned_block *block);

/*
 * Calls ${visit} with each block of the recorder's table, in rising order of address and while the
 * process goes on, until it returns non-zero; returns that. The table is read from pages in memory
 * alone. -ENODATA where tags are the source; -ENOMEM; or what reading failed with.
 */
int hl_block_owners_each(struct hl_block_owners *owners, hl_owned_block_visit *visit,
			 void *context);

/* How many stacks there are: their numbers are smaller than that. 0 where tags are the source. */
uint64_t hl_block_owners_count(const struct hl_block_owners *owners);

/* What a stack has in use by the recorder's counters: requested bytes. */
struct hl_block_sum {
	int64_t bytes, blocks;
};

/* ret_sums[number] of each stack, as of when the owners were opened; to be freed. 0; -ENODATA where tags are the source; -ENOMEM. */
int hl_block_owners_sums(const struct hl_block_owners *owners, struct hl_block_sum **ret_sums);

/* Whether the recorder knows pieces of pools: they are among its blocks, with is_ruled, and lie in memory of any kind. */
bool hl_block_owners_have_pieces(const struct hl_block_owners *owners);

/* The same of those of ${pid}, whose mappings are ${maps}, without opening them. */
bool hl_block_owners_would_have_pieces(pid_t pid, const struct hl_maps *maps);

/* Whether one of them begins at ${address}. */
bool hl_block_owners_have_piece(const struct hl_block_owners *owners, uint64_t address);

struct hl_heap;

/* Adds a note to ${heap}, of whose figures pieces of pools are not part, if the recorder knows of any. 0 or -ENOMEM. */
int hl_block_owners_note_pieces(const struct hl_block_owners *owners, struct hl_heap *heap);

/* Allocations that the recorder could not count. */
uint64_t hl_block_owners_lost_events(const struct hl_block_owners *owners);

/* What the blocks of a stack are labelled with; NULL: there is no such label. Texts are valid until the owners are
 * freed. */
struct hl_block_labels {
	const char *service, *type;
	uint32_t handle; /* of the service */
};

void hl_block_owners_labels(const struct hl_block_owners *owners, uint64_t number,
			    struct hl_block_labels *ret_labels);

struct hl_recording_node;

/* Whether it knows frames of the runtime ${name}, as its provider is called. */
bool hl_block_owners_have_runtime(const struct hl_block_owners *owners, const char *name);

/*
 * Which of ${nodes}, those of a recording of the process, each stack is: its id in ret_ids[number],
 * of hl_block_owners_count() numbers; 0: it is newer. A recording leaves out what was not there yet
 * when it was saved; one that was saved later, and not before its end, has each stack by its number.
 * False when they are another process', or of a program before exec: no other has
 * the same code at the same places.
 */
bool hl_block_owners_match(const struct hl_block_owners *owners,
			   const struct hl_recording_node *nodes, uint32_t count,
			   uint32_t *ret_ids);

/* Texts are valid until the owners are freed; "" where not known. */
struct hl_block_frame {
	const char *function, *module, *source;
};

/*
 * Calls ${visit} with the frames of the stack that ${number} stands for, the innermost first and
 * without allocation plumbing there, until it returns non-zero; returns that. Tags have one frame.
 */
int hl_block_owners_each_frame(struct hl_block_owners *owners, uint64_t number,
			       int (*visit)(void *context, const struct hl_block_frame *frame),
			       void *context);

struct hl_recording_process;

/*
 * Copies all stacks into ${process}, which has none: those that numbers stand for are the nodes of
 * these ids. 0; -ENODATA where tags are the source, which have no stacks; -ENOMEM. What is there is
 * to be released in any case.
 */
int hl_block_owners_copy_stacks(const struct hl_block_owners *owners,
				struct hl_recording_process *process);

void hl_block_owners_free(struct hl_block_owners *owners); /* NULL is fine */

/* ---- labels ---- */

/* Labels of live blocks that were not known when they were allocated: blocks and bytes by stack and label. */

/* Blocks of one stack and one label. */
struct hl_inuse_label {
	uint32_t number; /* of the stack */
	uint32_t name;	 /* in hl_inuse_labels.names */
	uint64_t blocks;
	uint64_t
		bytes; /* requested ones; of blocks whose size is not known the mean of their stack's */
};

struct hl_inuse_labels {
	const char *provider;		/* what they are: HL_TYPE_PROVIDER, a constant */
	struct hl_block_owners *owners; /* names the stacks; the reader's, who frees it later */
	struct hl_inuse_label *rows;	/* none twice */
	size_t count;
	const struct hl_strings *names;
	struct hl_strings own_names;
	void *kept; /* what has the names, freed by ${free_kept}; or NULL */
	void (*free_kept)(void *kept);
	int (*complete)(
		struct hl_inuse_labels *labels); /* what makes the rows; NULL: they are there */
};

/* Makes the rows. It reads the process alone: the recorder may have left it. 0 or a negative errno. */
static inline int hl_inuse_labels_complete(struct hl_inuse_labels *labels)
{
	int r = labels->complete ? labels->complete(labels) : 0;

	labels->complete = NULL;
	return r;
}

/* Opens the block table of the recorder in process ${pid}, of which all kinds of labels are read; to be freed.
 * 0; or a negative errno with a sentence, -ENODATA when there is no recorder that knows stacks. */
int hl_inuse_labels_open(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err);

/* Empty ones, with names of their own. NULL without memory. */
struct hl_inuse_labels *hl_inuse_labels_new(const char *provider, struct hl_block_owners *owners);

struct hl_owner_counts;

/* Adds rows of ${sums}, whose keys are the number of a stack << 32 | a label, which ${name} puts into words. The largest labels come
 * first: of the oldest blocks, which counters of an earlier moment have in use, too. 0 or -ENOMEM. */
int hl_inuse_labels_add_sums(struct hl_inuse_labels *labels, struct hl_owner_counts *sums,
			     void (*name)(char *text, size_t size, uint32_t label,
					  const void *context),
			     const void *context);

void hl_inuse_labels_free(struct hl_inuse_labels *labels); /* NULL is fine */

/* ---- slabs ---- */

/*
 * Slabs of allocators that keep such: what the allocator itself says, asked through the
 * recorder in the process. Such allocators keep blocks of one size together, so what keeps memory
 * is not how large holes are but how full slabs are.
 */

struct hl_slabs {
	struct hl_introspection said;
	/* Bytes of slabs by how full they are. Of classes the full slabs are known, and
	 * the mean of the others. */
	uint64_t occupancy_bytes[HL_OCCUPANCY_SLOTS];
};

/* Whose figures they are; NULL: of nobody. */
const struct hl_allocator_traits *hl_slabs_allocator(const struct hl_slabs *slabs);

/*
 * Asks process ${pid}. 0; -ENODATA when no recorder is in it; -ENOTSUP when its allocator cannot be
 * asked; -ETIMEDOUT when it allocates nothing for a while, which is when it would answer; another
 * negative errno when its collector cannot be reached. Always with a sentence.
 */
int hl_slabs_ask(pid_t pid, struct hl_slabs *ret_slabs, struct hl_error *err);

/* How full the slabs of ${said} are, see struct hl_slabs. */
void hl_slabs_occupancy(const struct hl_introspection *said,
			uint64_t ret_bytes[HL_OCCUPANCY_SLOTS]);

/* ---- resident ---- */

/*
 * How much of what each stack has allocated is in RAM. Blocks count with their usable bytes, as far
 * as these lie on present pages: pages that were never touched, that madvise() gave back or that
 * were swapped out do not count, nor does the zero page; a small block on a huge page counts whole.
 */

struct hl_resident_bytes {
	uint64_t resident, swapped;
	uint64_t walked; /* of the resident ones, those in the heap that was walked */
	bool is_met;	 /* by the walk */
	bool has_inner; /* it has blocks that lie in others, with which what is in RAM of them counts */
};

struct hl_resident {
	/* Glibc's heap, whose live blocks in RAM are the sum of ${walked}; NULL: the allocator
	 * cannot be walked. */
	struct hl_heap *heap;
	struct hl_block_owners *owners; /* names the stacks */
	/* By the number of the stack; [0]: of blocks whose stack is not known. */
	struct hl_resident_bytes *stacks;
	size_t stack_count;
	uint64_t walked, listed; /* resident bytes of blocks that the walk found, and of others */
	uint64_t
		listed_whole; /* all bytes of the latter, as far as these fit between their neighbours */
	bool sizes_are_means; /* listed blocks count with the mean size of their stack's */
};

/*
 * Reads process ${pid} while it goes on; ${settings} are those of the walk, but for its callbacks.
 * 0; or a negative errno with a sentence, among them -ENODATA when there is no recorder that knows
 * stacks. Nothing in the process changes: no page that is not there is touched.
 */
int hl_resident_read(pid_t pid, const struct hl_heap_settings *settings,
		     struct hl_resident **ret_resident, struct hl_error *err);

/*
 * Gives ${resident}, which has no heap, one with where resident memory of ${pid} is: what the recorder
 * that it knows has counted is live, if there is one, and the rest of the allocator's memory is not known.
 * 0 or as hl_heap_read_pages().
 */
int hl_resident_read_pages(pid_t pid, struct hl_resident *resident, struct hl_error *err);

void hl_resident_free(struct hl_resident *resident); /* NULL is fine */
