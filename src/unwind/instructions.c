/* SPDX-License-Identifier: BSD-2-Clause */
/* Searches code for what says where frames are, by what a machine's instructions do; see rule_cache.h. */
#include "unwind/rule_cache.h"

#include "unwind/cfi.h"

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

/* ---- the part of a function that the compiler has put elsewhere: see cfi.h ---- */

#define PLACES_MAX 16u
#define JUMPS_MIN  16u

struct place {
	uint64_t begin, end;
	uint32_t jumps;
};

/* How many jumps there are from [${begin}, ${end}) to behind the beginning of the function. */
static uint32_t count_jumps_back(const struct hl_cfi_code *code, uint64_t begin, uint64_t end)
{
	uint64_t inside = code->function_start + 1;
	uint32_t jumps = 0;

	for (uint64_t at = begin; at + HL_JUMP_BYTES <= end; at++)
		jumps += hl_instructions_jump_target((const uint8_t *)at) - inside <
			 code->function_end - inside;
	return jumps;
}

void hl_cfi_find_cold(const struct hl_cfi_code *code, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t hdr = (uint64_t)code->eh_frame_hdr;
	struct place places[PLACES_MAX] = {0}, *most = places;
	uint32_t count = 0;

	/* Bounds as saved.c has them. */
	uint64_t low = hdr < code->start ? hdr : code->start;
	uint64_t high = hdr >= code->start && hdr < code->end ? code->end : HL_USER_END;
	for (uint64_t at = code->function_start; hdr && at + HL_JUMP_BYTES <= code->function_end;
	     at++) {
		uint64_t target = hl_instructions_jump_target((const uint8_t *)at);
		struct hl_cfi_function function;
		uint32_t i = 0;
		if (target - code->function_start < code->function_end - code->function_start ||
		    target - code->start >= code->end - code->start)
			continue;
		while (i < count && target - places[i].begin >= places[i].end - places[i].begin)
			i++;
		if (i == count) {
			if (count == PLACES_MAX ||
			    hl_cfi_find_function(code->eh_frame_hdr, low, high, target, &function) <
				    0 ||
			    function.begin < code->start || function.end > code->end)
				continue;
			places[count++] = (struct place){function.begin, function.end, 0};
		}
		places[i].jumps++;
	}
	for (uint32_t i = 0; i < count; i++) {
		places[i].jumps += count_jumps_back(code, places[i].begin, places[i].end);
		if (places[i].jumps > most->jumps)
			most = &places[i];
	}
	if (most->jumps < JUMPS_MIN)
		return;
	*ret_start = most->begin;
	*ret_end = most->end;
}
