/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Patches functions of the test's own process: a jump to a stub, which calls a hook written in C,
 * which calls the trampoline. Stubs lie near the function, trampolines where the test wants them.
 */
#pragma once

#include "hook/relocate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define LAB_AREA_BYTES	 16384u
#define LAB_STUB_BYTES	 16u
#define LAB_FAR_BYTES	 (UINT64_C(1) << 40)
#define LAB_STRIDE_BYTES (UINT64_C(1) << 24)

/* Executable memory ${distance} bytes or more from ${address}, and not much more: above programs,
 * below libraries. */
static inline uint8_t *lab_map(const void *address, uint64_t distance)
{
	bool is_below = (uint64_t)address >> 46;
	uint64_t base = (uint64_t)address & ~UINT64_C(4095);

	for (unsigned i = 1; i < 64; i++) {
		uint64_t away = distance + i * LAB_STRIDE_BYTES;
		void *area = mmap((void *)(is_below ? base - away : base + away), LAB_AREA_BYTES,
				  PROT_READ | PROT_WRITE | PROT_EXEC,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (area != MAP_FAILED)
			return area;
	}
	fail_msg("no memory near %p", address);
	return NULL;
}

static inline void lab_unmap(uint8_t *area)
{
	assert_int_equal(munmap(area, LAB_AREA_BYTES), 0);
}

/* Makes the pages of the code writable as well. */
static inline void lab_unlock(const void *code, size_t bytes)
{
	uint64_t begin = (uint64_t)code & ~UINT64_C(4095);

	assert_int_equal(mprotect((void *)begin, (uint64_t)code + bytes - begin,
				  PROT_READ | PROT_WRITE | PROT_EXEC),
			 0);
}

/* A jump to ${hook}, however far. */
static inline void lab_write_stub(uint8_t *stub, const void *hook)
{
	static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0};

	memcpy(stub, jump, sizeof(jump));
	memcpy(stub + sizeof(jump), &hook, sizeof(hook));
}

struct lab_patch {
	uint8_t *function;
	uint8_t before[HL_PATCH_BYTES];
};

static inline struct lab_patch lab_patch(void *function, const uint8_t *stub)
{
	struct lab_patch patch = {.function = function};
	uint8_t jump[HL_PATCH_BYTES];

	assert_int_equal(hl_relocate_jump((uint64_t)function, (uint64_t)stub, jump), 0);
	memcpy(patch.before, function, HL_PATCH_BYTES);
	memcpy(function, jump, HL_PATCH_BYTES);
	return patch;
}

static inline void lab_unpatch(const struct lab_patch *patch)
{
	memcpy(patch->function, patch->before, HL_PATCH_BYTES);
}
