/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorder's own mappings in a process that was entered; see private_map.h. All are remembered,
 * to be given back at the end. A forked child has a copy of them until its first hook (slots.c): one
 * that a signal handler forked out of a hook goes on with it. So they are private ones.
 */
#include "recorder/private_map.h"

#include "recorder/sys.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* One for each 64 MiB of heap, and what threads share. Beyond, there is no memory. */
#define MAPPINGS_MAX 32768u

#define RESERVED ((uintptr_t)1)

static struct mapping {
	_Atomic uintptr_t address; /* 0 = free, RESERVED = about to be filled in */
	size_t bytes;
} mappings[MAPPINGS_MAX];

static _Atomic uint32_t next; /* to be tried first */

static struct mapping *reserve(void)
{
	uint32_t first = atomic_load_explicit(&next, memory_order_relaxed);

	for (uint32_t i = 0; i < MAPPINGS_MAX; i++) {
		uint32_t at = (first + i) % MAPPINGS_MAX;
		uintptr_t none = 0;
		if (atomic_load_explicit(&mappings[at].address, memory_order_relaxed) ||
		    !atomic_compare_exchange_strong(&mappings[at].address, &none, RESERVED))
			continue;
		atomic_store_explicit(&next, at + 1, memory_order_relaxed);
		return &mappings[at];
	}
	return NULL;
}

static void keep(struct mapping *mapping, void *address, size_t bytes)
{
	mapping->bytes = bytes;
	atomic_store(&mapping->address, (uintptr_t)address);
}

void *hl_private_map_take(size_t bytes, bool heads)
{
	struct mapping *mapping = reserve();

	(void)heads; /* a child has a copy of all */
	if (!mapping)
		return NULL;
	void *address = hl_sys_mmap(bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (address) {
		/* For the reasons that ../private_map.c gives. */
		hl_sys_madvise(address, bytes, MADV_NOHUGEPAGE);
		hl_sys_madvise(address, bytes, MADV_DONTDUMP);
		/* Has heap/memory_live.c know it: nothing else has both. */
		hl_sys_madvise(address, bytes, MADV_RANDOM);
	}
	keep(mapping, address, bytes);
	return address;
}

void hl_private_map_give(void *address, size_t bytes)
{
	for (uint32_t i = 0; i < MAPPINGS_MAX; i++) {
		uintptr_t expected = (uintptr_t)address;
		if (atomic_load_explicit(&mappings[i].address, memory_order_relaxed) != expected)
			continue;
		/* Before it is unmapped, as another thread may get the address. */
		atomic_store(&mappings[i].address, 0);
		atomic_store_explicit(&next, i, memory_order_relaxed);
		break;
	}
	hl_sys_munmap(address, bytes);
}

/* Advice fails where the program has locked all of its memory. */
void hl_private_map_clear(void *address, size_t bytes, bool heads)
{
	(void)heads;
	if (hl_sys_madvise(address, bytes, MADV_DONTNEED) < 0)
		memset(address, 0, bytes);
}

void *hl_private_map_new_headed(size_t bytes)
{
	return hl_private_map_take(bytes, false);
}

/* Without room for it, it stays behind. */
void hl_private_map_adopt(void *address, size_t bytes)
{
	struct mapping *mapping = reserve();

	if (mapping)
		keep(mapping, address, bytes);
}

void hl_private_map_keep_file(void *address, size_t bytes)
{
	hl_private_map_adopt(address, bytes);
}

bool hl_private_map_has(uintptr_t address)
{
	for (uint32_t i = 0; i < MAPPINGS_MAX; i++) {
		uintptr_t start = atomic_load(&mappings[i].address);
		if (start > RESERVED && address - start < mappings[i].bytes)
			return true;
	}
	return false;
}

void hl_private_map_release(void)
{
	hl_private_pieces_forget();
	for (uint32_t i = 0; i < MAPPINGS_MAX; i++) {
		uintptr_t address = atomic_load(&mappings[i].address);
		if (address > RESERVED)
			hl_sys_munmap((void *)address, mappings[i].bytes);
		if (address) /* reserved by a thread that a forked child does not have, too */
			atomic_store(&mappings[i].address, 0);
	}
}
