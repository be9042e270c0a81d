/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the stack walker in the kernel (walk.bpf.h) and the tool (walker.c) have in common: the
 * tables that the tool fills, and the records that it is sent.
 *
 * Words:
 *   code page   HL_CODE_PAGE_BYTES of a file's code, as counted from the start of its executable
 *               segments. Not a page of memory: smaller, so that a page has few rows.
 *   row         (offset in the code page << 48) | rule: from there on in its page, step by the
 *               rule (unwind/rule.h). Rows of a page are sorted; the first has offset 0.
 *   stack id    64-bit hash of a stack's frame keys and its target's number, never 0.
 *   target      a process whose stacks are walked. Its number, from 1, is never used again; its
 *               place in the maps is, once it has ended. A walker of one target has it as number 1
 *               in place 0, without a look at hl_target_numbers.
 */
#pragma once

#include "base/frame_key.h"

#include <stdint.h>

#define HL_BPF_FRAMES_MAX    512u /* deeper stacks keep the leaf side and are marked truncated */
#define HL_BPF_MAPPINGS_MAX  4096u
#define HL_BPF_MAPPINGS_EACH 1024u /* the same where there are several targets */
#define HL_CODE_PAGE_SHIFT   8
#define HL_CODE_PAGE_BYTES   (1u << HL_CODE_PAGE_SHIFT)
#define HL_ROW_SHIFT	     48

/* A code page's rows; count 0: no code of it has information. */
struct hl_code_page {
	uint32_t first_row, row_count;
};

/* Code in the target's memory: an executable mapping. */
struct hl_code_mapping {
	uint64_t start, end;
	uint64_t module;     /* id << HL_MODULE_SHIFT */
	uint32_t first_page; /* the page at ${start} */
	uint32_t page_count;
};

struct hl_code_range {
	uint64_t start, end;
};

/*
 * Which mappings of a target are valid now. There are two lists of them: walks use list (current & 1) and the
 * tool writes the other one, so that a list never changes under a walk that is done in time. The
 * tool sets ${next} before it touches a list, so that a walk that took too long can tell.
 *
 * A reload is a new mapping where a list has code. The kernel numbers these as they are placed,
 * from 1, and keeps the ranges of the last HL_BPF_RELOADS. A list is as of reload ${heard}: in
 * the range of a later one it may have code that is gone.
 */
#define HL_BPF_RELOADS	    32u
#define HL_BPF_UNKNOWN_CODE 16u

struct hl_walk_view {
	uint32_t current, next;
	uint32_t count[2];
	uint32_t heard[2];
	/* What follows is written by the kernel. */
	uint32_t reloads;
	uint32_t unknown_count;
	struct hl_code_range reloaded[HL_BPF_RELOADS]; /* by number % HL_BPF_RELOADS */
	/* Where code ran lately that was in no list: a new mapping there is a reload, too. */
	uint64_t unknown[HL_BPF_UNKNOWN_CODE];
	uint64_t unknown_told_ns; /* when that was last reported */
};

/* Constants of a walker. */
struct hl_walk_settings {
	uint32_t pid;		/* of the only target, as the tool knows it */
	uint32_t pid_namespace; /* the tool's, by its inode; 0 for the first one */
	uint32_t places;	/* for targets; above 1 they are those of hl_target_numbers */
	uint32_t mappings_max;	/* of a list */
	uint32_t rule_shift;	/* 64 - bits of the number of a rule's slot */
};

/* A target, by its pid as the tool knows it. */
struct hl_target_number {
	uint32_t number, place;
};

/* Kinds of records in the ring; the including program's begin at HL_RECORD_OWN. */
enum hl_record_kind {
	HL_RECORD_STACK = 1,	    /* struct hl_stack_record */
	HL_RECORD_UNKNOWN_CODE = 2, /* struct hl_unknown_code_record */
	HL_RECORD_OWN = 16,
};

struct hl_record_header {
	uint32_t kind; /* enum hl_record_kind */
	uint32_t bytes;
};

enum hl_stack_flag {
	HL_STACK_TRUNCATED = 1 << 0,
	HL_STACK_INCOMPLETE = 1 << 1,	/* ended for want of a rule or of readable memory */
	HL_STACK_UNKNOWN_CODE = 1 << 2, /* came through code that is in no list */
};

/* A stack, sent when it is first seen, and maybe again. */
struct hl_stack_record {
	struct hl_record_header header;
	uint64_t id;
	uint32_t count;
	uint32_t flags;			  /* enum hl_stack_flag */
	uint32_t reloads;		  /* that there had been */
	uint32_t target;		  /* number */
	uint64_t keys[HL_BPF_FRAMES_MAX]; /* frame keys, innermost first; ${count} were sent */
};

/* A target ran code that is in no list, or has reloaded some. */
struct hl_unknown_code_record {
	struct hl_record_header header;
	uint32_t target; /* number */
	uint32_t reserved;
};

/* What did not go as it should, each counted per event. */
enum hl_walk_loss {
	HL_LOSS_BUSY,	    /* too many walks had interrupted each other; no stack */
	HL_LOSS_STALE,	    /* the mappings changed twice during the walk; no stack */
	HL_LOSS_NO_STACK,   /* the innermost frame could not be read; no stack */
	HL_LOSS_RING,	    /* the ring was full, a record is missing */
	HL_LOSS_TRUNCATED,  /* deeper than HL_BPF_FRAMES_MAX */
	HL_LOSS_INCOMPLETE, /* the outermost frame was not reached */
	HL_LOSS_COUNT,
};

struct hl_walk_losses {
	uint64_t count[HL_LOSS_COUNT];
};

/* Ways of a set in the table of stacks that were sent. */
#define HL_SEEN_WAYS 4u

struct hl_seen_set {
	uint64_t ids[HL_SEEN_WAYS];
};
