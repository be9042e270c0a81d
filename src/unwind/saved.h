/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks the calling thread's stack with all registers that functions keep for their callers, by call
 * frame information alone: slow, some microseconds, for what is then remembered.
 *
 * In-process code, as unwind.h says.
 */
#pragma once

#include "base/compiler.h"
#include "unwind/registers.h"
#include "unwind/unwind.h"

struct hl_saved_frame {
	uint64_t pc;			       /* lookup pc */
	uint64_t sp;			       /* once the call that it is in has returned */
	uint64_t cfa;			       /* sp of its caller; 0 for the outermost frame */
	uint64_t function_start, function_end; /* 0: unknown */
	uint64_t called_at,
		returns_at; /* where the return addresses into it and out of it lie; 0: unknown */
	const int16_t *
		kept; /* of its caller's registers, by enum hl_saved_register: in words from the CFA; 0: not kept; NULL: unknown */
	/* Where its registers are, on the stack or among the start's; NULL: unknown. */
	const uint64_t *at[HL_SAVED_COUNT];
};

/* Where the function begins and ends that holds ${pc}. False: there is no information about it. */
bool hl_saved_find_function(struct hl_unwind *unwind, uint64_t pc, uint64_t *ret_start,
			    uint64_t *ret_end);

/* False ends the walk. */
typedef bool hl_saved_visit_fn(void *context, const struct hl_saved_frame *frame);

/*
 * Visits the frames from the one of ${start} outward. ${start_saved}: its registers by enum
 * hl_saved_register, all of them. Ends at frames of signals, and where there is no information. Reads
 * what hl_memory_is_readable() allows in ${walk}, whose frames stay as they are.
 */
void hl_saved_walk(struct hl_unwind *unwind, struct hl_walk *walk, const struct hl_registers *start,
		   const uint64_t start_saved[HL_SAVED_COUNT], hl_saved_visit_fn *visit,
		   void *context);

/* The registers of the frame of ${caller}, where a hook further in has not handed them on: the walk begins with this call. Returns
 * ${room}, or NULL where they cannot be found, as on machines on which hooks hand them on. */
const uint64_t *hl_saved_find(struct hl_unwind *unwind, struct hl_walk *walk,
			      const struct hl_registers *caller, uint64_t room[HL_SAVED_COUNT]);

struct hl_saved_range {
	uint64_t start, end;
};

/* How many frames from the one of ${start} outward run code of one of ${ranges}; fewer, where the stack cannot be walked to its
 * end. ${saved}: its registers but rbp by enum hl_saved_register; NULL: unknown. */
uint32_t hl_saved_count_calls(struct hl_unwind *unwind, struct hl_walk *walk,
			      const struct hl_registers *start, const uint64_t *saved,
			      const struct hl_saved_range *ranges, uint32_t range_count);

/* ---- which addresses a walk may read without a fault ---- */

/* Asks the kernel whether the page at ${page} can be read; no fault, errno is kept. */
bool hl_memory_page_is_readable(uint64_t page);

/* The same of all from ${first} to ${last}. */
bool hl_memory_range_is_readable(uint64_t first, uint64_t last);

/* The same of ${bytes} at ${address}; not of an address that is not a multiple of 8, as that of an object is. */
bool hl_memory_object_is_readable(uint64_t address, uint32_t bytes);

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
