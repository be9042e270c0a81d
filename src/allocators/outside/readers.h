/* SPDX-License-Identifier: BSD-2-Clause */
/* The readers of heaps that are not glibc's; see heap/slab_heap.h. */
#pragma once

#include "heap/slab_heap.h"

extern const struct hl_heap_reader hl_jemalloc_reader, hl_musl_reader, hl_mimalloc_reader,
	hl_tcmalloc_reader;
