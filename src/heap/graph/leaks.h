/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that nobody can free any more.
 *
 *	lost		no root and no other lost block leads to it, or it begins a ring of them
 *	indirect	only lost blocks lead to it; it counts in the row of the one that does
 *	possible	only pointers to its inside lead to it, or to a block that leads to it
 *	unknown		lost or indirect, as far as memory was read, but there is memory that was not, with
 *			room for a pointer to each lost block; then none counts as lost
 *
 * A process is looked at several times: what is unreachable stays so, so what one look finds
 * reachable, changed or freed is not lost. A core file is looked at once.
 */
#pragma once

#include "base/error.h"
#include "base/strings.h"
#include "heap/graph/graph.h"
#include "heap/heap.h"

#define HL_LEAK_HEAD_BYTES 32u

struct hl_memory;
struct hl_recording_process;

/* ---- suppressions ---- */

/*
 * Files of suppressions, in the format of LeakSanitizer: a line `leak:PATTERN` each, where PATTERN is
 * a part of a name, '*' stands for any letters, and '^' and '$' at its ends for the ends of the name.
 * Empty lines and those that begin with '#' say nothing.
 */

/* Zero-initialize for an empty one. */
struct hl_leak_ignore {
	char **patterns;
	size_t count, capacity;
};

/* Appends the patterns of ${path}. 0 or a negative errno with a sentence: -EBADMSG names the line
 * that makes no sense. */
int hl_leak_ignore_read(struct hl_leak_ignore *ignore, const char *path, struct hl_error *err);

void hl_leak_ignore_release(struct hl_leak_ignore *ignore);

/* ---- what was found ---- */

struct hl_leak_sum {
	uint64_t blocks, bytes;
};

/* A frame of a stack: texts in hl_leaks.names. */
struct hl_leak_frame {
	uint32_t function, module, source;
};

/* Blocks of one stack; where it is not known, of one type and size. */
struct hl_leak_row {
	uint64_t owner; /* stands for the stack; 0: not known */
	uint32_t type;	/* in hl_leaks.names: the class; 0: not known */
	uint64_t size;	/* usable bytes of each, but for the indirect ones; 0: of a stack */
	size_t frame, frame_count; /* in hl_leaks.frames, the innermost first */
	struct hl_leak_sum lost, indirect, possible, unknown;
	bool is_ignored; /* while rows are added */
};

/* A lost block. */
struct hl_leak_block {
	uint64_t address, size;
	uint32_t type; /* as hl_leak_row.type */
	struct hl_leak_sum indirect;
	uint8_t head[HL_LEAK_HEAD_BYTES]; /* its first bytes: ${size} of them, at most */
};

struct hl_leaks {
	struct hl_heap *heap; /* as the last look found it */
	struct hl_strings names;
	struct hl_leak_row *rows; /* the most lost bytes first, then the most possible ones */
	size_t row_count, row_capacity;
	struct hl_leak_frame *frames;
	size_t frame_count, frame_capacity;
	bool knows_stacks; /* some */
	/* Nodes and modules alone: hl_leak_row.owner is a node. NULL: not wanted, or there is no
	 * recorder in the process. */
	struct hl_recording_process *stacks;
	struct hl_leak_sum live, lost, indirect, possible, unknown;
	struct hl_unread unread;
	struct hl_leak_sum ignored;   /* lost and indirect, by the suppressions; in no other sum */
	struct hl_leak_block *blocks; /* the largest, with what they lead to */
	size_t block_count;
	uint32_t passes;
	uint64_t stopped_ns;	  /* how long threads were stopped, in all */
	uint32_t stopped_threads; /* how many at once, at most */
};

struct hl_leaks_settings {
	bool never_stop; /* no thread is stopped: registers are not read */
	bool stop; /* the last look is exact: all threads are stopped, none is in the allocator */
	bool reads_swapped;   /* also what is on swap, which brings it back into RAM */
	bool reads_unaligned; /* also pointers at addresses that 8 does not divide */
	size_t show;	      /* how many blocks to keep */
	const struct hl_leak_ignore *ignore;	  /* NULL: nothing is left out */
	bool want_stacks;			  /* for hl_leaks.stacks */
	const struct hl_sleeper_source *sleepers; /* NULL: all threads are stopped */
};

/* Reads ${pid}, or the core file ${core} if that is not NULL. 0 or a negative errno with a sentence,
 * as hl_heap_read(). The target is not changed; without settings->stop its threads, but for sleepers
 * that are known, are stopped for a moment in each look, to read their registers and stacks. */
int hl_leaks_read(pid_t pid, const char *core, const struct hl_leaks_settings *settings,
		  struct hl_leaks **ret_leaks, struct hl_error *err);

/* The same for ${memory} that does not change, and stays the caller's. */
int hl_leaks_read_memory(struct hl_memory *memory, const struct hl_leaks_settings *settings,
			 struct hl_leaks **ret_leaks, struct hl_error *err);

void hl_leaks_free(struct hl_leaks *leaks); /* NULL is fine */

/* ---- leak_rows.c: what was found, by type and size ---- */

struct hl_graph;
struct hl_leak_rows;

struct hl_block_owners;

/* 0 or -ENOMEM. */
int hl_leak_rows_new(struct hl_leaks *leaks, struct hl_graph *graph,
		     const struct hl_leaks_settings *settings, struct hl_leak_rows **ret_rows);

/* Reaches what pointers inside of blocks lead to; once, and before the others. Of a process that stands
 * still it may go on afterwards: what is lost does not change any more. ${owners}: NULL, or those that know pieces of pools; pointers
 * to these reach for certain the blocks that they lie in. 0 or a negative errno. */
int hl_leak_rows_reach_possible(struct hl_leak_rows *rows, const struct hl_block_owners *owners);

/* Adds that, then what was not reached; ${owners} may be NULL, and stay until both are done. Both
 * once, in this order. 0 or a negative errno. */
int hl_leak_rows_add_possible(struct hl_leak_rows *rows, struct hl_block_owners *owners);
int hl_leak_rows_add_lost(struct hl_leak_rows *rows);

void hl_leak_rows_free(struct hl_leak_rows *rows); /* NULL is fine */
