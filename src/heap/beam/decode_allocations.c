/* SPDX-License-Identifier: BSD-2-Clause */
/* The answer of instrument:allocations(); see decode.h. */
#include "heap/beam/decode.h"

#include <errno.h>

#define ORIGIN_MAX (2 * HL_TERM_ATOM_MAX + 32) /* a function: two atoms and a number */

/* #{Type => Histogram} of one origin. */
static int decode_types(struct hl_term *term, const char *origin,
			struct hl_allocations *allocations)
{
	struct hl_log2_shape *shape = &allocations->shape;
	char type[HL_TERM_ATOM_MAX];
	uint32_t pairs;

	if (hl_term_map(term, &pairs) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < pairs; i++) {
		struct hl_log2_histogram histogram;
		struct hl_allocation *row;
		if (hl_term_atom(term, type, sizeof(type)) < 0 ||
		    hl_beam_decode_histogram(term, shape, &histogram) < 0)
			return -EBADMSG;
		int r = hl_allocations_add(allocations, origin, type, &row);
		if (r < 0)
			return r;
		row->histogram = histogram;
		for (uint32_t slot = 0; slot < shape->width; slot++)
			row->blocks += histogram.counts[slot];
	}
	return 0;
}

/* #{Origin => #{Type => Histogram}} */
static int decode_origins(struct hl_term *term, struct hl_allocations *allocations)
{
	char origin[ORIGIN_MAX];
	uint32_t pairs;

	if (hl_term_map(term, &pairs) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < pairs; i++) {
		if (hl_term_origin(term, origin, sizeof(origin)) < 0)
			return -EBADMSG;
		int r = decode_types(term, origin, allocations);
		if (r < 0)
			return r;
	}
	return 0;
}

int hl_beam_decode_allocations(struct hl_term *term, struct hl_allocations *allocations)
{
	uint64_t start;

	int r = hl_beam_decode_ok(term);
	if (r < 0)
		return r;
	if (hl_term_tuple_of(term, 3) < 0 || hl_term_unsigned(term, &start) < 0 || start == 0 ||
	    start > HL_LOG2_START_MAX || hl_term_unsigned(term, &allocations->unscanned_bytes) < 0)
		return -EBADMSG;
	allocations->shape = (struct hl_log2_shape){.start = start, .is_erts = true};
	r = decode_origins(term, allocations);
	if (r == 0)
		hl_allocations_sort(allocations);
	return r;
}
