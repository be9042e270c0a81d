/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts the frames of scripts where they belong. A recording keeps them below the innermost native
 * frame (recorder/script.h); a reader wants to see them instead of the calls of the interpreter
 * that ran them.
 *
 *	group	frames of scripts from one that native code called up to the next such one: what
 *		one call of the interpreter's main function runs
 *
 * The innermost group belongs to the innermost call of the main function, and so on outward. A call whose
 * function has ended, and which lets go of what that held, has a group without frames.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_recording_process;
struct hl_recording_provider;
struct hl_recording_site;

enum hl_frame_part {
	HL_PART_NATIVE,
	HL_PART_SCRIPT,	     /* a place in a script */
	HL_PART_ENTRY,	     /* the same, called by native code */
	HL_PART_EVAL,	     /* the interpreter's main function, which runs scripts */
	HL_PART_INTERPRETER, /* other code of the interpreter */
	HL_PART_ALLOCATES,   /* the same, and what it calls is the host's allocator */
	HL_PART_TYPE,	     /* no frame, but the type of the blocks */
	HL_PART_SERVICE,     /* the service that they belong to */
	HL_PART_AGE,	     /* how many collections they have outlived */
	HL_PART_ENDED,	     /* no place: native code called a function, which has just ended */
	HL_PART_LAST = HL_PART_ENDED,
};

static inline bool hl_frame_part_is_label(uint8_t part)
{
	return part >= HL_PART_TYPE && part <= HL_PART_AGE;
}

/* What the sites of ${provider} mostly are. Pools are native: their frames say by which way memory came. */
enum hl_frame_part hl_frame_part_of_provider(const struct hl_recording_provider *provider);

/* What ${site} is, which native code has called or not. A site without function, source and line is HL_PART_ENDED. */
enum hl_frame_part hl_frame_part_of_site(const struct hl_recording_process *process,
					 const struct hl_recording_site *site, bool is_entry);

/* What the code at ${pc}, an address of the process, is to ${provider}; HL_PART_NATIVE: not its own. */
enum hl_frame_part hl_frame_part_of_code(const struct hl_recording_provider *provider, uint64_t pc);

struct hl_stack_frame {
	uint32_t id;	  /* whatever the caller calls it by */
	uint32_t runtime; /* of parts that are not native: the same number for the same runtime */
	enum hl_frame_part part;
};

/* Frames, outermost first and without labels: native ones up to ${scripts}, those of scripts up to
 * ${rest}, then what says by which way memory came. */
struct hl_script_stack {
	const struct hl_stack_frame *frames;
	size_t count, scripts, rest;
};

struct hl_script_stack hl_script_stack(const struct hl_stack_frame *frames, size_t count);

/*
 * The ids of the mixed stack: groups instead of calls of the main function, the interpreter's other frames
 * left out. ${ret_ids} has room for stack->count. Where calls and groups of a runtime are not as many,
 * what is left over stays as it is, outermost; then ${ret_unmatched}. Returns how many ids there are.
 */
size_t hl_script_stack_mix(const struct hl_script_stack *stack, uint32_t *ret_ids,
			   bool *ret_unmatched);
