/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures stacks for tests. Where libgcc's unwinder can walk too, each captured stack must be what
 * _Unwind_Backtrace says: the same frames with the same program counters and stack pointers.
 */
#pragma once

#include "../e2e/machine.h"
#include "unwind/recall.h"
#include "unwind/rule.h"
#include "unwind/unwind.h"
#include "walk_parts.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Bytes of a captured frame that libgcc knows as well. */
struct reference_frame {
	uint64_t lookup_pc, sp;
};

struct reference {
	struct reference_frame frames[4096];
	unsigned count;
	uint64_t start_pc; /* frames inward of this return address are left out */
};

extern struct hl_unwind unwinder;
extern struct hl_walk walk;
extern struct reference reference;
extern uint32_t module_id;
extern struct hl_cfi_section debug_frame; /* of this program; empty when not wanted */
extern volatile unsigned sink;

/* How many of the captures that are compared were recalled, too. */
extern unsigned recalls;
extern bool has_room; /* for parts of recalled stacks */

/* What the last capture returned, and how often captures differed from libgcc's stack. */
extern uint32_t kept;
extern unsigned captures, differences;

/* Whether the dynamic loader may be where a walk ends, and how often it was. */
extern bool may_stop_in_loader;
extern unsigned stops_in_loader;

#define REGISTERS_OF_CALLER()                                                              \
	({                                                                                 \
		const uint64_t frame_ = (uint64_t)__builtin_frame_address(0),              \
			       sp_ = HL_HOOK_SP(frame_), bp_ = HL_HOOK_BP(frame_);         \
		(struct hl_registers){HL_HOOK_PC(sp_, bp_), sp_, HL_HOOK_OUTER(sp_, bp_)}; \
	})

/* For cmocka, before each test. */
int begin(void **state);

/* Captures the caller's stack, no more. */
void capture_only(void);

/* Captures the caller's stack and compares it with libgcc's. */
void capture(void);

void assert_all_equal(unsigned captures_min);

/* Does what a caller of the walk must: gives the new frames nodes. Whether the kept ones have
 * theirs. */
bool intern_nodes(struct hl_walk *of, uint32_t unchanged);

bool is_in_loader(uint64_t pc);
unsigned recurse(unsigned depth, void (*at_leaf)(void));
void install(int signal, void (*handler)(int), int flags);

static inline uint64_t frame_pc(const struct hl_walk_frame *frame)
{
	return frame->key & HL_FRAME_PC_MASK;
}

typedef void generated_fn(void (*callback)(void), uint64_t rbp);

/* push rbp; mov rbp,rsp; call rdi; pop rbp; ret */
extern const char code_with_frame_pointer[sizeof(CODE_WITH_FRAME_POINTER)];

/* ${code} in a page of its own, to be unmapped. */
generated_fn *generate(const char *code, size_t size);

#define WALK_TEST(test) cmocka_unit_test_setup(test, begin)
