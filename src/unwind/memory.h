/* SPDX-License-Identifier: BSD-2-Clause */
/* Which addresses a walk may read without a fault. */
#pragma once

#include "base/compiler.h"
#include "unwind/unwind.h"

/* Asks the kernel whether the page at ${page} can be read; no fault, errno is kept. */
bool hl_memory_page_is_readable(uint64_t page);

/* Whether the 4 bytes at ${address}, a multiple of 4, can be read and are ${number}. The kernel reads
 * them: another thread may unmap them meanwhile. */
bool hl_memory_has_number(uint64_t address, uint32_t number);

/* Asks the kernel about the page, and the pages between it and those already known; keeps what it
 * learned in walk->stack_low and stack_high. */
bool hl_memory_prove_readable(struct hl_walk *walk, uint64_t address);

/* Whether the 8 bytes at ${address}, which must be a multiple of 8, can be read. */
static inline bool hl_memory_is_readable(struct hl_walk *walk, uint64_t address)
{
	if (HL_UNLIKELY(address & 7))
		return false;
	if (HL_LIKELY(address >= walk->stack_low && address < walk->stack_high))
		return true;
	return hl_memory_prove_readable(walk, address);
}
