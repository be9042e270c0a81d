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
#include "recorder/image/image.h"
#include "recorder/self.h"

#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define KEY	   "0"
#define INSIDE	   "8"
#define TID	   "12"
#define TID_OFFSET "16"
#define SLOT	   "-80"

static_assert(offsetof(struct hl_attached_slot, key) == 0 &&
		      offsetof(struct hl_attached_slot, inside) == 8 &&
		      offsetof(struct hl_attached_slot, tid) == 12 &&
		      offsetof(struct hl_attached_slot, tid_offset) == 16 &&
		      HL_IMAGE_STUB_SLOT == 80,
	      "the assembler goes by these");

#define TEXT_OF(X) #X
#define TEXT(X)	   TEXT_OF(X)

/* Below the frame pointer, in this order; the slot comes last. */
#define PUSH_REGISTERS "push %%rax\n\t" PUSH_BUT_RAX
#define PUSH_BUT_RAX     \
	"push %%rdi\n\t" \
	"push %%rsi\n\t" \
	"push %%rdx\n\t" \
	"push %%rcx\n\t" \
	"push %%r8\n\t"  \
	"push %%r9\n\t"  \
	"push %%r11\n\t" \
	"push %%r10\n\t"

/* All but rax and r10, after which the frame is left. */
#define LOAD_REGISTERS              \
	"mov -16(%%rbp), %%rdi\n\t" \
	"mov -24(%%rbp), %%rsi\n\t" \
	"mov -32(%%rbp), %%rdx\n\t" \
	"mov -40(%%rbp), %%rcx\n\t" \
	"mov -48(%%rbp), %%r8\n\t"  \
	"mov -56(%%rbp), %%r9\n\t"  \
	"mov -64(%%rbp), %%r11\n\t"
#define LOAD_RAX "mov -8(%%rbp), %%rax\n\t"
#define LEAVE                       \
	"mov -72(%%rbp), %%r10\n\t" \
	"leave\n\t"

/* Where no hook has anything to do. */
#define PASS "jmp *hl_image_real+%c[real](%%rip)\n"

/* r10: the slot of the thread. */
#define FIND_SLOT                                                           \
	"mov %%fs:0, %%rax\n\t"                                             \
	"movabs $" TEXT(HL_SELF_MIX) ", %%r10\n\t"                          \
				     "imul %%rax, %%r10\n\t"                \
				     "shr $%c[shift], %%r10\n\t"            \
				     "shl $6, %%r10\n\t"                    \
				     "lea hl_self_slots(%%rip), %%r11\n\t"  \
				     "add %%r11, %%r10\n\t"                 \
				     "cmp %%rax, " KEY "(%%r10)\n\t"        \
				     "jne 3f\n\t"                           \
				     "mov " TID_OFFSET "(%%r10), %%r11\n\t" \
				     "mov " TID "(%%r10,%%r11), %%r11d\n\t" \
				     "cmp %%r11d, " TID "(%%r10)\n\t"       \
				     "jne 3f\n"                             \
				     "2:\n\t"

/* Where nothing is recorded, nor has been. The code of a library that dlclose() unloads must be forgotten all the same,
 * the recorder's memory is in the way of mlockall(), and filters of it. */
#define PASS_IDLE                                                  \
	".if %c[hook] < %c[dlclose] || %c[hook] > %c[syscall]\n\t" \
	"testl $%c[busy], hl_image_header+%c[mode](%%rip)\n\t"     \
	"jz 9f\n\t"                                                \
	".endif\n\t"

/* The way in. Then the frame is there, rsp is a multiple of 16, and the slot in r10. */
#define ENTER                                  \
	"endbr64\n"                            \
	"0:\n\t"                               \
	"cmpl $0, hl_self_gate(%%rip)\n\t"     \
	"je 7f\n\t" PASS_IDLE "push %%rbp\n\t" \
	"mov %%rsp, %%rbp\n\t" PUSH_REGISTERS FIND_SLOT "push %%r10\n\t"

/*
 * What is seldom gone through: the slot is to be looked for (3), there is none (5), the gate is
 * closed (7).
 */
#define RARE                                                                                 \
	"3:\n\t"                                                                             \
	"lock incl hl_attached+%c[without](%%rip)\n\t"                                       \
	"sub $8, %%rsp\n\t"                                                                  \
	"call hl_image_find\n\t"                                                             \
	"add $8, %%rsp\n\t"                                                                  \
	"lock decl hl_attached+%c[without](%%rip)\n\t"                                       \
	"mov %%rax, %%r10\n\t"                                                               \
	"test %%r10, %%r10\n\t"                                                              \
	"jz 5f\n\t" LOAD_ARGUMENTS "jmp 2b\n"                                                \
	"5:\n\t" LOAD_RAX LOAD_REGISTERS LEAVE PASS "7:\n\t"                                 \
	"cmpl $0, hl_image_left(%%rip)\n\t"                                                  \
	"jne 9f\n\t"                                                                         \
	"push %%rbp\n\t"                                                                     \
	"mov %%rsp, %%rbp\n\t" PUSH_REGISTERS "lock incl hl_attached+%c[without](%%rip)\n\t" \
	"sub $8, %%rsp\n\t"                                                                  \
	"call hl_image_at_closed_gate\n\t"                                                   \
	"lock decl hl_attached+%c[without](%%rip)\n\t"                                       \
	"test %%al, %%al\n\t"                                                                \
	"jz 5b\n\t" LOAD_RAX LOAD_REGISTERS LEAVE "jmp 0b\n"                                 \
	"9:\n\t" PASS

#define LOAD_ARGUMENTS              \
	"mov -16(%%rbp), %%rdi\n\t" \
	"mov -24(%%rbp), %%rsi\n\t" \
	"mov -32(%%rbp), %%rdx\n\t" \
	"mov -40(%%rbp), %%rcx\n\t" \
	"mov -48(%%rbp), %%r8\n\t"  \
	"mov -56(%%rbp), %%r9\n\t"

#define MODE_OPERANDS \
	[busy] "i"((int)HL_IMAGE_BUSY), [mode] "i"(offsetof(struct hl_region_header, mode))
#define OPERANDS(HOOK)                                                                            \
	[real] "i"(8 * (HOOK)), [shift] "i"(64 - HL_SELF_BITS),                                   \
		[without] "i"(offsetof(struct hl_attached, inside_without_slot)),                 \
		[hook] "i"(HOOK), [dlclose] "i"(HL_HOOK_DLCLOSE), [syscall] "i"(HL_HOOK_SYSCALL), \
		MODE_OPERANDS

/* The gate is looked at once more: a signal handler may have forked on the way, and its child may have
 * given back all memory, unless the count was there by then. ${RESULT}: LOAD_RAX where there is none. */
#define STUB_WITH(NAME, HOOK, RESULT)                                                      \
	__attribute__((naked, used, aligned(64))) void hl_image_stub_##NAME(void)          \
	{                                                                                  \
		__asm__ volatile(ENTER "incl " INSIDE "(%%r10)\n\t"                        \
				       "cmpl $0, hl_self_gate(%%rip)\n\t"                  \
				       "je 8f\n\t"                                         \
				       "call hl_image_" #NAME "\n\t" RESULT LOAD_REGISTERS \
				       "mov " SLOT "(%%rbp), %%r10\n\t"                    \
				       "decl " INSIDE "(%%r10)\n\t" LEAVE "ret\n"          \
				       "8:\n\t"                                            \
				       "decl " INSIDE "(%%r10)\n\t"                        \
				       "jmp 5f\n" RARE ::OPERANDS(HOOK));                  \
	}

#define STUB(NAME, HOOK)      STUB_WITH(NAME, HOOK, "")
#define STUB_VOID(NAME, HOOK) STUB_WITH(NAME, HOOK, LOAD_RAX)

HL_IMAGE_WITH_RESULT(STUB)
HL_IMAGE_FREERS(STUB_VOID)

/* ---- functions that keep to the calling convention ---- */

#define PUSH_FRAME             \
	"push %%rbp\n\t"       \
	"mov %%rsp, %%rbp\n\t" \
	"sub $72, %%rsp\n\t"
#define STORE_ARGUMENTS             \
	"mov %%rdi, -16(%%rbp)\n\t" \
	"mov %%rsi, -24(%%rbp)\n\t" \
	"mov %%rdx, -32(%%rbp)\n\t" \
	"mov %%rcx, -40(%%rbp)\n\t" \
	"mov %%r8, -48(%%rbp)\n\t"  \
	"mov %%r9, -56(%%rbp)\n\t"

/* Around a call of hl_image_find() or hl_image_at_closed_gate(), with the frame and nothing below it. */
#define BEFORE_RARE                                    \
	STORE_ARGUMENTS                                \
	"lock incl hl_attached+%c[without](%%rip)\n\t" \
	"sub $8, %%rsp\n\t"
#define AFTER_RARE          \
	"add $8, %%rsp\n\t" \
	"lock decl hl_attached+%c[without](%%rip)\n\t" LOAD_ARGUMENTS

#define ENTER_LIGHT                        \
	"endbr64\n"                        \
	"0:\n\t"                           \
	"cmpl $0, hl_self_gate(%%rip)\n\t" \
	"je 7f\n\t" PASS_IDLE PUSH_FRAME FIND_SLOT "push %%r10\n\t"

#define RARE_LIGHT                                                                        \
	"3:\n\t" BEFORE_RARE "call hl_image_find\n\t" AFTER_RARE "mov %%rax, %%r10\n\t"   \
	"test %%r10, %%r10\n\t"                                                           \
	"jnz 2b\n\t"                                                                      \
	"leave\n\t" PASS "7:\n\t"                                                         \
	"cmpl $0, hl_image_left(%%rip)\n\t"                                               \
	"jne 9f\n\t" PUSH_FRAME BEFORE_RARE "call hl_image_at_closed_gate\n\t" AFTER_RARE \
	"leave\n\t"                                                                       \
	"test %%al, %%al\n\t"                                                             \
	"jnz 0b\n"                                                                        \
	"9:\n\t" PASS

/* As above, but keeps no registers: their callers expect none to be kept. The frame has the same form. */
#define STUB_LIGHT(NAME, HOOK)                                                              \
	__attribute__((naked, used, aligned(64))) void hl_image_light_stub_##NAME(void)     \
	{                                                                                   \
		__asm__ volatile(ENTER_LIGHT "incl " INSIDE "(%%r10)\n\t"                   \
					     "cmpl $0, hl_self_gate(%%rip)\n\t"             \
					     "je 8f\n\t"                                    \
					     "call hl_image_" #NAME "\n\t"                  \
					     "mov " SLOT "(%%rbp), %%r10\n\t"               \
					     "decl " INSIDE "(%%r10)\n\t"                   \
					     "leave\n\t"                                    \
					     "ret\n"                                        \
					     "8:\n\t"                                       \
					     "decl " INSIDE "(%%r10)\n\t"                   \
					     "leave\n\t" PASS RARE_LIGHT ::OPERANDS(HOOK)); \
	}

HL_IMAGE_STUBS(STUB_LIGHT)
HL_IMAGE_OBJECT_STUBS(STUB_LIGHT)

/* ---- filters ---- */

STUB_LIGHT(prctl, HL_HOOK_PRCTL)
STUB_LIGHT(syscall, HL_HOOK_SYSCALL)

#define JUMP_IF(REGISTER, NUMBER, NAME)              \
	"cmp $" TEXT(NUMBER) ", %%" #REGISTER "\n\t" \
			     "je hl_image_light_stub_" #NAME "\n\t"

__attribute__((naked, used, aligned(64))) void hl_image_stub_some_prctl(void)
{
	__asm__ volatile("endbr64\n\t" JUMP_IF(edi, PR_SET_SECCOMP, prctl) JUMP_IF(
		edi, PR_SET_TSC, prctl) PASS ::[real] "i"(8 * HL_HOOK_PRCTL));
}

__attribute__((naked, used, aligned(64))) void hl_image_stub_some_syscall(void)
{
	__asm__ volatile("endbr64\n\t" JUMP_IF(rdi, __NR_seccomp, syscall) JUMP_IF(
		rdi, __NR_prctl, syscall) PASS ::[real] "i"(8 * HL_HOOK_SYSCALL));
}

/* ---- libraries ---- */

/*
 * The stub of HL_HOOK_LIBRARIES works without a thread pointer: it is counted with the threads that have no
 * slot. A program that is entered at its first instruction comes here before it has one.
 */
__attribute__((naked, used, aligned(64))) void hl_image_stub_libraries(void)
{
	__asm__ volatile(
		"endbr64\n\t"
		"cmpl $0, hl_self_gate+%c[started](%%rip)\n\t"
		"je 1f\n\t"
		"push %%rbp\n\t"
		"mov %%rsp, %%rbp\n\t" PUSH_REGISTERS "sub $8, %%rsp\n\t"
		"lock incl hl_attached+%c[without](%%rip)\n\t"
		"call hl_image_libraries\n\t"
		"lock decl hl_attached+%c[without](%%rip)\n\t" LOAD_RAX LOAD_REGISTERS LEAVE
		"1:\n\t"
		"jmp *hl_image_real+%c[real](%%rip)\n\t" ::[real] "i"(8 * HL_HOOK_LIBRARIES),
		[started] "i"(offsetof(union hl_self_gate, started)),
		[without] "i"(offsetof(struct hl_attached, inside_without_slot)));
}

/* ---- rules ---- */

/* Where the rule's function goes on as if nobody had come between. The address of its trampoline takes
 * the place of rax, which is below the stack pointer by then, where no signal handler writes. */
#define GO_ON                                  \
	"mov -80(%%rbp), %%r10d\n\t"           \
	"shl $4, %%r10\n\t"                    \
	"lea hl_image_rules(%%rip), %%r11\n\t" \
	"mov (%%r11,%%r10), %%r10\n\t"         \
	"mov -8(%%rbp), %%rax\n\t"             \
	"mov %%r10, -8(%%rbp)\n\t" LOAD_REGISTERS LEAVE "jmp *-16(%%rsp)\n"

/* The frame is there, with rax in it, and the rule's number in eax. Below what others keep: the number
 * (-80), the slot (-88), the result (-96). */
__attribute__((naked, used, visibility("hidden"))) void hl_image_stub_rule(void);
__attribute__((naked, used, aligned(64))) void hl_image_stub_rule(void)
{
	__asm__ volatile(PUSH_BUT_RAX "push %%rax\n"
				      "0:\n\t"
				      "cmpl $0, hl_self_gate(%%rip)\n\t"
				      "je 7f\n\t" FIND_SLOT "push %%r10\n\t"
				      "push %%rax\n\t"
				      "incl " INSIDE "(%%r10)\n\t"
				      "cmpl $0, hl_self_gate(%%rip)\n\t"
				      "je 8f\n\t"
				      "lea -16(%%rbp), %%rdi\n\t"
				      "mov -80(%%rbp), %%esi\n\t"
				      "lea -96(%%rbp), %%rdx\n\t"
				      "mov %%r10, %%rcx\n\t"
				      "call hl_image_rule\n\t"
				      "mov -88(%%rbp), %%r10\n\t"
				      "test %%al, %%al\n\t"
				      "jnz 8f\n\t"
				      "mov -96(%%rbp), %%rax\n\t" LOAD_REGISTERS "decl " INSIDE
				      "(%%r10)\n\t" LEAVE "ret\n"
				      "8:\n\t"
				      "decl " INSIDE "(%%r10)\n"
				      "5:\n\t" GO_ON "3:\n\t"
				      "lock incl hl_attached+%c[without](%%rip)\n\t"
				      "call hl_image_find\n\t"
				      "lock decl hl_attached+%c[without](%%rip)\n\t"
				      "mov %%rax, %%r10\n\t"
				      "test %%r10, %%r10\n\t"
				      "jnz 2b\n\t"
				      "jmp 5b\n"
				      "7:\n\t"
				      "cmpl $0, hl_image_left(%%rip)\n\t"
				      "jne 5b\n\t"
				      "lock incl hl_attached+%c[without](%%rip)\n\t"
				      "call hl_image_at_closed_gate\n\t"
				      "lock decl hl_attached+%c[without](%%rip)\n\t"
				      "test %%al, %%al\n\t"
				      "jnz 0b\n\t"
				      "jmp 5b\n" ::OPERANDS(HL_HOOK_COUNT));
}

/* What functions tell is heard in any mode. */
__attribute__((naked, used, aligned(64))) void hl_image_rule_stubs(void)
{
	__asm__ volatile(".set rule, 0\n\t"
			 ".rept %c[count]\n\t"
			 ".balign %c[bytes]\n\t"
			 "endbr64\n\t"
			 "cmpl $0, hl_self_gate(%%rip)\n\t"
			 "je 1f\n\t"
			 "testl $%c[busy], hl_image_header+%c[mode](%%rip)\n\t"
			 "jz 2f\n"
			 "1:\n\t"
			 "push %%rbp\n\t"
			 "mov %%rsp, %%rbp\n\t"
			 "push %%rax\n\t"
			 "mov $rule, %%eax\n\t"
			 "jmp hl_image_stub_rule\n"
			 "2:\n\t"
			 "cmpb $%c[frees], hl_image_rules+%c[rule]*rule+%c[does](%%rip)\n\t"
			 "ja 1b\n\t"
			 "jmp *hl_image_rules+%c[rule]*rule(%%rip)\n\t"
			 ".set rule, rule + 1\n\t"
			 ".endr" ::[count] "i"(HL_ATTACHED_RULES_MAX),
			 [bytes] "i"(HL_ATTACHED_RULE_STUB_BYTES), [frees] "i"(HL_RULE_FREES),
			 [rule] "i"(sizeof(struct hl_attached_rule)),
			 [does] "i"(offsetof(struct hl_attached_rule, does)), MODE_OPERANDS);
}

/* ---- calls of the target's functions, which use vector registers as they like ---- */

/* rdi: the function; rsi, rdx: its arguments. 512 bytes are for fxsave. */
__attribute__((naked, used)) int64_t hl_image_call(uint64_t function __attribute__((unused)),
						   uint64_t a __attribute__((unused)),
						   uint64_t b __attribute__((unused)))
{
	__asm__ volatile("push %%rbp\n\t"
			 "mov %%rsp, %%rbp\n\t"
			 "sub $512, %%rsp\n\t"
			 "fxsave64 (%%rsp)\n\t"
			 "mov %%rdi, %%rax\n\t"
			 "mov %%rsi, %%rdi\n\t"
			 "mov %%rdx, %%rsi\n\t"
			 "call *%%rax\n\t"
			 "fxrstor64 (%%rsp)\n\t"
			 "leave\n\t"
			 "ret" ::);
}
