/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What heapline and the recorder that it brings into a running process say to each other.
 *
 * The recorder's image is a shared object without undefined symbols and without thread-local
 * storage. heapline lays it out in private anonymous memory of the target, applies its relocations (all relative), finds the symbol "hl_attached", and calls `start` on a stopped thread.
 *
 *	hook	    a function of the image that takes the place of one of the target's
 *	entry	    the first bytes of a function of the target, which a patch makes a jump to its hook
 *	trampoline  what the patch displaced, moved to where it runs as before, and a jump behind it
 */
#pragma once

#include "region/region.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HL_ATTACHED_MAGIC   UINT64_C(0x44454e494f4a4c48) /* "HLJOINED" */
#define HL_ATTACHED_VERSION 7u
#define HL_ATTACHED_SYMBOL  "hl_attached"

/* The functions that have hooks, by their usual names. */
enum hl_hook {
	HL_HOOK_MALLOC,
	HL_HOOK_CALLOC,
	HL_HOOK_REALLOC,
	HL_HOOK_REALLOCARRAY,
	HL_HOOK_FREE,
	HL_HOOK_FREE_SIZED,
	HL_HOOK_FREE_ALIGNED_SIZED,
	HL_HOOK_POSIX_MEMALIGN,
	HL_HOOK_ALIGNED_ALLOC,
	HL_HOOK_MEMALIGN,
	HL_HOOK_VALLOC,
	HL_HOOK_PVALLOC,
	HL_HOOK_DLCLOSE,
	HL_HOOK_MLOCKALL, /* see recorder/hooks_lock.c */
	HL_HOOK_PRCTL,	  /* see recorder/hooks_filters.c */
	HL_HOOK_SYSCALL,
	/* _dl_debug_state(), which the dynamic linker calls for debuggers before and after it changes
	 * what is loaded, with its lock held. */
	HL_HOOK_LIBRARIES,
	HL_HOOK_COUNT,
};

/*
 * A runtime's allocator of objects, see recorder/hooks.h. Its functions are not patched: the recorder has the interpreter call hooks in their
 * place. Wherever the interpreter keeps the four addresses they stand in this order.
 */
enum hl_object_hook {
	HL_OBJECT_MALLOC,
	HL_OBJECT_CALLOC,
	HL_OBJECT_REALLOC,
	HL_OBJECT_FREE,
	HL_OBJECT_HOOK_COUNT,
};

/*
 * What the image knows of a thread. Slots are found by the thread pointer (on x86-64 %fs:0, which is its own
 * address in every process with threads of glibc or musl); threads without one pass through. A thread that reuses the thread-local
 * storage of one that has ended takes its slot over: it is seen by the tid that libc keeps there.
 * In a forked child they are those of its parent, until it is recorded itself.
 */
struct hl_attached_slot {
	_Atomic uint64_t key;	/* the thread pointer; 0, 1 = free; UINT64_MAX: nobody gets it */
	_Atomic int32_t inside; /* frames of hooks on the thread's stack */
	_Atomic uint32_t tid;
	int64_t tid_offset; /* from ${tid} to where libc keeps it; 0: unknown */
	uint64_t thread;    /* struct hl_thread, the recorder's */
	/* Those of ${inside} within which calls count: dlclose()'s, and of rules with layers. */
	int32_t closing;
	bool changing; /* hl_self_changing_slot() */
	/* The frame of the stub that has called a rule's function; 0: none. One that is left by
	 * longjmp() is known by the sum of its words, which changes sooner or later. */
	int32_t rule_inside, rule_closing; /* ${inside} with it, and ${closing} without */
	uint64_t rule_frame, rule_sum;
};

static_assert(sizeof(struct hl_attached_slot) == 64, "a cache line");

/*
 * The words of that frame, from HL_ATTACHED_RULE_FRAME_BELOW bytes below its frame pointer on. Nobody
 * changes them while it is there, but for the second one.
 */
#define HL_ATTACHED_RULE_FRAME_BELOW 104u
#define HL_ATTACHED_RULE_FRAME_WORDS 15u

static inline uint64_t
hl_attached_rule_frame_sum(const uint64_t words[HL_ATTACHED_RULE_FRAME_WORDS])
{
	uint64_t sum = words[0];

	for (uint32_t i = 2; i < HL_ATTACHED_RULE_FRAME_WORDS; i++)
		sum += words[i];
	return sum;
}

#define HL_ATTACHED_RULES_MAX	    96u
#define HL_ATTACHED_RULE_STUB_BYTES 64u
#define HL_RULE_POOLS_MAX	    7u /* that are reset */

enum hl_rule_does {
	HL_RULE_ALLOCATES, /* and may free the block at ${pointer_at} */
	HL_RULE_FREES,	   /* and nothing else */
	/* Functions of heapline.h, which do nothing by themselves: */
	HL_RULE_TELLS_ALLOC, /* (pool, block, size) */
	HL_RULE_TELLS_FREE,  /* (pool, block) */
	HL_RULE_TELLS_MARK,  /* (name) */
	HL_RULE_TELLS_MODE,  /* (enum hl_mode) */
	/* A function of the program, before it is called: */
	HL_RULE_TELLS_SERVICE, /* (module, instance, context, arguments); see guests/guest.h */
	HL_RULE_RESETS,	       /* all that was allocated of its ${pool} */
};

/*
 * A function beyond those above, which has one of HL_ATTACHED_RULES_MAX stubs. Its arguments are
 * numbered from 1; 0: it has no such argument. Blocks of such functions may be cut from blocks of
 * malloc(), and are known apart from these even where they have the same address.
 */
struct hl_attached_rule {
	uint64_t real; /* its trampoline */
	union {
		struct {
			uint8_t size_at, count_at;
		};
		uint16_t size; /* of each block, if it ${has_size} */
	};
	uint8_t pointer_at, alignment_at;
	uint8_t result_at; /* where to it writes the block, as posix_memalign() does; 0: it returns it */
	uint8_t does;	   /* enum hl_rule_does */
	uint8_t throws : 1; /* an exception may leave it: malloc() or memalign() is called in its place */
	uint8_t is_of_malloc : 1; /* its blocks are those of malloc() and free() */
	uint8_t is_beside : 1;	  /* its blocks lie in no block of malloc() */
	uint8_t has_size : 1;
	uint8_t is_text : 1; /* each block is a copy of the text at ${size_at}, of at most ${count_at} bytes and a zero */
	uint8_t pool : 3; /* the number of the pool, if a rule resets it; else 0 */
	uint8_t type_at;  /* of a new block, its type, see hl_guest.type */
};

static_assert(sizeof(struct hl_attached_rule) == 16, "the assembler goes by it");

/* In the image; addresses are those of the target, after relocation. */
struct hl_attached {
	uint64_t magic;
	uint32_t version;
	uint32_t slot_count; /* a power of two */
	uint64_t slots;	     /* struct hl_attached_slot[] */
	uint64_t hooks[HL_HOOK_COUNT];
	uint64_t start;			     /* hl_attached_start_fn */
	uint64_t stop;			     /* hl_attached_stop_fn */
	uint64_t stack_top;		     /* of the stack on which these two are to be called */
	uint64_t start_room;		     /* for struct hl_attached_start */
	_Atomic int32_t inside_without_slot; /* frames of hooks of threads that got no slot */
	uint64_t rule_stubs;		     /* HL_ATTACHED_RULE_STUB_BYTES each */
	/* struct hl_attached_rule[HL_ATTACHED_RULES_MAX]. One whose stub nothing leads to yet may be
	 * written at any time. */
	uint64_t rules;
	/* In state HL_LIBRARIES_ROOM: memory for code is to be mapped there, where nothing is; and the
	 * result, 0 or a negative errno. */
	uint64_t room, room_bytes;
	int64_t room_result;
	/* The same hooks, faster, for functions whose callers rely on nothing but the calling convention;
	 * 0 where there are only those above. */
	uint64_t light_hooks[HL_HOOK_COUNT];
	uint64_t object_hooks[HL_OBJECT_HOOK_COUNT];
	uint64_t object_real
		[HL_OBJECT_HOOK_COUNT]; /* what they take the place of; 0 until they do */
};

/* What `start` is told. */
struct hl_attached_start {
	int32_t region_fd; /* in the target; `start` closes it */
	int32_t main_tid;
	uint64_t region_bytes;
	uint64_t real[HL_HOOK_COUNT]; /* trampolines; 0: the target has no such function */
	uint64_t usable_size;	/* malloc_usable_size(); 0: blocks' sizes are those asked for */
	uint64_t find_object;	/* _dl_find_object(); 0: modules come from the table below */
	uint64_t clock_gettime; /* of the vdso; 0: by a system call */
	uint64_t program_headers, program_header_count; /* AT_PHDR, AT_PHNUM */
	uint64_t page_bytes;				/* AT_PAGESZ */
	/* Of the program, for when it cannot open its own file; 0: unknown. */
	uint64_t eh_frame, eh_frame_bytes;
	uint64_t stack_end;	  /* of the main thread; 0: unknown */
	uint8_t has_glibc_chunks; /* see recorder/libc.h */
	uint8_t may_read_tsc;
	uint8_t may_read_fs_base;	      /* by rdfsbase; 0: by a system call */
	int32_t collector_pid;		      /* as the target sees it; 0: unknown */
	uint64_t current_service, service_of; /* functions of the program; 0 if there are none */
	struct hl_answering answering;	      /* of its allocator */
	/* Whether calls that a function of a rule makes of others are counted, too. */
	uint8_t counts_layers;
	/* The process runs under a seccomp filter, which permits what a forked child calls to be recorded. */
	uint8_t has_filter;
	struct hl_attached_rule rules[HL_ATTACHED_RULES_MAX];
};

/* 0 or a negative errno. Makes system calls and uses nothing of the target's libc. */
typedef int64_t hl_attached_start_fn(const struct hl_attached_start *start);

/* When no entry is patched any more and no thread is inside: gives back all memory but the image. */
typedef int64_t hl_attached_stop_fn(void);
