/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in a function a probe costs least.
 *
 * A uprobe is a breakpoint. What stood in its place the kernel emulates if it is a push, a jump, a
 * call or a one-byte nop; all else it copies elsewhere and steps over with the processor's trap
 * flag, which costs ten times as much. So the probe goes to the first instruction that is emulated,
 * as long as what comes before is straight-line code that any call runs, once, and that leaves the
 * stack pointer, the frame pointer, the return address and the arguments to be found.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_PROBE_ARGUMENTS_MAX 4

struct hl_probe_place {
	uint32_t offset; /* from the function's first byte */
	bool emulated;	 /* else a hit costs some 10 us */
	/* Where the arguments are at that point: numbers of registers as instructions have them
	 * (rax 0, rcx 1, rdx 2 ... r15 15). */
	uint8_t arguments[HL_PROBE_ARGUMENTS_MAX];
};

/*
 * The place in the function whose first ${bytes} bytes are ${code}, of which the first
 * ${argument_count} integer arguments (at most HL_PROBE_ARGUMENTS_MAX) are wanted. Its first
 * instruction when none is better.
 */
struct hl_probe_place hl_probe_place(const uint8_t *code, size_t bytes, unsigned argument_count);

/*
 * Calls ${visit} with the target of each direct jump and call in ${code}, relative to its first
 * byte, until it returns true. Whether it did.
 */
bool hl_code_visit_branches(const uint8_t *code, size_t bytes,
			    bool (*visit)(int64_t target, void *context), void *context);
