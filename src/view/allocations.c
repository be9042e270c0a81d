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
	hl_emit_unsigned(emit, "inuse_blocks", total->blocks);
	if (allocations->knows_bytes)
		hl_emit_unsigned(emit, "inuse_bytes", total->bytes);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_unsigned(emit, "unscanned_bytes", allocations->unscanned_bytes);
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

/* What cells need beside their row. */
struct cells {
	const struct hl_allocations *allocations;
	const struct hl_allocation *total;
};

static void share(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_allocation *row = at;
	const struct cells *cells = context;

	if (cells->allocations->knows_bytes)
		hl_cell_share(emit, hl_heap_number(row->bytes),
			      hl_heap_number(cells->total->bytes));
	else
		hl_cell_share(emit, hl_heap_number(row->blocks),
			      hl_heap_number(cells->total->blocks));
}

static void least(struct hl_emit *emit, const void *row, const void *context)
{
	const struct cells *cells = context;

	hl_cell_unsigned(emit, bytes_at_least(&cells->allocations->shape, row));
}

static void by_size(struct hl_emit *emit, const void *row, const void *context)
{
	const struct cells *cells = context;
	char spark[HL_HEAP_SPARK_MAX];

	hl_cell_text(emit, hl_heap_spark(&cells->allocations->shape,
					 &((const struct hl_allocation *)row)->histogram, spark));
}

static void name(struct hl_emit *emit, const void *member, const void *context)
{
	const struct cells *cells = context;

	hl_cell_text(emit, hl_strings_text(&cells->allocations->names, *(const uint32_t *)member));
}

static void histogram(struct hl_emit *emit, const void *row, const void *context)
{
	const struct cells *cells = context;

	hl_heap_emit_counts(emit, "histogram", &cells->allocations->shape,
			    &((const struct hl_allocation *)row)->histogram);
}

/* Facts of the table. */
enum {
	KNOWS_BYTES = 1,
	KNOWS_LEAST = 2,
};

#define MEMBER(name) HL_MEMBER(struct hl_allocation, name)
#define NAME(member) HL_MEMBER_CELL(struct hl_allocation, member, name)

static const struct hl_column columns[] = {
	{NULL, "blocks", HL_COLUMN_COUNT, MEMBER(blocks)},
	{NULL, "share", HL_COLUMN_SHARE, .cell = share},
	{"inuse_bytes", "bytes", HL_COLUMN_BYTES, MEMBER(bytes), .shown_if = KNOWS_BYTES},
	{NULL, "at least", HL_COLUMN_BYTES, .cell = least, .shown_if = KNOWS_LEAST},
	{NULL, "by size", HL_COLUMN_TEXT, .cell = by_size, .flags = HL_COLUMN_OMITTED},
	{"origin", "origin", HL_COLUMN_TEXT, NAME(origin), .flags = HL_COLUMN_SHORTENED},
	{"type", "type", HL_COLUMN_TEXT, NAME(type), .flags = HL_COLUMN_SHORTENED | HL_COLUMN_KEY},
	{"inuse_blocks", NULL, HL_COLUMN_COUNT, MEMBER(blocks)},
	{"histogram", NULL, HL_COLUMN_MEMBERS, .cell = histogram},
};

static void emit_rows(struct hl_emit *emit, const struct hl_allocations *allocations,
		      const struct hl_allocation *total, uint64_t row_limit)
{
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, allocations->count);
	bool by_bytes = allocations->knows_bytes;
	uint64_t heavy = (by_bytes ? total->bytes : total->blocks) / HEAVY_SHARE;

	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns),
						.context = &(struct cells){allocations, total},
						.facts = by_bytes ? KNOWS_BYTES : KNOWS_LEAST});
	for (size_t i = 0; i < shown; i++) {
		const struct hl_allocation *row = &allocations->rows[i];
		uint64_t weight = by_bytes ? row->bytes : row->blocks;
		hl_table_row(emit, row, weight && weight >= heavy ? HL_EMIT_HEAVY : 0);
	}
	hl_table_end(emit);
	hl_emit_more(emit, allocations->count - shown, "-n");
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
