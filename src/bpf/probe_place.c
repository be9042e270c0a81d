/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses where in functions probes are set, by what a machine's instructions do; see probe.h. */
#include "bpf/probe.h"

/* How much code may come before the probe: a known free() has 48 bytes. */
#define SKIPPED_BYTES_MAX 64

/* Which registers hold each argument, as masks of register numbers. */
struct argument_holders {
	uint32_t masks[HL_PROBE_ARGUMENTS_MAX];
	unsigned count;
};

/* Follows where the arguments are after the instruction. False: one is lost. */
static bool follow(const struct hl_probe_instruction *instruction, struct argument_holders *holders)
{
	for (unsigned i = 0; i < holders->count; i++) {
		if (holders->masks[i] & instruction->copied)
			holders->masks[i] |= instruction->written;
		else
			holders->masks[i] &= ~instruction->written;
		if (!holders->masks[i])
			return false;
	}
	return true;
}

bool hl_probe_place_visit_branches(const uint8_t *code, size_t bytes,
				   bool (*visit)(int64_t target, void *context), void *context)
{
	struct hl_probe_instruction at;

	for (size_t offset = 0; offset < bytes; offset += at.bytes) {
		/* Else data in between, or the end is cut off. */
		if (hl_probe_read(code + offset, bytes - offset, offset, &at) && at.is_branch &&
		    visit((int64_t)at.target, context))
			return true;
	}
	return false;
}

/* Whether a jump leads to a byte after the first, up to *${context}. */
static bool is_within_skipped(int64_t target, void *context)
{
	return target > 0 && target <= (int64_t) * (const uint32_t *)context;
}

/* For each argument the register of the ABI, if it still holds it; else any that does. */
static void say_holders(const struct argument_holders *holders, struct hl_probe_place *place)
{
	for (unsigned i = 0; i < holders->count; i++)
		place->arguments[i] = holders->masks[i] & UINT32_C(1) << hl_probe_arguments[i]
					      ? hl_probe_arguments[i]
					      : (uint8_t)__builtin_ctz(holders->masks[i]);
}

struct hl_probe_place hl_probe_place(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	struct hl_probe_place entry = {0};
	struct argument_holders holders = {.count = argument_count};
	struct hl_probe_instruction instruction;

	for (unsigned i = 0; i < argument_count; i++)
		holders.masks[i] = UINT32_C(1) << hl_probe_arguments[i];
	say_holders(&holders, &entry);
	for (uint32_t at = 0; at <= SKIPPED_BYTES_MAX && at < bytes; at += instruction.bytes) {
		if (!hl_probe_read(code + at, bytes - at, at, &instruction))
			break;
		if (instruction.is_emulated) {
			struct hl_probe_place place = {.offset = at, .emulated = true};
			say_holders(&holders, &place);
			return at && hl_probe_place_visit_branches(code, bytes, is_within_skipped,
								   &at)
				       ? entry
				       : place;
		}
		if (!instruction.may_precede || !follow(&instruction, &holders))
			break;
	}
	return entry;
}
