/* SPDX-License-Identifier: BSD-2-Clause */
/* Where LuaJIT's structures have what a walk reads: in bytes, of GC64. Nothing is believed before a probe has proved it, but for
 * traces, which are only found by what they say of themselves. */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stdint.h>

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
