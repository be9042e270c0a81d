/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what LuaJIT 2.1 runs (x86-64, GC64), out of its own structures; linked in any way, stripped or not, with its
 * compiler on.
 *
 * Each call from native code into Lua is a frame of one piece of assembly on the native stack, and that frame has its state
 * in a word of it. The frames of Lua are links in the state's stack of values. While a trace runs, they are those of when it was entered: the
 * trace is a frame of its own, inward of them.
 *
 *	VM frame	a native frame of the interpreter's assembly, or of a trace, which runs in its place
 *	trace		machine code that was made of a hot path; known by a number
 *
 * In-process code: capture and description take no lock, allocate nothing and call nothing of the
 * interpreter's.
 */
#pragma once

#include "base/compiler.h"
#include "guests/lua/lua.h"
#include "guests/provider.h"
#include "unwind/unwind.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What was proved of an interpreter; valid in forked children, too. */
struct hl_luajit {
	uint64_t vm_start, vm_end; /* the assembly */
	uint32_t
		current_at; /* in the global state: the running state; behind it, the base of a trace's frame */
	uint32_t vmstate_at; /* there: what runs; of a trace, its number */
	uint32_t string_length_at;
	_Atomic uint32_t traces_at; /* there: the array of traces; 0: not found yet */
	_Atomic uint64_t known;	    /* a state that was seen to be one */
	_Atomic uint64_t refused;   /* captures in which something was not in order */
	/* As in struct hl_lua_reader. */
	bool (*find_maker)(uint64_t block, struct hl_script_frame *ret_frame);
};

#define HL_LUAJIT_NODES (1u << 14)
#define HL_LUAJIT_VMS	(1u << 16)

/* A VM frame of a native stack, in words from the innermost frame's stack pointer on. */
struct hl_luajit_vm {
	uint64_t return_address; /* into the assembly or the trace ... */
	int32_t return_at;	 /* ... and where it is: then the rest is right, too */
	int32_t frame_at;
	bool is_trace;
};

/* The VM frames of native stacks, remembered by their nodes. Zero-initialize. */
struct hl_luajit_cache {
	/* The node << 32 | number of frames << 26 | number of the first + 1. */
	_Atomic uint64_t nodes[HL_LUAJIT_NODES];
	_Atomic uint32_t vm_count;
	struct hl_luajit_vm vms[HL_LUAJIT_VMS];
};

/* How hl_luajit_open() went; texts for messages. */
enum hl_luajit_problem {
	HL_LUAJIT_PROVED,
	HL_LUAJIT_OTHER_BUILD, /* not GC64: its frames are laid out in another way */
	HL_LUAJIT_NO_STATE,    /* lua_newstate() or a call in the private state failed */
	HL_LUAJIT_NO_VM,       /* its assembly was not found on the stack */
	HL_LUAJIT_OTHER_LINES, /* what was read differs from what lua_getinfo() says */
};

const char *hl_luajit_problem_text(enum hl_luajit_problem problem);

/*
 * Runs a script in a private state and compares all that is read with what lua_getinfo() says. ${memory}:
 * HL_LUAJIT_PROBE_BYTES that are zero, not needed afterwards. ${lj} is zero, and usable when
 * HL_LUAJIT_PROVED is returned. One at a time.
 */
#define HL_LUAJIT_PROBE_BYTES ((size_t)5 << 18)

enum hl_luajit_problem hl_luajit_open(struct hl_luajit *lj, const struct hl_lua_api *api,
				      struct hl_unwind *unwind, struct hl_walk *walk, void *memory);

/* As capture of hl_script_provider. ${cache}: NULL if there is none. Where a coroutine runs a C function, the innermost frame is that
 * of the script that made the coroutine. */
uint32_t hl_luajit_capture(struct hl_luajit *lj, struct hl_luajit_cache *cache,
			   const struct hl_script_caller *caller, struct hl_script_frame *frames,
			   uint32_t max, bool *ret_truncated);

/* As describe of hl_script_provider. */
bool hl_luajit_describe(const struct hl_luajit *lj, const struct hl_script_frame *frame,
			struct hl_script_place *ret_place);

/*
 * Code of no module that called with stack pointer ${sp}: in bytes from there on where the frame of its caller begins, if the code is a
 * trace; 0: it is not a trace.
 */
uint64_t hl_luajit_trace_frame(struct hl_luajit *lj, struct hl_walk *walk, uint64_t sp);

/* ---- layout ---- */

/* Where LuaJIT's structures have what a walk reads: in bytes, of GC64. Nothing is believed before a probe has proved it, but for
 * traces, which are only found by what they say of themselves. */
enum {
	LJ_SLOT = 8,
	LJ_INSTRUCTION = 4,

	/* Of every object. */
	LJ_TYPE = 9,
	LJ_TYPE_THREAD = 6,
	LJ_TYPE_PROTO = 7,
	LJ_TYPE_FUNCTION = 8,
	LJ_TYPE_TRACE = 9,

	/* lua_State */
	LJ_STATE_GLOBAL = 16,
	LJ_STATE_BASE = 32,
	LJ_STATE_TOP = 40,
	LJ_STATE_STACK = 56,
	LJ_STATE_CFRAME = 80,
	LJ_STATE_SLOTS = 88,
	LJ_STATE_BYTES = 96,

	/* A function, and GCproto, which lies right before its code */
	LJ_FUNCTION_KIND = 10,
	LJ_FUNCTION_IS_LUA = 0,
	LJ_FUNCTION_CODE = 32,
	LJ_PROTO_COUNT = 12,
	LJ_PROTO_SOURCE = 64,
	LJ_PROTO_FIRST_LINE = 72,
	LJ_PROTO_LINES = 76, /* that it spans */
	LJ_PROTO_LINE_TABLE = 80,
	LJ_PROTO_BYTES = 104,

	LJ_STRING_HASH = 12,  /* two numbers that do not change, of which one is its hash */
	LJ_STRING_BYTES = 24, /* where those of a string begin */

	/* GCtrace */
	LJ_TRACE_PROTO = 64,
	LJ_TRACE_PC = 72,
	LJ_TRACE_NUMBER = 104,
	LJ_TRACE_ROOT = 108,
	LJ_TRACE_BYTES = 128,

	/* A VM frame, from its stack pointer on; its CFA is at its end. */
	LJ_VM_RESULTS =
		8, /* expected; negative: of a call that pushed no frame, minus how high the stack was */
	LJ_VM_STATE = 16,
	LJ_VM_PC = 24,
	LJ_VM_BYTES = 80,
	LJ_VM_FLAGS = 3, /* low bits of its address in the state */
	/* A trace has more: two registers, and at most 256 spilled words of 4 bytes. */
	LJ_TRACE_SAVES = 16,
	LJ_TRACE_SPILLS_MAX = 1024,

	/* A frame of Lua: a function one slot below a link, whose low bits are its kind. */
	LJ_LINK_KIND = 7,
	LJ_LINK_IS_PLAIN = 3, /* where these are 0 it is the caller's next instruction */
	LJ_LINK_C = 1,	      /* of those two bits: native code has called */
	LJ_LINK_CONTINUATION = 2,
	LJ_LINK_VARARGS = 3,
	LJ_CALLBACK = 1, /* in the place of a continuation: native code has called by the FFI */
};

/* First line of functions of the interpreter's own libraries that are in Lua. */
#define LJ_IS_BUILTIN UINT32_MAX

/* States of the interpreter, which are negative: of a collection, which has this instead of the number of the trace that began it; and
 * of what records a path, optimizes it, and makes the code. */
#define LJ_COLLECTING		 (~2)
#define LJ_IS_COMPILING(vmstate) (~(vmstate) >= 4 && ~(vmstate) <= 6)

#define LJ_TAG_SHIFT	47
#define LJ_TAG_FUNCTION UINT64_C(0x1fff7) /* above the address of an object in a value */
#define LJ_POINTER_MASK ((UINT64_C(1) << LJ_TAG_SHIFT) - 1)

static inline uint64_t lj_word(uint64_t object, uint64_t offset)
{
	return *(const uint64_t *)(object + offset);
}

static inline uint32_t lj_number(uint64_t object, uint64_t offset)
{
	return *(const uint32_t *)(object + offset);
}

static inline uint8_t lj_byte(uint64_t object, uint64_t offset)
{
	return *(const uint8_t *)(object + offset);
}

static inline uint16_t lj_short(uint64_t object, uint64_t offset)
{
	return *(const uint16_t *)(object + offset);
}

/* Of a function in Lua. */
static inline uint64_t lj_proto(uint64_t function)
{
	return lj_word(function, LJ_FUNCTION_CODE) - LJ_PROTO_BYTES;
}

/* In hl_script_frame.at: which instruction of a function, from 0, or: */
#define HL_LUAJIT_NOWHERE UINT32_C(0x7fffffff)
/* of a trace, with its number. */
#define HL_LUAJIT_IS_TRACE UINT32_C(0x80000000)

/* In the place of a function: a call of native code by native code; the same by which a trace is made; and a trace of which no
 * more is known. */
extern HL_HIDDEN const char hl_luajit_c, hl_luajit_compiler, hl_luajit_trace;
