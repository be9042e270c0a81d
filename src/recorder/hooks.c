/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc and its family. Compiled with -fno-omit-frame-pointer, see HL_CALLER.
 *
 * Each hook: enter; the real call, with the activity saying so; the event; leave. A block is taken
 * out of the block table before the real free, and entered after the real allocation, so that
 * another thread that gets the same address in between is never confused with it.
 */
#include "recorder/hooks.h"

#include "guests/guest.h"
#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/pass_on.h"
#include "recorder/sample.h"
#include "recorder/start.h"
#include "recorder/thread.h"
#include "unwind/saved.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* Calls that are not recorded: before the start, after the end, nested, or not sampled. */

static bool passed_malloc; /* for hl_hooks_reach_program */

static __attribute__((noinline)) void *pass_malloc(size_t size)
{
	if (!hl_libc_resolve())
		return hl_libc_bootstrap_alloc(size);
	passed_malloc = true;
	hl_event_nested_alloc(size);
	return hl_libc.malloc(size);
}

static __attribute__((noinline)) void *pass_calloc(size_t count, size_t size)
{
	size_t bytes;

	if (!hl_libc_resolve())
		return __builtin_mul_overflow(count, size, &bytes) ? NULL
								   : hl_libc_bootstrap_alloc(bytes);
	hl_event_nested_alloc(count * size);
	return hl_libc.calloc(count, size);
}

static __attribute__((noinline)) void pass_free(void *block)
{
	if (hl_libc_is_bootstrap(block) || !hl_libc_resolve())
		return;
	if (block)
		hl_event_nested_free(block);
	hl_libc.free(block);
}

static __attribute__((noinline)) void *pass_realloc(void *block, size_t size)
{
	if (!hl_libc_resolve())
		return NULL;
	if (block)
		hl_event_nested_free(block);
	hl_event_nested_alloc(size);
	return hl_libc.realloc(block, size);
}

/* Bootstrap blocks carry no size; reading to the end of the pool is safe. */
static __attribute__((noinline)) void *move_out_of_bootstrap(const void *block, size_t size)
{
	void *moved = pass_malloc(size);
	size_t readable = hl_libc_bootstrap_readable(block);

	if (moved)
		memcpy(moved, block, size < readable ? size : readable);
	return moved;
}

#ifndef HL_ATTACHED
bool hl_hooks_reach_program(void)
{
	/* By a call, as the program does it: the address of malloc may be that of a stub in the
	 * program. */
	passed_malloc = false;
	void *block = malloc(1);
	if (passed_malloc && block)
		hl_libc_examine_chunks(block);
	free(block);
	return passed_malloc;
}
#endif

/* Whether a call in ${thread}, which has entered, may pass through after all: then it has left. */
static inline bool passes(struct hl_thread *thread, const void *freed)
{
	if (HL_LIKELY(!hl_event_passes(thread, freed)))
		return false;
	hl_thread_leave(thread);
	return true;
}

/* Before a real allocation. */
static inline const struct hl_recall_slot *
begin(struct hl_thread *thread, const struct hl_registers *caller, const uint64_t *saved)
{
	const struct hl_recall_slot *place = hl_event_locate(thread, caller);

	thread->saved = saved;
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	return place;
}

/* After a real allocation: records it if there is one, and leaves. */
static inline void *finish(struct hl_thread *thread, void *block, size_t size,
			   const struct hl_registers *caller, const struct hl_recall_slot *place)
{
	hl_thread_set(thread, HL_RECORDING);
	if (HL_LIKELY(block))
		hl_event_alloc(thread, block, size, caller, place);
	thread->saved = NULL; /* other hooks have none */
	hl_thread_leave(thread);
	return block;
}

/* ${thread}: entered, or NULL. */
static __attribute__((noinline)) void *malloc_any(size_t size, struct hl_thread *thread,
						  uint64_t caller_sp, uint64_t caller_bp)
{
	if (HL_UNLIKELY(!thread)) {
		thread = hl_thread_enter();
		if (!thread)
			return pass_malloc(size);
	}
	const struct hl_registers *caller = HL_CALLER_AT(caller_sp, caller_bp);
	const struct hl_recall_slot *place = begin(thread, caller, HL_SAVED_HERE());
	return finish(thread, hl_libc.malloc(size), size, caller, place);
}

/* The same. */
static __attribute__((noinline)) void *calloc_any(size_t count, size_t size,
						  struct hl_thread *thread, uint64_t caller_sp,
						  uint64_t caller_bp)
{
	if (HL_UNLIKELY(!thread)) {
		thread = hl_thread_enter();
		if (!thread)
			return pass_calloc(count, size);
	}
	const struct hl_registers *caller = HL_CALLER_AT(caller_sp, caller_bp);
	const struct hl_recall_slot *place = begin(thread, caller, HL_SAVED_HERE());
	/* When the product overflows, the real calloc fails and nothing is recorded. */
	return finish(thread, hl_libc.calloc(count, size), count * size, caller, place);
}

/* True if the call can go straight to libc. ${freed}: the block to be freed, or NULL. If not, *${thread} has entered, or has become NULL. */
static inline __attribute__((always_inline)) bool passes_at_once(struct hl_thread **thread,
								 const void *freed)
{
	if (HL_UNLIKELY(!hl_thread_try_enter(*thread))) {
		*thread = NULL;
	} else if (HL_UNLIKELY(hl_event_passes(*thread, freed))) {
		if (hl_thread_try_leave(*thread))
			return true;
		*thread = NULL;
	}
	return false;
}

/* malloc(), calloc(), realloc() and free() end here where nothing is to be recorded: they call nothing,
 * but jump on, before they need a frame or save a register. */
HL_EXPORT void *HL_HOOK(malloc)(size_t size)
{
	struct hl_thread *thread = HL_CALLER_THREAD;

	if (hl_sample_thread_passes(thread, size) || passes_at_once(&thread, NULL))
		return hl_libc.malloc(size);
	return malloc_any(size, thread, HL_CALLER_SP, HL_CALLER_BP);
}

HL_EXPORT void *HL_HOOK(calloc)(size_t count, size_t size)
{
	struct hl_thread *thread = HL_CALLER_THREAD;

	if (hl_sample_thread_passes(thread, count * size) || passes_at_once(&thread, NULL))
		return hl_libc.calloc(count, size);
	return calloc_any(count, size, thread, HL_CALLER_SP, HL_CALLER_BP);
}

/* All that is not common; whether ${block} is still to be freed. ${thread}: NULL or entered, and left
 * when there is nothing more to do. */
static __attribute__((noinline)) bool count_any_free(struct hl_thread *thread, void *block)
{
	if (HL_UNLIKELY(!thread || hl_libc_is_bootstrap(block))) {
		if (thread)
			hl_thread_leave(thread);
		pass_free(block);
		return false;
	}
	hl_event_free(thread, block);
	return true;
}

/* ${thread}: entered, or NULL. */
static __attribute__((noinline)) void free_any(void *block, struct hl_thread *thread)
{
	if (HL_UNLIKELY(!thread))
		thread = hl_thread_enter();
	if (HL_UNLIKELY(!thread || !hl_event_free_plain(thread, block)) &&
	    !count_any_free(thread, block))
		return;
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	hl_libc.free(block);
	hl_thread_leave(thread);
}

HL_EXPORT void HL_HOOK(free)(void *block)
{
	struct hl_thread *thread = HL_CALLER_THREAD;

	if (!block)
		return;
	if (HL_UNLIKELY(!hl_thread_try_enter(thread))) {
		thread = NULL;
	} else if (HL_UNLIKELY(hl_event_passes_free(thread, block)) &&
		   !hl_libc_is_bootstrap(block)) {
		if (hl_thread_try_leave(thread)) {
			hl_libc.free(block);
			return;
		}
		thread = NULL;
	}
	free_any(block, thread);
}

/* realloc of an existing block, or of a new one with a type: counts as a free and an allocation, unless it fails. */
static void *reallocate(struct hl_thread *thread, void *block, size_t size, bool sampled,
			const struct hl_registers *caller, const uint64_t *saved)
{
	struct hl_block old;
	uint64_t usable;
	bool known = block && hl_event_take(thread, block, &old, &usable);
	const struct hl_recall_slot *place = hl_event_locate(thread, caller);

	thread->saved = saved;
	bool looked = sampled && hl_event_look_ahead(thread, caller, place);
	struct hl_cell *typed =
		looked && thread->type
			? hl_script_type_cell(hl_recorder, thread, thread->ahead, thread->type)
			: NULL;
	if (typed)
		thread->ahead = typed;
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	void *moved = hl_libc.realloc(block, size);

	hl_thread_set(thread, HL_RECORDING);
	bool failed = !moved && size;
	if (known && failed)
		hl_event_put_back(thread, block, old, usable);
	else if (known)
		hl_event_count_free(thread, block, old, usable);
	/* What another thread has cut there meanwhile ends as well: rare, and it counts as freed too soon. */
	size_t kept = moved == block ? size : 0;
	if (block && !failed && kept < usable && hl_event_has_pieces())
		hl_event_end_pieces(thread, (const char *)block + kept, usable - kept);
	if (moved && looked)
		hl_event_alloc_ahead(thread, moved, size, caller, place);
	else if (moved && sampled)
		hl_event_alloc(thread, moved, size, caller, place);
	hl_event_look_back(thread);
	thread->type = NULL;
	thread->saved = NULL;
	hl_thread_leave(thread);
	return moved;
}

/* ${thread}: entered, or NULL. */
static __attribute__((noinline)) void *realloc_any(void *block, size_t size,
						   struct hl_thread *thread, bool sampled,
						   uint64_t caller_sp, uint64_t caller_bp)
{
	if (HL_UNLIKELY(!thread)) {
		thread = hl_thread_enter();
		if (!thread)
			return pass_realloc(block, size);
	}
	const struct hl_registers *caller = HL_CALLER_AT(caller_sp, caller_bp);
	if (block || thread->type)
		return reallocate(thread, block, size, sampled, caller, HL_SAVED_HERE());
	const struct hl_recall_slot *place = begin(thread, caller, HL_SAVED_HERE());
	return finish(thread, hl_libc.realloc(NULL, size), size, caller, place);
}

static inline __attribute__((always_inline)) void *
realloc_from(void *block, size_t size, uint64_t third, struct hl_thread *thread, uint64_t caller_sp,
	     uint64_t caller_bp)
{
	if (HL_UNLIKELY(hl_libc_is_bootstrap(block)))
		return move_out_of_bootstrap(block, size);
	bool sampled = !hl_sample_thread_passes(thread, size);
	if ((!sampled && !(block && hl_event_may_hold(block))) || passes_at_once(&thread, block))
		return hl_libc.realloc(block, size);
	const char *(*told_type)(uint64_t, bool, uint64_t) =
		atomic_load_explicit(&hl_guest_wants.told_type, memory_order_relaxed);
	if (HL_UNLIKELY(told_type) && thread)
		thread->type = told_type(HL_HOOK_PC(caller_sp, caller_bp), !block, third);
	return realloc_any(block, size, thread, sampled, caller_sp, caller_bp);
}

/* With a third argument: what its caller has left in that register. libc's header declares realloc() otherwise. */
#ifdef HL_ATTACHED
#define REALLOC HL_HOOK(realloc)
void *REALLOC(void *block, size_t size, uint64_t third);
#else
#define REALLOC realloc_with_third
void *REALLOC(void *block, size_t size, uint64_t third) __asm__("realloc");
#endif

HL_EXPORT void *REALLOC(void *block, size_t size, uint64_t third)
{
	return realloc_from(block, size, third, HL_CALLER_THREAD, HL_CALLER_SP, HL_CALLER_BP);
}

/* By realloc, so that a real reallocarray that calls realloc is not counted twice. */
HL_EXPORT void *HL_HOOK(reallocarray)(void *block, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return hl_libc_fail_array(block, count, size);
	return realloc_from(block, bytes, 0, HL_CALLER_THREAD, HL_CALLER_SP, HL_CALLER_BP);
}

/* The aligned family: ${CALL} is the real call, of which ${REAL} is the function. */
#define HOOK_ALIGNED(REAL, SIZE, CALL)                                                       \
	do {                                                                                 \
		if (!hl_libc_resolve() || !hl_libc.REAL) {                                   \
			hl_libc_refuse();                                                    \
			return NULL;                                                         \
		}                                                                            \
		if (hl_sample_passes(SIZE))                                                  \
			return hl_libc.CALL;                                                 \
		struct hl_thread *thread = hl_thread_enter();                                \
		if (HL_UNLIKELY(!thread)) {                                                  \
			hl_event_nested_alloc(SIZE);                                         \
			return hl_libc.CALL;                                                 \
		}                                                                            \
		if (passes(thread, NULL))                                                    \
			return hl_libc.CALL;                                                 \
		const struct hl_registers *caller = HL_CALLER;                               \
		const struct hl_recall_slot *place = begin(thread, caller, HL_SAVED_HERE()); \
		return finish(thread, hl_libc.CALL, SIZE, caller, place);                    \
	} while (0)

HL_EXPORT void *HL_HOOK(aligned_alloc)(size_t alignment, size_t size)
{
	HOOK_ALIGNED(aligned_alloc, size, aligned_alloc(alignment, size));
}

HL_EXPORT void *HL_HOOK(memalign)(size_t alignment, size_t size)
{
	HOOK_ALIGNED(memalign, size, memalign(alignment, size));
}

HL_EXPORT void *HL_HOOK(valloc)(size_t size)
{
	HOOK_ALIGNED(valloc, size, valloc(size));
}

HL_EXPORT void *HL_HOOK(pvalloc)(size_t size)
{
	HOOK_ALIGNED(pvalloc, size, pvalloc(size));
}

HL_EXPORT int HL_HOOK(posix_memalign)(void **ret_block, size_t alignment, size_t size)
{
	if (!hl_libc_resolve() || !hl_libc.posix_memalign)
		return ENOMEM;
	if (hl_sample_passes(size))
		return hl_libc.posix_memalign(ret_block, alignment, size);
	struct hl_thread *thread = hl_thread_enter();
	if (HL_UNLIKELY(!thread)) {
		hl_event_nested_alloc(size);
		return hl_libc.posix_memalign(ret_block, alignment, size);
	}
	if (passes(thread, NULL))
		return hl_libc.posix_memalign(ret_block, alignment, size);
	const struct hl_registers *caller = HL_CALLER;
	const struct hl_recall_slot *place = begin(thread, caller, HL_SAVED_HERE());
	int error = hl_libc.posix_memalign(ret_block, alignment, size);
	finish(thread, error ? NULL : *ret_block, size, caller, place);
	return error;
}

/* C23. Where the allocator has no sized free, the plain one is defined to do the same. */

HL_EXPORT void HL_HOOK(free_sized)(void *block, size_t size)
{
	(void)size;
	HL_HOOK(free)(block);
}

HL_EXPORT void HL_HOOK(free_aligned_sized)(void *block, size_t alignment, size_t size)
{
	(void)alignment;
	(void)size;
	HL_HOOK(free)(block);
}

#ifndef HL_ATTACHED
/* ---- calls that are passed on by a jump, as if no hook were there; not all compilers have naked functions for all machines ---- */

#define TEXT_OF(number) #number
#define NUMBER(number)	TEXT_OF(number)

#define FUNCTION(NAME, CODE)                                                \
	__asm__(".text\n"                                                   \
		".globl " #NAME "\n"                                        \
		".type " #NAME ", %function\n" #NAME ":\n\t"                \
		".cfi_startproc\n\t" HL_LANDING_PAD CODE ".cfi_endproc\n\t" \
		".size " #NAME ", . - " #NAME "\n")

/* By dlmopen(). */
__attribute__((used, visibility("hidden"))) void hl_hooks_note_namespace(Lmid_t namespace)
{
	hl_libc_resolve();
	if (namespace == LM_ID_NEWLM)
		hl_kin_count_namespace();
	else
		hl_deepbind_complete();
}

/* By dlopen(). */
__attribute__((used, visibility("hidden"))) void hl_hooks_note_library(void)
{
	hl_libc_resolve();
	hl_deepbind_complete();
}

/* The loader looks for libraries where its caller's would be, so the call is passed on by a jump. A namespace brings a libc
 * of its own, which nothing is put before. */
FUNCTION(dlopen, HL_CALL("hl_hooks_note_library") HL_JUMP("hl_libc_dlopen"));
FUNCTION(dlmopen, HL_CALL("hl_hooks_note_namespace") HL_JUMP("hl_libc_dlmopen"));

/* May be called in any way, so nothing but the registers of calls between modules is touched. */
FUNCTION(syscall,
	 HL_JUMP_IF(NUMBER(__NR_execve), "hl_hooks_exec_by_number")
		 HL_JUMP_IF(NUMBER(__NR_execveat), "hl_hooks_exec_by_number")
			 HL_JUMP_IF(NUMBER(__NR_seccomp), "hl_hooks_filter_by_number")
				 HL_JUMP_IF(NUMBER(__NR_prctl), "hl_hooks_filter_by_number")
					 HL_JUMP("hl_libc_syscall"));
#endif

/* The code of the library goes away: rules and walks that know it must not be used again. */
HL_EXPORT int HL_HOOK(dlclose)(void *handle)
{
	if (!hl_libc_resolve() || !hl_libc.dlclose)
		return -1;
	int result = hl_libc.dlclose(handle);
	hl_libc_note_unloaded();
	struct hl_recorder *recorder = hl_recorder;
	struct hl_thread *thread = hl_thread_enter();
	if (HL_LIKELY(thread)) {
		hl_modules_retire_unloaded(&hl_recorder->modules);
		hl_thread_leave(thread);
	}
	if (hl_recorder_is_running(recorder))
		hl_rule_cache_invalidate(&recorder->unwind);
	return result;
}
