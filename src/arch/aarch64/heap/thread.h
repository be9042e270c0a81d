/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a thread of aarch64 keeps what: the dtv's address lies at the thread pointer, static thread-local storage above it, and
 * glibc's struct pthread below. That has no word with its own address, so it is known by one that all have: how far two members
 * of a mutex are from each other, in the head of its list of robust mutexes.
 */
#pragma once

#include "heap/memory.h"

#define HL_PTHREAD_LIST	     192u /* the links of glibc's list of stacks */
#define HL_PTHREAD_TID	     208u /* the thread's number; then the list of robust mutexes */
#define HL_PTHREAD_ALIGNMENT 16u
#define HL_PTHREAD_ABOVE_MAX (UINT64_C(1) << 20) /* from there to the end of the thread's stack */

/* From the thread pointer on. */
#define HL_THREAD_STRUCT_END   16u  /* of what is not thread-local storage */
#define HL_THREAD_TLS_IS_ABOVE true /* static thread-local storage; else below */
#define HL_THREAD_OWN_BYTES    32768u /* all that is the thread's, mostly: with thread-local storage */

enum {
	HL_ROBUST_LAST = 27,
	HL_ROBUST_FIRST,
	HL_ROBUST_DISTANCE,
	HL_ROBUST_END
};					  /* words of struct pthread */
#define HL_MUTEX_DISTANCE ((uint64_t)-32) /* in glibc 2.26 to 2.43 */

/* Whether ${words} at ${address} can be struct pthread. */
static inline bool hl_pthread_is_at(const uint64_t *words, uint64_t address)
{
	return !(address % HL_PTHREAD_ALIGNMENT) &&
	       words[HL_ROBUST_DISTANCE] == HL_MUTEX_DISTANCE && words[HL_ROBUST_LAST] &&
	       words[HL_ROBUST_FIRST];
}

/* The control block, of glibc or musl, that would have ${word} at ${address} to be known by; 0: none. musl's begins with its own
 * address. */
static inline uint64_t hl_pthread_by_mark(uint64_t address, uint64_t word)
{
	return word == address		   ? address
	       : word == HL_MUTEX_DISTANCE ? address - HL_ROBUST_DISTANCE * 8
					   : 0;
}

/* How far struct pthread begins before the thread pointer ${pointer}; UINT64_MAX: it is not found. */
static inline uint64_t hl_pthread_before(struct hl_memory *memory, uint64_t pointer)
{
	const struct hl_map *map = hl_maps_find(&memory->maps, pointer);
	uint64_t words[512], start = pointer - sizeof(words); /* 1,776 bytes in glibc 2.36 */

	if (!map || pointer % HL_PTHREAD_ALIGNMENT)
		return UINT64_MAX;
	start = start > map->start ? start : map->start;
	if (hl_memory_read(memory, start, words, pointer - start) < 0)
		return UINT64_MAX;
	for (uint64_t at = HL_ROBUST_END * 8; at <= pointer - start; at += HL_PTHREAD_ALIGNMENT)
		if (hl_pthread_is_at(words + (pointer - at - start) / 8, pointer - at))
			return at;
	return UINT64_MAX;
}

/* A note of a core file that follows a thread's registers. */
static inline void hl_thread_registers_add_note(struct hl_thread_registers *registers,
						uint32_t type, const void *note, size_t bytes)
{
	if (type == NT_ARM_TLS && bytes >= sizeof(registers->thread))
		__builtin_memcpy(&registers->thread, note, sizeof(registers->thread));
}
