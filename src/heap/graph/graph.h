/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The graph over the blocks of a heap: an edge is an aligned word in a block that points to another
 * one. Nothing of it is stored. Marking reads the blocks as it reaches them, window by window in
 * order of address, so that the graph takes 2.6 % of the heap's memory whatever its edges are.
 *
 *	hl_graph_add() for each live block, hl_graph_settle() once;
 *	hl_graph_see_root() and hl_graph_reach() for the roots, hl_graph_drain()
 *
 * Addresses are in granules of 16 bytes, of which a chunk has at least two; or of 8 bytes, where other
 * allocators have blocks that are as small. Then the graph takes twice the memory.
 */
#pragma once

#include "base/error.h"
#include "base/index.h"
#include "base/strings.h"
#include "guests/outside.h"
#include "heap/extents.h"
#include "heap/heap.h"
#include "heap/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- block walk ---- */

/*
 * How a process is looked at for the graph: the walk of its blocks, at a moment when no thread changes its heap; and what was
 * not read.
 *
 * The blocks are those of glibc's heap and of musl's by a walk, those of allocators that
 * cannot be walked by the table of a recorder in the process.
 *
 * The latter gives only the blocks, not the free memory between them. Mappings in which the
 * table has blocks, and that were made in the way of allocators (MAP_NORESERVE), are the allocator's
 * as a whole: what else lies there are free blocks, which still hold old pointers, and its own lists.
 * But a recorder that came later than the program's first blocks does not know these: then all that is
 * no block counts as a root, and less is found.
 */

struct hl_glibc;
struct hl_memory;

struct hl_block_walk {
	pid_t pid; /* 0: no recorder can be asked, as of a core file */
	struct hl_memory *memory;
	/* As hl_heap_settings.block and .foreign; the latter gets blocks of the table that are too
	 * small for the graph, too. ${counted_bytes} is what a block adds to sums: its usable bytes; of the
	 * table the requested ones, by the mean of the block's stack where its own size is not known, and
	 * ${usable_bytes} is an upper bound then. */
	int (*block)(void *context, uint64_t address, uint64_t usable_bytes,
		     uint64_t counted_bytes);
	int (*foreign)(void *context, uint64_t start, uint64_t end);
	void *context;
	bool takes_small; /* ${block} gets blocks of up to 16 bytes, and those at any multiple of 8 */
	const char *command; /* that errors advise */
};

/* While blocks are given: whether they lie in slabs, without room between them. */
bool hl_block_walk_is_of_slabs(const struct hl_heap *heap);

/* Blocks that are not chunks of glibc's. */
struct hl_walked_table {
	bool is_there;
	uint64_t small_blocks, small_bytes; /* that were not given to ${block} */
};

/*
 * Gives all live blocks: those of heaps that can be walked by a walk, those of other allocators by the table of a
 * recorder, if there is one. ${extents}, empty before, get what the blocks occupy; ${heap} gets what the walk found, what is
 * not certain, and how long it took. 0; or a negative errno with a sentence:
 * -ENOTSUP when there is no heap that can be walked, and no recorder.
 */
int hl_block_walk(const struct hl_block_walk *walk, struct hl_heap *heap,
		  struct hl_extents *extents, struct hl_walked_table *ret_table,
		  struct hl_error *err);

/* ---- the process is stopped ---- */

/* Whether a thread is changing an arena: chunks may then be in no list. Not where ${glibc} was not found. */
bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc);

/*
 * Stops and lets go again until no arena is locked. After about a second it gives that up: the process stays stopped all the same,
 * and ${ret_is_locked} is true. 0, or as hl_memory_stop(): the process then runs. It goes on after 100 ms, see
 * hl_memory_keep_time(): a JVM has GiB to read. So what is most likely to change is to be read first: registers and stacks,
 * then the heap, then all other memory.
 */
int hl_stand_begin_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				  bool *ret_is_locked, struct hl_error *err);

/*
 * Holds it, and lets go again until no arena is locked. After about 10 ms it gives that up, and the process stays held.
 * Sleepers are left alone, unless ${stops_all}: those that woke are held from then on. 0, or as hl_memory_hold().
 */
int hl_stand_hold_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				 bool stops_all, struct hl_error *err);

/* Notes in ${heap} what was read after the process had gone on, and ${what} may be wrong; nothing, if nothing was. 0 or -ENOMEM. */
int hl_stand_note_late(const struct hl_memory *memory, struct hl_heap *heap, const char *what);

/* ---- what was not read ---- */

/* Memory where pointers to blocks may lie, and that was not read. */
struct hl_unread {
	uint64_t swapped_bytes;
	uint64_t secret_bytes; /* of memfd_secret(2) */
	uint64_t closed_bytes; /* pages without access that the system does not show */
	bool has_io_uring;     /* whose requests lead to blocks, too */
};

/* Keeps in ${unread} what it or ${other} has more of: what was seen at several moments. */
void hl_unread_join(struct hl_unread *unread, const struct hl_unread *other);

/* How many blocks may be in use by pointers there. */
uint64_t hl_unread_words(const struct hl_unread *unread);

/* Adds a note to ${heap} for each kind. ${verb} is the command that has --swapped. 0 or -ENOMEM. */
int hl_unread_note(const struct hl_unread *unread, struct hl_heap *heap, const char *verb);

/* ---- graph ---- */

#define HL_GRAPH_GRANULE_BITS_SMALL 3u
#define HL_GRAPH_GRANULE_BITS	    4u
#define HL_GRAPH_PAGE_WORDS	    4u /* of 64 granules: a page has 2 KiB or 4 KiB */
#define HL_GRAPH_PAGE_GRANULES	    256u
#define HL_GRAPH_REGION_GRANULES    65536u
#define HL_GRAPH_REGION_PAGES	    256u
#define HL_GRAPH_REGION_WORDS	    (HL_GRAPH_REGION_PAGES / 64)
#define HL_GRAPH_MIDDLE_BITS	    14u /* regions in a part of the table */
#define HL_GRAPH_UPPER_BITS	    14u /* parts of the table, for 2^47 addresses or more */
#define HL_GRAPH_MIDDLE_COUNT	    (UINT64_C(1) << HL_GRAPH_MIDDLE_BITS)

/*
 * Bits of 64 granules: where blocks begin, which of them were reached, and whose words were read. What was reached and
 * not read yet is pending. A chunk that is not live begins where a live block ends: it counts as reached
 * and read, so that it never will be. The granule after a block's first is its own as well; its bit in
 * ${reached} says that another lost block refers to the block.
 */
struct hl_graph_bits {
	uint64_t starts, reached, read;
};

struct hl_graph_page {
	struct hl_graph_bits bits[HL_GRAPH_PAGE_WORDS];
	uint32_t back; /* how many pages before this one the block begins that covers its start */
};

struct hl_graph_region {
	uint64_t base;
	uint32_t number;			 /* by address */
	uint64_t pending[HL_GRAPH_REGION_WORDS]; /* pages that may have pending blocks */
	struct hl_graph_page pages[HL_GRAPH_REGION_PAGES];
};

/* A block that has no page of bits for each of its pages, or a mapping of its own, or one that does not
 * count with its usable bytes. */
struct hl_graph_large {
	uint64_t address, usable_bytes, counted_bytes;
};

/* Why a block is looked at. */
enum hl_graph_phase {
	HL_GRAPH_DEFINITE, /* roots lead to it; pointers inside of blocks are kept for later */
	HL_GRAPH_POSSIBLE, /* pointers inside of blocks count as well */
	HL_GRAPH_LOST,	   /* the same, and words that lead to reached blocks are reported */
};

struct hl_glibc;

/*
 * Roots that the kernel keeps have addresses of no memory: the words of an epoll descriptor or a timer
 * lie one after the other from this one on.
 */
#define HL_GRAPH_KERNEL_ROOTS	  (UINT64_C(1) << 62)
#define HL_GRAPH_KERNEL_ROOT_BITS 28u

static inline uint64_t hl_graph_kernel_root(enum hl_kernel_holder holder, uint32_t number)
{
	return HL_GRAPH_KERNEL_ROOTS | (uint64_t)holder << 60 |
	       (uint64_t)number << HL_GRAPH_KERNEL_ROOT_BITS;
}

static inline enum hl_kernel_holder hl_graph_kernel_holder(uint64_t root)
{
	return root >> 60 & 1 ? HL_KERNEL_TIMER : HL_KERNEL_EPOLL;
}

static inline uint32_t hl_graph_kernel_number(uint64_t root)
{
	return (uint32_t)(root >> HL_GRAPH_KERNEL_ROOT_BITS);
}

/* A word that was read, until its bits are there, too. */
struct hl_graph_word {
	uint64_t word, source; /* 0: a root */
};

#define HL_GRAPH_WAITING 16u

/*
 * How far into blocks a program points by habit: behind the header that a wrapper of malloc, or a
 * string, keeps there. A block is of three classes: all blocks, those whose sizes have the same highest
 * bit, and those of its size, if that is small.
 */
#define HL_GRAPH_CLASSES 113u
#define HL_GRAPH_OFFSETS 256u

struct hl_graph_offsets {
	uint64_t starts[HL_GRAPH_CLASSES]
		       [HL_GRAPH_OFFSETS / 64]; /* bits: they count as beginnings */
	uint64_t blocks[HL_GRAPH_CLASSES];	/* that were reached by these */
};

/* The end of words that were read, and the last one. */
struct hl_graph_tail {
	uint64_t end, word;
};

/* Where a thread's stack begins, and its thread pointer. */
struct hl_graph_thread {
	uint64_t sp, pointer;
};

struct hl_graph {
	struct hl_memory *memory;
	unsigned granule_bits;		  /* before the first block the caller may make it
				  HL_GRAPH_GRANULE_BITS_SMALL: for graphs without marks of lost
				  blocks, as the smallest blocks have no second granule then */
	uint64_t header_bytes;		  /* between a block and the next one */
	struct hl_graph_region ***table;  /* by the upper bits of an address, then by the middle */
	struct hl_graph_region **regions; /* sorted once settled */
	size_t region_count, region_capacity;
	uint64_t *pending; /* bits: regions that may have pending blocks */
	struct hl_graph_large *large;
	size_t large_count, large_capacity;
	uint64_t large_end;
	struct hl_addresses inner; /* pointers to the inside of blocks that were not reached */
	struct hl_graph_offsets *offsets; /* the caller's; NULL: none */
	bool reads_unaligned; /* words at addresses that 8 does not divide lead to blocks, too */
	struct hl_graph_tail tail; /* of the words that were followed last */
	struct hl_pages pages;	   /* of the heap, in memory */
	uint64_t live_blocks, live_bytes;

	enum hl_graph_phase phase;
	/* May be NULL. A block that was reached is looked at, with the words that lie in a row at
	 * its start; in HL_GRAPH_LOST, also: a word leads to ${block} again. Non-zero ends the work.
	 */
	int (*on_block)(void *context, uint64_t block, uint64_t usable_bytes, const uint64_t *words,
			size_t count);
	int (*on_again)(void *context, uint64_t block);
	void *context;
	/* NULL: words of roots are followed. Otherwise they are given to this: ${address} is where
	 * they lie, 0 for the struct hl_thread_registers of a thread, or that of a root of the kernel's;
	 * ${has_headers} as for hl_graph_see_root(). Non-zero ends the work. */
	int (*on_root)(void *context, uint64_t address, const uint64_t *words, size_t count,
		       bool has_headers);
	void *root_context;

	size_t cursor_region, cursor_page; /* where hl_graph_take() goes on */
	uint64_t *window;		   /* a copy of [window_start, window_end) */
	uint64_t window_start, window_end;
	struct hl_ahead *ahead; /* of a graph that a crew marks, where it is read in order */
	uint64_t read_end,
		ahead_bytes; /* of the last window: its end, and how much it was to hold */
	struct hl_graph_word waiting[HL_GRAPH_WAITING];
	unsigned waiting_at;
	/* The process is stopped, perhaps in the middle of moving free chunks: a header that a
	 * stack or a register leads to may be one of a list that no arena has. */
	bool follows_links, has_safe_links;
	unsigned links; /* that were followed so far; each is a system call while it is stopped */
	struct hl_unread unread;	 /* as the last look at the roots found it */
	struct hl_graph_thread *threads; /* of the last look at stacks, by sp */
	size_t thread_count, thread_capacity;
	unsigned markers; /* threads that mark at once; 0: as many as processors in a large heap */
	struct hl_graph_crew
		*crew; /* NULL: one thread marks. Each other one has a copy of this struct */
	struct hl_graph_region *region; /* blocks are taken from this one alone; NULL: from all */
	int error;			/* the first one of a callback, or -ENOMEM */
};

/* Bytes of ${count} granules. */
static inline uint64_t hl_graph_granules(const struct hl_graph *graph, uint64_t count)
{
	return count << graph->granule_bits;
}

/* Which page of its region ${address} is on. */
static inline unsigned hl_graph_page_number(const struct hl_graph *graph, uint64_t address)
{
	return address >> (graph->granule_bits + 8) & (HL_GRAPH_REGION_PAGES - 1);
}

/* The bits for ${address}; NULL: no block is near. */
static inline struct hl_graph_region *hl_graph_region(const struct hl_graph *graph,
						      uint64_t address)
{
	uint64_t number = address >> (graph->granule_bits + 16);
	uint64_t upper = number >> HL_GRAPH_MIDDLE_BITS;

	if (upper >> HL_GRAPH_UPPER_BITS || !graph->table[upper])
		return NULL;
	return graph->table[upper][number & (HL_GRAPH_MIDDLE_COUNT - 1)];
}

static inline struct hl_graph_page *hl_graph_page(const struct hl_graph *graph, uint64_t address)
{
	struct hl_graph_region *region = hl_graph_region(graph, address);

	return region ? &region->pages[hl_graph_page_number(graph, address)] : NULL;
}

/* The bits on ${page} among which that of ${address} is. */
static inline struct hl_graph_bits *hl_graph_bits(const struct hl_graph *graph,
						  struct hl_graph_page *page, uint64_t address)
{
	return &page->bits[address >> (graph->granule_bits + 6) & (HL_GRAPH_PAGE_WORDS - 1)];
}

static inline uint64_t hl_graph_bit(const struct hl_graph *graph, uint64_t address)
{
	return UINT64_C(1) << (address >> graph->granule_bits & 63);
}

int hl_graph_init(struct hl_graph *graph, struct hl_memory *memory);

/* Called before the first block: blocks have no headers. ${marks}: lost ones will be marked, and none has less than 32 bytes. */
void hl_graph_expect_slabs(struct hl_graph *graph, bool marks);
void hl_graph_release(struct hl_graph *graph);

/* A live block, which counts with ${counted_bytes}: where its size is not known, ${usable_bytes} are an
 * upper bound. In any order, each once. 0 or -ENOMEM. */
int hl_graph_add_counted(struct hl_graph *graph, uint64_t block, uint64_t usable_bytes,
			 uint64_t counted_bytes);

static inline int hl_graph_add(struct hl_graph *graph, uint64_t block, uint64_t usable_bytes)
{
	return hl_graph_add_counted(graph, block, usable_bytes, usable_bytes);
}

/* All blocks are known; ${extents} hold them. Asks which pages of these are in memory. 0 or a
 * negative errno. */
int hl_graph_settle(struct hl_graph *graph, const struct hl_extents *extents);

/* The block that ${address} lies in, which is live or was. False: none. */
bool hl_graph_find(const struct hl_graph *graph, uint64_t address, uint64_t *ret_block);

uint64_t hl_graph_usable(const struct hl_graph *graph, uint64_t block);
uint64_t hl_graph_counted(const struct hl_graph *graph, uint64_t block);

/* Whether it was reached, or is not a live block. */
bool hl_graph_is_reached(const struct hl_graph *graph, uint64_t block);

/* The first block at or after ${address} that was not reached; 0: none. */
uint64_t hl_graph_next_lost(const struct hl_graph *graph, uint64_t address);

/* The mark of a lost block that another one refers to. */
void hl_graph_refer(struct hl_graph *graph, uint64_t block);
bool hl_graph_is_referred(const struct hl_graph *graph, uint64_t block);

/* Marks ${block} as reached, and as pending unless it was reached. */
void hl_graph_reach(struct hl_graph *graph, uint64_t block);

/* Takes a pending block. False if there is none. */
bool hl_graph_take(struct hl_graph *graph, uint64_t *ret_block);

/* The first region from ${number} on that may have pending blocks; graph->region_count: none. */
size_t hl_graph_next_pending(const struct hl_graph *graph, size_t number);

/* Notes that ${region} has no pending blocks, if that is so. */
void hl_graph_leave_region(struct hl_graph *graph, struct hl_graph_region *region);

/* Up to where pages in a row have pending blocks, from that of ${block} on. */
uint64_t hl_graph_pending_end(const struct hl_graph *graph, uint64_t block);

/* ---- mark.c ---- */

typedef int hl_graph_visit(void *context, uint64_t address, const uint64_t *words, size_t count);

/*
 * Looks at the words of a root. ${has_headers}: of a stack or registers, where the allocator may
 * hold the address of a block's header alone.
 */
void hl_graph_see_root(struct hl_graph *graph, const uint64_t *words, size_t count,
		       bool has_headers);

/*
 * Calls ${visit} with each word that may lead to a block and begins between two of ${words}, which lie
 * at ${address}, or between ${tail} and these; ${tail} is theirs afterwards. Until it returns non-zero;
 * returns that.
 */
int hl_graph_each_unaligned(const struct hl_graph *graph, uint64_t address, const uint64_t *words,
			    size_t count, struct hl_graph_tail *tail, hl_graph_visit *visit,
			    void *context);

/* Reaches all that pending blocks and the roots seen so far lead to. 0, a negative errno, or what a
 * callback said. */
int hl_graph_drain(struct hl_graph *graph);

/* Looks at one block that hl_graph_take() gives. 1; 0: there is none; or a negative errno or what a callback said. */
int hl_graph_mark_next(struct hl_graph *graph);

/* Keeps ${word}, which points into a block that was not reached, for later. */
void hl_graph_keep_inner(struct hl_graph *graph, uint64_t word);

/* ---- mark_crew.c ---- */

/* Reaches what pending blocks lead to by several threads, where that is worth it: what is left to do
 * then, if anything, is pending. 0 or a negative errno. */
int hl_graph_mark_together(struct hl_graph *graph);

/* Whether a thread of ${crew} has nothing to do. */
bool hl_graph_crew_is_hungry(struct hl_graph_crew *crew);

/* Tells a thread of ${crew} that waits for work of a region with pending blocks. */
void hl_graph_crew_wake(struct hl_graph_crew *crew);

/* ---- mark.c, again ---- */

/*
 * After that: of the pointers inside blocks, takes those as starts that the conventions of C++ or, if
 * ${learns}, the program's own habits explain, until no more blocks are reached; then reaches what is left as possible. 0
 * or as hl_graph_drain().
 */
int hl_graph_explain_inner(struct hl_graph *graph, bool learns);
int hl_graph_reach_possible(struct hl_graph *graph);

/*
 * Calls ${visit} with the words of [${start}, ${end}), piece by piece, until it returns non-zero;
 * returns that. What is not in memory, or cannot be read, is left out. Reads on up to ${ahead} for
 * later calls; window_end = 0 forgets what was read.
 */
int hl_graph_read(struct hl_graph *graph, uint64_t start, uint64_t end, uint64_t ahead,
		  hl_graph_visit *visit, void *context);

/* Copies memory of the process, of files that it maps, too, where a core file leaves them out. 0 or
 * -EFAULT. */
int hl_graph_copy(const struct hl_graph *graph, uint64_t address, void *bytes, size_t length);

/* ---- roots.c ---- */

/* Bits of what is seen. */
enum hl_roots {
	/* Registers and stacks, of a process that is stopped or held. */
	HL_ROOTS_STACKS = 1,
	/* The process goes on once its stacks were seen, again with those threads held that ran meanwhile. */
	HL_ROOTS_GO_ON = 2,
	/* What the kernel keeps, and all memory but the stacks that this graph has seen. Keeps time, see
	 * hl_memory_keep_time(). */
	HL_ROOTS_OTHERS = 4,
	HL_ROOTS_ALL = HL_ROOTS_STACKS | HL_ROOTS_OTHERS,
	/* With HL_ROOTS_STACKS: those of sleepers were seen before, see hl_memory_list_sleepers(). */
	HL_ROOTS_REST = 8,
	/* With HL_ROOTS_STACKS: those of sleepers, before HL_ROOTS_REST. */
	HL_ROOTS_AHEAD = 16,
};

/*
 * Sees ${roots}, bits of enum hl_roots, outside of the heap in ${heap} and of the lists of ${glibc}; ${foreign} are
 * parts of the heap's pages that are not malloc's. 0 or a negative errno.
 */
int hl_graph_see_roots(struct hl_graph *graph, const struct hl_glibc *glibc,
		       const struct hl_extents *heap, const struct hl_extents *foreign,
		       unsigned roots);

/* ---- class names ---- */

/* Classes of C++ by the virtual tables that objects begin with, and types that guests know by words. */

struct hl_graph;

#define HL_CLASS_WORDS HL_GUEST_TYPE_WORDS /* of a block, that tell its class */

/* What the first word of a block says of its class. */
struct hl_class_word {
	uint64_t word;
	uint32_t type; /* in hl_class_names.names; 0: it is not a virtual table's address */
};

struct hl_class_names {
	struct hl_graph *graph; /* whose memory is read */
	struct hl_strings *names;
	struct hl_class_word *words;
	size_t count, capacity;
	struct hl_index index;
	void *guest_types[HL_GUESTS_OUTSIDE_MAX]; /* what each keeps, NULL at first */
	bool has_guest_types;			  /* one was found */
};

/* Both must outlive ${ret_classes}. */
void hl_class_names_init(struct hl_class_names *ret_classes, struct hl_graph *graph,
			 struct hl_strings *names);

/* The class of the block at ${block} of ${bytes}, which begins with ${count} ${words}, as far as they were read; in
 * classes->names; 0: it is not known. Each address that may stand for a class is looked up in the process' memory
 * once. 0 or -ENOMEM. */
int hl_class_names_find(struct hl_class_names *classes, uint64_t block, uint64_t bytes,
			const uint64_t *words, size_t count, uint32_t *ret_name);

void hl_class_names_release(struct hl_class_names *classes);
