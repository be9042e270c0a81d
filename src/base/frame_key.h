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

/*
 * Size classes: blocks by the power of two of their requested size. Class 0 is size 0, class c > 0
 * the sizes of c binary digits: 1, 2-3, 4-7, 8-15 ...
 */
#define HL_SIZE_CLASS_COUNT 65u

static inline uint32_t hl_size_class(uint64_t size)
{
	return size ? 64u - (uint32_t)__builtin_clzll(size) : 0;
}

/* The smallest size in ${size_class}. */
static inline uint64_t hl_size_class_first(uint32_t size_class)
{
	return size_class ? UINT64_C(1) << (size_class - 1) : 0;
}

/* The largest one. */
static inline uint64_t hl_size_class_last(uint32_t size_class)
{
	return size_class ? hl_size_class_first(size_class) * 2 - 1 : 0;
}

/*
 * Frames that are not code. Mostly innermost ones, that say by which way memory came that no
 * allocator handed out, or why there is no stack; or, where a recording tells sizes apart, of which
 * size class the blocks are that came from the frame above.
 */
enum hl_pseudo_frame {
	HL_PSEUDO_MMAP = 1,	/* shown as [mmap] */
	HL_PSEUDO_BRK = 2,	/* shown as [brk] */
	HL_PSEUDO_RELEASED = 3, /* [released before the trace]: gone pages of before it */
	HL_PSEUDO_NO_FAULT = 4, /* [no fault seen]: pages that came in by no fault that was seen */
	HL_PSEUDO_STACK_LOST = 5,   /* [stack lost]: counted, but its stack did not arrive */
	HL_PSEUDO_RETURN_PROBE = 6, /* [uretprobe trampoline]: outermost; a probe of another tool
				       has the return address */
	HL_PSEUDO_SIZE = 256,	    /* + size class; not shown as a frame */
	HL_PSEUDO_SIZE_END = HL_PSEUDO_SIZE + HL_SIZE_CLASS_COUNT,
};

static inline uint64_t hl_pseudo_frame_key(enum hl_pseudo_frame frame)
{
	return (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT | frame;
}

/* The providers whose sites are labels of blocks, see recorder/script.h. */
#define HL_POOL_PROVIDER    "pool"
#define HL_TYPE_PROVIDER    "type"
#define HL_SERVICE_PROVIDER "service"
#define HL_AGE_PROVIDER \
	"age" /* named by how many collections, or requests, the blocks have outlived, and ... */
#define HL_AGE_GENERATIONS ", by generations" /* ... where only major ones count */
#define HL_AGE_REQUEST	   ", request "	      /* ... which one of which process allocated them */
#define HL_AGE_MAX	   1000u	      /* older ones count as that old */

/*
 * Frames of scripts, see guests/provider.h: the low bits are HL_SITE_FRAME, HL_SITE_ENTRY if native
 * code called it, and the number of the site. Site 0 stands for places that could not be told.
 */
#define HL_SITE_FRAME (UINT64_C(1) << 47)
#define HL_SITE_ENTRY (UINT64_C(1) << 46)

/*
 * All frames of scripts of a stack as one: HL_SITE_FRAME, HL_SITE_PATH and the id of a node below the root, whose frames and those
 * outward of it they are. No site has so large a number: to older readers such a frame is a place that could not be told.
 */
#define HL_SITE_PATH (UINT64_C(1) << 31)

#define HL_SCRIPT_DEPTH_MAX 256u /* frames of one path; outer ones are cut off, and counted */

static inline uint64_t hl_site_frame_key(uint32_t site, bool is_entry)
{
	return (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT | HL_SITE_FRAME |
	       (is_entry ? HL_SITE_ENTRY : 0) | site;
}

/* Whether ${key} is that of a script frame; then *${ret_site} is its site. */
static inline bool hl_frame_key_is_site(uint64_t key, uint32_t *ret_site)
{
	if (key >> HL_MODULE_SHIFT != HL_MODULE_SCRIPT || !(key & HL_SITE_FRAME) ||
	    key & HL_SITE_PATH)
		return false;
	*ret_site = (uint32_t)key;
	return true;
}

static inline uint64_t hl_path_frame_key(uint32_t node)
{
	return (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT | HL_SITE_FRAME | HL_SITE_PATH | node;
}

/* Whether ${key} stands for all frames of scripts; then *${ret_node} is the innermost one's node. */
static inline bool hl_frame_key_is_path(uint64_t key, uint32_t *ret_node)
{
	if (key >> HL_MODULE_SHIFT != HL_MODULE_SCRIPT || !(key & HL_SITE_FRAME) ||
	    !(key & HL_SITE_PATH))
		return false;
	*ret_node = (uint32_t)(key & (HL_SITE_PATH - 1));
	return true;
}

/* A way outward along a stack and the path that stands in it: from ${node}, until that is 0. */
struct hl_frames_outward {
	uint32_t node;
	uint32_t rest; /* where it goes on after the path */
	bool is_in_path;
};

/* Goes on from the node, which has ${frame} and ${parent}. False: that is a path and no frame, and its innermost node is next. */
static inline bool hl_frames_step(struct hl_frames_outward *at, uint64_t frame, uint32_t parent)
{
	uint32_t path;

	if (!at->is_in_path && hl_frame_key_is_path(frame, &path) && path) {
		*at = (struct hl_frames_outward){path, parent, true};
		return false;
	}
	at->node = parent;
	if (!parent && at->is_in_path)
		*at = (struct hl_frames_outward){.node = at->rest};
	return true;
}

static inline uint64_t hl_size_frame_key(uint32_t size_class)
{
	return (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT | (HL_PSEUDO_SIZE + size_class);
}

/* Whether ${key} tells the size class of its blocks; then *${ret_size_class} is it. */
static inline bool hl_frame_key_is_size(uint64_t key, uint32_t *ret_size_class)
{
	uint64_t low = key & HL_FRAME_PC_MASK;

	if (key >> HL_MODULE_SHIFT != HL_MODULE_SCRIPT || low < HL_PSEUDO_SIZE ||
	    low >= HL_PSEUDO_SIZE_END)
		return false;
	*ret_size_class = (uint32_t)(low - HL_PSEUDO_SIZE);
	return true;
}

/* In a walk, generated code of which somebody knows how to leave it, see unwind.h: the low bits are its address, above those of all
 * pseudo frames. */
static inline bool hl_frame_key_is_generated(uint64_t key)
{
	return key >> HL_MODULE_SHIFT == HL_MODULE_SCRIPT && !(key & HL_SITE_FRAME) &&
	       (key & HL_FRAME_PC_MASK) >= 4096;
}

/* Whether a process with ${module_count} modules can have a frame of this key. */
static inline bool hl_frame_key_is_valid(uint64_t key, uint32_t module_count)
{
	uint64_t module = key >> HL_MODULE_SHIFT;

	return module <= module_count || module == HL_MODULE_SCRIPT;
}
