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

#include "guests/lua/lua.h"
#include "guests/provider.h"
#include "unwind/unwind.h"

#include <stdatomic.h>

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
