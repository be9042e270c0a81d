/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of functions that pass a call on. */
#pragma once

#define HL_PUSH(REGISTER) "push %" REGISTER "\n\t.cfi_adjust_cfa_offset 8\n\t"
#define HL_POP(REGISTER)  "pop %" REGISTER "\n\t.cfi_adjust_cfa_offset -8\n\t"

#define HL_LANDING_PAD "endbr64\n\t"
/* Nothing is lost of three arguments, which align the stack. */
#define HL_CALL(FUNCTION) \
	HL_PUSH("rdi")    \
	HL_PUSH("rsi")    \
	HL_PUSH("rdx") "call " FUNCTION "\n\t" HL_POP("rdx") HL_POP("rsi") HL_POP("rdi")
#define HL_JUMP(POINTER) "jmp *" POINTER "(%rip)\n\t"
/* Where the first argument is ${NUMBER}. */
#define HL_JUMP_IF(NUMBER, FUNCTION) "cmp $" NUMBER ", %rdi\n\tje " FUNCTION "\n\t"
