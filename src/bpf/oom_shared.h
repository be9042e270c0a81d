/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs that see the kernel kill for want of memory (oom.bpf.c) and their reader (oom.c) share: one record of a kill, one of the
 * death of a process that did not ask for the memory itself, and one, by its size, of a group that comes near its limit.
 */
#pragma once

#include <stdint.h>

enum hl_oom_kind {
	HL_OOM_KILL = 1, /* the victim is chosen; the task that asked for memory runs */
	HL_OOM_DEATH, /* the victim runs, for the last time: thread and what follows are its own */
};

#define HL_OOM_SHARES	   3u
#define HL_OOM_LEVELS	   8u
#define HL_OOM_NAME	   128u
#define HL_OOM_STACK_BYTES 16384u
#define HL_OOM_ARGS_BYTES  1024u
#define HL_OOM_MAPS	   24u
#define HL_OOM_PARTS	   8u
#define HL_OOM_PART_NAME   40u

/* Memory of a process, in pages but for the last. */
struct hl_oom_memory {
	int64_t file, anonymous, swap, shared;
	uint64_t page_table_bytes;
};

struct hl_oom_process {
	uint32_t pid, tid; /* as the first namespace numbers them */
	char comm[16];
};

/* A control group: its own, then those above. */
struct hl_oom_level {
	uint64_t inode;			 /* of its directory */
	uint64_t usage_pages, max_pages; /* max_pages is huge without a limit */
	char name[HL_OOM_NAME]; /* the last part of its path, cut; "" for the topmost one */
};

/* A mapping that the instruction pointer or a word of the stack leads to. */
struct hl_oom_map {
	uint64_t start, end, offset;		    /* the last in the file, in pages */
	uint64_t inode;				    /* 0: no file */
	char parts[HL_OOM_PARTS][HL_OOM_PART_NAME]; /* of the file's path, the last first; cut */
};

/* A group passes a share of its limit. */
struct hl_oom_passing {
	uint64_t inode; /* of its directory */
};

struct hl_oom_record {
	uint32_t kind;			     /* enum hl_oom_kind */
	uint32_t stack_bytes;		     /* that were copied */
	uint64_t clock_ns;		     /* CLOCK_MONOTONIC */
	struct hl_oom_process victim, asked; /* of a death the second is zero */
	struct hl_oom_memory memory;	     /* the victim's */
	int32_t oom_score_adj;		     /* the victim's */
	uint32_t args_bytes;		     /* of ${args}; 0: unknown as yet */
	char args
		[HL_OOM_ARGS_BYTES]; /* the victim's command line, as /proc/PID/cmdline has it, cut */
	uint32_t level_counts[2];
	struct hl_oom_level levels[2]
				  [HL_OOM_LEVELS]; /* the victim's, and of the process that asked */
	/* Of the thread that runs: */
	uint64_t ip, sp, bp;
	uint64_t link;	  /* a register that may hold the return address; 0: the machine has none */
	uint32_t in_call; /* it came into the kernel by a system call */
	uint32_t map_count;
	struct hl_oom_map maps[HL_OOM_MAPS];
	uint64_t stack[HL_OOM_STACK_BYTES / 8]; /* from ${sp} on */
};
