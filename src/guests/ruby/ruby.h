/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what Ruby runs, out of its own structures: CRuby 3.1, 3.3 and 3.4, as a program or as a library, stripped or not.
 *
 *	context	  what a thread or a fiber runs (rb_execution_context_t); the thread that has it finds it by a
 *		  thread-local variable
 *	frame	  a running function (rb_control_frame_t): of Ruby or of C. They lie one after the other at the end
 *		  of the context's stack, the innermost first
 *	iseq	  what a method or a block was compiled to: an object of the collector, which may move it
 *	body	  what an iseq leads to (rb_iseq_constant_body), which lies in malloc's memory and stays there
 *	finish	  a flag of a frame that native code has called: its end is the end of a call of the main function
 *	loop	  the function that runs instructions (vm_exec_core()); the main function (rb_vm_exec()) calls it
 *
 * Where a release has its fields is known from its headers (hl_ruby_layouts). Nothing is believed before the first frames have been
 * found in order by a reader that cannot fault.
 *
 * In-process code: allocates nothing, takes no lock, and calls no function of the interpreter.
 */
#pragma once

#include "base/compiler.h"
#include "guests/provider.h"
#include "unwind/unwind.h"

#include <stdatomic.h>

/* Offsets in bytes, of 64-bit builds. What is not here is the same in all releases, see below. */
struct hl_ruby_layout {
	uint16_t release;    /* 301: 3.1 */
	uint8_t frame_bytes; /* of a control frame */
	bool line_is_object; /* the first line is a Fixnum, not an int */
	/* A short string has its length in its flags, and its text where others have their length. */
	bool short_length_in_flags;
	bool has_transient_heap; /* elements lie there at first, not in malloc's memory */
	uint8_t body_lines, body_line_count,
		body_index; /* insns_info: body, size, succ_index_table */
};

/* What the interpreter exports, by addresses. */
struct hl_ruby_api {
	uint32_t release; /* 301: 3.1; ruby_api_version */
	uint64_t
		profile_frames; /* rb_profile_frames(), which begins with the calling thread's context */
	uint64_t start, end;	     /* of its module */
	const uint8_t *eh_frame_hdr; /* NULL: the module has none */
};

enum hl_ruby_problem {
	HL_RUBY_FITS,
	HL_RUBY_UNKNOWN_RELEASE,
	HL_RUBY_OTHER_BUILD, /* its loop, or where threads have their context, is not found */
	HL_RUBY_NOT_PROVED,  /* frames were not in order */
};

const char *hl_ruby_problem_text(enum hl_ruby_problem problem);

struct hl_ruby {
	const struct hl_ruby_layout *layout;
	struct hl_ruby_api api;
	/* Where a thread has the address of its context: in the thread-local memory of module ${tls}[0] at ${tls}[1], or, where
	 * that is NULL, at ${tls_offset} from the thread pointer. */
	const uint64_t *tls;
	int64_t tls_offset;
	uint64_t loop_start, loop_end;
	uint64_t eval_start, eval_end; /* the main function; the loop, if it is part of that */
	_Atomic uint32_t proofs, failures;
};

/* Chooses the layout, and finds the rest in code and data of the module. ${ruby} is zero, and usable if HL_RUBY_FITS is
 * returned. Takes some milliseconds. */
enum hl_ruby_problem hl_ruby_open(struct hl_ruby *ruby, const struct hl_ruby_api *api);

/* Whether captures have failed where they were to prove the layout; they yield nothing any more. */
bool hl_ruby_is_refused(const struct hl_ruby *ruby);

/* As capture and recapture of hl_script_provider. */
uint32_t hl_ruby_capture(struct hl_ruby *ruby, const struct hl_script_caller *caller,
			 struct hl_script_frame *frames, uint32_t max, bool *ret_truncated);
uint32_t hl_ruby_recapture(const struct hl_ruby *ruby, struct hl_script_memory *memory,
			   struct hl_script_frame *frames, uint32_t max);

/* Whether ${sp} is the stack pointer of code that Ruby's compiler (YJIT) has made: how many bytes above it its caller's
 * begins, which is code of Ruby; or 0. */
uint64_t hl_ruby_generated_frame(const struct hl_ruby *ruby, struct hl_walk *walk, uint64_t sp);

/* As describe of hl_script_provider. */
bool hl_ruby_describe(const struct hl_ruby *ruby, const struct hl_script_frame *frame,
		      struct hl_script_place *ret_place);

/* ---- for the sources of this directory and their tests ---- */

/* Finds where a thread has the address of its context, in the machine's code. False: not there. */
bool hl_ruby_find_context(struct hl_ruby *ruby);

HL_READS_STACK static inline uint64_t hl_ruby_word(uint64_t object, uint32_t offset)
{
	return *(const uint64_t *)(object + offset);
}

HL_READS_STACK static inline uint32_t hl_ruby_number(uint64_t object, uint32_t offset)
{
	return *(const uint32_t *)(object + offset);
}

/* Of a frame's function: its body. Above it is the upper half of its print. */
#define HL_RUBY_BODY_BITS 48u
#define HL_RUBY_BODY_MASK ((UINT64_C(1) << HL_RUBY_BODY_BITS) - 1)

/* The context: its stack, how many words that has, and the innermost frame. */
#define HL_RUBY_CONTEXT_STACK 0u
#define HL_RUBY_CONTEXT_WORDS 8u
#define HL_RUBY_CONTEXT_FRAME 16u

/* A frame: the next instruction, the iseq, and what has its flags. */
#define HL_RUBY_FRAME_PC    0u
#define HL_RUBY_FRAME_ISEQ  16u
#define HL_RUBY_FRAME_ENV   32u
#define HL_RUBY_FLAG_FINISH 0x20u
#define HL_RUBY_FLAG_C	    0x80u
#define HL_RUBY_KIND_MASK   0x7fff0001u
#define HL_RUBY_KIND_DUMMY  0x79990001u /* the outermost one of a thread, in which nothing runs */
#define HL_RUBY_FLAGS	    (HL_RUBY_KIND_MASK | HL_RUBY_FLAG_FINISH | HL_RUBY_FLAG_C)

/* Whether a frame with these ${flags} runs a function of Ruby. */
static inline bool hl_ruby_is_function(uint32_t flags)
{
	return !(flags & HL_RUBY_FLAG_C) && (flags & HL_RUBY_KIND_MASK) != HL_RUBY_KIND_DUMMY;
}

/* The body of an iseq, and in that how many words of code there are, the code, its path, its name, and its first line. */
#define HL_RUBY_ISEQ_BODY  16u
#define HL_RUBY_BODY_WORDS 4u
#define HL_RUBY_BODY_CODE  8u
#define HL_RUBY_BODY_PATH  64u
#define HL_RUBY_BODY_NAME  80u
#define HL_RUBY_BODY_LINE  88u

/* Objects begin with flags; the lowest five bits are the type. */
#define HL_RUBY_TYPE_MASK   UINT64_C(0x1f)
#define HL_RUBY_TYPE_STRING 0x05u
#define HL_RUBY_TYPE_ARRAY  0x07u
#define HL_RUBY_TYPE_INNER  0x1au /* T_IMEMO, whose kind is in four bits of the flags */
#define HL_RUBY_TYPE_MOVED  0x1eu /* the collector has moved it, to where a word says */
#define HL_RUBY_KIND_SHIFT  12u
#define HL_RUBY_KIND_ISEQ   7u
#define HL_RUBY_MOVED_TO    16u

static inline bool hl_ruby_is_object(uint64_t value)
{
	return value && !(value & 7);
}

/* Where the object ${value} is now, which is not 0. */
HL_READS_STACK static inline uint64_t hl_ruby_place(uint64_t value)
{
	uint64_t flags = hl_ruby_word(value, 0);

	return HL_UNLIKELY((flags & HL_RUBY_TYPE_MASK) == HL_RUBY_TYPE_MOVED)
		       ? hl_ruby_word(value, HL_RUBY_MOVED_TO)
		       : value;
}

/* Whether the object at ${place} is an iseq. */
HL_READS_STACK static inline bool hl_ruby_is_iseq(uint64_t place)
{
	uint64_t flags = hl_ruby_word(place, 0);

	return (flags & HL_RUBY_TYPE_MASK) == HL_RUBY_TYPE_INNER &&
	       (flags >> HL_RUBY_KIND_SHIFT & 15) == HL_RUBY_KIND_ISEQ;
}

struct hl_ruby_text {
	const char *bytes;
	uint64_t count;
};

/* Of the string ${value}; "?" of what is not a string. */
struct hl_ruby_text hl_ruby_text(const struct hl_ruby_layout *layout, uint64_t value);

/* The path of ${body}: a string, or the first element of an array. */
uint64_t hl_ruby_path(uint64_t body);

/* The first line of ${body}. */
uint32_t hl_ruby_first_line(const struct hl_ruby_layout *layout, uint64_t body);
