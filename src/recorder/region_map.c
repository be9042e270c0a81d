/* SPDX-License-Identifier: BSD-2-Clause */
/* Backs parts of the region with memory; see region_map.h. */
#include "recorder/region_map.h"

#include "recorder/private_map.h"
#include "recorder/sys.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <time.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Small areas grow a page at a time, so that a short-lived process stays small; large ones by an
 * eighth, up to a bound. */
#define COMMIT_MIN UINT64_C(4096)
#define COMMIT_MAX (UINT64_C(1) << 20)

static void *area_start(struct hl_region_header *header, enum hl_area_id id)
{
	return (char *)header + header->areas[id].offset;
}

void *hl_region_map_open(int fd, size_t first_bytes, size_t *bytes)
{
	size_t mapped = first_bytes ? first_bytes : *bytes;
	/* Inaccessible but for the header until it is needed: mlockall() passes over such pages. */
	struct hl_region_header *header = hl_sys_mmap(mapped, PROT_NONE, MAP_SHARED, fd);

	if (!header)
		return NULL;
	HL_SYS(SYS_mprotect, header, sizeof(*header), PROT_READ | PROT_WRITE);
	uint64_t needed = hl_region_first_bytes(header);
	if (memcmp(header->magic, HL_REGION_MAGIC, sizeof(header->magic)) != 0 ||
	    header->region_bytes != *bytes || header->areas[HL_AREA_RINGS].offset > *bytes ||
	    needed > mapped) {
		hl_sys_munmap(header, mapped);
		return NULL;
	}
	if (needed < mapped && !hl_mode_logs(hl_mode_of(atomic_load(&header->mode)))) {
		hl_sys_munmap((char *)header + needed, mapped - needed);
		mapped = needed;
	}
	hl_sys_madvise(header, mapped, MADV_DONTDUMP);
	*bytes = mapped;
	return header;
}

void hl_region_map_init(struct hl_region_map *region, void *base, size_t bytes)
{
	struct hl_region_header *header = base;

	region->header = header;
	region->modules = area_start(header, HL_AREA_MODULES);
	region->strings = area_start(header, HL_AREA_STRINGS);
	region->sites = area_start(header, HL_AREA_SITES);
	region->names = area_start(header, HL_AREA_NAMES);
	region->threads = area_start(header, HL_AREA_THREADS);
	region->nodes = area_start(header, HL_AREA_NODES);
	region->index = area_start(header, HL_AREA_INDEX);
	region->chunks = area_start(header, HL_AREA_CELLS);
	hl_region_map_close(region);
	bool all = bytes >= header->region_bytes;
	atomic_init(&region->rings, all ? area_start(header, HL_AREA_RINGS) : NULL);
	atomic_init(&region->large_rings, 0);
	atomic_init(&region->dead_tick, 0);
	atomic_init(&region->order.alone, HL_RING_NOBODY);
	atomic_init(&region->order.seen, 0);
}

void hl_region_map_close(struct hl_region_map *region)
{
	for (int id = 0; id < HL_AREA_COUNT; id++)
		atomic_store(&region->accessible[id], 0), atomic_store(&region->permitted[id], 0);
}

/* A shared mapping of 0 bytes is not moved but made once more, as large as asked for (mremap(2)):
 * no file descriptor is needed. */
char *hl_region_map_rings(struct hl_region_map *region)
{
	const struct hl_area *area = &region->header->areas[HL_AREA_RINGS];

	char *rings = atomic_load_explicit(&region->rings, memory_order_acquire), *other = NULL;
	if (rings || !area->capacity)
		return rings;
	long address = hl_sys6(SYS_mremap, (long)area_start(region->header, HL_AREA_RINGS), 0,
			       (long)area->capacity, MREMAP_MAYMOVE, 0, 0);
	if (address < 0 && address > -4096)
		return NULL;
	rings = (char *)address;
	if (!atomic_compare_exchange_strong(&region->rings, &other, rings)) {
		hl_sys_munmap(rings, area->capacity);
		return other;
	}
	hl_private_map_adopt(rings, area->capacity);
	return rings;
}

static uint64_t next_commit(const struct hl_area *area, uint64_t committed, uint64_t end)
{
	uint64_t step = committed / 8;

	if (step < COMMIT_MIN)
		step = COMMIT_MIN;
	if (step > COMMIT_MAX)
		step = COMMIT_MAX;
	uint64_t target = end > committed + step ? end : committed + step;
	target = (target + COMMIT_MIN - 1) & ~(COMMIT_MIN - 1);
	return target < area->capacity ? target : area->capacity;
}

/* The page in which ${start} lies: the kernel's may be larger than steps and rings. */
static uint64_t page_of(const void *start)
{
	return (uint64_t)start & ~(HL_SYS_PAGE_BYTES - 1);
}

bool hl_region_map_permit(void *start, uint64_t bytes)
{
	uint64_t page = page_of(start), end = (uint64_t)start + bytes;

	return HL_SYS(SYS_mprotect, page, end - page, PROT_READ | PROT_WRITE) >= 0;
}

static bool populate(void *start, uint64_t bytes)
{
	uint64_t page = page_of(start), end = (uint64_t)start + bytes;
	long result;

	do {
		result = hl_sys_madvise((void *)page, end - page, MADV_POPULATE_WRITE);
	} while (result == -EAGAIN || result == -EINTR);
	/* EINVAL: a kernel before 5.14, EPERM: a filter forbids it. Pages then come on touch, and only a memory cgroup can
	 * refuse them. */
	return result >= 0 || result == -EINVAL || result == -EPERM;
}

bool hl_region_map_back(void *start, uint64_t bytes)
{
	return hl_region_map_permit(start, bytes) && populate(start, bytes);
}

bool hl_region_map_back_ring(struct hl_region_map *region, uint32_t slot)
{
	struct hl_ring *ring = hl_ring_at(atomic_load(&region->rings), slot);
	uint64_t end = (slot + UINT64_C(1)) * HL_RING_SMALL;

	return end <= atomic_load(&region->permitted[HL_AREA_RINGS])
		       ? populate(ring, HL_RING_SMALL)
		       : hl_region_map_back(ring, HL_RING_SMALL);
}

static void raise_to(_Atomic uint64_t *bytes, uint64_t target)
{
	uint64_t seen = atomic_load_explicit(bytes, memory_order_relaxed);

	while (seen < target && !atomic_compare_exchange_weak(bytes, &seen, target))
		;
}

bool hl_region_map_commit(struct hl_region_map *region, enum hl_area_id id, uint64_t end)
{
	struct hl_area *area = &region->header->areas[id];

	if (end > area->capacity)
		return false;
	uint64_t accessible = atomic_load_explicit(&region->accessible[id], memory_order_acquire);
	if (end <= accessible)
		return true;
	uint64_t target = next_commit(area, accessible, end),
		 permitted = atomic_load(&region->permitted[id]);
	char *start = (char *)area_start(region->header, id) + accessible;
	if (HL_UNLIKELY(end <= permitted && target > permitted))
		target = permitted;
	if (target <= permitted ? !populate(start, target - accessible)
				: !hl_region_map_back(start, target - accessible))
		return false;
	raise_to(&region->accessible[id], target);
	raise_to(&area->committed, target);
	return true;
}

/* What is permitted and not used costs nothing, but mlockall() brings it in. */
#define PERMITTED_FACTOR 4
#define PERMITTED_MIN	 (UINT64_C(4) << 20)

static void permit_more(struct hl_region_map *region, enum hl_area_id id)
{
	const struct hl_area *area = &region->header->areas[id];
	uint64_t accessible = atomic_load(&region->accessible[id]);
	uint64_t wanted = accessible * PERMITTED_FACTOR;

	if (wanted < PERMITTED_MIN)
		wanted = PERMITTED_MIN;
	if (wanted > area->capacity)
		wanted = area->capacity & ~(COMMIT_MIN - 1);
	if (wanted > accessible &&
	    hl_region_map_permit((char *)area_start(region->header, id) + accessible,
				 wanted - accessible))
		raise_to(&region->permitted[id], wanted);
}

static void permit_rings(struct hl_region_map *region)
{
	uint64_t used = atomic_load(&region->header->thread_count) * (uint64_t)HL_RING_SMALL;
	uint64_t count = region->header->areas[HL_AREA_RINGS].capacity / HL_RING_STRIDE;
	uint64_t end = used + PERMITTED_MIN / HL_RING_SMALL * HL_RING_SMALL;
	char *rings = hl_mode_logs(hl_mode_of(atomic_load(&region->header->mode)))
			      ? hl_region_map_rings(region)
			      : NULL;

	if (end > count * HL_RING_SMALL)
		end = count * HL_RING_SMALL;
	if (rings && end > used && hl_region_map_permit(rings + used, end - used))
		raise_to(&region->permitted[HL_AREA_RINGS], end);
}

void hl_region_map_prepare(struct hl_region_map *region)
{
	permit_rings(region);
	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++)
		if (id != HL_AREA_RINGS)
			permit_more(region, id);
}

/*
 * Whether ${pid} has ended and nobody has reaped it. The kernel looks at the owner of a lock before
 * it lets anybody wait for it; this wait is over before it begins, and one for a process that has
 * ended is refused.
 */
static bool is_zombie(int32_t pid)
{
	_Atomic int32_t lock = pid;
	const struct timespec long_ago = {0};

	return hl_sys6(SYS_futex, (long)&lock, FUTEX_LOCK_PI_PRIVATE, 0, (long)&long_ago, 0, 0) ==
	       -ESRCH;
}

/* One that may not be signalled exists as well. */
bool hl_region_map_collector_exists(const struct hl_region_map *region)
{
	int32_t pid = region->collector_pid;

	return pid > 0 && HL_SYS(SYS_kill, pid, 0, 0) != -ESRCH && !is_zombie(pid);
}
