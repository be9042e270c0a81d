/* SPDX-License-Identifier: BSD-2-Clause */
/* Heaps of jemalloc, laid out and then damaged as heap_checks.h says. The first byte chooses the release. */
#include "allocators/outside/readers.h"
#include "allocators/traits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap_checks.h"
#include "jemalloc_image.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct je_builder builder;
	uint64_t end = 0;
	const struct hl_heap_settings settings = {.block = take_block, .context = &end};

	if (!size)
		return 0;
	je_make(&builder, (enum je_release)(bytes[0] % 3));
	damage_all(&builder.image, bytes + 1, size - 1);
	struct hl_heap *heap = hl_heap_new();
	require(heap);
	if (hl_jemalloc_reader.read(&builder.image.base, hl_allocator_traits, &settings, heap,
				    NULL) == 0)
		check(heap);
	hl_heap_free(heap);
	look_for_leaks(&builder.image);
	image_release(&builder.image);
	return 0;
}
