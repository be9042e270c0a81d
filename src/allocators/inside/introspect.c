/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public introspection of jemalloc, mimalloc and tcmalloc; see introspect.h. In a program that loads us their functions are
 * weak: the loader finds them, or they are not asked. To look them up later could wait for the loader's lock in the middle of
 * the program. In one that runs already heapline has found them.
 */
#include "recorder/introspect.h"

#include "allocators/traits.h"
#include "base/compiler.h"
#include "recorder/libc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Whom to ask; kind 0: nobody. */
static struct hl_answering asked;

/* ---- jemalloc: mallctl(3), "MALLCTL NAMESPACE" ---- */

typedef int mallctl_fn(const char *name, void *old, size_t *old_size, void *new, size_t new_size);
typedef int mallctlnametomib_fn(const char *name, size_t *mib, size_t *mib_length);
typedef int mallctlbymib_fn(const size_t *mib, size_t mib_length, void *old, size_t *old_size,
			    void *new, size_t new_size);

#define CTL	   ((mallctl_fn *)asked.functions[0])
#define CTL_TO_MIB ((mallctlnametomib_fn *)asked.functions[1])
#define CTL_BY_MIB ((mallctlbymib_fn *)asked.functions[2])

#define ALL_ARENAS 4096 /* MALLCTL_ARENAS_ALL */
#define MIB_MAX	   8

/* A number of up to 8 bytes; 0 when jemalloc knows no such name. */
static uint64_t ask_jemalloc(const char *name)
{
	uint64_t number = 0;
	size_t size = sizeof(size_t);

	return CTL(name, &number, &size, NULL, 0) == 0 ? number : 0;
}

/* The same with the arena and the class instead of the zeros in ${name}. */
static uint64_t ask_of_class(const char *name, int arena_at, int class_at, size_t class,
			     size_t size)
{
	size_t mib[MIB_MAX], length = MIB_MAX;
	uint64_t number = 0;

	if (CTL_TO_MIB(name, mib, &length) != 0)
		return 0;
	if (arena_at)
		mib[arena_at] = ALL_ARENAS;
	mib[class_at] = class;
	return CTL_BY_MIB(mib, length, &number, &size, NULL, 0) == 0 ? number : 0;
}

static struct hl_slab_class class_of_jemalloc(size_t class)
{
	enum { OF_CLASS = 2, ARENA = 2, CLASS = 4 };
	struct hl_slab_class it = {
		.block_bytes =
			ask_of_class("arenas.bin.0.size", 0, OF_CLASS, class, sizeof(size_t)),
		.slab_bytes =
			ask_of_class("arenas.bin.0.slab_size", 0, OF_CLASS, class, sizeof(size_t)),
		.slabs = ask_of_class("stats.arenas.0.bins.0.curslabs", ARENA, CLASS, class,
				      sizeof(size_t)),
		.used_blocks = ask_of_class("stats.arenas.0.bins.0.curregs", ARENA, CLASS, class,
					    sizeof(size_t)),
	};
	uint64_t with_room = ask_of_class("stats.arenas.0.bins.0.nonfull_slabs", ARENA, CLASS,
					  class, sizeof(size_t));

	it.blocks =
		it.slabs * ask_of_class("arenas.bin.0.nregs", 0, OF_CLASS, class, sizeof(uint32_t));
	/* Each arena allocates from one slab that is not among the ones with room: it counts as full.
	 */
	it.full_slabs = it.slabs > with_room ? it.slabs - with_room : 0;
	return it;
}

static void introspect_jemalloc(struct hl_introspection *answer)
{
	uint64_t epoch = 1;

	CTL("epoch", NULL, NULL, &epoch, sizeof(epoch)); /* so that counts are of now */
	answer->allocated_bytes = ask_jemalloc("stats.allocated");
	answer->active_bytes = ask_jemalloc("stats.active");
	answer->resident_bytes = ask_jemalloc("stats.resident");
	answer->retained_bytes = ask_jemalloc("stats.retained");
	answer->metadata_bytes = ask_jemalloc("stats.metadata");
	uint32_t classes = 0;
	size_t size = sizeof(classes);
	if (CTL("arenas.nbins", &classes, &size, NULL, 0) != 0)
		classes = 0;
	for (uint32_t i = 0; i < classes && i < HL_SLAB_CLASSES_MAX; i++)
		answer->classes[answer->class_count++] = class_of_jemalloc(i);
}

/* ---- mimalloc: mimalloc.h, "heap introspection" ---- */

struct mi_heap_area {
	void *blocks;
	size_t reserved, committed, used; /* used: blocks */
	size_t block_size, full_block_size;
};

typedef bool mi_visitor(const void *heap, const struct mi_heap_area *area, void *block, size_t size,
			void *context);
typedef bool mi_heap_visit_blocks_fn(const void *heap, bool all_blocks, mi_visitor *visitor,
				     void *context);
typedef void *mi_heap_get_default_fn(void);

static struct hl_slab_class *class_of_size(struct hl_introspection *answer, size_t block_bytes)
{
	for (uint32_t i = 0; i < answer->class_count; i++)
		if (answer->classes[i].block_bytes == block_bytes)
			return &answer->classes[i];
	if (answer->class_count == HL_SLAB_CLASSES_MAX)
		return NULL;
	struct hl_slab_class *it = &answer->classes[answer->class_count++];
	*it = (struct hl_slab_class){.block_bytes = block_bytes};
	return it;
}

/* An area has as many blocks as are committed; more would be in pages that are not there yet. */
static bool take_area(const void *heap, const struct mi_heap_area *area, void *block, size_t size,
		      void *context)
{
	struct hl_introspection *answer = context;

	(void)heap;
	(void)block;
	(void)size;
	struct hl_slab_class *it =
		area->block_size ? class_of_size(answer, area->block_size) : NULL;
	answer->active_bytes += area->committed;
	answer->allocated_bytes += area->used * area->block_size;
	if (!it)
		return true;
	size_t blocks = area->committed / area->block_size;
	it->slab_bytes = area->reserved;
	it->blocks += blocks > area->used ? blocks : area->used;
	it->used_blocks += area->used;
	it->slabs++;
	it->full_slabs += area->used >= blocks;
	size_t slot = blocks ? area->used * HL_OCCUPANCY_SLOTS / blocks : 0;
	if (slot >= HL_OCCUPANCY_SLOTS)
		slot = HL_OCCUPANCY_SLOTS - 1;
	answer->occupancy_bytes[slot] += area->committed;
	return true;
}

static void introspect_mimalloc(struct hl_introspection *answer)
{
	mi_heap_visit_blocks_fn *visit_blocks = (mi_heap_visit_blocks_fn *)asked.functions[0];
	mi_heap_get_default_fn *get_default = (mi_heap_get_default_fn *)asked.functions[1];

	visit_blocks(get_default(), false, take_area, answer);
}

/* ---- tcmalloc: gperftools/malloc_extension_c.h ---- */

typedef int get_property_fn(const char *property, size_t *value);

static uint64_t ask_tcmalloc(const char *property)
{
	size_t value = 0;

	return ((get_property_fn *)asked.functions[0])(property, &value) ? value : 0;
}

static void introspect_tcmalloc(struct hl_introspection *answer)
{
	answer->allocated_bytes = ask_tcmalloc("generic.current_allocated_bytes");
	answer->retained_bytes = ask_tcmalloc("tcmalloc.pageheap_unmapped_bytes");
	answer->resident_bytes = ask_tcmalloc("generic.heap_size") - answer->retained_bytes;
	answer->cached_bytes = ask_tcmalloc("tcmalloc.current_total_thread_cache_bytes") +
			       ask_tcmalloc("tcmalloc.central_cache_free_bytes") +
			       ask_tcmalloc("tcmalloc.transfer_cache_free_bytes");
	answer->active_bytes =
		answer->resident_bytes - ask_tcmalloc("tcmalloc.pageheap_free_bytes");
}

/* ---- the whole ---- */

#ifndef HL_ATTACHED

#define WEAK(name) extern void name(void) __attribute__((weak))

WEAK(mallctl);
WEAK(mallctlnametomib);
WEAK(mallctlbymib);
WEAK(mi_theap_visit_blocks);
WEAK(mi_theap_get_default);
WEAK(mi_heap_visit_blocks);
WEAK(mi_heap_get_default);
WEAK(MallocExtension_GetNumericProperty);

#define ADDRESS(name) ((uint64_t)(uintptr_t)(name))

/* Constants once the loader has bound them. */
static void find_functions(void)
{
	const struct hl_answering ways[] = {
		{HL_INTROSPECTED_JEMALLOC,
		 {ADDRESS(mallctl), ADDRESS(mallctlnametomib), ADDRESS(mallctlbymib)}},
		{HL_INTROSPECTED_MIMALLOC,
		 {ADDRESS(mi_theap_visit_blocks), ADDRESS(mi_theap_get_default)}},
		{HL_INTROSPECTED_MIMALLOC,
		 {ADDRESS(mi_heap_visit_blocks), ADDRESS(mi_heap_get_default)}},
		{HL_INTROSPECTED_TCMALLOC, {ADDRESS(MallocExtension_GetNumericProperty)}},
	};
	const uint32_t needed[] = {3, 2, 2, 1};

	for (size_t i = 0; i < HL_COUNT_OF(ways) && !asked.kind; i++) {
		uint32_t count = 0;
		while (count < HL_ANSWERING_MAX && ways[i].functions[count])
			count++;
		if (count == needed[i])
			asked = ways[i];
	}
}

static int64_t call(int64_t (*function)(uint64_t a, uint64_t b), uint64_t a)
{
	return function(a, 0);
}

#else

static void find_functions(void)
{
}

static int64_t call(int64_t (*function)(uint64_t a, uint64_t b), uint64_t a)
{
	return hl_libc_call((uint64_t)(uintptr_t)function, a, 0);
}

#endif

void hl_introspect_know(const struct hl_answering *answering)
{
	_Static_assert(HL_ANSWERING_MAX == HL_ALLOCATOR_ANSWERING_MAX, "the same functions");
	asked = *answering;
}

static int64_t fill(uint64_t place, uint64_t unused)
{
	struct hl_introspection *answer = (struct hl_introspection *)(uintptr_t)place;

	(void)unused;
	answer->kind = asked.kind;
	if (asked.kind == HL_INTROSPECTED_JEMALLOC)
		introspect_jemalloc(answer);
	else if (asked.kind == HL_INTROSPECTED_MIMALLOC)
		introspect_mimalloc(answer);
	else if (asked.kind == HL_INTROSPECTED_TCMALLOC)
		introspect_tcmalloc(answer);
	return 0;
}

/* Set while a thread answers. */
static atomic_flag answering = ATOMIC_FLAG_INIT;

static void answer(struct hl_region_header *header, struct hl_thread *thread)
{
	uint32_t asked_until_now = atomic_load(&header->introspection.asked);
	struct hl_introspection *place = &header->introspection.answer;

	hl_thread_set(thread, HL_IN_ALLOCATOR);
	__builtin_memset(place, 0, sizeof(*place));
	find_functions();
	call(fill, (uint64_t)(uintptr_t)place);
	hl_thread_set(thread, HL_RECORDING);
	atomic_store_explicit(&header->introspection.answered, asked_until_now,
			      memory_order_release);
}

void hl_introspect(struct hl_recorder *recorder, struct hl_thread *thread)
{
	struct hl_region_header *header = recorder->region.header;
	int saved_errno = hl_libc_errno();

	/* Asked again meanwhile, it stays asked until the one answer is whole. */
	if (atomic_flag_test_and_set(&answering))
		return;
	if (atomic_fetch_and(&header->mode, ~HL_MODE_ASKED) & HL_MODE_ASKED)
		answer(header, thread);
	atomic_flag_clear(&answering);
	hl_libc_set_errno(saved_errno);
}
