/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocator instances of a BEAM as a report; see views.h. */
#include "guests/beam/views.h"

#include "guests/beam/beam.h"

static void pool(struct hl_emit *emit, const void *in_pool, const void *context)
{
	(void)context;
	hl_cell_text(emit, *(const bool *)in_pool ? "pool" : "");
}

static void pool_member(struct hl_emit *emit, const void *in_pool, const void *context)
{
	(void)context;
	hl_emit_boolean(emit, "in_pool", *(const bool *)in_pool);
}

#define MEMBER(name) HL_MEMBER(struct hl_beam_instance, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct hl_beam_instance, name)
#define USE	     HL_MEMBER_SHARE(struct hl_beam_instance, allocated_bytes, total_bytes)
#define POOL(cell)   HL_MEMBER_CELL(struct hl_beam_instance, in_pool, cell)

static const struct hl_column columns[] = {
	{"allocator", "allocator", HL_COLUMN_TEXT, TEXT(allocator), HL_COLUMN_SHORTENED},
	{"instance", "instance", HL_COLUMN_NUMBER, MEMBER(number)},
	{"type", "type", HL_COLUMN_TEXT, TEXT(type)},
	{"carriers", "carriers", HL_COLUMN_COUNT, MEMBER(carriers)},
	{"total_bytes", "total", HL_COLUMN_BYTES, MEMBER(total_bytes)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(allocated_bytes)},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(allocated_blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, USE},
	{NULL, "", HL_COLUMN_BAR, USE, HL_COLUMN_OMITTED},
	{NULL, "", HL_COLUMN_TEXT, POOL(pool)},
	{"in_pool", NULL, HL_COLUMN_MEMBERS, POOL(pool_member)},
};

void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances)
{
	struct hl_beam_instance sum = {0};

	for (size_t i = 0; i < instances->count; i++) {
		sum.carriers += instances->instances[i].carriers;
		sum.total_bytes += instances->instances[i].total_bytes;
		sum.allocated_bytes += instances->instances[i].allocated_bytes;
		sum.allocated_blocks += instances->instances[i].allocated_blocks;
	}
	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "carriers", sum.carriers);
	hl_emit_unsigned(emit, "total_bytes", sum.total_bytes);
	hl_emit_unsigned(emit, "inuse_bytes", sum.allocated_bytes);
	hl_emit_unsigned(emit, "inuse_blocks", sum.allocated_blocks);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s in %s carrier%s; %s (%s) in use, in %s block%s",
		     HL_HEAP_BYTES(sum.total_bytes), HL_HEAP_COUNT(sum.carriers),
		     hl_format_plural(sum.carriers), HL_HEAP_BYTES(sum.allocated_bytes),
		     HL_HEAP_PERCENT(sum.allocated_bytes, sum.total_bytes),
		     HL_HEAP_COUNT(sum.allocated_blocks), hl_format_plural(sum.allocated_blocks));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < instances->count; i++)
		hl_table_row(emit, &instances->instances[i], 0);
	hl_table_end(emit);
	hl_emit_line(emit, "instance 0 belongs to all threads that are not schedulers, N to "
			   "scheduler N");
}
