/* SPDX-License-Identifier: BSD-2-Clause */
/* Which stacks the live blocks in RAM are of: the balance sheet of a heap, one step deeper. Blocks of
 * other allocators are not part of it. */
#include "view/heap_stacks.h"

#include "base/array.h"
#include "heap/owners/block_owners.h"
#include "heap/owners/resident.h"
#include "view/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STACKS_DEFAULT 10 /* for people */
#define FRAMES_TOLD    3  /* on a line */

static int heavier(const void *left, const void *right)
{
	const struct hl_heap_stack *a = left, *b = right;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return (a->number > b->number) - (a->number < b->number);
}

int hl_heap_stacks_init(struct hl_heap_stacks *stacks, const struct hl_resident *resident)
{
	*stacks = (struct hl_heap_stacks){.resident = resident};
	if (!resident || !resident->stack_count)
		return 0;
	stacks->stacks = calloc(resident->stack_count, sizeof(*stacks->stacks));
	if (!stacks->stacks)
		return -ENOMEM;
	for (size_t number = 1; number < resident->stack_count; number++)
		if (resident->stacks[number].walked)
			stacks->stacks[stacks->count++] =
				(struct hl_heap_stack){number, resident->stacks[number].walked};
	if (stacks->count)
		qsort(stacks->stacks, stacks->count, sizeof(*stacks->stacks), heavier);
	return 0;
}

void hl_heap_stacks_release(struct hl_heap_stacks *stacks)
{
	free(stacks->stacks);
	*stacks = (struct hl_heap_stacks){0};
}

/* ---- words ---- */

struct told {
	char text[HL_HEAP_STACK_TEXT];
	size_t length;
	unsigned count;
};

static const char *name_of(const struct hl_block_frame *frame)
{
	return frame->function[0] ? frame->function : frame->module;
}

/* The innermost frames. */
static int tell(void *context, const struct hl_block_frame *frame)
{
	struct told *told = context;
	int length = snprintf(told->text + told->length, sizeof(told->text) - told->length, "%s%s",
			      told->count ? " < " : "", name_of(frame));

	told->length += length > 0 ? (size_t)length : 0;
	if (told->length >= sizeof(told->text))
		told->length = sizeof(told->text) - 1;
	return ++told->count == FRAMES_TOLD;
}

static int put_frame(void *context, const struct hl_block_frame *frame)
{
	hl_emit_text(context, NULL, name_of(frame));
	return 0;
}

/* ---- rows ---- */

int hl_heap_stacks_each(const struct hl_heap_stacks *stacks,
			void (*row)(void *context, const char *part, uint64_t bytes), void *context)
{
	const struct hl_resident *resident = stacks->resident;
	size_t shown = stacks->count < STACKS_DEFAULT ? stacks->count : STACKS_DEFAULT;
	char part[64];
	uint64_t rest = 0;

	for (size_t i = 0; i < shown; i++) {
		struct told told = {.text = "  ", .length = 2};
		int r = hl_block_owners_each_frame(resident->owners, stacks->stacks[i].number, tell,
						   &told);
		if (r < 0)
			return r;
		row(context, told.text, stacks->stacks[i].bytes);
	}
	for (size_t i = shown; i < stacks->count; i++)
		rest += stacks->stacks[i].bytes;
	snprintf(part, sizeof(part), "  %zu other stacks", stacks->count - shown);
	if (rest)
		row(context, part, rest);
	if (resident && resident->stack_count && resident->stacks[0].walked)
		row(context, "  of a stack that is not known", resident->stacks[0].walked);
	return 0;
}

int hl_heap_stacks_emit(struct hl_emit *emit, const struct hl_heap_stacks *stacks)
{
	const struct hl_resident *resident = stacks->resident;
	int r = 0;

	hl_emit_array(emit, "stacks");
	for (size_t i = 0; r == 0 && i < stacks->count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_unsigned(emit, "bytes", stacks->stacks[i].bytes);
		hl_emit_array(emit, "stack");
		r = hl_block_owners_each_frame(resident->owners, stacks->stacks[i].number,
					       put_frame, emit);
		hl_emit_array_end(emit);
		hl_emit_object_end(emit);
	}
	if (resident && resident->stack_count && resident->stacks[0].walked) {
		hl_emit_object(emit, NULL);
		hl_emit_unsigned(emit, "bytes", resident->stacks[0].walked);
		hl_emit_array(emit, "stack");
		hl_emit_array_end(emit);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	return r;
}
