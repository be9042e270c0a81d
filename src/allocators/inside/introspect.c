/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public introspection of jemalloc, mimalloc and tcmalloc; see introspect.h. Their functions are
 * weak here: the loader finds them when it loads us, or they are not asked. To look them up later
 * could wait for the loader's lock in the middle of the program.
 */
#include "recorder/introspect.h"

#include "allocators/traits.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* ---- jemalloc: mallctl(3), "MALLCTL NAMESPACE" ---- */

extern int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size)
	__attribute__((weak));
extern int mallctlnametomib(const char *name, size_t *mib, size_t *mib_length)
	__attribute__((weak));
extern int mallctlbymib(const size_t *mib, size_t mib_length, void *old, size_t *old_size,
			void *new, size_t new_size) __attribute__((weak));

#define ALL_ARENAS 4096 /* MALLCTL_ARENAS_ALL */
#define MIB_MAX	   8

/* A number of up to 8 bytes; 0 when jemalloc knows no such name. */
static uint64_t ask_jemalloc(const char *name)
{
	uint64_t number = 0;
	size_t size = sizeof(size_t);

	return mallctl(name, &number, &size, NULL, 0) == 0 ? number : 0;
}

/* The same with the arena and the class instead of the zeros in ${name}. */
static uint64_t ask_of_class(const char *name, int arena_at, int class_at, size_t class,
			     size_t size)
{
	size_t mib[MIB_MAX], length = MIB_MAX;
	uint64_t number = 0;

	if (mallctlnametomib(name, mib, &length) != 0)
		return 0;
	if (arena_at)
		mib[arena_at] = ALL_ARENAS;
	mib[class_at] = class;
	return mallctlbymib(mib, length, &number, &size, NULL, 0) == 0 ? number : 0;
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

	mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)); /* so that counts are of now */
	answer->kind = HL_INTROSPECTED_JEMALLOC;
	answer->allocated_bytes = ask_jemalloc("stats.allocated");
	answer->active_bytes = ask_jemalloc("stats.active");
	answer->resident_bytes = ask_jemalloc("stats.resident");
	answer->retained_bytes = ask_jemalloc("stats.retained");
	answer->metadata_bytes = ask_jemalloc("stats.metadata");
	uint32_t classes = 0;
	size_t size = sizeof(classes);
	if (mallctl("arenas.nbins", &classes, &size, NULL, 0) != 0)
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
extern bool mi_heap_visit_blocks(const void *heap, bool all_blocks, mi_visitor *visitor,
				 void *context) __attribute__((weak));
extern void *mi_heap_get_default(void) __attribute__((weak));
/* From 3.6 on a heap is of all threads, and a thread has a part of it. */
extern bool mi_theap_visit_blocks(const void *heap, bool all_blocks, mi_visitor *visitor,
				  void *context) __attribute__((weak));
extern void *mi_theap_get_default(void) __attribute__((weak));

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
	answer->kind = HL_INTROSPECTED_MIMALLOC;
	if (mi_theap_get_default && mi_theap_visit_blocks)
		mi_theap_visit_blocks(mi_theap_get_default(), false, take_area, answer);
	else
		mi_heap_visit_blocks(mi_heap_get_default(), false, take_area, answer);
}

/* ---- tcmalloc: gperftools/malloc_extension_c.h ---- */

extern int MallocExtension_GetNumericProperty(const char *property, size_t *value)
	__attribute__((weak));

static uint64_t ask_tcmalloc(const char *property)
{
	size_t value = 0;

	return MallocExtension_GetNumericProperty(property, &value) ? value : 0;
}

static void introspect_tcmalloc(struct hl_introspection *answer)
{
	answer->kind = HL_INTROSPECTED_TCMALLOC;
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

/* Set while a thread answers. */
static atomic_flag answering = ATOMIC_FLAG_INIT;

static void answer(struct hl_region_header *header, struct hl_thread *thread)
{
	int saved_errno = errno;
	uint32_t asked = atomic_load(&header->introspection.asked);
	struct hl_introspection *place = &header->introspection.answer;

	hl_thread_set(thread, HL_IN_ALLOCATOR);
	__builtin_memset(place, 0, sizeof(*place));
	if (mallctl && mallctlnametomib && mallctlbymib)
		introspect_jemalloc(place);
	else if ((mi_heap_visit_blocks && mi_heap_get_default) ||
		 (mi_theap_visit_blocks && mi_theap_get_default))
		introspect_mimalloc(place);
	else if (MallocExtension_GetNumericProperty)
		introspect_tcmalloc(place);
	hl_thread_set(thread, HL_RECORDING);
	atomic_store_explicit(&header->introspection.answered, asked, memory_order_release);
	errno = saved_errno;
}

void hl_introspect(struct hl_recorder *recorder, struct hl_thread *thread)
{
	struct hl_region_header *header = recorder->region.header;

	/* Asked again meanwhile, it stays asked until the one answer is whole. */
	if (atomic_flag_test_and_set(&answering))
		return;
	if (atomic_fetch_and(&header->mode, ~HL_MODE_ASKED) & HL_MODE_ASKED)
		answer(header, thread);
	atomic_flag_clear(&answering);
}
