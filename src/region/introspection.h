/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An allocator's own figures, asked by its public functions: the recorder writes them into the
 * region, and tools read them there.
 *
 *	slab	a run of pages that an allocator cuts into blocks of one size
 *	class	all slabs of one block size
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HL_SLAB_CLASSES_MAX 128u
#define HL_OCCUPANCY_SLOTS  8u /* 0-12 %, 12-25 % ... 88-100 % of a slab in use */

struct hl_slab_class {
	uint64_t block_bytes, slab_bytes;
	uint64_t blocks; /* that all slabs have room for */
	uint64_t used_blocks;
	uint64_t slabs, full_slabs;
};

/* Bytes; 0 when unknown. */
struct hl_introspection {
	uint32_t kind; /* enum hl_introspected of allocators/traits.h; 0: nobody's */
	uint32_t class_count;
	uint64_t allocated_bytes; /* in blocks that the program has, by the allocator's count */
	uint64_t active_bytes;	  /* in pages that hold such blocks */
	uint64_t resident_bytes;
	uint64_t retained_bytes; /* address space kept, given back to the system otherwise */
	uint64_t cached_bytes;	 /* free, in threads' caches and the like */
	uint64_t metadata_bytes;
	struct hl_slab_class classes[HL_SLAB_CLASSES_MAX];
	/* Bytes of slabs by how full they are, where the allocator reports each slab. */
	uint64_t occupancy_bytes[HL_OCCUPANCY_SLOTS];
};

/* In the region's header. The collector counts ${asked} up and sets HL_MODE_ASKED; the next thread
 * that allocates answers, and then makes ${answered} equal. */
struct hl_introspection_box {
	_Atomic uint32_t asked, answered;
	struct hl_introspection answer;
};
