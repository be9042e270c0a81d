/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a BEAM answers to the questions of heapline beam, as heapline's own structures. Answers may
 * be anything; of those that are not as expected the functions make -EBADMSG, and leave what they
 * had put into their results there.
 */
#pragma once

#include "heap/beam/beam.h"
#include "heap/beam/term.h"

enum hl_beam_answer {
	HL_BEAM_VALUE,	      /* the term goes on with what the function returned */
	HL_BEAM_UNDEFINED,    /* there is no such function */
	HL_BEAM_BAD_ARGUMENT, /* it does not take what it was given */
	HL_BEAM_FAILED,	      /* anything else went wrong */
};

/* Takes what is around a function's value, up to that. 0 or -EBADMSG. */
int hl_decode_reply(struct hl_term *term, enum hl_beam_answer *ret_answer);

/*
 * What instrument:carriers() returns, in the shape of OTP 21 or of 22 and later, into empty
 * ${carriers}. 0, -ENODATA when no allocator that was asked for is enabled, -EBADMSG, -ENOMEM.
 */
int hl_decode_carriers(struct hl_term *term, struct hl_carriers *carriers);

/* What instrument:allocations() returns, into empty ${allocations}. As above. */
int hl_decode_allocations(struct hl_term *term, struct hl_allocations *allocations);

/*
 * Adds what erlang:system_info({allocator, ${allocator}}) returns to ${instances}, nothing when it
 * is not enabled. 0, -EBADMSG, -ENOMEM.
 */
int hl_decode_instances(struct hl_term *term, const char *allocator,
			struct hl_beam_instances *instances);
