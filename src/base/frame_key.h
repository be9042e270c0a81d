/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frame keys: what a stack node stands for, in the recorder, in recordings and in profiles.
 *
 * A key is (module id << HL_MODULE_SHIFT) | lookup pc. Module id m is the m-th module of its
 * process, HL_MODULE_NONE code of no known module, HL_MODULE_SCRIPT no machine code at all: then
 * the low bits say what, see enum hl_pseudo_frame.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_MODULE_SHIFT	 48
#define HL_MODULE_NONE	 0u
#define HL_MODULE_SCRIPT 0xffffu
#define HL_FRAME_PC_MASK ((UINT64_C(1) << HL_MODULE_SHIFT) - 1)

/* Innermost frames that say by which way memory came that no allocator handed out. */
enum hl_pseudo_frame {
	HL_PSEUDO_MMAP = 1, /* shown as [mmap] */
	HL_PSEUDO_BRK = 2,  /* shown as [brk] */
};

static inline uint64_t hl_pseudo_frame_key(enum hl_pseudo_frame frame)
{
	return (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT | frame;
}

/* Whether a process with ${module_count} modules can have a frame of this key. */
static inline bool hl_frame_key_is_valid(uint64_t key, uint32_t module_count)
{
	uint64_t module = key >> HL_MODULE_SHIFT;
	return module <= module_count || module == HL_MODULE_SCRIPT;
}
