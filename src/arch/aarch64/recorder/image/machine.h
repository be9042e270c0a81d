/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image needs of aarch64. */
#pragma once

#include "base/machine.h"
#include "unwind/saved.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Where the C library keeps the tid of a thread: in a struct below its thread pointer, whose size differs. glibc's is known by
 * how far two members of a mutex are from each other (futex_offset of its list of robust mutexes), musl's begins with its
 * own address. Believed where the tid stands there; else 0.
 */
static inline uint64_t hl_image_find_tid(uint64_t key, uint32_t tid)
{
	uint64_t start = key - 4096;

	if (!hl_memory_page_is_readable((key - 1) & ~UINT64_C(4095)))
		return 0;
	if (!hl_memory_page_is_readable(start & ~UINT64_C(4095)))
		start = (key - 1) & ~UINT64_C(4095);
	for (uint64_t at = key - 200; at >= start; at -= 8) {
		const uint64_t *words = (const uint64_t *)at;
		uint64_t place = at + (words[0] == at ? 32 : 208);
		bool is_glibc = at + 240 <= key && words[29] == (uint64_t)-32;
		if ((is_glibc || words[0] == at) && *(const uint32_t *)place == tid)
			return place;
	}
	return 0;
}

static inline uint64_t hl_image_thread_pointer(bool by_instruction)
{
	(void)by_instruction; /* all have it */
	return hl_machine_thread_pointer();
}

static inline bool hl_image_knows_thread(uint64_t base)
{
	(void)base; /* nothing there says so */
	return true;
}

static inline void hl_image_copy(void *to, const void *from, size_t bytes)
{
	typedef uint64_t __attribute__((aligned(1), may_alias)) word;
	uint8_t *at = to;
	const uint8_t *source = from;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word))
		*(word *)at = *(const word *)source, source += sizeof(word);
	while (bytes--)
		*at++ = *source++;
}

static inline void hl_image_fill(void *to, int value, size_t bytes)
{
	for (uint8_t *at = to; bytes; bytes--)
		*at++ = (uint8_t)value;
}

#define HL_ARGUMENT_REGISTERS 8 /* of a call */
