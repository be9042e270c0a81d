/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What malloc keeps for itself in the processes that are being recorded, and what the recorder does. That takes a walk over each heap, by
 * `heapline heap`: 0.25 s for a GiB, outside of the process. So a thread does it, and answers have what it found last.
 */
#pragma once

#include "serve/catalog.h"

#define HL_SERVE_HEAP_AGE_S 60 /* how old figures may be before their heap is read again */
#define HL_SERVE_GROWTH_MS \
	60000 /* over at least which growth is measured, once there are answers as old */

struct hl_serve_heaps;

/* Begins the thread, which ends when ${stop_fd} can be read. 0 or a negative errno. */
int hl_serve_heaps_new(int stop_fd, struct hl_serve_heaps **ret_heaps);

/* After ${stop_fd} can be read. NULL is fine. */
void hl_serve_heaps_free(struct hl_serve_heaps *heaps);

/*
 * Fills in recorder_bytes, cached_bytes, retained_bytes and heap_age_s of the processes in ${catalog}, without waiting. They stay -1 of one whose heap
 * was not read yet, may not be read, or is not glibc's. ${reads}: those whose figures are old are read again. Also growth_bytes, since
 * an answer one or two minutes ago, or since the recording began. Thread-safe.
 */
void hl_serve_heaps_fill(struct hl_serve_heaps *heaps, struct hl_catalog *catalog, bool reads);
