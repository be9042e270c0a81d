/* SPDX-License-Identifier: BSD-2-Clause */
/* Slabs by block size, and how full they are; see slabs.h. */
#include "view/slabs.h"

#include "view/format.h"
#include "view/heap_words.h"

/* ---- sums ---- */

static void emit_sums(struct hl_emit *emit, const struct hl_introspection *said)
{
	static const struct hl_emit_column columns[] = {
		{NULL, "bytes", HL_EMIT_BYTES, HL_EMIT_TEXT_ONLY},
		{NULL, "according to the allocator", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_KEY},
	};
	const struct {
		const char *key, *says;
		uint64_t bytes;
	} sums[] = {
		{"inuse_bytes", "in blocks of the program", said->allocated_bytes},
		{"cached_bytes", "free, in threads' and central caches", said->cached_bytes},
		{"active_bytes", "in pages with such blocks", said->active_bytes},
		{"resident_bytes", "in memory", said->resident_bytes},
		{"retained_bytes", "address space kept without memory", said->retained_bytes},
		{"metadata_bytes", "the allocator's own", said->metadata_bytes},
	};
	hl_emit_object(emit, "total");
	for (size_t i = 0; i < HL_COUNT_OF(sums); i++)
		hl_emit_integer(emit, sums[i].key, hl_heap_number(sums[i].bytes));
	hl_emit_object_end(emit);
	if (hl_emit_is_json(emit))
		return;
	hl_emit_rows(emit, NULL, columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < HL_COUNT_OF(sums); i++) {
		if (!sums[i].bytes)
			continue;
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, hl_heap_number(sums[i].bytes));
		hl_emit_cell_text(emit, sums[i].says);
	}
	hl_emit_rows_end(emit);
}

/* ---- occupancy ---- */

static uint64_t sum_of(const struct hl_slabs *slabs)
{
	uint64_t sum = 0;
	for (uint32_t slot = 0; slot < HL_OCCUPANCY_SLOTS; slot++)
		sum += slabs->occupancy_bytes[slot];
	return sum;
}

static void emit_occupancy(struct hl_emit *emit, const struct hl_slabs *slabs)
{
	static const struct hl_emit_column columns[] = {
		{"from_percent", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{NULL, "slabs in use to", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_KEY},
		{"bytes", "bytes", HL_EMIT_BYTES, 0},
		{NULL, "share", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
	};
	char label[HL_FORMAT_MAX], bar[HL_HEAP_BAR_MAX];
	uint64_t sum = sum_of(slabs);
	hl_emit_rows(emit, "occupancy", columns, HL_COUNT_OF(columns));
	for (uint32_t slot = 0; slot < HL_OCCUPANCY_SLOTS; slot++) {
		uint64_t bytes = slabs->occupancy_bytes[slot];
		uint32_t from = 100 * slot / HL_OCCUPANCY_SLOTS,
			 to = 100 * (slot + 1) / HL_OCCUPANCY_SLOTS;
		snprintf(label, sizeof(label), "%u-%u %%", from, to);
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, from);
		hl_emit_cell_text(emit, label);
		hl_emit_cell_integer(emit, hl_heap_number(bytes));
		hl_emit_cell_percent(emit, hl_heap_number(bytes), hl_heap_number(sum));
		hl_emit_cell_text(emit, hl_heap_bar(bytes, sum, bar));
	}
	hl_emit_rows_end(emit);
}

/* ---- classes ---- */

static void emit_class(struct hl_emit *emit, const struct hl_slab_class *class)
{
	hl_emit_row(emit, 0);
	hl_emit_cell_integer(emit, hl_heap_number(class->block_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(class->slab_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(class->slabs));
	hl_emit_cell_integer(emit, hl_heap_number(class->full_slabs));
	hl_emit_cell_integer(emit, hl_heap_number(class->used_blocks));
	hl_emit_cell_integer(emit, hl_heap_number(class->blocks));
	hl_emit_cell_percent(emit, hl_heap_number(class->used_blocks),
			     hl_heap_number(class->blocks));
	hl_emit_cell_integer(
		emit, hl_heap_number((class->blocks - class->used_blocks) * class->block_bytes));
}

static void emit_classes(struct hl_emit *emit, const struct hl_introspection *said)
{
	static const struct hl_emit_column columns[] = {
		{"block_bytes", "block", HL_EMIT_BYTES, HL_EMIT_KEY},
		{"slab_bytes", "slab", HL_EMIT_BYTES, 0},
		{"slabs", "slabs", HL_EMIT_COUNT, 0},
		{"full_slabs", "full", HL_EMIT_COUNT, 0},
		{"used_blocks", "blocks in use", HL_EMIT_COUNT, 0},
		{"blocks", "of", HL_EMIT_COUNT, 0},
		{NULL, "use%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{"free_bytes", "free in slabs", HL_EMIT_BYTES, HL_EMIT_BLANK_ZERO},
	};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (uint32_t i = 0; i < said->class_count; i++)
		if (said->classes[i].slabs)
			emit_class(emit, &said->classes[i]);
	hl_emit_rows_end(emit);
}

int hl_view_slabs(const struct hl_slabs *slabs, pid_t pid,
		  const struct hl_heap_view_options *options)
{
	struct hl_emit *emit;
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "slabs");
	hl_emit_object(emit, "process");
	hl_emit_integer(emit, "pid", pid);
	hl_emit_object_end(emit);
	hl_emit_text(emit, "allocator", hl_slabs_allocator(slabs));
	hl_emit_line(emit, "process %d: %s, according to itself", pid, hl_slabs_allocator(slabs));
	if (slabs->said.kind == HL_INTROSPECTED_MIMALLOC)
		hl_emit_warning(emit, "%s",
				"mimalloc reports the heap of one thread only, the one that "
				"answered");
	hl_emit_line(emit, "%s", "");
	emit_sums(emit, &slabs->said);
	if (slabs->said.class_count || hl_emit_is_json(emit)) {
		hl_emit_line(emit, "%s", "");
		emit_occupancy(emit, slabs);
		emit_classes(emit, &slabs->said);
		if (slabs->said.kind == HL_INTROSPECTED_JEMALLOC)
			hl_emit_line(
				emit, "%s",
				"occupancy of partly used slabs is the mean of their block size");
	}
	return hl_emit_finish(emit);
}
