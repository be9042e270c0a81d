/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in RAM that is no heap: stacks, files, other mappings. */
#pragma once

#include "heap/heap.h"
#include "heap/memory.h"

/* Adds to ${heap}->rss all present pages in which no carrier lies, then sets its sum. 0 or a
 * negative errno. */
int hl_rss_add_others(struct hl_memory *memory, struct hl_heap *heap);
