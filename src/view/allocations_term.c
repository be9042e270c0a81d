/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations as a term of Erlang; see allocations.h. */
#include "view/allocations.h"
#include "view/erlang_term.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Texts are kept once, so equal origins are equal numbers. */
static int compare_origins(const void *left, const void *right)
{
	const struct hl_allocation *a = *(const struct hl_allocation *const *)left;
	const struct hl_allocation *b = *(const struct hl_allocation *const *)right;

	if (a->origin != b->origin)
		return a->origin < b->origin ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* The rows, those of one origin in a row; to be freed. NULL for want of memory. */
static const struct hl_allocation **group(const struct hl_allocations *allocations)
{
	const struct hl_allocation **rows = calloc(allocations->count + 1, sizeof(*rows));

	for (size_t i = 0; rows && i < allocations->count; i++)
		rows[i] = &allocations->rows[i];
	if (rows)
		qsort(rows, allocations->count, sizeof(*rows), compare_origins);
	return rows;
}

/* Origin => #{Type => Histogram, ...} of the rows from ${first} on. Returns the next one's. */
static size_t put_origin(FILE *out, const struct hl_allocations *allocations,
			 const struct hl_allocation *const *rows, size_t first)
{
	size_t i = first;

	hl_erlang_put_atom(out, hl_strings_text(&allocations->names, rows[first]->origin));
	fputs(" =>\n      #{", out);
	for (; i < allocations->count && rows[i]->origin == rows[first]->origin; i++) {
		fputs(i > first ? ",\n        " : "", out);
		hl_erlang_put_atom(out, hl_strings_text(&allocations->names, rows[i]->type));
		fputs(" => ", out);
		hl_erlang_put_histogram(out, &allocations->shape, &rows[i]->histogram);
	}
	putc('}', out);
	return i;
}

int hl_allocations_write_term(FILE *out, const struct hl_allocations *allocations)
{
	const struct hl_allocation **rows = group(allocations);

	if (!rows)
		return -ENOMEM;
	fputs("%% coding: utf-8\n"
	      "%% {ok,{HistogramStart,Unscanned,#{Origin => #{Type => Blocks}}}}\n",
	      out);
	hl_erlang_put_slots(out, "blocks", &allocations->shape);
	fprintf(out, "{ok,{%" PRIu64 ",%" PRIu64 ",\n   #{", allocations->shape.start,
		allocations->unscanned_bytes);
	for (size_t i = 0; i < allocations->count;) {
		fputs(i ? ",\n     " : "", out);
		i = put_origin(out, allocations, rows, i);
	}
	fputs("}}}.\n", out);
	free(rows);
	return 0;
}
