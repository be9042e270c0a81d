/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways from patched functions into their hooks. A stub is entered by a jump, with the stack as
 * its caller's call left it. It makes a frame with a frame pointer (HL_CALLER), finds the slot of
 * the thread, and is counted in it: heapline takes the image out only when no thread has a return
 * address in it. Behind the count are a return and no more.
 */
#include "recorder/image/image.h"
#include "recorder/self.h"

#include <stddef.h>

#define KEY	   "0"
#define INSIDE	   "8"
#define TID	   "12"
#define TID_OFFSET "16"

static_assert(offsetof(struct hl_attached_slot, key) == 0 &&
		      offsetof(struct hl_attached_slot, inside) == 8 &&
		      offsetof(struct hl_attached_slot, tid) == 12 &&
		      offsetof(struct hl_attached_slot, tid_offset) == 16,
	      "the assembler goes by these");

#define TEXT_OF(X) #X
#define TEXT(X)	   TEXT_OF(X)

/* Where no hook has anything to do. All registers of the call are kept. */
#define PASS "jmp *hl_image_real+%c[real](%%rip)\n\t"

#define CLOSED                              \
	"endbr64\n\t"                       \
	"cmpl $0, hl_self_gate(%%rip)\n\t"  \
	"jne 1f\n\t"                        \
	"cmpl $0, hl_image_left(%%rip)\n\t" \
	"jne 5f\n\t"                        \
	"push %%rbp\n\t"                    \
	"call hl_image_call_leave\n\t"      \
	"pop %%rbp\n"                       \
	"5:\n\t" PASS

/* r10: the slot. */
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

#define OPERANDS(HOOK) [real] "i"(8 * (HOOK)), [shift] "i"(64 - HL_SELF_BITS)

#define STUB(NAME, HOOK)                                                                \
	__attribute__((naked, used, aligned(64))) void hl_image_stub_##NAME(void)       \
	{                                                                               \
		__asm__ volatile(CLOSED "1:\n\t"                                        \
					"push %%rbp\n\t"                                \
					"mov %%rsp, %%rbp\n\t" FIND_SLOT "incl " INSIDE \
					"(%%r10)\n\t"                                   \
					"push %%r10\n\t"                                \
					"sub $8, %%rsp\n\t"                             \
					"call hl_image_" #NAME "\n\t"                   \
					"mov -8(%%rbp), %%r10\n\t"                      \
					"decl " INSIDE "(%%r10)\n\t"                    \
					"leave\n\t"                                     \
					"ret\n"                                         \
					"3:\n\t"                                        \
					"call hl_image_call_find\n\t"                   \
					"test %%r10, %%r10\n\t"                         \
					"jnz 2b\n\t"                                    \
					"leave\n\t" PASS ::OPERANDS(HOOK));             \
	}

HL_IMAGE_PLAIN_STUBS(STUB)

/* Destructors of the library run inside, and what they allocate counts: the thread is not nested in
 * the allocator, so another count has it. */
__attribute__((naked, used)) void hl_image_stub_dlclose(void)
{
	__asm__ volatile(CLOSED "1:\n\t"
				"push %%rbp\n\t"
				"mov %%rsp, %%rbp\n\t" FIND_SLOT
				"lock incl hl_attached+%c[without](%%rip)\n\t"
				"call hl_image_dlclose\n\t"
				"lock decl hl_attached+%c[without](%%rip)\n\t"
				"leave\n\t"
				"ret\n"
				"3:\n\t"
				"call hl_image_call_find\n\t"
				"test %%r10, %%r10\n\t"
				"jnz 2b\n\t"
				"leave\n\t" PASS ::OPERANDS(HL_HOOK_DLCLOSE),
			 [without] "i"(offsetof(struct hl_attached, inside_without_slot)));
}

/* The arguments of a hook are in the first three registers. */
#define KEEP_ARGUMENTS                                 \
	"lock incl hl_attached+%c[without](%%rip)\n\t" \
	"push %%rdi\n\t"                               \
	"push %%rsi\n\t"                               \
	"push %%rdx\n\t"
#define GIVE_ARGUMENTS                                 \
	"pop %%rdx\n\t"                                \
	"pop %%rsi\n\t"                                \
	"pop %%rdi\n\t"                                \
	"lock decl hl_attached+%c[without](%%rip)\n\t" \
	"ret"
#define WITHOUT [without] "i"(offsetof(struct hl_attached, inside_without_slot))

/* Called with a frame on the stack: rsp is a multiple of 16 where hl_image_find() is called. */
__attribute__((naked, used, visibility("hidden"))) void hl_image_call_find(void);
__attribute__((naked, used)) void hl_image_call_find(void)
{
	__asm__ volatile(KEEP_ARGUMENTS "call hl_image_find\n\t"
					"mov %%rax, %%r10\n\t" GIVE_ARGUMENTS ::WITHOUT);
}

__attribute__((naked, used, visibility("hidden"))) void hl_image_call_leave(void);
__attribute__((naked, used)) void hl_image_call_leave(void)
{
	__asm__ volatile(KEEP_ARGUMENTS "call hl_image_leave\n\t" GIVE_ARGUMENTS ::WITHOUT);
}
