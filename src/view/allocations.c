/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations by origin and type as a report; see heap.h. */
#include "view/heap.h"

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

/* ---- rows ---- */

static void least(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_allocations *allocations = context;

	hl_cell_unsigned(emit, bytes_at_least(&allocations->shape, row));
}

static void by_size(struct hl_emit *emit, const void *histogram, const void *context)
{
	const struct hl_allocations *allocations = context;
	char spark[HL_HEAP_SPARK_MAX];

	hl_cell_text(emit, hl_heap_histogram_spark(&allocations->shape, histogram, spark));
}

static void name(struct hl_emit *emit, const void *member, const void *context)
{
	const struct hl_allocations *allocations = context;

	hl_cell_text(emit, hl_strings_text(&allocations->names, *(const uint32_t *)member));
}

static void counts(struct hl_emit *emit, const void *histogram, const void *context)
{
	const struct hl_allocations *allocations = context;

	hl_heap_histogram_emit_counts(emit, "histogram", &allocations->shape, histogram);
}

/* Facts of the table. */
enum {
	KNOWS_BYTES = 1,
	KNOWS_LEAST = 2,
};

#define MEMBER(name)	     HL_MEMBER(struct hl_allocation, name)
#define CELL(name, function) HL_MEMBER_CELL(struct hl_allocation, name, function)
#define SHORTENED	     HL_COLUMN_SHORTENED

static const struct hl_column columns[] = {
	{NULL, "blocks", HL_COLUMN_COUNT, MEMBER(blocks)},
	{NULL, "share", HL_COLUMN_SHARE, MEMBER(bytes), .shown_if = KNOWS_BYTES},
	{NULL, "share", HL_COLUMN_SHARE, MEMBER(blocks), .shown_if = KNOWS_LEAST},
	{"inuse_bytes", "bytes", HL_COLUMN_BYTES, MEMBER(bytes), .shown_if = KNOWS_BYTES},
	{NULL, "at least", HL_COLUMN_BYTES, .cell = least, .shown_if = KNOWS_LEAST},
	{NULL, "by size", HL_COLUMN_TEXT, CELL(histogram, by_size), .flags = HL_COLUMN_OMITTED},
	{"origin", "origin", HL_COLUMN_TEXT, CELL(origin, name), .flags = SHORTENED},
	{"type", "type", HL_COLUMN_TEXT, CELL(type, name),
	 .flags = SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{"inuse_blocks", NULL, HL_COLUMN_COUNT, MEMBER(blocks)},
	{"histogram", NULL, HL_COLUMN_MEMBERS, CELL(histogram, counts)},
};

void hl_allocations_emit(struct hl_emit *emit, const struct hl_allocations *allocations,
			 uint64_t row_limit)
{
	bool by_bytes = allocations->knows_bytes;
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, allocations->count);
	struct hl_allocation total;

	hl_allocations_total(allocations, &total);
	uint64_t whole = by_bytes ? total.bytes : total.blocks;
	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "inuse_blocks", total.blocks);
	if (by_bytes)
		hl_emit_unsigned(emit, "inuse_bytes", total.bytes);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_unsigned(emit, "unscanned_bytes", allocations->unscanned_bytes);
	hl_emit_object_end(emit);
	const char *blocks = HL_HEAP_COUNT(total.blocks);
	if (by_bytes) {
		hl_emit_line(emit, "%s in use, in %s block%s", HL_HEAP_BYTES(total.bytes), blocks,
			     hl_format_plural(total.blocks));
	} else if (allocations->shape.width) {
		uint64_t most = bytes_below(&allocations->shape, &total);
		bool is_bounded = most < UINT64_MAX;
		hl_emit_line(emit, "%s block%s in use, %s %s%s%s", blocks,
			     hl_format_plural(total.blocks), is_bounded ? "between" : "at least",
			     HL_HEAP_BYTES(bytes_at_least(&allocations->shape, &total)),
			     is_bounded ? " and " : "", is_bounded ? HL_HEAP_BYTES(most) : "");
	}
	if (allocations->unscanned_bytes)
		hl_emit_warning(emit, "unscanned: %s; blocks there are not counted below",
				HL_HEAP_BYTES(allocations->unscanned_bytes));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = allocations,
						.facts = by_bytes ? KNOWS_BYTES : KNOWS_LEAST,
						.sum = hl_heap_number(whole)});
	for (size_t i = 0; i < shown; i++) {
		const struct hl_allocation *row = &allocations->rows[i];
		uint64_t weight = by_bytes ? row->bytes : row->blocks;
		bool is_heavy = weight && weight >= whole / HEAVY_SHARE;
		hl_table_row(emit, row, is_heavy ? HL_EMIT_HEAVY : 0);
	}
	hl_table_end(emit);
	hl_emit_more(emit, allocations->count - shown, "-n");
	hl_heap_histogram_emit(emit, "histogram", "blocks", &allocations->shape, &total.histogram);
	if (total.blocks)
		hl_emit_line(emit, "by size: one bar for each of these sizes, taller for more "
				   "blocks, on a logarithmic scale");
}
