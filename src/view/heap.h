/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap that was read from outside, as reports. */
#pragma once

#include "base/error.h"
#include "heap/heap.h"
#include "view/emit.h"

#include <stdio.h>

/* One screen: where resident memory is, each arena, what malloc_trim would return, and the
 * questions that people ask, answered. 0, -ENOMEM, or the output's error. */
int hl_view_heap(const struct hl_heap *heap, const struct hl_emit_options *options);

/* Resident pages that few live bytes keep. As above. */
int hl_view_pins(const struct hl_heap *heap, const struct hl_emit_options *options);

struct hl_heap_figures;

/* What has changed from one snapshot to a later one. As above. */
int hl_view_heap_diff(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
		      const struct hl_emit_options *options);

/* For the reports of this and of other files: members that say which process it was and how it was
 * read, and the lines on top of tables. */
void hl_heap_emit_head(struct hl_emit *emit, const struct hl_heap *heap);

/* What could not be read or seen, at the end. */
void hl_heap_emit_notes(struct hl_emit *emit, const struct hl_heap *heap);

/* The questions, see heap_answers.c. */
void hl_heap_emit_answers(struct hl_emit *emit, const struct hl_heap *heap);
