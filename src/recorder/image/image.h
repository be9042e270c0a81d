/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorder as an image: brought into a running process by heapline, without the loader and
 * without libc; see region/attached.h for what is agreed with heapline, and
 * docs/decisions/0039-the-image.md for why it is as it is.
 *
 *	stub	the way from a patched function into its hook; counts the thread in and out
 *	gate	open while the recorder runs and a thread pointer has been set, and closed in forked
 *		children until they have regions of their own; those that get none pass through
 */
#pragma once

#include "base/compiler.h"
#include "recorder/self.h"
#include "region/attached.h"

extern HL_EXPORT struct hl_attached hl_attached;

/* The trampolines of the target's functions; then the functions of a runtime's allocator of objects themselves. */
#define HL_IMAGE_REAL_OBJECT(hook) ((unsigned)HL_HOOK_COUNT + (unsigned)(hook))
extern HL_HIDDEN uint64_t hl_image_real[HL_IMAGE_REAL_OBJECT(HL_OBJECT_HOOK_COUNT)];

/* What the functions are that have stubs of rules. */
extern HL_HIDDEN struct hl_attached_rule hl_image_rules[HL_ATTACHED_RULES_MAX];

extern HL_HIDDEN uint32_t hl_image_main_tid;

/* 1 once a forked child gives its parent's memory back, unless it is recorded itself. */
extern HL_HIDDEN _Atomic uint32_t hl_image_left;

/* In the region of the process that heapline has entered, of which this is a child, or which it is;
 * NULL: not mapped. */
extern HL_HIDDEN struct hl_region_children *hl_image_children;

/* The first page of the region's header, once more: stubs know where it is. With none of HL_IMAGE_BUSY in the mode nothing
 * is recorded now nor has been before, so they go on at once. */
#define HL_IMAGE_BUSY (HL_MODE_ASKED | HL_MODE_USED | HL_MODE_MASK)

extern HL_HIDDEN char hl_image_header[HL_PAGE_BYTES_MAX];

/* ---- image.c ---- */

/* Unmaps all but the image. No hook is in progress, or ever again. */
void hl_image_give_back(void);

/* The same where hooks are called on, and pass each call on: in a forked child. */
void hl_image_pass_on(void);

/* In a forked child: gives back what it has of its parent, and begins with the region of ${region_fd}.
 * False without memory. */
bool hl_image_start_child(int region_fd);

/* Whether no sandbox has come since heapline looked whether one forbids what hl_image_ask() does. */
bool hl_image_may_ask(void);

/* ---- children.c ---- */

/* Has heapline make a region for this forked child. Its descriptor; -1: it is not to be recorded. Takes
 * two seconds at most. Signals are blocked. */
int hl_image_ask(void);

/* ---- slots.c ---- */

/* Opens the gate or, before libc has set a thread pointer, has the first thread that has one do so.
 * ${may_read_fs_base}: by an instruction. */
void hl_image_open(bool may_read_fs_base);
void hl_image_close(void);

/* The slot of the calling thread, which has it from here on; NULL: all are in use, or it has no thread
 * pointer. With the gate open. */
struct hl_attached_slot *hl_image_find(void);

/* ---- image_libc.c: what the recorder calls of libc ---- */

void hl_image_libc_init(const struct hl_attached_start *start);

/* The real dlclose(). Destructors of the library run inside: what they allocate is the program's. */
int hl_image_close_library(void *handle);

/* ---- objects.c: modules, where libc does not name them ---- */

/* False without memory. */
bool hl_image_objects_init(void);

struct dl_find_object;

/* Like _dl_find_object(), from /proc/thread-self/maps and the ELF headers in memory. Not from a
 * signal handler that interrupted it. */
int hl_image_objects_find(uint64_t pc, struct dl_find_object *ret_object);

/* Something may have been unloaded. */
void hl_image_objects_note_unloaded(void);

/* ---- libraries.c ---- */

/* The hook of HL_HOOK_LIBRARIES, for threads of any kind. */
void hl_image_libraries(void);

/* Whether heapline has ended. Where the kernel cannot tell, it is there as long as its number is. */
bool hl_image_has_lost_heapline(bool *ret_is_known);

/* ---- stubs.S ---- */

#define HL_IMAGE_WITH_RESULT(STUB)                   \
	STUB(malloc, HL_HOOK_MALLOC)                 \
	STUB(calloc, HL_HOOK_CALLOC)                 \
	STUB(realloc, HL_HOOK_REALLOC)               \
	STUB(reallocarray, HL_HOOK_REALLOCARRAY)     \
	STUB(posix_memalign, HL_HOOK_POSIX_MEMALIGN) \
	STUB(aligned_alloc, HL_HOOK_ALIGNED_ALLOC)   \
	STUB(memalign, HL_HOOK_MEMALIGN)             \
	STUB(valloc, HL_HOOK_VALLOC)                 \
	STUB(pvalloc, HL_HOOK_PVALLOC)               \
	STUB(dlclose, HL_HOOK_DLCLOSE)               \
	STUB(mlockall, HL_HOOK_MLOCKALL)
#define HL_IMAGE_FREERS(STUB)                \
	STUB(free, HL_HOOK_FREE)             \
	STUB(free_sized, HL_HOOK_FREE_SIZED) \
	STUB(free_aligned_sized, HL_HOOK_FREE_ALIGNED_SIZED)
#define HL_IMAGE_STUBS(STUB)       \
	HL_IMAGE_WITH_RESULT(STUB) \
	HL_IMAGE_FREERS(STUB)

#define STUB(NAME, HOOK)                           \
	HL_HIDDEN void hl_image_stub_##NAME(void); \
	HL_HIDDEN void hl_image_light_stub_##NAME(void);
HL_IMAGE_STUBS(STUB)
#undef STUB

#define HL_IMAGE_OBJECT_STUBS(STUB)                                   \
	STUB(object_malloc, HL_IMAGE_REAL_OBJECT(HL_OBJECT_MALLOC))   \
	STUB(object_calloc, HL_IMAGE_REAL_OBJECT(HL_OBJECT_CALLOC))   \
	STUB(object_realloc, HL_IMAGE_REAL_OBJECT(HL_OBJECT_REALLOC)) \
	STUB(object_free, HL_IMAGE_REAL_OBJECT(HL_OBJECT_FREE))

#define STUB(NAME, HOOK) HL_HIDDEN void hl_image_light_stub_##NAME(void);
HL_IMAGE_OBJECT_STUBS(STUB)
#undef STUB

HL_HIDDEN void hl_image_stub_libraries(void);
/* For calls that may install filters; others pass. */
HL_HIDDEN void hl_image_stub_some_prctl(void);
HL_HIDDEN void hl_image_stub_some_syscall(void);

struct hl_recorder;

/* Tells ${recorder} what the rules that there are mean for it. */
HL_HIDDEN void hl_image_note_rules(struct hl_recorder *recorder);

/* Called by the stubs of rules; see rules.c. */
bool hl_image_rule(const uint64_t *arguments, uint32_t number, uint64_t *ret_result,
		   struct hl_attached_slot *slot);

/* The first of the stubs of rules. */
HL_HIDDEN void hl_image_rule_stubs(void);

/* Calls a function of the target with up to two arguments; vector registers are kept. */
int64_t hl_image_call(uint64_t function, uint64_t a, uint64_t b);
