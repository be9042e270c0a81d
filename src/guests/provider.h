/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Providers of script frames: what an interpreter in the target runs, as functions, sources and
 * lines.
 *
 * A provider is asked at each recorded allocation, in the middle of it and on its thread. Its
 * functions must not allocate, lock, print, change errno or fault, and need a few hundred bytes of
 * stack. Frames are interned below the innermost native one, see recorder/script.h.
 *
 *	site	   a place in a script: provider, function, source, line. Numbered by the recorder.
 *	entry	   a frame that native code called; the frames inward of it, up to the next entry,
 *		   are its group, and stand for one call of the interpreter's main function.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hl_registers;
struct hl_unwind;
struct hl_walk;

struct hl_script_frame {
	uint64_t function; /* what describes the code in the runtime: its address; not 0 */
	uint32_t at;	   /* where in it, as the runtime counts, an instruction's index for one */
	uint16_t print;	   /* of that object: another one at this address mostly differs; or 0 */
	bool is_entry;
	uint8_t reserved; /* 0 */
};

/* Texts are not terminated, and need to be valid only until the next call of the provider. */
struct hl_script_place {
	const char *function, *source; /* source: a path, or what else the runtime calls it */
	uint32_t function_bytes, source_bytes;
	uint32_t line;	     /* from 1; 0: unknown */
	uint32_t first_line; /* of the function; 0: unknown */
};

/*
 * What a provider remembers of its last capture in the calling thread, so that it need not read once more
 * what it finds unchanged.
 */
#define HL_SCRIPT_MEMORY_BYTES 36864u

struct hl_script_memory {
	/* How many frames it gave then, if the recorder has them and none of their functions has ended
	 * since; or 0. */
	uint32_t known;
	/* 0 at the call. The provider may say how many of them, the outermost ones, are as they were: then only
	 * the others are in ${frames}, and count. */
	uint32_t kept;
	_Alignas(
		64) unsigned char bytes[HL_SCRIPT_MEMORY_BYTES]; /* the provider's; zero at first */
};

/* What a thread knows of the block that it is allocating, to be kept beside it. The guest's words. */
struct hl_guest_stamp {
	uint32_t value; /* 0: none */
	uint32_t number;
	void *slot;
};

/* Who allocates. */
struct hl_script_caller {
	const struct hl_registers *registers; /* of the function that called the allocator */
	const uint64_t *saved;	  /* rbx, r12, r13, r14, r15 as they were in it; NULL: unknown */
	uint32_t native_node;	  /* equal numbers: the same native stack */
	struct hl_unwind *unwind; /* rules of native code */
	struct hl_walk *walk;	  /* of the thread, which knows its stack; frames are to stay */
	struct hl_script_memory *memory;
	struct hl_guest_stamp *stamp; /* value: what the block is to be stamped with */
};

#define HL_SCRIPT_GAVE_UP UINT32_MAX

#define HL_SCRIPT_NAME_BYTES 24 /* with the NUL */

struct hl_script_provider {
	const char *name; /* "lua": shown as the module of its frames */
	/*
	 * Fills ${frames} with what the interpreters of the calling thread run now, innermost
	 * first; returns how many, at most ${max}. *${ret_truncated}, false at the call, becomes
	 * true when there are more. 0: nothing runs. NULL: it is never asked, as its sites are
	 * pools.
	 */
	uint32_t (*capture)(void *state, const struct hl_script_caller *caller,
			    struct hl_script_frame *frames, uint32_t max, bool *ret_truncated);
	/*
	 * As capture() where the provider's last frames in this thread are those that the memory knows of, which leads to them
	 * faster; HL_SCRIPT_GAVE_UP: capture() is to be called. NULL: it always is.
	 */
	uint32_t (*recapture)(void *state, const struct hl_script_caller *caller,
			      struct hl_script_frame *frames, uint32_t max);
	/* Of a provider that gives one frame or none: its function now, which is all that it says; 0: none. */
	uint64_t (*current)(void *state);
	/* Says what a frame that capture() has just given is called. False: it is not known. */
	bool (*describe)(void *state, const struct hl_script_frame *frame,
			 struct hl_script_place *ret_place);
	void *state;
	bool remembers; /* capture() uses the memory */
	bool by_stack;	/* recapture() uses the native node, which is not there for others */
	/* The interpreter's main function: only for stacks with a frame of it is it asked. 0: unknown, for
	 * all stacks. */
	uint64_t eval_start, eval_end;
	uint64_t cold_start, cold_end;	   /* what the compiler moved out of it; 0: nothing */
	uint64_t resume_start, resume_end; /* for stacks with a frame of this, too; 0: nothing */
	uint64_t text_start, text_end;	   /* all code that is the interpreter's own; 0: unknown */
	/* Code of it that calls the host's allocator: what that calls is as good as its own; 0: unknown. */
	uint64_t alloc_start, alloc_end;
};
