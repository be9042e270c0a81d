/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mmap and its family: passed through, and recorded when `record --mappings` asks for it. Compiled
 * with -fno-omit-frame-pointer, see HL_CALLER.
 *
 * All mappings that the program makes count, by their size in pages, whether they are ever touched
 * or not. The C library's own do not come by here. Those of another allocator are recognized by
 * their caller and left out: the blocks in them are recorded already.
 *
 * Recorded after the system call, so that a failed one changes nothing; see mappings.h for what
 * other threads may do in between.
 */

/* With it, <sys/mman.h> would turn the definition of mmap into a second one of mmap64. */
#undef _FILE_OFFSET_BITS

#include "recorder/hooks.h"

#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

/* In ordinary memory, so that a forked child knows before it has a region of its own. */
static _Atomic bool recorded;

void hl_hooks_mapping_record(bool wanted)
{
	atomic_store(&recorded, wanted);
}

static uint64_t page_up(uint64_t address)
{
	return (address + HL_SYS_PAGE_BYTES - 1) & ~(HL_SYS_PAGE_BYTES - 1);
}

/*
 * Begins an event of ${bytes} by the code at ${caller}; NULL = pass through. A call inside the
 * recorder or the allocator comes from a signal handler and is lost.
 */
static struct hl_thread *enter(void *caller, uint64_t bytes)
{
	if (HL_LIKELY(!atomic_load_explicit(&recorded, memory_order_relaxed)) ||
	    hl_libc_same_module(caller, (void *)hl_libc.malloc))
		return NULL;
	struct hl_thread *thread = hl_thread_enter();
	if (!thread) {
		hl_event_nested_alloc(bytes);
		return NULL;
	}
	if (thread->maps_arena) {
		hl_thread_leave(thread);
		return NULL;
	}
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	return thread;
}

/* The kernel's answer as the C library gives it. */
static long with_errno(long result)
{
	if (result >= 0 || result < -4095)
		return result;
	errno = (int)-result;
	return -1;
}

static void *real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (HL_LIKELY(hl_libc_resolve() && hl_libc.mmap))
		return hl_libc.mmap(address, bytes, protection, flags, fd, offset);
	return (void *)with_errno(
		hl_sys6(SYS_mmap, (long)address, (long)bytes, protection, flags, fd, offset));
}

static int real_munmap(void *address, size_t bytes)
{
	if (HL_LIKELY(hl_libc_resolve() && hl_libc.munmap))
		return hl_libc.munmap(address, bytes);
	return (int)with_errno(hl_sys_munmap(address, bytes));
}

static void *real_mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, void *wanted)
{
	if (HL_LIKELY(hl_libc_resolve() && hl_libc.mremap))
		return hl_libc.mremap(old, old_bytes, new_bytes, flags, wanted);
	return (void *)with_errno(hl_sys6(SYS_mremap, (long)old, (long)old_bytes, (long)new_bytes,
					  flags, (long)wanted, 0));
}

/* Only the C library knows where it believes the break to be. */

static int real_brk(void *end)
{
	if (HL_LIKELY(hl_libc_resolve() && hl_libc.brk))
		return hl_libc.brk(end);
	errno = ENOMEM;
	return -1;
}

static void *real_sbrk(intptr_t change)
{
	if (HL_LIKELY(hl_libc_resolve() && hl_libc.sbrk))
		return hl_libc.sbrk(change);
	errno = ENOMEM;
	return (void *)-1;
}

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset,
		 const struct hl_registers *caller)
{
	struct hl_thread *thread = enter((void *)caller->pc, bytes);
	void *area = real_mmap(address, bytes, protection, flags, fd, offset);

	if (!thread)
		return area;
	hl_thread_set(thread, HL_RECORDING);
	if (area != MAP_FAILED)
		hl_event_map(thread, (uint64_t)area, (uint64_t)area + page_up(bytes),
			     HL_PSEUDO_MMAP, caller);
	hl_thread_leave(thread);
	return area;
}

HL_EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return map(address, bytes, protection, flags, fd, offset, HL_CALLER);
}

HL_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd,
		       off64_t offset)
{
	return map(address, bytes, protection, flags, fd, offset, HL_CALLER);
}

HL_EXPORT int munmap(void *address, size_t bytes)
{
	hl_pools_unmap(address, bytes);
	struct hl_thread *thread = enter(__builtin_return_address(0), 0);
	if (!thread)
		return real_munmap(address, bytes);
	uint64_t bound = hl_mappings_next(&hl_recorder->mappings);
	int result = real_munmap(address, bytes);
	hl_thread_set(thread, HL_RECORDING);
	if (!result)
		hl_event_unmap(thread, (uint64_t)address, (uint64_t)address + page_up(bytes),
			       bound);
	hl_thread_leave(thread);
	return result;
}

HL_EXPORT void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	va_list rest;

	va_start(rest, flags);
	void *wanted = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? va_arg(rest, void *) : NULL;
	va_end(rest);
	struct hl_thread *thread = enter(__builtin_return_address(0), new_bytes);
	if (!thread)
		return real_mremap(old, old_bytes, new_bytes, flags, wanted);
	uint64_t bound = hl_mappings_next(&hl_recorder->mappings);
	/* A runtime may move the stack that its frames are read from. */
	hl_thread_set(thread, HL_RECORDING);
	hl_event_look_ahead(thread, HL_CALLER, hl_event_locate(thread, HL_CALLER));
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	void *area = real_mremap(old, old_bytes, new_bytes, flags, wanted);
	hl_thread_set(thread, HL_RECORDING);
	if (area != MAP_FAILED) {
		if (!(flags & MREMAP_DONTUNMAP))
			hl_event_unmap(thread, (uint64_t)old, (uint64_t)old + page_up(old_bytes),
				       bound);
		hl_event_map(thread, (uint64_t)area, (uint64_t)area + page_up(new_bytes),
			     HL_PSEUDO_MMAP, HL_CALLER);
	}
	hl_event_look_back(thread);
	hl_thread_leave(thread);
	return area;
}

/* The break has moved; whole pages count, so that small steps add up right. */
static void record_break(struct hl_thread *thread, uint64_t from, uint64_t to, uint64_t bound,
			 const struct hl_registers *caller)
{
	from = page_up(from);
	to = page_up(to);
	if (to > from)
		hl_event_map(thread, from, to, HL_PSEUDO_BRK, caller);
	else if (to < from)
		hl_event_unmap(thread, to, from, bound);
}

HL_EXPORT int brk(void *end)
{
	struct hl_thread *thread = enter(__builtin_return_address(0), 0);

	if (!thread)
		return real_brk(end);
	uint64_t bound = hl_mappings_next(&hl_recorder->mappings);
	uint64_t from = (uint64_t)real_sbrk(0);
	int result = real_brk(end);
	hl_thread_set(thread, HL_RECORDING);
	if (!result)
		record_break(thread, from, (uint64_t)end, bound, HL_CALLER);
	hl_thread_leave(thread);
	return result;
}

HL_EXPORT void *sbrk(intptr_t change)
{
	struct hl_thread *thread =
		change ? enter(__builtin_return_address(0), change > 0 ? (uint64_t)change : 0)
		       : NULL;

	if (!thread)
		return real_sbrk(change);
	uint64_t bound = hl_mappings_next(&hl_recorder->mappings);
	void *from = real_sbrk(change);
	hl_thread_set(thread, HL_RECORDING);
	if (from != (void *)-1)
		record_break(thread, (uint64_t)from, (uint64_t)from + (uint64_t)change, bound,
			     HL_CALLER);
	hl_thread_leave(thread);
	return from;
}
