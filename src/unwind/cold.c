/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the part of a function that the compiler has put elsewhere; see cfi.h. */
#include "base/machine.h"
#include "unwind/cfi.h"
#include "unwind/rule_cache.h"

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
