/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Live blocks by who allocated them: what `allocations` shows of a process, or of a BEAM.
 *
 *	origin	whose code allocated: a library or the program, a NIF, a process ...
 *	type	what kind: a function, a tag that the program set, BEAM's block type
 */
#pragma once

#include "base/error.h"
#include "base/strings.h"
#include "heap/histogram.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Texts are ids of hl_allocations.strings. */
struct hl_allocation {
	uint32_t origin, type;
	uint64_t count, bytes; /* bytes 0 with blocks: unknown (BEAM) */
	struct hl_log2_histogram histogram;
};

/* Where it is known from who allocated. */
enum hl_allocations_source {
	HL_ALLOCATIONS_RECORDER, /* a recorder's block table; sizes are requested ones */
	HL_ALLOCATIONS_TAGS,	 /* words of the tag shim; sizes are usable ones, less the word */
	HL_ALLOCATIONS_SIZES,	 /* nobody knows: one row */
	HL_ALLOCATIONS_BEAM,
};

struct hl_allocations {
	struct hl_strings strings;
	enum hl_allocations_source source;
	uint32_t allocator; /* "glibc 2.36" */
	struct hl_log2_shape shape;
	struct hl_allocation *rows; /* by bytes, falling; then by count */
	size_t count, capacity;
	uint64_t unknown_blocks, unknown_bytes; /* live, but without an owner; not in rows */
	uint64_t unscanned_bytes;
	uint32_t *notes; /* sentences */
	size_t note_count, note_capacity;
};

/* How to group. Zero is by library and function. */
struct hl_allocations_settings {
	struct hl_log2_shape shape; /* width 0: 128, 18 */
	bool stop;
};

/* Reads ${pid}. 0 or a negative errno with a sentence, as hl_heap_read(). */
int hl_allocations_read(pid_t pid, const struct hl_allocations_settings *settings,
			struct hl_allocations **ret_allocations, struct hl_error *err);

/* The row of ${origin} and ${type}, made if it is not there; NULL for want of memory. Valid until
 * the next one is added. */
struct hl_allocation *hl_allocations_row(struct hl_allocations *allocations, const char *origin,
					 const char *type);

/* Adds a sentence. 0 or -ENOMEM. */
int hl_allocations_note(struct hl_allocations *allocations, const char *format, ...)
	HL_PRINTF(2, 3);

/* Brings the rows into their order. */
void hl_allocations_sort(struct hl_allocations *allocations);

void hl_allocations_free(struct hl_allocations *allocations); /* NULL is fine */
