/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entry points that the recorder takes the place of: of libc, of objects that a runtime cuts for itself, of
 * heapline.h.
 */
#pragma once

#include "base/compiler.h"
#include "unwind/unwind.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- the entry points that the recorder takes the place of ---- */

/*
 * False when the program brings a malloc of its own that calls reach before ours: nothing will be
 * seen. To be called while nothing is recorded yet.
 */
bool hl_hooks_reach_program(void);

/* Says whether the program's own mappings are to be recorded. Until then, they are not. */
void hl_hooks_mapping_record(bool wanted);

/*
 * The hook of ${NAME}. In the image that is brought into a running process it is a function of its
 * own, which is reached by a stub (image/stubs.S): the patched function has its name.
 */
#ifdef HL_ATTACHED
#define HL_HOOK(NAME) hl_image_##NAME
#else
#define HL_HOOK(NAME) NAME
#endif

/*
 * The hook's caller, as hl_walk_capture() wants it. For functions compiled with a frame pointer,
 * see unwind/unwind.h.
 */
#define HL_CALLER HL_CALLER_AT(HL_CALLER_SP, HL_CALLER_BP)

/* The same in two parts, for a hook that hands its call on with them. Between a hook of the image
 * and its caller is the frame of the stub, which has the same form. */
#ifdef HL_ATTACHED
#define HL_CALLER_FRAME (*(uint64_t *)__builtin_frame_address(0))
#else
#define HL_CALLER_FRAME ((uint64_t)__builtin_frame_address(0))
#endif
#define HL_CALLER_SP HL_HOOK_SP(HL_CALLER_FRAME)
#define HL_CALLER_BP HL_HOOK_BP(HL_CALLER_FRAME)
#define HL_CALLER_AT(SP, BP)                 \
	(&(struct hl_registers){             \
		.pc = HL_HOOK_PC(SP, BP),    \
		.sp = (SP),                  \
		.bp = HL_HOOK_OUTER(SP, BP), \
	})

/* hl_thread_self() in a hook: the stub of the image has found the thread's slot, and has it in its
 * frame. */
#ifdef HL_ATTACHED
#define HL_CALLER_THREAD                                                                           \
	((struct hl_thread *)(*(struct hl_attached_slot **)(HL_CALLER_FRAME - HL_IMAGE_STUB_SLOT)) \
		 ->thread)
#else
#define HL_CALLER_THREAD hl_thread_self()
#endif

/* ---- hooks objects ---- */

/*
 * Objects of a runtime that cuts them from memory of its own and calls malloc() for none of them. Where it keeps the
 * addresses of its allocator's functions, a guest puts these hooks there in their place.
 */

struct hl_objects_allocator {
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *block, size_t size);
	void (*free)(void *context, void *block);
};

/* Where the objects' memory comes from. */
struct hl_objects_arenas {
	void *context;
	void *(*allocate)(void *context, size_t size);
	void (*free)(void *context, void *arena, size_t size);
};

/* What takes the places of a runtime's own. */
struct hl_objects_hooks {
	const struct hl_objects_allocator *allocator; /* NULL: nothing does */
	const struct hl_objects_arenas *arenas;	      /* NULL: these stay the runtime's own */
};

/* Set once, before any runtime is found, by who has the hooks. */
extern HL_HIDDEN struct hl_objects_hooks hl_objects_hooks;

/* The runtime's own, set before the hooks take their places. */
extern HL_HIDDEN struct hl_objects_allocator hl_objects_real;
extern HL_HIDDEN struct hl_objects_arenas hl_objects_real_arenas;

extern const struct hl_objects_allocator hl_hooks_objects;
extern const struct hl_objects_arenas hl_hooks_arenas;

/* ---- of the shell ---- */

/* A function of the program that reads or sets an allocator by its number. */
typedef void hl_objects_allocator_fn(int number, struct hl_objects_allocator *allocator);

void hl_objects_call(hl_objects_allocator_fn *function, int number,
		     struct hl_objects_allocator *allocator);

/* Told of the functions that the hooks take the places of, before they do. */
void hl_objects_take(const struct hl_objects_allocator *real);

/* ---- filters ---- */

/*
 * Before a child by vfork() becomes another program, or ends: what filters it has installed is not its parent's business. What is
 * returned is for hl_filters_return(), should the exec fail. Cheap where there are none.
 */
bool hl_filters_leave(void);
void hl_filters_return(bool left);

/* Whether the program that the child becomes would be killed on its way to the collector. */
bool hl_filters_withhold(void);

/* ---- pools ---- */

/* What programs tell of their pools, by heapline.h: pieces of memory that no allocator knows. */

struct hl_registers;

/*
 * ${block}, ${size} bytes, has been cut from pool ${pool} by the caller at ${caller}; and is given back
 * to it. NULL is fine. In the image called by a rule's stub. Async-signal-safe.
 */
void hl_pools_alloc(const char *pool, const void *block, size_t size,
		    const struct hl_registers *caller);
void hl_pools_free(const void *block);
/* Before memory is unmapped: what was cut from it ends. */
void hl_pools_unmap(const void *start, size_t bytes);

/* ---- annotations ---- */

/* Annotations of programs, see heapline.h, where the recorder is preloaded. */
/* Has the program's annotations reach the recorder. Once, before the program runs. */
void hl_annotations_begin(void);
