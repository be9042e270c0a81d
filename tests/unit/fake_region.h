/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes regions as a recorder does, for tests of what reads them. */
#pragma once

#include "collector/region_read.h"
#include "region/region.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Far from the default of gigabytes, with room for what the tests put in. */
#define FAKE_REGION_BYTES (UINT64_C(32) << 20)

struct fake_region {
	struct hl_region_header *header;
	struct hl_region_header layout;
};

static inline void *fake_area(const struct fake_region *fake, enum hl_area_id id)
{
	return (char *)fake->header + fake->layout.areas[id].offset;
}

/* Lays a region out in fresh memory, all of it committed. */
static inline struct fake_region fake_region_new(void)
{
	struct fake_region fake;

	hl_region_layout(&fake.layout, FAKE_REGION_BYTES, HL_MODE_MEM_FAST);
	fake.header = mmap(NULL, fake.layout.region_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*fake.header = fake.layout;
	for (int id = 0; id < HL_AREA_COUNT; id++)
		fake.header->areas[id].committed = fake.layout.areas[id].capacity;
	return fake;
}

static inline void fake_region_free(struct fake_region *fake)
{
	munmap(fake->header, fake->layout.region_bytes);
}

static inline struct hl_region_view fake_view(const struct fake_region *fake)
{
	return (struct hl_region_view){
		.base = fake->header,
		.bytes = fake->layout.region_bytes,
		.layout = &fake->layout,
	};
}

static inline uint32_t fake_add_node(struct fake_region *fake, uint32_t parent, uint64_t frame)
{
	struct hl_region_node *nodes = fake_area(fake, HL_AREA_NODES);
	uint32_t id = ++fake->header->node_count;

	nodes[id].parent = parent;
	nodes[id].frame = frame;
	return id;
}

static inline void fake_set_parent(struct fake_region *fake, uint32_t id, uint32_t parent)
{
	((struct hl_region_node *)fake_area(fake, HL_AREA_NODES))[id].parent = parent;
}

/* A cell in a chunk of its own. */
static inline struct hl_cell *fake_add_cell(struct fake_region *fake, uint32_t node,
					    uint32_t thread)
{
	struct hl_cell_chunk *chunks = fake_area(fake, HL_AREA_CELLS);
	struct hl_cell_chunk *chunk = &chunks[fake->header->chunk_count++];

	chunk->thread = thread;
	chunk->used = 1;
	chunk->cells[0].node = node;
	return &chunk->cells[0];
}

/* Of a cell from fake_add_cell(), which is the first of its chunk. */
static inline int64_t *fake_at_peak_objects(struct hl_cell *cell)
{
	char *chunk = (char *)cell - offsetof(struct hl_cell_chunk, cells);

	return ((struct hl_cell_chunk *)chunk)->at_peak_objects;
}

static inline void fake_allocate(struct hl_cell *cell, uint64_t bytes)
{
	cell->alloc_bytes += bytes;
	cell->alloc_objects++;
}

static inline struct hl_region_thread *fake_add_thread(struct fake_region *fake, const char *name)
{
	struct hl_region_thread *threads = fake_area(fake, HL_AREA_THREADS);
	struct hl_region_thread *thread = &threads[fake->header->thread_count++];

	thread->tid = 1000 + fake->header->thread_count;
	strncpy(thread->name, name, sizeof(thread->name) - 1);
	return thread;
}

static inline struct hl_region_module *fake_add_module(struct fake_region *fake, const char *path)
{
	struct hl_region_module *modules = fake_area(fake, HL_AREA_MODULES);
	struct hl_region_module *module = &modules[fake->header->module_count++];
	uint32_t at = fake->header->string_bytes;

	module->start = UINT64_C(0x10000) * fake->header->module_count;
	module->end = module->start + 0x8000;
	module->path_offset = at;
	module->path_bytes = (uint32_t)strlen(path);
	memcpy((char *)fake_area(fake, HL_AREA_STRINGS) + at, path, module->path_bytes);
	fake->header->string_bytes = at + module->path_bytes;
	return module;
}
