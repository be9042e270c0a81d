/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways from patched functions into their hooks. A stub is entered by a jump, with the stack as
 * its caller's call left it. It makes a frame with a frame pointer (HL_CALLER), finds the slot of
 * the thread, and is counted in it: heapline takes the image out only when no thread has a return
 * address in it. Behind the count it only returns.
 *
 * All general registers but the result come back as they were: a caller that was compiled with the
 * function may know which of them it leaves alone (-fipa-ra). Functions of which that is known not to be so
 * have light stubs. For the same reason the image uses no vector registers but in sample.c.
 */
#include "recorder/stub_numbers.h"

#include <asm/unistd.h>

	.text

.macro place name
	.balign 64; .globl \name; .hidden \name; .type \name, %function
\name:
.endm

/* The machine's: begin, stub, light, pass, jump_if; and the stubs that are not of a kind. */
#include "recorder/image/stub_code.S"

.macro stubs real, name, has_result
	stub hl_image_stub_\name, \real, hl_image_\name, \has_result
	light \real, \name
.endm
HL_EACH_STUB
HL_EACH_LIGHT_STUB

/* ---- filters ---- */

begin hl_image_stub_some_prctl
	jump_if ARGUMENT_INT, HL_SET_SECCOMP, prctl; jump_if ARGUMENT_INT, HL_SET_TSC, prctl; pass HL_NUMBER_PRCTL
begin hl_image_stub_some_syscall
	jump_if ARGUMENT_LONG, __NR_seccomp, syscall; jump_if ARGUMENT_LONG, __NR_prctl, syscall; pass HL_NUMBER_SYSCALL

	.section .note.GNU-stack, "", %progbits
