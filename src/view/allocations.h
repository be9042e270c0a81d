/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations by origin and type as a report and as a term of Erlang. */
#pragma once

#include "heap/allocations.h"
#include "view/emit.h"

#include <stdio.h>

/*
 * Writes the members `total`, `lost`, `rows` and `histogram` of a report that was begun; in tables,
 * the first ${row_limit} rows (0: all; or HL_EMIT_ROWS_DEFAULT) and a histogram of all.
 */
void hl_allocations_emit(struct hl_emit *emit, const struct hl_allocations *allocations,
			 uint64_t row_limit);

/*
 * Writes what instrument:allocations() would return, {ok, {Start, Unscanned, #{Origin => #{Type =>
 * Histogram}}}}, readable by file:consult(); rows of one origin must not have equal types. Comments
 * before it tell the bounds of the slots. 0 or -ENOMEM.
 */
int hl_allocations_write_term(FILE *out, const struct hl_allocations *allocations);
