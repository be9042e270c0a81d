/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a thread of x86-64 keeps what: glibc's struct pthread lies at the thread pointer, and static thread-local storage before
 * it. The struct has its own address in its first and its third word.
 */
#pragma once

#include "heap/memory.h"

#define HL_PTHREAD_LIST	     704u /* the links of glibc's list of stacks */
#define HL_PTHREAD_TID	     720u /* the thread's number */
#define HL_PTHREAD_ALIGNMENT 64u
#define HL_PTHREAD_ABOVE_MAX 8192u /* from there to the end of the thread's stack */

/* From the thread pointer on. */
#define HL_THREAD_STRUCT_END \
	2560u /* struct pthread has 2,368 in glibc 2.36; a mapping of the program's may come next */
#define HL_THREAD_TLS_IS_ABOVE false /* static thread-local storage; else below */
#define HL_THREAD_OWN_BYTES    4096u /* all that is the thread's, at most */

/* Whether ${words} at ${address} can be struct pthread. */
static inline bool hl_pthread_is_at(const uint64_t *words, uint64_t address)
{
	return words[0] == address && words[2] == address;
}

/* The control block, of glibc or musl, that would have ${word} at ${address} to be known by; 0: none. */
static inline uint64_t hl_pthread_by_mark(uint64_t address, uint64_t word)
{
	return word == address ? address : 0;
}

/* How far struct pthread begins before the thread pointer ${pointer}; UINT64_MAX: it is not found. */
static inline uint64_t hl_pthread_before(struct hl_memory *memory, uint64_t pointer)
{
	(void)memory, (void)pointer;
	return 0;
}

/* A note of a core file that follows a thread's registers. */
#define hl_thread_registers_add_note(registers, type, note, bytes) ((void)(note))
