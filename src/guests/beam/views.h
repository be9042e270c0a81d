/* SPDX-License-Identifier: BSD-2-Clause */
/* What a BEAM's allocators hold, as parts of reports; and carriers and allocations as terms of Erlang. */
#pragma once

#include "view/heap.h"

struct hl_beam_instances;

/* What a BEAM knows of its allocators without `instrument`: the members `total` and `rows`; in
 * tables, the sums of all. */
void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances);

/* ---- terms of Erlang ---- */

/*
 * Writes what instrument:carriers() of OTP 22 and later would return, {ok, {Start, Carriers}}, in
 * the order in which the carriers are, readable by file:consult(). Comments before it tell the
 * bounds that slots of free blocks have.
 */
void hl_erlang_term_put_carriers(FILE *out, const struct hl_carriers *carriers);

/*
 * The same for instrument:allocations(), {ok, {Start, Unscanned, #{Origin => #{Type =>
 * Histogram}}}}; rows of one origin must not have equal types. 0 or -ENOMEM.
 */
int hl_erlang_term_put_allocations(FILE *out, const struct hl_allocations *allocations);
