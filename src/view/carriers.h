/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Carriers as a report, as a term of Erlang, and as a picture; of any allocator. What is known of
 * them decides what is shown: addresses, residency, caches, the type of blocks.
 */
#pragma once

#include "base/error.h"
#include "heap/carriers.h"
#include "view/emit.h"

#include <stdio.h>

/*
 * Writes the members `total`, `lost`, `allocators`, `rows` and `free_histogram` of a report that
 * was begun, which in tables has the sums of each allocator, its ${row_limit} largest carriers (0:
 * all; or HL_EMIT_ROWS_DEFAULT) and a histogram of free blocks. 0 or -ENOMEM.
 */
int hl_carriers_emit(struct hl_emit *emit, const struct hl_carriers *carriers, uint64_t row_limit);

/*
 * Writes what instrument:carriers() of OTP 22 and later would return, {ok, {Start, Carriers}}, in
 * the order in which the carriers are, readable by file:consult(). Comments before it tell the
 * bounds that slots of free blocks have.
 */
void hl_carriers_write_term(FILE *out, const struct hl_carriers *carriers);

/*
 * Writes a picture under ${title}: a strip for each of the largest carriers. Of carriers that have
 * hl_carrier.strip a strip is the carrier from its beginning to its end, of others it shows shares.
 * 0 or -ENOMEM.
 */
int hl_carriers_write_svg(FILE *out, const struct hl_carriers *carriers, const char *title);

/*
 * The carriers by size, the largest first, those of one size in their own order; to be freed. NULL
 * for want of memory.
 */
const struct hl_carrier **hl_carriers_by_size(const struct hl_carriers *carriers);
