/* SPDX-License-Identifier: BSD-2-Clause */
/* What stubs.S needs of x86-64. */

#define ARGUMENT_INT  %edi
#define ARGUMENT_LONG %rdi

.macro begin name
	place \name; endbr64
.endm

/* Below the frame pointer, in this order; the slot comes last. */
.macro push_but_rax
	push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %r11; push %r10
.endm
.macro arguments
	mov -16(%rbp), %rdi; mov -24(%rbp), %rsi; mov -32(%rbp), %rdx
	mov -40(%rbp), %rcx; mov -48(%rbp), %r8; mov -56(%rbp), %r9
.endm

/* All but rax and r10, after which the frame is left. */
.macro registers
	arguments; mov -64(%rbp), %r11
.endm
.macro leave_frame
	mov -72(%rbp), %r10; leave
.endm

.macro frame light
	push %rbp; mov %rsp, %rbp
	.if \light
	sub $72, %rsp
	.else
	push %rax; push_but_rax
	.endif
.endm

/* Where no hook has anything to do. */
.macro pass real
	jmp *hl_image_real+8*\real(%rip)
.endm

/* r10: the slot of the thread, if it is at its place. */
.macro find rare
	mov %fs:0, %rax; movabs $HL_SELF_MIX, %r10; imul %rax, %r10; shr $64-HL_SELF_BITS, %r10; shl $6, %r10
	lea hl_self_slots(%rip), %r11; add %r11, %r10; cmp %rax, (%r10); jne \rare
	mov 16(%r10), %r11; mov 12(%r10,%r11), %r11d; cmp %r11d, 12(%r10); jne \rare
.endm

/* A function for threads that have no slot, with the frame there. */
.macro rarely function
	lock incl hl_attached+HL_WITHOUT_OFFSET(%rip); sub $8, %rsp
	call \function
.endm
.macro rarely_light function
	mov %rdi, -16(%rbp); mov %rsi, -24(%rbp); mov %rdx, -32(%rbp)
	mov %rcx, -40(%rbp); mov %r8, -48(%rbp); mov %r9, -56(%rbp)
	rarely \function
	add $8, %rsp; lock decl hl_attached+HL_WITHOUT_OFFSET(%rip); arguments
.endm

/*
 * The way in. Where nothing is recorded, nor has been, it goes on at once; but the code of a library that dlclose()
 * unloads must be forgotten all the same, the recorder's memory is in the way of mlockall(), and filters of it.
 * The gate is looked at once more: a signal handler may have forked on the way, and its child may have
 * given back all memory, unless the count was there by then.
 */
.macro way_in name, real, hook, light
	begin \name
0:	cmpl $0, hl_self_gate(%rip); je 7f
	.if \real < HL_FIRST_HEARD || \real > HL_LAST_HEARD
	testl $HL_BUSY, hl_image_header+HL_MODE_OFFSET(%rip); jz 9f
	.endif
	frame \light
	find 3f
2:	push %r10; incl 8(%r10); cmpl $0, hl_self_gate(%rip); je 8f
	call \hook
.endm

/*
 * What is seldom gone through: the slot is to be looked for (3), there is none (5), the gate is
 * closed (7).
 */
.macro stub name, real, hook, has_result
	way_in \name, \real, \hook, 0
	.if !\has_result
	mov -8(%rbp), %rax
	.endif
	registers; mov -80(%rbp), %r10; decl 8(%r10); leave_frame; ret
8:	decl 8(%r10); jmp 5f
3:	rarely hl_image_find
	add $8, %rsp; lock decl hl_attached+HL_WITHOUT_OFFSET(%rip)
	mov %rax, %r10; test %r10, %r10; jz 5f; arguments; jmp 2b
5:	mov -8(%rbp), %rax; registers; leave_frame; pass \real
7:	cmpl $0, hl_image_left(%rip); jne 9f
	frame 0; rarely hl_image_at_closed_gate; lock decl hl_attached+HL_WITHOUT_OFFSET(%rip)
	test %al, %al; jz 5b; mov -8(%rbp), %rax; registers; leave_frame; jmp 0b
9:	pass \real
.endm

/* As above, but keeps no registers: their callers expect none to be kept. The frame has the same form. */
.macro light real, name
	way_in hl_image_light_stub_\name, \real, hl_image_\name, 1
	mov -80(%rbp), %r10; decl 8(%r10); leave; ret
8:	decl 8(%r10); leave; pass \real
3:	rarely_light hl_image_find; mov %rax, %r10; test %r10, %r10; jnz 2b; leave; pass \real
7:	cmpl $0, hl_image_left(%rip); jne 9f
	frame 1; rarely_light hl_image_at_closed_gate; leave; test %al, %al; jnz 0b
9:	pass \real
.endm

.macro jump_if register, number, name
	cmp $\number, \register; je hl_image_light_stub_\name
.endm
/*
 * The stub of HL_HOOK_LIBRARIES works without a thread pointer: it is counted with the threads that have no
 * slot. A program that is entered at its first instruction comes here before it has one.
 */
begin hl_image_stub_libraries
	cmpl $0, hl_self_gate+HL_STARTED_OFFSET(%rip); je 1f
	frame 0; sub $8, %rsp; lock incl hl_attached+HL_WITHOUT_OFFSET(%rip)
	call hl_image_libraries
	lock decl hl_attached+HL_WITHOUT_OFFSET(%rip); mov -8(%rbp), %rax; registers; leave_frame
1:	pass HL_NUMBER_LIBRARIES

/* ---- rules ---- */

/* The frame is there, with rax in it, and the rule's number in eax. Below what others keep: the number
 * (-80), the slot (-88), the result (-96). */
place hl_image_stub_rule
	push_but_rax; push %rax
0:	cmpl $0, hl_self_gate(%rip); je 7f
	find 3f
2:	push %r10; push %rax; incl 8(%r10); cmpl $0, hl_self_gate(%rip); je 8f
	lea -16(%rbp), %rdi; mov -80(%rbp), %esi; lea -96(%rbp), %rdx; mov %r10, %rcx
	call hl_image_rule
	mov -88(%rbp), %r10; test %al, %al; jnz 8f
	mov -96(%rbp), %rax; registers; decl 8(%r10); leave_frame; ret
8:	decl 8(%r10)
	/* The rule's function goes on as if nobody had come between. The address of its trampoline takes
	 * the place of rax, which is below the stack pointer by then, where no signal handler writes. */
5:	mov -80(%rbp), %r10d; shl $4, %r10; lea hl_image_rules(%rip), %r11; mov (%r11,%r10), %r10
	mov -8(%rbp), %rax; mov %r10, -8(%rbp); registers; leave_frame; jmp *-16(%rsp)
3:	lock incl hl_attached+HL_WITHOUT_OFFSET(%rip)
	call hl_image_find
	lock decl hl_attached+HL_WITHOUT_OFFSET(%rip); mov %rax, %r10; test %r10, %r10; jnz 2b; jmp 5b
7:	cmpl $0, hl_image_left(%rip); jne 5b
	lock incl hl_attached+HL_WITHOUT_OFFSET(%rip)
	call hl_image_at_closed_gate
	lock decl hl_attached+HL_WITHOUT_OFFSET(%rip); test %al, %al; jnz 0b; jmp 5b

/* What functions tell is heard in any mode. */
place hl_image_rule_stubs
	.set rule, 0
	.rept HL_RULES
	.balign HL_RULE_BYTES
	endbr64; cmpl $0, hl_self_gate(%rip); je 1f; testl $HL_BUSY, hl_image_header+HL_MODE_OFFSET(%rip); jz 2f
1:	push %rbp; mov %rsp, %rbp; push %rax; mov $rule, %eax; jmp hl_image_stub_rule
2:	cmpb $HL_FREES, hl_image_rules+16*rule+HL_DOES_OFFSET(%rip); ja 1b; jmp *hl_image_rules+16*rule(%rip)
	.set rule, rule + 1
	.endr

/* ---- calls of the target's functions, which use vector registers as they like ---- */

/* rdi: the function; rsi, rdx: its arguments. 512 bytes are for fxsave. */
place hl_image_call
	push %rbp; mov %rsp, %rbp; sub $512, %rsp; fxsave64 (%rsp)
	mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; call *%rax
	fxrstor64 (%rsp); leave; ret
