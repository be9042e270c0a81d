/* SPDX-License-Identifier: BSD-2-Clause */
/* Heaps of mimalloc, of the release that the first byte names, laid out and then damaged as heap_checks.h says. */
#include "allocators/outside/readers.h"
#include "allocators/traits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap_checks.h"
#include "mimalloc_image.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void make(struct mi_builder *builder, unsigned kind)
{
	if (kind == 0)
		mi_make_segments(builder);
	else if (kind == 1)
		mi_make_group(builder);
	else
		mi_make_mapped(builder, kind == 2 ? &mi_3_1 : &mi_3_4);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct mi_builder builder;
	uint64_t end = 0;
	const struct hl_heap_settings settings = {.block = take_block, .context = &end};

	if (!size)
		return 0;
	make(&builder, bytes[0] % 4);
	damage_all(&builder.image, bytes + 1, size - 1);
	struct hl_heap *heap = hl_heap_new();
	require(heap);
	if (hl_mimalloc_reader.read(&builder.image.base, hl_allocator_traits, &settings, heap,
				    NULL) == 0)
		check(heap);
	hl_heap_free(heap);
	look_for_leaks(&builder.image);
	image_release(&builder.image);
	return 0;
}
