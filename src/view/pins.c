/* SPDX-License-Identifier: BSD-2-Clause */
/* Resident pages that few live bytes keep: what freeing a block would return. */
#include "view/heap.h"

static void pages(struct hl_emit *emit, const void *at, const void *heap)
{
	const struct hl_heap_pin *pin = at;

	hl_cell_unsigned(emit,
			 (pin->end - pin->start) / ((const struct hl_heap *)heap)->page_bytes);
}

#define MEMBER(name) HL_MEMBER(struct hl_heap_pin, name)

static const struct hl_column columns[] = {
	{"returned_bytes", "would free", HL_COLUMN_BYTES, MEMBER(returned_bytes)},
	{"live_bytes", "live", HL_COLUMN_BYTES, MEMBER(live_bytes)},
	{"live_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(live_blocks)},
	{"start", "pages from", HL_COLUMN_ADDRESS, MEMBER(start), HL_COLUMN_KEY},
	{"pages", "pages", HL_COLUMN_COUNT, .cell = pages},
	{"block", "largest block", HL_COLUMN_ADDRESS, MEMBER(block)},
	{"block_bytes", "its size", HL_COLUMN_BYTES, MEMBER(block_bytes)},
};

int hl_pins_view(const struct hl_heap *heap, const struct hl_emit_options *options)
{
	uint64_t returned_bytes = 0, live_bytes = 0, live_blocks = 0;
	struct hl_emit *emit;

	int r = hl_emit_open(options, "pins/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, 0, heap->pin_count);
	hl_heap_emit_head(emit, heap);
	for (size_t i = 0; i < heap->pin_count; i++) {
		returned_bytes += heap->pins[i].returned_bytes;
		live_bytes += heap->pins[i].live_bytes;
		live_blocks += heap->pins[i].live_blocks;
	}
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "places", heap->pin_count);
	hl_emit_unsigned(emit, "returned_bytes", returned_bytes);
	hl_emit_unsigned(emit, "live_bytes", live_bytes);
	hl_emit_unsigned(emit, "live_blocks", live_blocks);
	hl_emit_object_end(emit);
	if (!heap->pin_count && !heap->is_musl)
		hl_emit_line(emit, "%s", "no small live block pins much memory");
	else if (heap->pin_count)
		hl_emit_line(emit, "%s in small live blocks keep %s of pages in memory",
			     HL_HEAP_BYTES(live_bytes), HL_HEAP_BYTES(returned_bytes));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = heap});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &heap->pins[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, heap->pin_count - shown, "-n");
	hl_heap_emit_notes(emit, heap);
	return hl_emit_finish(emit);
}
