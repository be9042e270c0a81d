/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The region: memory shared by the recorder (inside the target) and the collector (outside), valid
 * at every instant.
 *
 * A memfd, made and laid out by the collector, sparse; the recorder backs parts of an area with
 * memory before it uses them (MADV_POPULATE_WRITE, so that want of memory is an error code and not
 * a SIGBUS). Everything in it is an offset or an index, never a pointer. The target may die between
 * any two instructions: each counter has one writer, counts only grow or are replaced whole, and a
 * record is complete before the count that publishes it is raised. So a reader needs no lock and
 * sees at worst the one event in flight of each thread half done.
 *
 *	header | modules | strings | sites | names | threads | nodes | node index | cells | rings
 *
 *	node	one call-tree node: (parent node, frame key). Id 0 is the root, which stands for no
 *		frame.
 *	path	what the interpreters of a thread run, as nodes of script frames below the root; one
 *		node below that of a native stack stands for all of it, see HL_SITE_PATH
 *	cell	the counters of one (node, thread slot). Only that thread writes it. A node's value
 *		is the sum of its cells.
 *	chunk	4 KiB of cells that belong to one thread slot.
 *	epoch	number of peak marks so far; see hl_cell.
 *
 * A reader never trusts what it finds here: the target's own bugs can write to it.
 */
#pragma once

#include "base/compiler.h"
#include "base/file_print.h"
#include "base/lost.h"
#include "base/machine.h"
#include "region/protocol.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- introspection ---- */

/*
 * An allocator's own figures, asked by its public functions: the recorder writes them into the
 * region, and tools read them there.
 *
 *	slab	a run of pages that an allocator cuts into blocks of one size
 *	class	all slabs of one block size
 */

#define HL_SLAB_CLASSES_MAX 128u
#define HL_OCCUPANCY_SLOTS  8u /* 0-12 %, 12-25 % ... 88-100 % of a slab in use */

struct hl_slab_class {
	uint64_t block_bytes, slab_bytes;
	uint64_t blocks; /* that all slabs have room for */
	uint64_t used_blocks;
	uint64_t slabs, full_slabs;
};

/* The functions that an allocator is asked by: those of a row of hl_allocator_traits.answering; kind 0: it has none. */
#define HL_ANSWERING_MAX 3

struct hl_answering {
	uint32_t kind; /* as below */
	uint64_t functions[HL_ANSWERING_MAX];
};

/* Bytes; 0 when unknown. */
struct hl_introspection {
	uint32_t kind; /* enum hl_introspected of allocators/traits.h; 0: nobody's */
	uint32_t class_count;
	uint64_t allocated_bytes; /* in blocks that the program has, by the allocator's count */
	uint64_t active_bytes;	  /* in pages that hold such blocks */
	uint64_t resident_bytes;
	uint64_t retained_bytes; /* address space kept, given back to the system otherwise */
	uint64_t cached_bytes;	 /* free, in threads' caches and the like */
	uint64_t metadata_bytes;
	struct hl_slab_class classes[HL_SLAB_CLASSES_MAX];
	/* Bytes of slabs by how full they are, where the allocator reports each slab. */
	uint64_t occupancy_bytes[HL_OCCUPANCY_SLOTS];
};

/* In the region's header. The collector counts ${asked} up and sets HL_MODE_ASKED; the next thread
 * that allocates answers, and then makes ${answered} equal. */
struct hl_introspection_box {
	_Atomic uint32_t asked, answered;
	struct hl_introspection answer;
};

/* ---- region ---- */

#define HL_REGION_MAGIC	  "HLREGION"
#define HL_REGION_VERSION 28u

#define HL_NODE_BITS	  24
#define HL_NODE_MAX	  ((UINT32_C(1) << HL_NODE_BITS) - 1) /* ids 1 .. HL_NODE_MAX */
#define HL_INDEX_BITS_MIN 12 /* the first table of the node index has 2^12 slots */
#define HL_INDEX_BITS_MAX 25
#define HL_THREADS_MAX	  8192u
#define HL_THREADS_OWNED  128u
#define HL_MODULES_MAX	  16384u
#define HL_STRINGS_BYTES  (UINT64_C(16) << 20)
#define HL_SITES_MAX	  (UINT32_C(1) << 20)
#define HL_NAMES_BYTES	  (UINT64_C(32) << 20)

enum hl_mode {
	HL_MODE_CLOSED,	    /* hooks pass through; frees of recorded blocks still count */
	HL_MODE_MEM_RECORD, /* counters; block table: hash */
	HL_MODE_MEM_FAST,   /* counters; block table: array */
	HL_MODE_LOG_RECORD, /* as MEM_RECORD, and events into rings */
	HL_MODE_LOG_FAST,   /* as MEM_FAST, and events into rings */
	HL_MODE_COUNT,
};

/* By mode, and after them "off", another word for "closed"; NULL-terminated. */
extern const char *const hl_mode_names[HL_MODE_COUNT + 2];

/* The mode that word ${index} of hl_mode_names stands for. */
static inline enum hl_mode hl_mode_of_word(int index)
{
	return index == HL_MODE_COUNT ? HL_MODE_CLOSED : (enum hl_mode)index;
}

static inline bool hl_mode_has_array(enum hl_mode mode)
{
	return mode == HL_MODE_MEM_FAST || mode == HL_MODE_LOG_FAST;
}

static inline bool hl_mode_logs(enum hl_mode mode)
{
	return mode == HL_MODE_LOG_RECORD || mode == HL_MODE_LOG_FAST;
}

/*
 * What header.mode holds beside the mode:
 *
 *	ASKED	  the next thread that allocates asks the allocator for its figures and clears the
 *		  flag; see struct hl_introspection
 *	LOGGING	  events go into rings: in modes with a log, and after them in HL_MODE_CLOSED, where
 *		  frees go on
 *	SCRIPT	  there are providers of script frames, see recorder/script.h
 *	PROBE	  interpreters were found that have not been probed
 *	USED	  the mode is another than HL_MODE_CLOSED, or was: frees may count
 *	PIECES	  pools have told of pieces, which end with the block that they lie in
 *	SAMPLED	  memory is short: from here on blocks are sampled, and the array of the block table is
 *		  given back; see header.spare_sample_bytes. For good
 *	CASE	  a test case is open, see recorder/cases.h
 *	switches  number of changes of the mode, in the bits between; it wraps
 */
#define HL_MODE_ASKED	   (UINT32_C(1) << 31)
#define HL_MODE_LOGGING	   (UINT32_C(1) << 30)
#define HL_MODE_SCRIPT	   (UINT32_C(1) << 29)
#define HL_MODE_PROBE	   (UINT32_C(1) << 28)
#define HL_MODE_USED	   (UINT32_C(1) << 27)
#define HL_MODE_PIECES	   (UINT32_C(1) << 26)
#define HL_MODE_SAMPLED	   (UINT32_C(1) << 25)
#define HL_MODE_CASE	   (UINT32_C(1) << 24)
#define HL_MODE_MASK	   UINT32_C(7)
#define HL_MODE_ONE_SWITCH (HL_MODE_MASK + 1)
#define HL_MODE_SWITCHES   (HL_MODE_CASE - HL_MODE_ONE_SWITCH)

/* The mode in a value of header.mode. */
static inline enum hl_mode hl_mode_of(uint32_t mode)
{
	return (enum hl_mode)(mode & HL_MODE_MASK);
}

/* What header.mode is to hold for a process that begins in ${mode}. */
static inline uint32_t hl_mode_first(enum hl_mode mode)
{
	return (uint32_t)mode | (mode == HL_MODE_CLOSED ? 0 : HL_MODE_USED) |
	       (hl_mode_logs(mode) ? HL_MODE_LOGGING : 0);
}

/* Switches to ${to}, and leaves HL_MODE_ASKED as it is: a question is answered in any mode; and
 * all other flags but HL_MODE_LOGGING. Returns the mode until then. */
static inline enum hl_mode hl_mode_switch(_Atomic uint32_t *mode, enum hl_mode to)
{
	uint32_t was = atomic_load(mode), next;

	do {
		if (hl_mode_of(was) == to)
			return to;
		next = (was & (HL_MODE_ASKED | HL_MODE_SCRIPT | HL_MODE_PROBE | HL_MODE_USED |
			       HL_MODE_PIECES | HL_MODE_SAMPLED | HL_MODE_CASE)) |
		       ((was + HL_MODE_ONE_SWITCH) & HL_MODE_SWITCHES) | hl_mode_first(to);
		if (to == HL_MODE_CLOSED)
			next |= was & HL_MODE_LOGGING;
	} while (!atomic_compare_exchange_weak(mode, &was, next));
	return hl_mode_of(was);
}

enum hl_region_state {
	HL_REGION_EMPTY, /* handed over, not yet taken */
	HL_REGION_RUNNING,
	HL_REGION_STOPPED, /* the collector asked the recorder to stop, or the recorder gave up; see
			      header.lost */
};

enum hl_region_flag {
	HL_REGION_MAPPINGS = 1 << 0,   /* record mmap, munmap, mremap, brk of the program too */
	HL_REGION_OWN_MALLOC = 1 << 1, /* set by the recorder: the program's malloc is not ours, so
					  nothing will be seen */
	HL_REGION_SIZES = 1 << 2,  /* blocks count at a node of their size class below their stack's
				    */
	HL_REGION_LOSSY = 1 << 3,  /* a full ring drops events instead of waiting */
	HL_REGION_STAMPS = 1 << 4, /* rings hold time stamps; the recorder takes the flag away where
				      reading the clock is forbidden */
	HL_REGION_FOLLOW = 1 << 5, /* programs that the target starts are recorded, too; until the
				      collector takes the flag away */
	HL_REGION_NO_SCRIPTS = 1 << 6, /* interpreters are not looked for */
	HL_REGION_NO_OBJECTS =
		1 << 7, /* objects that an interpreter cuts from arenas are not recorded */
	HL_REGION_LEAKS =
		1 << 8, /* a process that exits asks for its lost blocks to be looked for */
	HL_REGION_FROM_START =
		1 << 9, /* set by the collector: recorded from the program's start, so
					  that no block is older */
	HL_REGION_FILTERED =
		1 << 10, /* set by the recorder: filters forbid system calls that it needs */
	HL_REGION_FILTER_SEEN = 1 << 11, /* set by the recorder: it knows the process' filters */
};

/*
 * In header.tick: nothing has happened for a while, and the collector sleeps longer than to the
 * next tick, on the futex that the upper half of header.tick is. To wake somebody each millisecond
 * costs about 2 % of a core.
 */
#define HL_TICK_DOZING (UINT64_C(1) << 63)

/* The futex. */
static inline uint32_t *hl_tick_futex(_Atomic uint64_t *tick)
{
	return (uint32_t *)tick + 1;
}

/* A part of the region. */
struct hl_area {
	uint64_t offset;	    /* from the region's start; a multiple of 64 KiB */
	uint64_t capacity;	    /* bytes */
	_Atomic uint64_t committed; /* bytes backed by memory so far; grows only */
};

enum hl_area_id {
	HL_AREA_MODULES,
	HL_AREA_STRINGS,
	HL_AREA_SITES, /* of script frames; site n stands at n - 1 */
	HL_AREA_NAMES, /* what sites refer to */
	HL_AREA_THREADS,
	HL_AREA_NODES,
	HL_AREA_INDEX,
	HL_AREA_CELLS,
	HL_AREA_RINGS, /* one for each thread slot, see ring.h; used in modes with a log */
	HL_AREA_COUNT,
};

/* A module on whose code a stack stood. */
struct hl_region_module {
	uint64_t start, end;  /* mapped range */
	uint64_t load_bias;   /* address in memory minus address in the ELF file */
	uint32_t path_offset; /* into the strings area; the main program's path is empty until the
				 collector fills its own */
	uint32_t path_bytes;  /* without the NUL after it */
	uint32_t build_id_bytes;
	uint32_t reserved;
	uint8_t build_id[HL_BUILD_ID_MAX]; /* see base/file_print.h */
	struct hl_file_print print;	   /* of a file whose build id is missing or too short */
};

/* A place in a script; see guests/provider.h. */
struct hl_region_site {
	uint32_t provider; /* index in header.providers */
	uint32_t line, first_line;
	uint32_t function, source; /* where their names begin, in the area of names */
	uint32_t next;		   /* for the recorder alone */
	uint32_t reserved[2];
};

/* A name, at a multiple of 4 bytes. */
struct hl_region_name {
	uint32_t next; /* for the recorder alone */
	uint32_t bytes;
	char text[];
};

#define HL_SITE_NAME_MAX 4095u /* bytes; longer ones are cut off */

/* What a name of ${bytes} takes. */
static inline uint32_t hl_region_name_bytes(uint32_t bytes)
{
	return ((uint32_t)sizeof(struct hl_region_name) + bytes + 3) & ~UINT32_C(3);
}

#define HL_SCRIPT_PROVIDERS_MAX 24u

/* A provider of script frames. Addresses are those of the process. */
struct hl_region_provider {
	char name[24];
	uint64_t eval_start, eval_end;	 /* the interpreter's main function; 0: unknown */
	uint64_t cold_start, cold_end;	 /* a part of it that lies elsewhere; 0: none */
	uint64_t text_start, text_end;	 /* all of its own code; 0: unknown */
	uint64_t alloc_start, alloc_end; /* code that calls the host's allocator; 0: unknown */
};

struct hl_region_node {
	_Atomic uint64_t frame; /* see base/frame_key.h */
	uint32_t parent;
	uint32_t path_hash; /* of its frames and all outward of them: its place in the index */
};

/*
 * What one thread did at one node, ever. In use = alloc - free; it can be negative in one cell (a
 * block freed by another thread than its allocator's) and is right in the sum. Peak: whenever the
 * total in use has risen by a step above the last mark, header.peak_epoch grows by one. Before the
 * first change of a cell under a newer epoch its owner copies the values in use into at_peak_*. So
 * a cell's values at the last mark are at_peak_* if cell.epoch equals header.peak_epoch, else the
 * values in use now. One cache line; at_peak_objects stands in the chunk, for it is seldom touched.
 */
struct hl_cell {
	uint32_t node;
	uint32_t epoch;
	uint64_t alloc_bytes, alloc_objects;
	uint64_t free_bytes, free_objects;
	uint64_t temporary_objects;
	int64_t slack_bytes; /* of the blocks in use */
	int64_t at_peak_bytes;
};

/*
 * The node index is a row of open-addressing tables, 2^HL_INDEX_BITS_MIN slots, then twice as many,
 * and so on, one after the other in its area. A slot is 0 or (8 bits of the key's hash <<
 * HL_NODE_BITS | node id). Only the recorder uses it.
 */

#define HL_CHUNK_BYTES 4096u
#define HL_CHUNK_CELLS 56u

struct hl_cell_chunk {
	uint32_t thread;       /* slot */
	_Atomic uint32_t used; /* cells that have a node */
	uint64_t reserved[7];
	struct hl_cell cells[HL_CHUNK_CELLS];
	int64_t at_peak_objects[HL_CHUNK_CELLS]; /* of the cell in the same place */
};

static_assert(sizeof(struct hl_cell) == 64, "one cache line a cell");
static_assert(sizeof(struct hl_cell_chunk) == HL_CHUNK_BYTES, "a chunk is a page");

/* A thread slot. The first HL_THREADS_OWNED threads have one each; later ones take slots of threads
 * that have ended, whose cells then count both. */
struct hl_region_thread {
	_Atomic uint32_t live;	   /* 1 while a thread owns the slot */
	uint32_t tid;		   /* of the last owner */
	char name[16];		   /* of the last owner */
	_Atomic uint32_t has_ring; /* its ring's header and first bytes are backed by memory */
	uint32_t earlier_owners;   /* threads that owned the slot before the last one */
	struct hl_lost lost;
	uint64_t lost_log_events; /* counted, but not in the log: the ring was full, or there is
				     none */
	uint64_t waited_ns;	  /* for room in its ring, while the collector read nothing */
};

static_assert(sizeof(struct hl_region_thread) == 128, "whole cache lines; a new HL_REGION_VERSION");

#define HL_KIN_NAME_MAX	 64
#define HL_KIN_TITLE_MAX 256

/* What the collector cannot see of the process and its children; see recorder/start.h. The
 * children write it, too. */
struct hl_region_kin {
	_Atomic uint32_t replacing;	/* calls of exec by the process that have not failed */
	_Atomic uint32_t started;	/* children that run a program of their own by now */
	_Atomic uint32_t unrecorded;	/* forked children that are not recorded */
	_Atomic uint32_t awaited;	/* forked children that are neither in `started` nor in
					  `unrecorded`; less those that have said hello */
	_Atomic uint32_t namespaces;	/* asked for by dlmopen() in this process */
	_Atomic uint32_t refused_cases; /* begun in this process, and not noted */
	char program[HL_KIN_NAME_MAX];	/* file name, of the last of the calls in `replacing` */
	/* What stood in the place of the program's arguments when it ended, as in
	 * /proc/PID/cmdline. Nothing of a program that was killed, or that left them as they were.
	 */
	_Atomic uint32_t title_bytes;
	char title[HL_KIN_TITLE_MAX];
};

#define HL_REFUSAL_MAX	       160 /* bytes of the reason */
#define HL_REFUSAL_RUNTIME_MAX 16

/* Why the frames of an interpreter stay native, of the first that cannot be read; or, HL_REFUSAL_NOTED, which memory of it is
 * not recorded. */
struct hl_region_refusal {
	_Atomic uint32_t state;		      /* HL_REFUSAL_* */
	char runtime[HL_REFUSAL_RUNTIME_MAX]; /* the name, with its NUL */
	char reason[HL_REFUSAL_MAX];
};

enum { HL_REFUSAL_NONE, HL_REFUSAL_WRITING, HL_REFUSAL_WRITTEN, HL_REFUSAL_NOTED };

/*
 * Libraries that are loaded while the process runs, see attached.h. Whoever has loaded one, and holds
 * the loader's lock, asks and waits until heapline has patched what is to be recorded of it: no
 * function of it has run by then. Both sides wait on header.libraries: a state, and above it the number of
 * answers so far. Whoever has waited for too long takes the question back, in any state but WRITING.
 */
enum hl_libraries_state {
	HL_LIBRARIES_UNWATCHED, /* nobody would answer */
	HL_LIBRARIES_WATCHED,
	HL_LIBRARIES_ASKED,
	HL_LIBRARIES_ANSWERING, /* heapline makes patches ready */
	HL_LIBRARIES_ROOM,	/* the program maps what hl_attached.room says, then ANSWERING */
	HL_LIBRARIES_WRITING,	/* it writes code; a matter of microseconds */
	HL_LIBRARIES_MISSED,	/* nobody waits any more; heapline goes on with WATCHED */
};

#define HL_LIBRARIES_STATES 8u

static inline uint32_t hl_libraries_word(uint32_t answers, enum hl_libraries_state state)
{
	return answers * HL_LIBRARIES_STATES + state;
}

static inline enum hl_libraries_state hl_libraries_state_of(uint32_t word)
{
	return (enum hl_libraries_state)(word % HL_LIBRARIES_STATES);
}

static inline uint32_t hl_libraries_answers(uint32_t word)
{
	return word / HL_LIBRARIES_STATES;
}

/*
 * Forked children of a process that heapline has entered, and their children, ask for regions of their own
 * in the header of the region of the first one: the page with this stays mapped in them, and nothing
 * else of that region. A child puts a post into a free place, rings the bell, and waits on the upper
 * half of the post.
 */
#define HL_CHILD_POSTS 32u

/* A post that is gone has been refused. */
enum hl_child_state {
	HL_CHILD_POSTED = 1, /* the child may take it back */
	HL_CHILD_TAKEN,	     /* heapline looks at it; the child may take it back, too */
	HL_CHILD_JOINED,     /* its memfd is a region; the child takes it away */
};

#define HL_CHILD_STATES 4u

/* A post: the state, the child's descriptor of an empty memfd, and its pid as it sees itself. */
static inline uint64_t hl_child_post(uint32_t pid, uint32_t fd, enum hl_child_state state)
{
	return ((uint64_t)fd * HL_CHILD_STATES + state) << 32 | pid;
}

static inline uint32_t hl_child_post_pid(uint64_t post)
{
	return (uint32_t)post;
}

static inline uint32_t hl_child_post_fd(uint64_t post)
{
	return (uint32_t)(post >> 32) / HL_CHILD_STATES;
}

static inline enum hl_child_state hl_child_post_state(uint64_t post)
{
	return (enum hl_child_state)(post >> 32 & (HL_CHILD_STATES - 1));
}

struct hl_region_children {
	_Atomic uint64_t posts[HL_CHILD_POSTS]; /* 0: free */
	_Atomic uint32_t bell;			/* counts posts; heapline waits on it */
	_Atomic uint32_t is_heard;		/* 0: nobody would come */
	/* Forked children that are not recorded. */
	_Atomic uint32_t unrecorded;
	/* Of the heapline that has brought the recorder in, its thread as it sees itself: a robust futex,
	 * which the kernel marks with FUTEX_OWNER_DIED whatever ends it; or 0. */
	_Atomic uint32_t owner;
};

/* The futex. */
static inline uint32_t *hl_child_post_futex(_Atomic uint64_t *post)
{
	return (uint32_t *)post + 1;
}

#define HL_GUEST_TABLE_ID_MASK UINT64_C(63) /* of header.guest_table */

struct hl_region_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t region_bytes;
	/* Written by the collector before it hands the region over. */
	_Atomic uint32_t mode;	/* enum hl_mode, see hl_mode_of(); collector and program may change
				   it at any time */
	_Atomic uint32_t flags; /* enum hl_region_flag */
	uint64_t sample_bytes;	/* mean distance of samples in bytes; 0 = every allocation */
	/* The same, of what may become sampled while it is recorded; 0: never. Until then, each block that
	 * would be hit is in the hash with its draw, and counts as any other: once HL_MODE_SAMPLED is
	 * set, these stand for all blocks that were in the array. */
	uint64_t spare_sample_bytes;
	struct hl_area areas[HL_AREA_COUNT];
	/* Written by the collector while it drains rings: milliseconds since it made the region.
	 * With HL_TICK_DOZING: the writer of an event wakes it and clears the flag. */
	_Alignas(64) _Atomic uint64_t tick;

	/* Written by the recorder. */
	_Alignas(64) _Atomic uint32_t state; /* enum hl_region_state */
	uint32_t pid;			     /* as the target sees it */
	uint64_t start_realtime_ns;
	/* Addresses in the target of its block table (block_format.h), for tools that read blocks
	 * from outside; block_array 0: so far there is only the hash. */
	_Atomic uint64_t block_array;
	uint64_t block_hash;
	_Atomic uint64_t piece_arrays; /* the newest one; 0: none so far */
	/* The same of what a guest stamps blocks with, which lies on a page of its own, and in the lowest bits the guest's number
	 * (enum hl_guest_id); 0: none so far. */
	_Atomic uint64_t guest_table;
	_Atomic uint32_t module_count;
	_Atomic uint32_t string_bytes;
	_Atomic uint32_t thread_count; /* slots ever used */
	_Atomic uint32_t index_bits; /* the newest table of the node index has 2^index_bits slots */
	_Alignas(64) _Atomic uint32_t
		node_count; /* node ids given out, without the root: ids 1 .. node_count exist or
			       are about to (frame 0 = not yet) */
	_Alignas(64) _Atomic uint32_t chunk_count; /* cell chunks given out */
	_Alignas(64) _Atomic int64_t
		inuse_bytes; /* threads add their share now and then; the sum of cells is exact */
	/* The collector writes these three, too, at a reset. */
	_Alignas(64) _Atomic uint32_t peak_epoch;
	_Atomic uint64_t peak_mark; /* bytes in use at the last mark, as far as threads had added */
	_Atomic uint64_t peak_mark_ns;		 /* CLOCK_MONOTONIC of the last mark */
	_Alignas(64) struct hl_lost_shared lost; /* what could not be counted to a thread slot */

	_Atomic uint32_t site_count, name_bytes, provider_count;
	struct hl_region_provider providers[HL_SCRIPT_PROVIDERS_MAX];

	struct hl_mailbox mailbox; /* what the program says through heapline.h */
	struct hl_introspection_box introspection;
	struct hl_region_kin kin;
	_Atomic uint32_t libraries; /* hl_libraries_word() */
	struct hl_region_refusal refusal;
	/* With the largest pages of a machine, too, those of the children do not begin at the region's start. */
	char unused[HL_PAGE_BYTES_MAX - 4096];
	struct hl_region_children children;
};

/* What a recorder without a log maps of its region: of the rings the first page alone. */
#define HL_REGION_RINGS_SEED HL_PAGE_BYTES_MAX

static inline uint64_t hl_region_first_bytes(const struct hl_region_header *header)
{
	uint64_t bytes = header->areas[HL_AREA_RINGS].offset + HL_REGION_RINGS_SEED;

	return bytes < header->region_bytes ? bytes : header->region_bytes;
}

/* Whether blocks that live may be unknown to the recorder. */
static inline bool hl_region_is_sampled(const struct hl_region_header *header)
{
	return header->sample_bytes || atomic_load(&header->mode) & HL_MODE_SAMPLED;
}

/* The pages of the header that have that, from the region's start. */
#define HL_REGION_PAGE_MASK	 (~(size_t)(HL_PAGE_BYTES_MAX - 1))
#define HL_REGION_CHILDREN_START (offsetof(struct hl_region_header, children) & HL_REGION_PAGE_MASK)
#define HL_REGION_HEAD \
	((sizeof(struct hl_region_header) + HL_PAGE_BYTES_MAX - 1) & HL_REGION_PAGE_MASK)
#define HL_REGION_CHILDREN_BYTES (HL_REGION_HEAD - HL_REGION_CHILDREN_START)

static_assert(HL_REGION_CHILDREN_START > 0, "such a mapping is not a region");

/* Lays a region of about ${bytes} out (0 = the default, about 2.7 GiB of address space, and 8 GiB
 * for rings; memory is used only as needed). In less the rings get what the rest leaves, unless
 * ${mode} logs. */
void hl_region_layout(struct hl_region_header *header, uint64_t bytes, enum hl_mode mode);
