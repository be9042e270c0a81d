/* SPDX-License-Identifier: BSD-2-Clause */
/* Resident pages that few live bytes keep: what freeing a block would return. */
#include "view/heap.h"

#include "view/format.h"
#include "view/heap_words.h"

#include <inttypes.h>

static const char *hexadecimal(uint64_t address, char buffer[HL_FORMAT_MAX])
{
	snprintf(buffer, HL_FORMAT_MAX, "0x%" PRIx64, address);
	return buffer;
}

static void emit_rows(struct hl_emit *emit, const struct hl_heap *heap, size_t shown)
{
	static const struct hl_emit_column columns[] = {
		{"returned_bytes", "would free", HL_EMIT_BYTES, 0},
		{"live_bytes", "live", HL_EMIT_BYTES, 0},
		{"live_blocks", "blocks", HL_EMIT_COUNT, 0},
		{"start", "pages from", HL_EMIT_TEXT, HL_EMIT_KEY},
		{"pages", "pages", HL_EMIT_COUNT, 0},
		{"block", "largest block", HL_EMIT_TEXT, 0},
		{"block_bytes", "its size", HL_EMIT_BYTES, 0},
	};
	char text[HL_FORMAT_MAX];
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < shown; i++) {
		const struct hl_heap_pin *pin = &heap->pins[i];
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, hl_heap_number(pin->returned_bytes));
		hl_emit_cell_integer(emit, hl_heap_number(pin->live_bytes));
		hl_emit_cell_integer(emit, hl_heap_number(pin->live_blocks));
		hl_emit_cell_text(emit, hexadecimal(pin->start, text));
		hl_emit_cell_integer(emit,
				     hl_heap_number((pin->end - pin->start) / heap->page_bytes));
		hl_emit_cell_text(emit, hexadecimal(pin->block, text));
		hl_emit_cell_integer(emit, hl_heap_number(pin->block_bytes));
	}
	hl_emit_rows_end(emit);
}

static void emit_total(struct hl_emit *emit, const struct hl_heap *heap)
{
	char returned[HL_FORMAT_MAX], live[HL_FORMAT_MAX];
	uint64_t returned_bytes = 0, live_bytes = 0, live_blocks = 0;
	for (size_t i = 0; i < heap->pin_count; i++) {
		returned_bytes += heap->pins[i].returned_bytes;
		live_bytes += heap->pins[i].live_bytes;
		live_blocks += heap->pins[i].live_blocks;
	}
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "places", (int64_t)heap->pin_count);
	hl_emit_integer(emit, "returned_bytes", hl_heap_number(returned_bytes));
	hl_emit_integer(emit, "live_bytes", hl_heap_number(live_bytes));
	hl_emit_integer(emit, "live_blocks", hl_heap_number(live_blocks));
	hl_emit_object_end(emit);
	if (!heap->pin_count)
		hl_emit_line(emit, "%s", "no small live block pins much memory");
	else
		hl_emit_line(emit, "%s in small live blocks keep %s of pages in memory",
			     hl_format_bytes(hl_heap_number(live_bytes), live),
			     hl_format_bytes(hl_heap_number(returned_bytes), returned));
	hl_emit_line(emit, "%s", "");
}

int hl_view_pins(const struct hl_heap *heap, const struct hl_heap_view_options *options)
{
	struct hl_emit *emit;
	size_t shown = heap->pin_count;
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	if (options->row_limit && options->row_limit < shown)
		shown = (size_t)options->row_limit;
	hl_emit_begin(emit, "pins");
	hl_heap_emit_head(emit, heap);
	emit_total(emit, heap);
	emit_rows(emit, heap, shown);
	if (shown < heap->pin_count)
		hl_emit_line(emit, "... and %zu more; -n 0 shows all", heap->pin_count - shown);
	hl_heap_emit_notes(emit, heap);
	return hl_emit_finish(emit);
}
