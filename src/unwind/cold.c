/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the part of a function that the compiler has put elsewhere; see cfi.h. */
#include "unwind/cfi.h"

#define PLACES_MAX 16u
#define JUMPS_MIN  16u

struct place {
	uint64_t begin, end;
	uint32_t jumps;
};

/* Where the instruction at ${code}, if it is a jump over a distance of four bytes, goes to; 0: of any other. */
static uint64_t jump_target(const uint8_t *code)
{
	bool is_conditional = code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
	int32_t distance;

	if (!is_conditional && code[0] != 0xe9)
		return 0;
	code += 1 + is_conditional;
	__builtin_memcpy(&distance, code, sizeof(distance));
	return (uint64_t)code + 4 + (uint64_t)(int64_t)distance;
}

#define JUMP_BYTES 6u /* of the longer one */

/* How many jumps there are from [${begin}, ${end}) to behind the beginning of the function. */
static uint32_t count_jumps_back(const struct hl_cfi_code *code, uint64_t begin, uint64_t end)
{
	uint64_t inside = code->function_start + 1;
	uint32_t jumps = 0;

	for (uint64_t at = begin; at + JUMP_BYTES <= end; at++)
		jumps += jump_target((const uint8_t *)at) - inside < code->function_end - inside;
	return jumps;
}

void hl_cfi_find_cold(const struct hl_cfi_code *code, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t hdr = (uint64_t)code->eh_frame_hdr;
	struct place places[PLACES_MAX] = {0}, *most = places;
	uint32_t count = 0;

	/* Bounds as saved.c has them. */
	uint64_t low = hdr < code->start ? hdr : code->start;
	uint64_t high = hdr >= code->start && hdr < code->end ? code->end : UINT64_C(1) << 47;
	for (uint64_t at = code->function_start; hdr && at + JUMP_BYTES <= code->function_end;
	     at++) {
		uint64_t target = jump_target((const uint8_t *)at);
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
