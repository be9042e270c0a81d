/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire format of protobuf, as its encoding specification has it; see pprof_fields.h. */
#include "import/pprof_fields.h"

#include <errno.h>

#define WIRE_BITS	3
#define VARINT_BITS	7
#define VARINT_BITS_MAX 63 /* shift of the tenth byte, of which one bit counts */

bool hl_pprof_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t next = *at;

	for (unsigned shift = 0; shift <= VARINT_BITS_MAX && next < size; shift += VARINT_BITS) {
		uint8_t byte = bytes[next++];
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		*at = next;
		*ret_value = value;
		return true;
	}
	return false;
}

/* How many bytes the content takes, which begins at *${at}; false when its length is no number. */
static bool content_size(const uint8_t *bytes, size_t size, size_t *at,
			 struct hl_pprof_field *field, uint64_t *ret_size)
{
	*ret_size = field->wire == HL_PPROF_FIXED64 ? 8 : field->wire == HL_PPROF_FIXED32 ? 4 : 0;
	if (field->wire == HL_PPROF_VARINT)
		return hl_pprof_varint(bytes, size, at, &field->value);
	return field->wire != HL_PPROF_BYTES || hl_pprof_varint(bytes, size, at, ret_size);
}

int hl_pprof_field_next(const uint8_t *bytes, size_t size, size_t *at,
			struct hl_pprof_field *ret_field, const char **ret_problem)
{
	struct hl_pprof_field field = {.offset = *at};
	uint64_t tag, length;
	size_t next = *at;

	if (next == size)
		return 0;
	*ret_problem = "there is no field";
	if (!hl_pprof_varint(bytes, size, &next, &tag) || tag >> WIRE_BITS == 0 || tag > UINT32_MAX)
		return -EBADMSG;
	field.number = (uint32_t)(tag >> WIRE_BITS);
	field.wire = (enum hl_pprof_wire)(tag & 7);
	if (field.wire != HL_PPROF_VARINT && field.wire != HL_PPROF_FIXED64 &&
	    field.wire != HL_PPROF_BYTES && field.wire != HL_PPROF_FIXED32)
		return -EBADMSG;
	*ret_problem = "a field ends beyond the end of the file";
	if (!content_size(bytes, size, &next, &field, &length) || length > size - next)
		return -EBADMSG;
	field.bytes = bytes + next;
	field.size = (size_t)length;
	*at = next + (size_t)length;
	*ret_field = field;
	return 1;
}
