/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image needs of x86-64. */
#pragma once

#include "recorder/sys.h"
#include "unwind/saved.h"

#include <asm/prctl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Where the C library keeps the tid of a thread, from its thread pointer: glibc (struct pthread, the
 * same since 2.4) and musl. Believed where it stands there; else 0.
 */
static inline uint64_t hl_image_find_tid(uint64_t key, uint32_t tid)
{
	static const uint16_t places[] = {0x2d0, 0x30};

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (hl_memory_page_is_readable((key + places[i]) & ~UINT64_C(4095)) &&
		    *(const uint32_t *)(key + places[i]) == tid)
			return key + places[i];
	return 0;
}

/* 0: the thread has none, or it cannot be told. ${by_instruction}: by one that not all processors have. */
static inline uint64_t hl_image_thread_pointer(bool by_instruction)
{
	uint64_t base = 0;

	if (by_instruction)
		__asm__ volatile("rdfsbase %0" : "=r"(base));
	else if (HL_SYS(SYS_arch_prctl, ARCH_GET_FS, &base, 0) < 0)
		return 0;
	return base;
}

/* Whether what lies at the thread pointer, which is readable, is of a libc that we know: it points at itself. */
static inline bool hl_image_knows_thread(uint64_t base)
{
	return *(const uint64_t *)base == base;
}

static inline void hl_image_copy(void *to, const void *from, size_t bytes)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static inline void hl_image_fill(void *to, int value, size_t bytes)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
}

#define HL_ARGUMENT_REGISTERS 6 /* of a call */
