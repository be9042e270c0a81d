/* SPDX-License-Identifier: BSD-2-Clause */
/* Slabs by block size, and how full they are; see heap.h. */
#include "view/heap.h"

#include "heap/owners/slabs.h"

/* ---- sums ---- */

struct sum {
	const char *key, *says;
	uint64_t bytes;
};

static const struct hl_column sum_columns[] = {
	{NULL, "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct sum, bytes)},
	{NULL, "according to the allocator", HL_COLUMN_TEXT, HL_MEMBER(struct sum, says),
	 HL_COLUMN_KEY},
};

static void emit_sums(struct hl_emit *emit, const struct hl_introspection *said)
{
	const struct sum sums[] = {
		{"inuse_bytes", "in blocks of the program", said->allocated_bytes},
		{"cached_bytes", "free, in threads' and central caches", said->cached_bytes},
		{"active_bytes", "in pages with such blocks", said->active_bytes},
		{"resident_bytes", "in memory", said->resident_bytes},
		{"retained_bytes", "address space kept without memory", said->retained_bytes},
		{"metadata_bytes", "the allocator's own", said->metadata_bytes},
	};

	hl_emit_object(emit, "total");
	for (size_t i = 0; i < HL_COUNT_OF(sums); i++)
		hl_emit_unsigned(emit, sums[i].key, sums[i].bytes);
	hl_emit_object_end(emit);
	if (hl_emit_is_json(emit))
		return;
	hl_table_begin(emit, &(struct hl_table){HL_TABLE(NULL, sum_columns)});
	for (size_t i = 0; i < HL_COUNT_OF(sums); i++)
		if (sums[i].bytes)
			hl_table_row(emit, &sums[i], 0);
	hl_table_end(emit);
}

/* ---- occupancy ---- */

struct slot {
	uint32_t from; /* percent */
	char label[HL_FORMAT_MAX];
	uint64_t bytes;
};

static const struct hl_column slot_columns[] = {
	{"from_percent", NULL, HL_COLUMN_COUNT, HL_MEMBER(struct slot, from)},
	{NULL, "slabs in use to", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct slot, label),
	 HL_COLUMN_KEY},
	{"bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct slot, bytes)},
	{NULL, "share", HL_COLUMN_SHARE, HL_MEMBER(struct slot, bytes)},
	{NULL, "", HL_COLUMN_BAR, HL_MEMBER(struct slot, bytes), HL_COLUMN_OMITTED},
};

/* ---- classes ---- */

static void free_bytes(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_slab_class *class = row;

	(void)context;
	hl_cell_unsigned(emit, (class->blocks - class->used_blocks) * class->block_bytes);
}

#define MEMBER(name) HL_MEMBER(struct hl_slab_class, name)
#define USE	     HL_MEMBER_SHARE(struct hl_slab_class, used_blocks, blocks)

static const struct hl_column class_columns[] = {
	{"block_bytes", "block", HL_COLUMN_BYTES, MEMBER(block_bytes), HL_COLUMN_KEY},
	{"slab_bytes", "slab", HL_COLUMN_BYTES, MEMBER(slab_bytes)},
	{"slabs", "slabs", HL_COLUMN_COUNT, MEMBER(slabs)},
	{"full_slabs", "full", HL_COLUMN_COUNT, MEMBER(full_slabs)},
	{"used_blocks", "blocks in use", HL_COLUMN_COUNT, MEMBER(used_blocks)},
	{"blocks", "of", HL_COLUMN_COUNT, MEMBER(blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, USE},
	{"free_bytes", "free in slabs", HL_COLUMN_BYTES, .cell = free_bytes,
	 .flags = HL_COLUMN_BLANK_ZERO},
};

int hl_slabs_view(const struct hl_slabs *slabs, pid_t pid, const struct hl_emit_options *options)
{
	const struct hl_introspection *said = &slabs->said;
	const struct hl_allocator_traits *allocator = hl_slabs_allocator(slabs);
	uint64_t sum = 0;
	struct hl_emit *emit;

	int r = hl_emit_open(options, "slabs/1", &emit);
	if (r < 0)
		return r;
	hl_emit_object(emit, "process");
	hl_emit_integer(emit, "pid", pid);
	hl_emit_object_end(emit);
	hl_emit_text(emit, "allocator", allocator->name);
	hl_emit_line(emit, "process %d: %s, according to itself", pid, allocator->name);
	if (allocator->answer_warning)
		hl_emit_warning(emit, "%s", allocator->answer_warning);
	hl_emit_blank(emit);
	emit_sums(emit, said);
	if (!said->class_count && !hl_emit_is_json(emit))
		return hl_emit_finish(emit);
	for (uint32_t i = 0; i < HL_OCCUPANCY_SLOTS; i++)
		sum += slabs->occupancy_bytes[i];
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("occupancy", slot_columns), .sum = sum});
	for (uint32_t i = 0; i < HL_OCCUPANCY_SLOTS; i++) {
		struct slot slot = {100 * i / HL_OCCUPANCY_SLOTS, "", slabs->occupancy_bytes[i]};
		snprintf(slot.label, sizeof(slot.label), "%u-%u %%", slot.from,
			 100 * (i + 1) / HL_OCCUPANCY_SLOTS);
		hl_table_row(emit, &slot, 0);
	}
	hl_table_end(emit);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", class_columns)});
	for (uint32_t i = 0; i < said->class_count; i++)
		if (said->classes[i].slabs)
			hl_table_row(emit, &said->classes[i], 0);
	hl_table_end(emit);
	if (allocator->answer_note)
		hl_emit_line(emit, "%s", allocator->answer_note);
	return hl_emit_finish(emit);
}
