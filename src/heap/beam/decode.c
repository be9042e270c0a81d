/* SPDX-License-Identifier: BSD-2-Clause */
/* What all answers of a BEAM have in common; see decode.h. */
#include "heap/beam/decode.h"

#include <errno.h>

/* {badrpc, {'EXIT', {Reason, Stack}}}: up to the reason. */
static int take_exit(struct hl_term *term)
{
	struct hl_term at = *term;

	if (hl_term_tuple_of(&at, 2) < 0 || hl_term_this_atom(&at, "EXIT") < 0 ||
	    hl_term_tuple_of(&at, 2) < 0)
		return -EBADMSG;
	*term = at;
	return 0;
}

static enum hl_beam_answer answer_of_failure(struct hl_term term)
{
	if (take_exit(&term) < 0)
		return HL_BEAM_FAILED;
	if (hl_term_this_atom(&term, "undef") == 0)
		return HL_BEAM_UNDEFINED;
	if (hl_term_this_atom(&term, "badarg") == 0 ||
	    hl_term_this_atom(&term, "function_clause") == 0)
		return HL_BEAM_BAD_ARGUMENT;
	return HL_BEAM_FAILED;
}

int hl_beam_decode_reply(struct hl_term *term, enum hl_beam_answer *ret_answer)
{
	struct hl_term at = *term;

	if (hl_term_tuple_of(&at, 2) < 0 || hl_term_this_atom(&at, "rex") < 0)
		return -EBADMSG;
	*term = at;
	*ret_answer = HL_BEAM_VALUE;
	if (hl_term_tuple_of(&at, 2) == 0 && hl_term_this_atom(&at, "badrpc") == 0)
		*ret_answer = answer_of_failure(at);
	return 0;
}

int hl_beam_decode_ok(struct hl_term *term)
{
	if (hl_term_tuple_of(term, 2) < 0)
		return -EBADMSG;
	if (hl_term_this_atom(term, "ok") == 0)
		return 0;
	if (hl_term_this_atom(term, "error") == 0 && hl_term_this_atom(term, "not_enabled") == 0)
		return -ENODATA;
	return -EBADMSG;
}

int hl_beam_decode_histogram(struct hl_term *term, struct hl_log2_shape *shape,
			     struct hl_log2_histogram *ret_histogram)
{
	struct hl_log2_histogram histogram = {0};
	uint32_t width;

	if (hl_term_tuple(term, &width) < 0 || width == 0 || width > HL_LOG2_WIDTH_MAX ||
	    (shape->width && width != shape->width))
		return -EBADMSG;
	for (uint32_t slot = 0; slot < width; slot++)
		if (hl_term_unsigned(term, &histogram.counts[slot]) < 0)
			return -EBADMSG;
	shape->width = width;
	*ret_histogram = histogram;
	return 0;
}
