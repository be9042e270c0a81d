/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations by origin and type as a report; see allocations.h. */
#include "view/allocations.h"

#include "view/format.h"
#include "view/heap_words.h"

#define ROWS_DEFAULT 40
#define HEAVY_SHARE  10 /* a row with a tenth of all stands out */

/* ---- bounds of bytes that are not known ---- */

/* A lower bound for the blocks of ${row}. No allocator gives blocks of size 0. */
static uint64_t bytes_at_least(const struct hl_log2_shape *shape, const struct hl_allocation *row)
{
	uint64_t bytes = 0;

	for (uint32_t slot = 0; slot < shape->width; slot++)
		bytes += row->histogram.counts[slot] * hl_log2_first(shape, slot);
	return bytes;
}

/* What they take less than; UINT64_MAX where the last slot, which has no end, is not empty. */
static uint64_t bytes_below(const struct hl_log2_shape *shape, const struct hl_allocation *row)
{
	uint64_t bytes = 0;

	if (row->histogram.counts[shape->width - 1])
		return UINT64_MAX;
	for (uint32_t slot = 0; slot + 1 < shape->width; slot++)
		bytes += row->histogram.counts[slot] * hl_log2_end(shape, slot);
	return bytes;
}

/* ---- the head ---- */

static void emit_totals(struct hl_emit *emit, const struct hl_allocations *allocations,
			const struct hl_allocation *total)
{
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "inuse_blocks", hl_heap_number(total->blocks));
	if (allocations->knows_bytes)
		hl_emit_integer(emit, "inuse_bytes", hl_heap_number(total->bytes));
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_integer(emit, "unscanned_bytes", hl_heap_number(allocations->unscanned_bytes));
	hl_emit_object_end(emit);
}

static void emit_summary(struct hl_emit *emit, const struct hl_allocations *allocations,
			 const struct hl_allocation *total)
{
	char blocks[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX], below[HL_FORMAT_MAX];
	uint64_t least, most;

	hl_format_count(hl_heap_number(total->blocks), blocks);
	if (allocations->knows_bytes) {
		hl_emit_line(emit, "%s in use, in %s block%s",
			     hl_format_bytes(hl_heap_number(total->bytes), bytes), blocks,
			     hl_format_plural(total->blocks));
	} else if (allocations->shape.width) {
		least = bytes_at_least(&allocations->shape, total);
		most = bytes_below(&allocations->shape, total);
		hl_format_bytes(hl_heap_number(least), bytes);
		hl_format_bytes(hl_heap_number(most), below);
		hl_emit_line(emit, "%s block%s in use, %s %s%s%s", blocks,
			     hl_format_plural(total->blocks),
			     most == UINT64_MAX ? "at least" : "between", bytes,
			     most == UINT64_MAX ? "" : " and ", most == UINT64_MAX ? "" : below);
	}
	if (allocations->unscanned_bytes)
		hl_emit_warning(
			emit, "unscanned: %s; blocks there are not counted below",
			hl_format_bytes(hl_heap_number(allocations->unscanned_bytes), bytes));
}

/* ---- rows ---- */

static void begin_rows(struct hl_emit *emit, const struct hl_allocations *allocations)
{
	bool knows = allocations->knows_bytes;
	const struct hl_emit_column columns[] = {
		{NULL, "blocks", HL_EMIT_COUNT, HL_EMIT_TEXT_ONLY},
		{NULL, "share", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{"inuse_bytes", "bytes", HL_EMIT_BYTES, knows ? 0 : HL_EMIT_HIDDEN},
		{NULL, "at least", HL_EMIT_BYTES, knows ? HL_EMIT_HIDDEN : HL_EMIT_TEXT_ONLY},
		{NULL, "by size", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"origin", "origin", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{"type", "type", HL_EMIT_TEXT, HL_EMIT_SHORTENED | HL_EMIT_KEY},
		{"inuse_blocks", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
	};
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
}

static void emit_row(struct hl_emit *emit, const struct hl_allocations *allocations,
		     const struct hl_allocation *row, const struct hl_allocation *total)
{
	const struct hl_log2_shape *shape = &allocations->shape;
	uint64_t weight = allocations->knows_bytes ? row->bytes : row->blocks;
	uint64_t whole = allocations->knows_bytes ? total->bytes : total->blocks;
	char spark[HL_HEAP_SPARK_MAX];

	hl_emit_row(emit, weight && weight >= whole / HEAVY_SHARE ? HL_EMIT_HEAVY : 0);
	hl_emit_cell_integer(emit, hl_heap_number(row->blocks));
	hl_emit_cell_percent(emit, hl_heap_number(weight), hl_heap_number(whole));
	hl_emit_cell_integer(emit, hl_heap_number(row->bytes));
	hl_emit_cell_integer(emit, hl_heap_number(bytes_at_least(shape, row)));
	hl_emit_cell_text(emit, hl_heap_spark(shape, &row->histogram, spark));
	hl_emit_cell_text(emit, hl_strings_text(&allocations->names, row->origin));
	hl_emit_cell_text(emit, hl_strings_text(&allocations->names, row->type));
	hl_emit_cell_integer(emit, hl_heap_number(row->blocks));
	hl_heap_emit_counts(emit, "histogram", shape, &row->histogram);
}

static size_t count_shown(const struct hl_emit *emit, const struct hl_allocations *allocations,
			  uint64_t row_limit)
{
	if (row_limit == HL_ALLOCATIONS_ROWS_DEFAULT)
		row_limit = hl_emit_is_json(emit) ? 0 : ROWS_DEFAULT;
	return row_limit && row_limit < allocations->count ? (size_t)row_limit : allocations->count;
}

static void emit_rows(struct hl_emit *emit, const struct hl_allocations *allocations,
		      const struct hl_allocation *total, uint64_t row_limit)
{
	size_t shown = count_shown(emit, allocations, row_limit);
	char more[HL_FORMAT_MAX];

	hl_emit_line(emit, "%s", "");
	begin_rows(emit, allocations);
	for (size_t i = 0; i < shown; i++)
		emit_row(emit, allocations, &allocations->rows[i], total);
	hl_emit_rows_end(emit);
	if (shown < allocations->count)
		hl_emit_line(emit, "... and %s more; --rows 0 shows all",
			     hl_format_count(hl_heap_number(allocations->count - shown), more));
}

void hl_allocations_emit(struct hl_emit *emit, const struct hl_allocations *allocations,
			 uint64_t row_limit)
{
	struct hl_allocation total;

	hl_allocations_total(allocations, &total);
	emit_totals(emit, allocations, &total);
	emit_summary(emit, allocations, &total);
	emit_rows(emit, allocations, &total, row_limit);
	hl_heap_emit_histogram(emit, "histogram", "blocks", &allocations->shape, &total.histogram);
	if (total.blocks)
		hl_emit_line(emit, "by size: one bar for each of these sizes, taller for more "
				   "blocks, on a logarithmic scale");
}
