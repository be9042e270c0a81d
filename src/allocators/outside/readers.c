/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of readers; see readers.h. */
#include "allocators/outside/readers.h"

#include <stddef.h>

const struct hl_heap_reader *const hl_heap_readers[] = {
	&hl_jemalloc_reader, &hl_musl_reader, &hl_mimalloc_reader, &hl_tcmalloc_reader, NULL};
