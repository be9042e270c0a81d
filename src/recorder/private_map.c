/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's own mappings; see private_map.h. */
#include "recorder/private_map.h"

#include "recorder/sys.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* More mappings than this are not remembered: a child that a signal handler forks in the middle of
 * an event may then miss one. */
#define REMEMBERED_MAX 4096

struct mapping {
	_Atomic uintptr_t address; /* 0 = free, RESERVED = about to be filled in */
	size_t bytes;
};

#define RESERVED ((uintptr_t)1)

/* In ordinary memory, not wiped on fork: it is the child that needs it. */
static struct mapping remembered[REMEMBERED_MAX];
static _Atomic uint32_t remembered_end; /* slots [0, end) may be in use */

#define PROTECTION (PROT_READ | PROT_WRITE)
#define SHARED	   (MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE)
#define PRIVATE	   (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static void remember(void *address, size_t bytes)
{
	for (uint32_t i = 0; i < REMEMBERED_MAX; i++) {
		uintptr_t expected = 0;
		if (!atomic_compare_exchange_strong(&remembered[i].address, &expected, RESERVED))
			continue;
		remembered[i].bytes = bytes;
		atomic_store(&remembered[i].address, (uintptr_t)address);
		uint32_t end = atomic_load(&remembered_end);
		while (end < i + 1 && !atomic_compare_exchange_weak(&remembered_end, &end, i + 1))
			;
		return;
	}
}

static bool map_at(void *address, size_t bytes, int flags)
{
	return hl_sys6(SYS_mmap, (long)address, (long)bytes, PROTECTION, flags | MAP_FIXED, -1,
		       0) == (long)address;
}

static void *map_quiet(size_t bytes)
{
	void *address = hl_sys_mmap(bytes, PROTECTION, SHARED, -1);

	if (!address)
		return NULL;
	/* A huge page would back 8 MiB of heap for one entry of a block table. */
	hl_sys_madvise(address, bytes, MADV_NOHUGEPAGE);
	/* A debugger that reads it for a core file would fill pages that were never touched. */
	hl_sys_madvise(address, bytes, MADV_DONTDUMP);
	return address;
}

static void *map(size_t bytes)
{
	void *address = map_quiet(bytes);

	if (address && hl_sys_madvise(address, bytes, MADV_DONTFORK) < 0) {
		hl_sys_munmap(address, bytes);
		return NULL;
	}
	return address;
}

static void *map_heads(size_t bytes)
{
	void *address = hl_sys_mmap(bytes, PROTECTION, PRIVATE, -1);

	if (address && hl_sys_madvise(address, bytes, MADV_WIPEONFORK) < 0) {
		hl_sys_munmap(address, bytes);
		return NULL;
	}
	return address;
}

/* Without signals: a handler that forks in the middle of an event must not have a child that
 * shares the mapping, or misses it. */
void *hl_private_map_take(size_t bytes, bool heads)
{
	uint64_t before;

	if (heads)
		return map_heads(bytes);
	hl_sys_block_signals(&before);
	void *address = map(bytes);
	if (address)
		remember(address, bytes);
	hl_sys_restore_signals(&before);
	return address;
}

void hl_private_map_give(void *address, size_t bytes)
{
	uint32_t end = atomic_load(&remembered_end);

	for (uint32_t i = 0; i < end; i++) {
		uintptr_t expected = (uintptr_t)address;
		if (atomic_compare_exchange_strong(&remembered[i].address, &expected, 0))
			break;
	}
	hl_sys_munmap(address, bytes);
}

/* Whether shared memory that was removed has been seen to be gone: qemu-user 7.2 says so and keeps it. */
static _Atomic bool removes;

/* Advice fails where the program has locked all of its memory. */
void hl_private_map_clear(void *address, size_t bytes, bool heads)
{
	volatile char *first = address;
	bool is_sure = heads || atomic_load_explicit(&removes, memory_order_relaxed);

	if (!is_sure)
		*first = 1;
	bool is_clear = hl_sys_madvise(address, bytes, heads ? MADV_DONTNEED : MADV_REMOVE) == 0 &&
			(is_sure || !*first);
	if (!is_clear)
		memset(address, 0, bytes);
	else if (!is_sure)
		atomic_store_explicit(&removes, true, memory_order_relaxed);
}

void hl_private_map_adopt(void *address, size_t bytes)
{
	hl_sys_madvise(address, bytes, MADV_DONTFORK);
	remember(address, bytes);
}

bool hl_private_map_has(uintptr_t address)
{
	uint32_t end = atomic_load(&remembered_end);

	for (uint32_t i = 0; i < end; i++) {
		uintptr_t start = atomic_load(&remembered[i].address);
		if (start > RESERVED && address - start < remembered[i].bytes)
			return true;
	}
	return false;
}

void hl_private_map_forget(void)
{
	uint32_t end = atomic_exchange(&remembered_end, 0);

	hl_private_pieces_forget();
	for (uint32_t i = 0; i < end; i++)
		atomic_store(&remembered[i].address, 0);
}

/* ---- mappings with a head ---- */

static void *tail_of(void *address)
{
	return (char *)address + HL_PRIVATE_MAP_HEAD;
}

void *hl_private_map_new_headed(size_t bytes)
{
	void *address = map_quiet(bytes);

	if (!address)
		return NULL;
	if (!map_at(address, HL_PRIVATE_MAP_HEAD, PRIVATE) ||
	    hl_sys_madvise(address, HL_PRIVATE_MAP_HEAD, MADV_WIPEONFORK) < 0) {
		hl_sys_munmap(address, bytes);
		return NULL;
	}
	return address;
}

bool hl_private_map_renew(void *address, size_t bytes)
{
	return map_at(tail_of(address), bytes - HL_PRIVATE_MAP_HEAD, SHARED);
}

/* ---- forks in the middle of an event ---- */

void hl_private_map_keep(void *head, void *rest, size_t bytes)
{
	hl_sys_madvise(head, HL_PRIVATE_MAP_HEAD, MADV_KEEPONFORK);
	hl_sys_madvise(rest, bytes, MADV_DOFORK);
}

void hl_private_map_wipe(void *head, void *rest, size_t bytes)
{
	hl_sys_madvise(head, HL_PRIVATE_MAP_HEAD, MADV_WIPEONFORK);
	if (rest)
		hl_sys_madvise(rest, bytes, MADV_DONTFORK);
}

/* Without memory for that parent and child go on with the same: of the child nothing is counted. */
void hl_private_map_separate(void *rest, size_t bytes)
{
	void *copy = hl_sys_mmap(bytes, PROTECTION, SHARED, -1);

	if (!copy)
		return;
	memcpy(copy, rest, bytes);
	hl_sys6(SYS_mremap, (long)copy, (long)bytes, (long)bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		(long)rest, 0);
}

static void replace(uintptr_t start, uintptr_t end)
{
	if (start < end)
		map_at((void *)start, end - start, SHARED);
}

void hl_private_map_replace(const void *kept, size_t bytes)
{
	uintptr_t kept_start = (uintptr_t)kept;
	uintptr_t kept_end = kept_start + ((bytes + HL_PRIVATE_MAP_HEAD - 1) &
					   ~(size_t)(HL_PRIVATE_MAP_HEAD - 1));
	uint32_t count = atomic_load(&remembered_end);

	/* Another thread of the parent may have held a lock. */
	hl_private_pieces_forget();
	for (uint32_t i = 0; i < count; i++) {
		uintptr_t start = atomic_load(&remembered[i].address);
		uintptr_t end = start + remembered[i].bytes;
		if (start <= RESERVED)
			continue;
		bool has_kept = kept_start >= start && kept_start < end;
		replace(start, has_kept ? kept_start : end);
		if (has_kept)
			replace(kept_end, end);
	}
}
