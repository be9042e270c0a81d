/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's own mappings; see private.h. */
#include "recorder/private.h"

#include "recorder/sys.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* More mappings than this are not remembered: a forked child then keeps them, empty, as address
 * space. */
#define REMEMBERED_MAX 4096

struct mapping {
	_Atomic uintptr_t address; /* 0 = free, RESERVED = about to be filled in */
	size_t bytes;
};

#define RESERVED ((uintptr_t)1)

/* In ordinary memory, not wiped on fork: it is the child that needs it. */
static struct mapping remembered[REMEMBERED_MAX];
static _Atomic uint32_t remembered_end; /* slots [0, end) may be in use */

static void raise_end(uint32_t end)
{
	uint32_t seen = atomic_load(&remembered_end);
	while (seen < end && !atomic_compare_exchange_weak(&remembered_end, &seen, end))
		;
}

void hl_private_adopt(void *address, size_t bytes)
{
	for (uint32_t i = 0; i < REMEMBERED_MAX; i++) {
		uintptr_t expected = 0;
		if (!atomic_compare_exchange_strong(&remembered[i].address, &expected, RESERVED))
			continue;
		remembered[i].bytes = bytes;
		atomic_store(&remembered[i].address, (uintptr_t)address);
		raise_end(i + 1);
		return;
	}
}

void *hl_private_map(size_t bytes)
{
	void *address = hl_sys_mmap(bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!address)
		return NULL;
	/* A huge page would back 8 MiB of heap for one entry of a block table. */
	hl_sys_madvise(address, bytes, MADV_NOHUGEPAGE);
	if (hl_sys_madvise(address, bytes, MADV_WIPEONFORK) < 0) {
		hl_sys_munmap(address, bytes);
		return NULL;
	}
	hl_private_adopt(address, bytes);
	return address;
}

void hl_private_unmap(void *address, size_t bytes)
{
	uint32_t end = atomic_load(&remembered_end);
	for (uint32_t i = 0; i < end; i++) {
		uintptr_t expected = (uintptr_t)address;
		if (atomic_compare_exchange_strong(&remembered[i].address, &expected, 0))
			break;
	}
	hl_sys_munmap(address, bytes);
}

void hl_private_forget(void)
{
	uint32_t end = atomic_exchange(&remembered_end, 0);
	for (uint32_t i = 0; i < end; i++) {
		uintptr_t address = atomic_exchange(&remembered[i].address, 0);
		if (address > RESERVED)
			hl_sys_munmap((void *)address, remembered[i].bytes);
	}
}
