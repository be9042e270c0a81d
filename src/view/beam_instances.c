/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocator instances of a BEAM as a report; see beam_instances.h. */
#include "view/beam_instances.h"

#include "view/format.h"
#include "view/heap_words.h"

static struct hl_beam_instance sum_of(const struct hl_beam_instances *instances)
{
	struct hl_beam_instance sum = {0};

	for (size_t i = 0; i < instances->count; i++) {
		sum.carriers += instances->instances[i].carriers;
		sum.total_bytes += instances->instances[i].total_bytes;
		sum.allocated_bytes += instances->instances[i].allocated_bytes;
		sum.allocated_blocks += instances->instances[i].allocated_blocks;
	}
	return sum;
}

static void emit_total(struct hl_emit *emit, const struct hl_beam_instance *sum)
{
	char all[HL_FORMAT_MAX], live[HL_FORMAT_MAX], share[HL_FORMAT_MAX];
	char carriers[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX];

	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "carriers", sum->carriers);
	hl_emit_unsigned(emit, "total_bytes", sum->total_bytes);
	hl_emit_unsigned(emit, "inuse_bytes", sum->allocated_bytes);
	hl_emit_unsigned(emit, "inuse_blocks", sum->allocated_blocks);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s in %s carrier%s; %s (%s) in use, in %s block%s",
		     hl_format_bytes(hl_heap_number(sum->total_bytes), all),
		     hl_format_count(hl_heap_number(sum->carriers), carriers),
		     hl_format_plural(sum->carriers),
		     hl_format_bytes(hl_heap_number(sum->allocated_bytes), live),
		     hl_format_percent(hl_heap_number(sum->allocated_bytes),
				       hl_heap_number(sum->total_bytes), share),
		     hl_format_count(hl_heap_number(sum->allocated_blocks), blocks),
		     hl_format_plural(sum->allocated_blocks));
}

static void use(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_beam_instance *instance = at;

	(void)context;
	hl_cell_share(emit, hl_heap_number(instance->allocated_bytes),
		      hl_heap_number(instance->total_bytes));
}

static void bar(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_beam_instance *instance = at;

	(void)context;
	hl_cell_bar(emit, instance->allocated_bytes, instance->total_bytes);
}

static void pool(struct hl_emit *emit, const void *at, const void *context)
{
	bool in_pool = ((const struct hl_beam_instance *)at)->in_pool;

	(void)context;
	hl_cell_text(emit, in_pool ? "pool" : "");
}

static void in_pool(struct hl_emit *emit, const void *at, const void *context)
{
	(void)context;
	hl_emit_boolean(emit, "in_pool", ((const struct hl_beam_instance *)at)->in_pool);
}

#define MEMBER(name) HL_MEMBER(struct hl_beam_instance, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct hl_beam_instance, name)

static const struct hl_column columns[] = {
	{"allocator", "allocator", HL_COLUMN_TEXT, TEXT(allocator), HL_COLUMN_SHORTENED},
	{"instance", "instance", HL_COLUMN_NUMBER, MEMBER(number)},
	{"type", "type", HL_COLUMN_TEXT, TEXT(type)},
	{"carriers", "carriers", HL_COLUMN_COUNT, MEMBER(carriers)},
	{"total_bytes", "total", HL_COLUMN_BYTES, MEMBER(total_bytes)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(allocated_bytes)},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(allocated_blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, .cell = use},
	{NULL, "", HL_COLUMN_BAR, .cell = bar, .flags = HL_COLUMN_OMITTED},
	{NULL, "", HL_COLUMN_TEXT, .cell = pool},
	{"in_pool", NULL, HL_COLUMN_MEMBERS, .cell = in_pool},
};

void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances)
{
	const struct hl_beam_instance sum = sum_of(instances);

	emit_total(emit, &sum);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < instances->count; i++)
		hl_table_row(emit, &instances->instances[i], 0);
	hl_table_end(emit);
	hl_emit_line(emit, "instance 0 belongs to all threads that are not schedulers, N to "
			   "scheduler N");
}
