/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of functions that pass a call on. */
#pragma once

/* bti c, so that a library whose pages are guarded can be called through a pointer. */
#define HL_LANDING_PAD "hint #34\n\t"
/* Nothing is lost of three arguments. */
#define HL_CALL(FUNCTION)               \
	"stp x29, x30, [sp, #-48]!\n\t" \
	".cfi_def_cfa_offset 48\n\t"    \
	".cfi_offset x29, -48\n\t"      \
	".cfi_offset x30, -40\n\t"      \
	"mov x29, sp\n\t"               \
	"stp x0, x1, [sp, #16]\n\t"     \
	"str x2, [sp, #32]\n\t"         \
	"bl " FUNCTION "\n\t"           \
	"ldp x0, x1, [sp, #16]\n\t"     \
	"ldr x2, [sp, #32]\n\t"         \
	"ldp x29, x30, [sp], #48\n\t"   \
	".cfi_restore x29\n\t"          \
	".cfi_restore x30\n\t"          \
	".cfi_def_cfa_offset 0\n\t"
#define HL_JUMP(POINTER)                        \
	"adrp x16, " POINTER "\n\t"             \
	"ldr x16, [x16, :lo12:" POINTER "]\n\t" \
	"br x16\n\t"
/* Where the first argument is ${NUMBER}. */
#define HL_JUMP_IF(NUMBER, FUNCTION) "cmp x0, #" NUMBER "\n\tb.eq " FUNCTION "\n\t"
