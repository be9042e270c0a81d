/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks the calling thread's stack by compiled call frame information, remembering the last walk.
 *
 * In-process code: no allocation, no lock, no libc call on the hot path, errno untouched,
 * async-signal-safe as long as one hl_walk is used by one activation at a time.
 *
 *	lookup pc	an address inside the instruction that is running in a frame: the return
 *			address minus one, or, in a frame that a signal interrupted, the program
 *			counter itself. Rules and symbols are looked up by it.
 *	frame key	(module id << 48) | lookup pc; in a frame that nobody called, a signal's or
 *			makecontext's, the return address. The id separates modules that lived at
 *			one address after each other. Id 0: code of no known module (JIT). Id
 *			HL_MODULE_SCRIPT: in a walk, generated code that was found by find_generated;
 *			else reserved for frames of scripts.
 *	generation	a count of module changes; rules and walks of an older generation are not
 *			used again
 */
#pragma once

#include "base/frame_key.h"

#include "base/compiler.h"
#include "base/go_functions.h"
#include "base/machine.h"
#include "unwind/registers.h"

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_MAX_FRAMES 1024u /* deeper stacks keep the leaf side and are marked truncated */

/* The module that holds a program counter. All addresses are of this process. */
struct hl_unwind_module {
	uint32_t id; /* 1 .. HL_MODULE_SCRIPT - 1; HL_MODULE_NONE when it could not be registered;
			HL_MODULE_SCRIPT: no module, but the kernel's trampoline of return probes,
			from which there is no way out */
	uint64_t start, end;	     /* mapped range */
	const uint8_t *eh_frame_hdr; /* .eh_frame_hdr (PT_GNU_EH_FRAME) in memory; NULL when the
					module has none */
	uint64_t load_bias;	     /* address in memory minus address in the ELF file */
};

struct hl_cfi_row;

/* What only a module's file leads to, made by the finder; NULL where it has none. */
struct hl_unwind_file {
	/* Of .eh_frame, where no .eh_frame_hdr leads to it, as in static programs: offsets from the
	 * module's start. */
	const struct hl_cfi_row *rows;
	size_t row_count;
	const uint8_t *debug_frame;
	size_t debug_frame_bytes;
	const Elf64_Sym *symbols; /* .symtab, else .dynsym */
	size_t symbol_count;
	struct hl_go_functions go; /* count 0: none */
};

struct hl_unwind;
struct hl_walk;

/*
 * Finds the module that holds ${pc}. Called on a miss of the rule cache only. Must be
 * async-signal-safe and must not call the allocator. Returns false when no module holds the
 * address.
 */
typedef bool hl_find_module_fn(struct hl_unwind *unwind, uint64_t pc,
			       struct hl_unwind_module *ret_module);

/*
 * Maps parts of the file of a module whose .eh_frame has no rule for a program counter, or is not
 * found in memory: objects built without .eh_frame are linked with others that have it. Otherwise as
 * above.
 */
typedef struct hl_unwind_file hl_find_file_fn(struct hl_unwind *unwind,
					      const struct hl_unwind_module *module);

/*
 * Whether ${sp} is the stack pointer of generated code that keeps no frame pointer but a frame of known size: its rule, one of
 * hl_arch_rule_of_frame() or hl_arch_rule_of_leaf_frame(); 0: it is not. Otherwise as hl_find_module_fn. Called for code of no
 * module.
 */
typedef uint64_t hl_find_generated_fn(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp);

struct hl_walk_frame;

/*
 * The rule of the frame of code at ${pc} of no module, which called with ${sp} what ${callee} is of: one of hl_arch_rule_of_frame(), or
 * HL_RULE_UNSUPPORTED where the frame cannot be left; 0: by its frame pointer. Asked each time, as other code may lie there later.
 * ${callee}: NULL if that is not known. Otherwise as hl_find_module_fn.
 */
typedef uint64_t hl_find_frame_fn(struct hl_walk *walk, uint64_t pc, uint64_t sp,
				  const struct hl_walk_frame *callee);

/* One slot of the rule cache: written without a lock, so each half proves the other (check = key ^
 * rule). */
struct hl_rule_slot {
	_Atomic uint64_t check;
	_Atomic uint64_t rule;
};

#define HL_RULE_SLOTS (UINT32_C(1) << 14)

/* Shared by all threads of a process. Zero-initialize, then set find_module. */
struct hl_unwind {
	hl_find_module_fn *find_module;
	hl_find_file_fn *find_file;	      /* may be NULL */
	hl_find_generated_fn *find_generated; /* may be NULL */
	hl_find_frame_fn *_Atomic find_frame; /* may be NULL */
	_Atomic uint32_t generation;
	struct hl_rule_slot slots[HL_RULE_SLOTS];
};

/* One frame of a walk. Index 0 of hl_walk.frames is the outermost frame, so that a kept outer part
 * stays in place. */
struct hl_walk_frame {
	uint64_t sp, bp; /* state on entry of the step: with the lookup pc it decides everything
			    outward */
	uint64_t key;	 /* frame key; its low 48 bits are the lookup pc */
	/* The words that stepping out of this frame read, and their values. Both pairs are always
	 * safe to check. */
	const uint64_t *word[2];
	uint64_t value[2];
	uint32_t node;	/* set by the caller once interned */
	uint32_t flags; /* enum hl_walk_frame_flag */
};

enum hl_walk_frame_flag {
	HL_FRAME_NEEDS_BP =
		1 << 0, /* the step out of this frame, or of one outward, depends on bp */
	HL_FRAME_SAVES_BP = 1 << 1,  /* word[1] is where the frame saved its caller's bp */
	HL_FRAME_IN_SCRIPT = 1 << 2, /* the caller's: see hl_script_is_asked() */
};

/* What call frame information says at one pc of the registers that functions keep; see saved.c. */
struct hl_saved_row {
	uint64_t pc; /* 0: none */
	uint64_t function_start, function_end;
	uint64_t rule;
	uint32_t generation;
	int16_t words
		[HL_SAVED_COUNT]; /* where they are kept, from the CFA; 0: nothing has been done to them */
	int16_t return_word; /* where the return address is; 0: unknown */
	bool is_known;
};

#define HL_SAVED_ROW_BITS 9

/* A thread's last walk and the workplace of its next. Zero-initialize; about 190 KiB, touched as
 * far as stacks are deep. */
struct hl_walk {
	uint32_t depth; /* frames of the last walk */
	uint32_t generation;
	bool truncated;	 /* the stack was deeper than HL_MAX_FRAMES */
	bool incomplete; /* the walk ended before the outermost frame, for want of a rule or of
			    readable memory */
	uint64_t stack_low,
		stack_high; /* addresses known to be readable; grows as they are proved */
	/*
	 * [own_low, own_high) lies on the stack that the thread was given when it was made, and so
	 * is mapped for as long as the thread runs: what lies there may be read whatever else has
	 * happened. Other stacks (of coroutines, of signal handlers) come and go.
	 *
	 * Once a whole walk, frame by frame from sp outward, has ended close below own_top, where
	 * that stack begins, through memory without a gap, sp is on it.
	 */
	uint64_t own_low, own_high;
	uint64_t own_top; /* 0: not known */
	/* What can change of frames[0 .. i] are the words of checks[0 .. check_end[i]), as long as
	 * i < listed: those are frames whose words lie on the thread's own stack. */
	uint32_t listed;
	uint16_t check_end[HL_MAX_FRAMES];
	_Alignas(64) struct hl_walk_check {
		const uint64_t *word;
		uint64_t value;
	} checks[2 * HL_MAX_FRAMES];
	_Alignas(64) struct hl_walk_frame frames[HL_MAX_FRAMES];
	struct hl_walk_frame fresh[HL_MAX_FRAMES];
	struct hl_saved_row saved_rows[1u << HL_SAVED_ROW_BITS]; /* by pc */
};

/* Registers at the point of capture: of the caller of a hook, right after its call instruction. */
struct hl_registers {
	uint64_t pc; /* return address into the caller */
	uint64_t sp; /* stack pointer once the call has returned */
	uint64_t bp; /* the caller's rbp */
};

/*
 * The caller of a hook, for functions compiled with a frame pointer: there is the caller's frame pointer, then the return
 * address; behind them is the caller's stack pointer after the return. ${frame} is that frame pointer. Unless the machine has
 * others in unwind/registers.h.
 */
#ifndef HL_HOOK_SP
#define HL_HOOK_SP(frame)     ((frame) + 16)
#define HL_HOOK_BP(frame)     (*(uint64_t *)(frame))
#define HL_HOOK_PC(sp, bp)    (((const uint64_t *)(sp))[-1])
#define HL_HOOK_OUTER(sp, bp) (bp)
#endif

/* Forgets the last walk, and notes where the stack of the calling thread begins: of the process'
 * main thread or not. A walk without it knows no stack to be the thread's own. */
void hl_walk_begin(struct hl_walk *walk, bool is_main);

/* Whether ${address} is known to lie on the thread's own stack. */
static inline bool hl_walk_is_own(const struct hl_walk *walk, uint64_t address)
{
	return address - walk->own_low < walk->own_high - walk->own_low;
}

/*
 * Walks outward from ${at}. On return walk->frames[0 .. depth) is the stack, outermost first.
 *
 * Returns k: frames [0, k) are those of the last walk, with state, words and node unchanged; frames
 * [k, depth) are new and their nodes must be set by the caller before the next call. k = depth when
 * nothing changed. Never fails: a frame that cannot be walked ends the stack and sets truncated or
 * incomplete.
 */
uint32_t hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
			 const struct hl_registers *at);

/* For functions that read words of the stack: the frames are other functions', so AddressSanitizer
 * would take some of the words for the gaps between its variables. */
#define HL_READS_STACK __attribute__((no_sanitize("address")))

/*
 * The number of frames up to and with the first, seen from frames[count - 1] outward, whose words
 * have changed; 0 when none has. Each check makes the next frame's words safe to read.
 */
HL_READS_STACK static inline uint32_t hl_walk_first_changed(const struct hl_walk *walk,
							    uint32_t count)
{
	const struct hl_walk_frame *frame = &walk->frames[count];

	for (; frame > walk->frames; frame--) {
		if (HL_UNLIKELY(*frame[-1].word[0] != frame[-1].value[0]))
			break;
		if (HL_UNLIKELY(*frame[-1].word[1] != frame[-1].value[1]))
			break;
	}
	return (uint32_t)(frame - walk->frames);
}

/* Whether the words of frames [0, count) are all unchanged. On the thread's own stack all are looked
 * at at once: nearly always they are. */
HL_READS_STACK static inline bool hl_walk_is_unchanged(const struct hl_walk *walk, uint32_t count)
{
	if (HL_UNLIKELY(count > walk->listed))
		return !hl_walk_first_changed(walk, count);
	uint32_t words = walk->check_end[count - 1];
	const struct hl_walk_check *check = walk->checks, *end = check + words;
	for (const struct hl_walk_check *fours = check + words / 4 * 4; check != fours; check += 4)
		if (*check[0].word != check[0].value || *check[1].word != check[1].value ||
		    *check[2].word != check[2].value || *check[3].word != check[3].value)
			return false;
	for (; check != end; check++)
		if (*check->word != check->value)
			return false;
	return true;
}

/* Says that modules may have changed: cached rules and remembered walks are not used again.
 * Callable from any thread. */
void hl_rule_cache_invalidate(struct hl_unwind *unwind);
