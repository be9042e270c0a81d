/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete, for allocators that define them themselves: those do not go through malloc. All others do, libstdc++'s for one, and are only
 * passed on here: their malloc and free are recorded.
 *
 * Compiled with -fno-omit-frame-pointer, see HL_CALLER. A real operator new may throw through these
 * functions, so no activity is set around it.
 */
#include "recorder/hooks.h"

#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/sample.h"
#include "recorder/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

struct cxx_operator {
	const char *name;
	_Atomic uintptr_t real;
	_Atomic bool own; /* comes from the module that malloc comes from */
};

static uintptr_t resolve(struct cxx_operator *it, void *caller)
{
	uintptr_t real = atomic_load_explicit(&it->real, memory_order_acquire);

	if (HL_LIKELY(real))
		return real;
	void *symbol = hl_libc_look_up(it->name, caller);
	if (!symbol)
		abort(); /* a C++ program whose operator new is nowhere: nothing could be returned
			    or thrown */
	atomic_store(&it->own,
		     hl_libc_resolve() && hl_libc_same_module(symbol, (void *)hl_libc.malloc));
	atomic_store_explicit(&it->real, (uintptr_t)symbol, memory_order_release);
	return (uintptr_t)symbol;
}

static void record_new(void *block, size_t size, uint64_t seen_before,
		       const struct hl_registers *caller)
{
	if (!block || hl_event_seen() != seen_before || hl_sample_passes(size))
		return;
	struct hl_thread *thread = hl_thread_enter();
	if (!thread)
		return;
	hl_event_alloc(thread, block, size, caller, hl_event_locate(thread, caller));
	hl_thread_leave(thread);
}

static void delete_own(uintptr_t real, void *block, size_t size, size_t alignment)
{
	void (*function)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))real;

	struct hl_thread *thread = block ? hl_thread_enter() : NULL;
	if (!thread) {
		function(block, size, alignment);
		return;
	}
	if (!hl_event_free_plain(thread, block))
		hl_event_free(thread, block);
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	function(block, size, alignment);
	hl_thread_leave(thread);
}

/*
 * ${SYMBOL} is the Itanium ABI's name. Operators new take a size first, operators delete a block
 * first; what follows (size, alignment, nothrow) is passed on as it came, as integers and pointers
 * in registers.
 */
#define OPERATOR_NEW(SYMBOL)                                                         \
	HL_EXPORT void *SYMBOL(size_t size, size_t second, size_t third);            \
	HL_EXPORT void *SYMBOL(size_t size, size_t second, size_t third)             \
	{                                                                            \
		static struct cxx_operator it = {#SYMBOL, 0, false};                 \
		uintptr_t real = resolve(&it, __builtin_return_address(0));          \
		void *(*function)(size_t, size_t, size_t) =                          \
			(void *(*)(size_t, size_t, size_t))real;                     \
		if (HL_LIKELY(!atomic_load_explicit(&it.own, memory_order_relaxed))) \
			return function(size, second, third);                        \
		uint64_t seen = hl_event_seen();                                     \
		void *block = function(size, second, third);                         \
		record_new(block, size, seen, HL_CALLER);                            \
		return block;                                                        \
	}

#define OPERATOR_DELETE(SYMBOL)                                                         \
	HL_EXPORT void SYMBOL(void *block, size_t second, size_t third);                \
	HL_EXPORT void SYMBOL(void *block, size_t second, size_t third)                 \
	{                                                                               \
		static struct cxx_operator it = {#SYMBOL, 0, false};                    \
		uintptr_t real = resolve(&it, __builtin_return_address(0));             \
		if (HL_LIKELY(!atomic_load_explicit(&it.own, memory_order_relaxed)))    \
			((void (*)(void *, size_t, size_t))real)(block, second, third); \
		else                                                                    \
			delete_own(real, block, second, third);                         \
	}

#define ALLOCATE(SYMBOL, SIZE)		OPERATOR_NEW(SYMBOL)
#define ALLOCATE_OR_THROW(SYMBOL, SIZE) OPERATOR_NEW(SYMBOL)
#define RELEASE(SYMBOL)			OPERATOR_DELETE(SYMBOL)
#include "allocators/operators.h"
