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
	hl_emit_integer(emit, "carriers", hl_heap_number(sum->carriers));
	hl_emit_integer(emit, "total_bytes", hl_heap_number(sum->total_bytes));
	hl_emit_integer(emit, "inuse_bytes", hl_heap_number(sum->allocated_bytes));
	hl_emit_integer(emit, "inuse_blocks", hl_heap_number(sum->allocated_blocks));
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

static void emit_instance(struct hl_emit *emit, const struct hl_beam_instance *instance)
{
	char bar[HL_HEAP_BAR_MAX];

	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, instance->allocator);
	hl_emit_cell_integer(emit, hl_heap_number(instance->number));
	hl_emit_cell_text(emit, instance->type);
	hl_emit_cell_integer(emit, hl_heap_number(instance->carriers));
	hl_emit_cell_integer(emit, hl_heap_number(instance->total_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(instance->allocated_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(instance->allocated_blocks));
	hl_emit_cell_percent(emit, hl_heap_number(instance->allocated_bytes),
			     hl_heap_number(instance->total_bytes));
	hl_emit_cell_text(emit, hl_heap_bar(instance->allocated_bytes, instance->total_bytes, bar));
	hl_emit_cell_text(emit, instance->in_pool ? "pool" : "");
	hl_emit_boolean(emit, "in_pool", instance->in_pool);
}

void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances)
{
	const struct hl_emit_column columns[] = {
		{"allocator", "allocator", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{"instance", "instance", HL_EMIT_NUMBER, 0},
		{"type", "type", HL_EMIT_TEXT, 0},
		{"carriers", "carriers", HL_EMIT_COUNT, 0},
		{"total_bytes", "total", HL_EMIT_BYTES, 0},
		{"inuse_bytes", "in use", HL_EMIT_BYTES, 0},
		{"inuse_blocks", "blocks", HL_EMIT_COUNT, 0},
		{NULL, "use%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
	};
	const struct hl_beam_instance sum = sum_of(instances);

	emit_total(emit, &sum);
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < instances->count; i++)
		emit_instance(emit, &instances->instances[i]);
	hl_emit_rows_end(emit);
	hl_emit_line(emit, "instance 0 belongs to all threads that are not schedulers, N to "
			   "scheduler N");
}
