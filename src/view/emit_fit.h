/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes a table fit into a narrow terminal. libsmartcols would cut ends off without a mark, and
 * with them line numbers and all of the last columns; so texts are shortened before it sees them.
 */
#pragma once

#include "view/emit.h"

struct libscols_table;

/*
 * Has ${table}, complete with all its rows, take ${width} columns at most, where its
 * ${column_count}
 * ${columns} allow: hides those with HL_EMIT_OMITTED, the last one first, as long as need be, then
 * shortens texts with HL_EMIT_SHORTENED, those with HL_EMIT_KEY last. 0 or -ENOMEM.
 */
int hl_emit_fit(struct libscols_table *table, const struct hl_emit_column *columns,
		size_t column_count, size_t width);
