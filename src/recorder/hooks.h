/* SPDX-License-Identifier: BSD-2-Clause */
/* The entry points that the recorder takes the place of. */
#pragma once

#include <stdbool.h>

/*
 * False when the program brings a malloc of its own that calls reach before ours: nothing will be
 * seen. To be called while nothing is recorded yet.
 */
bool hl_hooks_reach_program(void);

/* Says whether the program's own mappings are to be recorded. Until then, they are not. */
void hl_hooks_mapping_record(bool wanted);

/*
 * The hook of ${NAME}. In the image that is brought into a running process it is a function of its
 * own, which is reached by a stub (image/stubs.c): the patched function has its name.
 */
#ifdef HL_ATTACHED
#define HL_HOOK(NAME) hl_image_##NAME
#else
#define HL_HOOK(NAME) NAME
#endif

/*
 * The hook's caller, as hl_walk_capture() wants it. For functions compiled with a frame pointer:
 * [rbp] is the caller's rbp, [rbp + 8] the return address, and rbp + 16 the caller's stack pointer
 * after the return.
 */
#define HL_CALLER HL_CALLER_AT(HL_CALLER_SP, HL_CALLER_BP)

/* The same in two parts, for a hook that hands its call on with them. Between a hook of the image
 * and its caller is the frame of the stub, which has the same form. */
#ifdef HL_ATTACHED
#define HL_CALLER_FRAME (*(uint64_t *)__builtin_frame_address(0))
#else
#define HL_CALLER_FRAME ((uint64_t)__builtin_frame_address(0))
#endif
#define HL_CALLER_SP (HL_CALLER_FRAME + 16)
#define HL_CALLER_BP (*(uint64_t *)HL_CALLER_FRAME)
#define HL_CALLER_AT(SP, BP)                        \
	(&(struct hl_registers){                    \
		.pc = ((const uint64_t *)(SP))[-1], \
		.sp = (SP),                         \
		.bp = (BP),                         \
	})

/* hl_thread_self() in a hook: the stub of the image has found the thread's slot, and has it in its
 * frame. */
#ifdef HL_ATTACHED
#define HL_CALLER_THREAD                                                                           \
	((struct hl_thread *)(*(struct hl_attached_slot **)(HL_CALLER_FRAME - HL_IMAGE_STUB_SLOT)) \
		 ->thread)
#else
#define HL_CALLER_THREAD hl_thread_self()
#endif
