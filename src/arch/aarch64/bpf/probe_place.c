/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads code of functions of aarch64; see bpf/probe.h. Encodings are by the Arm Architecture Reference Manual, chapter C4.
 *
 * Probes are set at the first instruction: the next ones store and sign x30, which the kernel replaces where returns are watched.
 */
#include "bpf/probe.h"

#include <string.h>

#define WORD_BYTES 4u

/* ${mask}ed bits of all instructions of a kind. */
#define IS(word, mask, value)  (((word) & (mask)) == (value))
#define IS_JUMP_OR_CALL(word)  IS(word, 0x7c000000u, 0x14000000u) /* b, bl */
#define IS_JUMP(word)	       IS(word, 0xfc000000u, 0x14000000u)
#define IS_JUMP_IF(word)       IS(word, 0xff000000u, 0x54000000u) /* b.cond */
#define IS_JUMP_IF_ZERO(word)  IS(word, 0x7e000000u, 0x34000000u) /* cbz, cbnz */
#define IS_JUMP_IF_BIT(word)   IS(word, 0x7e000000u, 0x36000000u) /* tbz, tbnz */
#define IS_PAGE_TO_X16(word)   IS(word, 0x9f00001fu, 0x90000010u) /* adrp x16, page */
#define IS_LOAD_FROM_X16(word) IS(word, 0xffc003ffu, 0xf9400211u) /* ldr x17, [x16, #N] */
#define LANDING_PAD	       0xd503245fu			  /* bti c */

static uint32_t word_at(const uint8_t *code)
{
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	return word;
}

/* The signed number of ${bits} from bit ${shift} on. */
static int64_t number_in(uint32_t word, unsigned shift, unsigned bits)
{
	return (int64_t)((uint64_t)word << (64 - bits - shift)) >> (64 - bits);
}

bool hl_probe_place_visit_branches(const uint8_t *code, size_t bytes,
				   bool (*visit)(int64_t target, void *context), void *context)
{
	for (size_t at = 0; at + WORD_BYTES <= bytes; at += WORD_BYTES) {
		uint32_t word = word_at(code + at);
		int64_t words = IS_JUMP_OR_CALL(word)			    ? number_in(word, 0, 26)
				: IS_JUMP_IF(word) || IS_JUMP_IF_ZERO(word) ? number_in(word, 5, 19)
				: IS_JUMP_IF_BIT(word)			    ? number_in(word, 5, 14)
									    : 0;
		if (words && visit((int64_t)at + words * (int64_t)WORD_BYTES, context))
			return true;
	}
	return false;
}

struct hl_probe_place hl_probe_place(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	(void)code, (void)bytes, (void)argument_count;
	return (struct hl_probe_place){.emulated = true, .arguments = {0, 1, 2, 3}};
}

uint32_t hl_probe_place_after_call(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	(void)code, (void)bytes, (void)argument_count;
	return 0; /* x0 is the result then */
}

size_t hl_probe_place_jump_bytes(const uint8_t *code, size_t bytes)
{
	return bytes >= WORD_BYTES && IS_JUMP(word_at(code)) ? WORD_BYTES : 0;
}

/* bti c or nothing, then adrp x16, ldr x17 from there. */
uint64_t hl_probe_place_stub_slot(const uint8_t *code, size_t bytes, uint64_t address)
{
	size_t at = bytes >= WORD_BYTES && word_at(code) == LANDING_PAD ? WORD_BYTES : 0;

	if (at + 2 * WORD_BYTES > bytes)
		return 0;
	uint32_t page = word_at(code + at), load = word_at(code + at + WORD_BYTES);
	if (!IS_PAGE_TO_X16(page) || !IS_LOAD_FROM_X16(load))
		return 0;
	uint64_t pages = (uint64_t)number_in(page, 5, 19) << 2 | (page >> 29 & 3);
	return ((address + at) & ~UINT64_C(4095)) + (pages << 12) + (load >> 10 & 0xfff) * 8;
}
