/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What stubs.S needs of aarch64. x16 and x17 are free between modules. A
 * stub's frame ends with its frame record, below the stack pointer of the caller (HL_CALLER). Below x29 lie x0 to x7 (-16 and
 * on), the slot (-80), or of a rule its number (-80), the slot (-88) and the result (-96), and x8 to x15 (-112 and on), which
 * stubs keep for callers that were compiled with the function.
 */

#define ARGUMENT_INT  w0
#define ARGUMENT_LONG x0

.macro begin name
	place \name
	hint #34
.endm

.macro address r, symbol
	adrp x\r, \symbol; add x\r, x\r, :lo12:\symbol
.endm
.macro load r, symbol
	adrp x\r, \symbol; ldr w\r, [x\r, :lo12:\symbol]
.endm

/* Where no hook has anything to do. */
.macro pass real
	adrp x16, hl_image_real+8*\real; ldr x16, [x16, :lo12:hl_image_real+8*\real]; br x16
.endm

/* Where nothing is recorded, nor has been. */
.macro if_idle target
	load 16, hl_image_header+HL_MODE_OFFSET
	mov w17, #HL_BUSY & 0xffff; movk w17, #HL_BUSY >> 16, lsl #16; tst w16, w17; b.eq \target
.endm

.macro frame
	stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, #176
.endm
.macro leave
	mov sp, x29; ldp x29, x30, [sp], #16
.endm
.macro framed /* call frame information, for where a hook is called */
	.cfi_startproc; .cfi_def_cfa x29, 16; .cfi_offset x29, -16; .cfi_offset x30, -8
.endm
.macro arguments do
	\do x1, x0, [x29, #-24]; \do x3, x2, [x29, #-40]; \do x5, x4, [x29, #-56]; \do x7, x6, [x29, #-72]
.endm
.macro others do
	\do x9, x8, [x29, #-120]; \do x11, x10, [x29, #-136]; \do x13, x12, [x29, #-152]; \do x15, x14, [x29, #-168]
.endm
.macro all do
	arguments \do
	others \do
.endm

/* x16: the slot of the thread, if it is at its place. */
.macro find rare
	mrs x9, tpidr_el0
	mov x10, #HL_SELF_MIX & 0xffff; movk x10, #HL_SELF_MIX >> 16 & 0xffff, lsl #16
	movk x10, #HL_SELF_MIX >> 32 & 0xffff, lsl #32; movk x10, #HL_SELF_MIX >> 48 & 0xffff, lsl #48
	mul x10, x10, x9; lsr x10, x10, #64-HL_SELF_BITS
	address 16, hl_self_slots
	add x16, x16, x10, lsl #6; ldr x10, [x16]; cmp x10, x9; b.ne \rare
	ldr x10, [x16, #16]; add x11, x16, #12; ldr w10, [x11, x10]; ldr w11, [x11]; cmp w10, w11; b.ne \rare
.endm

/* In the slot at x16, where its thread alone counts; and of threads without one, in the order of all else. */
.macro count change
	ldr w17, [x16, #8]; add w17, w17, #\change; str w17, [x16, #8]
.endm
.macro count_without change
	address 17, hl_attached+HL_WITHOUT_OFFSET
4:	ldaxr w9, [x17]; add w9, w9, #\change; stlxr w10, w9, [x17]; cbnz w10, 4b
	dmb ish
.endm

/* For threads that have no slot, in the frame of a stub, whose arguments are kept. x16: the result of the function. */
.macro rare name, function
\name:	arguments stp; str x30, [sp, #-16]!; count_without 1
	bl \function
	mov x12, x0; count_without -1; mov x16, x12; arguments ldp; ldr x30, [sp], #16; ret
.endm
	rare look, hl_image_find
	rare ask, hl_image_at_closed_gate
	rare note, hl_image_libraries

.macro stub name, real, hook, has_result, keeps=1
	begin \name; framed
0:	load 16, hl_self_gate; cbz w16, 7f
	.if \real < HL_FIRST_HEARD || \real > HL_LAST_HEARD
	if_idle 9f
	.endif
	frame
	.if \keeps
	all stp
	.endif
	find 3f
2:	str x16, [x29, #-80]; count 1; load 17, hl_self_gate; cbz w17, 8f
	bl \hook
	ldr x16, [x29, #-80]; count -1
	.if \keeps && \has_result
	str x0, [x29, #-16]
	.endif
	.if \keeps
	all ldp
	.endif
	leave; ret
8:	count -1
5:	.if \keeps
	others ldp
	.endif
	leave
9:	pass \real
3:	bl look; cbnz x16, 2b; b 5b
7:	load 16, hl_image_left; cbnz w16, 9b; frame; others stp; bl ask; others ldp; leave
	tst w16, #0xff; b.ne 0b; b 9b; .cfi_endproc
.endm

.macro light real, name
	stub hl_image_light_stub_\name, \real, hl_image_\name, 1, 0
.endm
.macro jump_if register, number, name
	cmp \register, #\number; b.eq hl_image_light_stub_\name
.endm
begin hl_image_stub_libraries
	load 16, hl_self_gate+HL_STARTED_OFFSET; cbz w16, 1f; frame; others stp; bl note; others ldp; leave
1:	pass HL_NUMBER_LIBRARIES

/* What functions tell is heard in any mode. w16: the number of the rule. */
place hl_image_stub_rule; framed
	load 17, hl_self_gate; cbz w17, 1f; str x16, [sp, #-16]!; if_idle 6f; ldr x16, [sp], #16
1:	frame; all stp; str x16, [x29, #-80]
0:	load 16, hl_self_gate; cbz w16, 7f; find 3f
2:	str x16, [x29, #-88]; count 1; load 17, hl_self_gate; cbz w17, 8f
	sub x0, x29, #16; ldr w1, [x29, #-80]; sub x2, x29, #96; mov x3, x16
	bl hl_image_rule
	ldr x16, [x29, #-88]; tst w0, #0xff; b.ne 8f
	count -1; ldr x17, [x29, #-96]; str x17, [x29, #-16]; all ldp; leave; ret
8:	count -1
5:	all ldp; ldr x16, [x29, #-80]; leave
4:	address 17, hl_image_rules; add x17, x17, x16, lsl #4; ldr x16, [x17]; br x16 /* as if nobody had come between */
3:	bl look; cbnz x16, 2b; b 5b
7:	load 16, hl_image_left; cbnz w16, 5b; bl ask; tst w16, #0xff; b.ne 0b; b 5b
6:	ldr x16, [sp], #16; address 17, hl_image_rules; add x17, x17, x16, lsl #4
	ldrb w17, [x17, #HL_DOES_OFFSET]; cmp w17, #HL_FREES; b.hi 1b; b 4b; .cfi_endproc

place hl_image_rule_stubs
	.set number, 0
	.rept HL_RULES
	.balign HL_RULE_BYTES; hint #34; mov w16, #number; b hl_image_stub_rule
	.set number, number + 1
	.endr

/* x0: the function, which uses vector registers as it likes; x1, x2: its arguments. */
.macro vectors do
	mov x16, sp
	\do {v0.16b-v3.16b}, [x16], #64; \do {v4.16b-v7.16b}, [x16], #64; \do {v16.16b-v19.16b}, [x16], #64
	\do {v20.16b-v23.16b}, [x16], #64; \do {v24.16b-v27.16b}, [x16], #64; \do {v28.16b-v31.16b}, [x16]
.endm
place hl_image_call
	stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, #384; vectors st1
	mov x16, x0; mov x0, x1; mov x1, x2; blr x16
	vectors ld1; leave; ret
