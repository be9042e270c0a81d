/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation plumbing: functions that allocate on behalf of their callers, and so say nothing about
 * who wanted the memory. operator new, the containers of C++ and Rust, wrappers such as xmalloc.
 *
 * A stack ends with a run of such frames, as long as every frame matches a pattern of the table in
 * plumbing.c or of the traits of a guest or an allocator, or is a function without a name that plumbing of the same file calls (stripped programs
 * have names for what they export alone), or lies in a file that is plumbing as a whole: heapline's own
 * recorder, which passes on what an allocator that it has wrapped asks malloc() for, and libffi. Folding gives what the run allocated to the frame outside of it; frames further
 * out are never touched. A stack that consists of plumbing alone keeps its outermost frame.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_PLUMBING_PATTERNS_MAX  640
#define HL_PLUMBING_OF_OTHERS_MAX 192 /* of these, those of guests and allocators */

/* The patterns by their first byte: indices from 1; 0 ends a list. */
struct hl_plumbing {
	uint16_t first[UINT8_MAX + 1]; /* by byte */
	uint16_t count;
	const char *patterns[HL_PLUMBING_PATTERNS_MAX];
	uint16_t next[HL_PLUMBING_PATTERNS_MAX]; /* by pattern: the next one with the same byte */
};

void hl_plumbing_init(struct hl_plumbing *plumbing);

/* Whether the function ${name}, demangled where it was mangled, is plumbing. */
bool hl_plumbing_matches(const struct hl_plumbing *plumbing, const char *name);

/*
 * Whether the function ${name} of the file ${module}, or of the script ${source}, is what a host of services runs each of
 * them by: where a stack of a service begins with a run of such, they are in every stack, and say nothing.
 */
bool hl_plumbing_runs_services(const char *name, const char *module, const char *source);

/*
 * Whether all functions of the file ${path} are plumbing: the recorder, and libraries that call a
 * function for somebody else (libffi).
 */
bool hl_plumbing_is_module(const char *path);
