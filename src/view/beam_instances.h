/* SPDX-License-Identifier: BSD-2-Clause */
/* What a BEAM knows of its allocators without `instrument`, as a report. */
#pragma once

#include "heap/beam/beam.h"
#include "view/emit.h"

/* Writes the members `total` and `rows` of a report that was begun: in tables, the sums of all. */
void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances);
