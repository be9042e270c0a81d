/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What malloc keeps for itself in the processes that are being recorded. That takes a walk over each
 * heap, by `heapline heap`: 0.25 s for a GiB, outside of the process. So figures are kept for a minute.
 */
#pragma once

#include "serve/catalog.h"

#define HL_SERVE_HEAP_AGE_S  60 /* how old figures may be before their heap is read again */
#define HL_SERVE_HEAP_TURN_S 5	/* in which an answer begins to read heaps; the next one goes on */

struct hl_serve_heaps;

/* NULL for want of memory. */
struct hl_serve_heaps *hl_serve_heaps_new(void);
void hl_serve_heaps_free(struct hl_serve_heaps *heaps); /* NULL is fine */

/*
 * Fills in cached_bytes and retained_bytes of the processes in ${catalog}; of one whose heap may not be
 * read, or is not glibc's, they stay -1. Thread-safe: while one caller reads heaps, others get what is
 * known.
 */
void hl_serve_heaps_fill(struct hl_serve_heaps *heaps, struct hl_catalog *catalog);
