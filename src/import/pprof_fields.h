/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fields of a message of protobuf, one after another: so that a file is read in pieces, and
 * that what is wrong with it can be said to be somewhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_pprof_wire {
	HL_PPROF_VARINT = 0,
	HL_PPROF_FIXED64 = 1,
	HL_PPROF_BYTES = 2, /* a message, a text, or numbers packed */
	HL_PPROF_FIXED32 = 5,
};

struct hl_pprof_field {
	uint32_t number;
	enum hl_pprof_wire wire;
	size_t offset;	      /* of the field */
	uint64_t value;	      /* HL_PPROF_VARINT */
	const uint8_t *bytes; /* HL_PPROF_BYTES: what it holds, and how much */
	size_t size;
};

/*
 * Reads the field at *${at} of the ${size} ${bytes} and goes on after it. 1; 0 at the end;
 * -EBADMSG when there is none, or not all of it: its offset is still *${at}, and why in
 * ${ret_problem}.
 */
int hl_pprof_field_next(const uint8_t *bytes, size_t size, size_t *at,
			struct hl_pprof_field *ret_field, const char **ret_problem);

/* Reads the number at *${at} and goes on after it; false when there is none of 64 bits. */
bool hl_pprof_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *ret_value);
