/* SPDX-License-Identifier: BSD-2-Clause */
/* Searches code for what says where frames are, by what a machine's instructions do; see rule_cache.h. */
#include "unwind/rule_cache.h"

size_t hl_instructions_length(const uint8_t *code, size_t bytes)
{
	struct hl_code at;

	return hl_code_read(code, bytes, &at) ? at.bytes : 0;
}

bool hl_instructions_are_padding(const uint8_t *code, size_t bytes)
{
	struct hl_code at;

	for (size_t i = -(uintptr_t)code % HL_CODE_ALIGNMENT; i + HL_CODE_ALIGNMENT <= bytes;
	     i += at.bytes)
		if (!hl_code_read(code + i, bytes - i, &at) || !(at.does & HL_DOES_NOTHING))
			return false;
	return true;
}

bool hl_instructions_next_part(const uint8_t *code, size_t bytes, struct hl_instructions_part *part)
{
	size_t offset = part->end, start = bytes;
	struct hl_code at;

	for (; offset < bytes; offset += at.bytes) {
		if (!hl_code_read(code + offset, bytes - offset, &at)) {
			/* Its other bytes may be behind the end. */
			if (bytes - offset >= HL_CODE_BYTES_MAX)
				return false;
			at = (struct hl_code){bytes - offset, 0};
		}
		if (start == bytes && !(at.does & (HL_DOES_NOTHING | HL_DOES_FILL)))
			start = offset;
		if (start != bytes && at.does & HL_DOES_LEAVE) {
			offset += at.bytes;
			break;
		}
	}
	*part = (struct hl_instructions_part){start, offset};
	return start != bytes;
}

/* Whether an instruction that does ${wanted} comes in the first ${searched} bytes before one that does something of ${others}. */
static bool comes_first(const uint8_t *code, size_t searched, unsigned wanted, unsigned others)
{
	struct hl_code at;

	for (size_t offset = 0; offset < searched; offset += at.bytes) {
		if (!hl_code_read(code + offset, searched - offset, &at))
			return false;
		if (at.does & wanted)
			return true;
		if (at.does & others)
			return false;
	}
	return false;
}

bool hl_instructions_jump_to_register(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_HANDED_BYTES ? bytes : HL_HANDED_BYTES;

	return comes_first(function, searched, HL_DOES_JUMP_TO_REGISTER,
			   HL_DOES_BRANCH | HL_DOES_MOVE_SP | HL_DOES_SET_BP);
}

bool hl_instructions_leave_stack(const uint8_t *code, size_t bytes)
{
	size_t searched = bytes < HL_RETURN_BYTES ? bytes : HL_RETURN_BYTES;

	return comes_first(code, searched, HL_DOES_SWITCH_STACK, HL_DOES_BRANCH | HL_DOES_SET_BP);
}
