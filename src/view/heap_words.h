/* SPDX-License-Identifier: BSD-2-Clause */
/* Words and histograms that the views of heaps share. */
#pragma once

#include "heap/histogram.h"
#include "view/table.h"

#include <stddef.h>
#include <stdint.h>

#define HL_HEAP_SPARK_MAX (3 * HL_LOG2_WIDTH_MAX + 1) /* bytes: letters of UTF-8 */
#define HL_HEAP_LABEL_MAX 80

/* JSON's integers, and those of tables, are signed; what is beyond them is a lie anyway. */
static inline int64_t hl_heap_number(uint64_t number)
{
	return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

/*
 * A sign for each slot of ${histogram}, taller for more blocks, on a logarithmic scale, for some
 * sizes are a million times as frequent as others; a dot where there is none. Returns ${buffer}.
 */
const char *hl_heap_spark(const struct hl_log2_shape *shape,
			  const struct hl_log2_histogram *histogram,
			  char buffer[HL_HEAP_SPARK_MAX]);

/* "3 KiB .. <7 KiB": the bounds of a slot, exact. Returns ${buffer}. */
const char *hl_heap_slot_label(const struct hl_log2_shape *shape, uint32_t slot,
			       char buffer[HL_HEAP_LABEL_MAX]);

/*
 * A histogram in full: in tables a row for each slot up to the last that has ${what}; in JSON the
 * object ${key} with `start_bytes`, `first_bytes` of each slot, and `counts`.
 */
void hl_heap_emit_histogram(struct hl_emit *emit, const char *key, const char *what,
			    const struct hl_log2_shape *shape,
			    const struct hl_log2_histogram *histogram);

/* A member ${key}: the counts of ${histogram}, slot by slot; nothing in tables. */
void hl_heap_emit_counts(struct hl_emit *emit, const char *key, const struct hl_log2_shape *shape,
			 const struct hl_log2_histogram *histogram);
