/* SPDX-License-Identifier: BSD-2-Clause */
/* Slabs and carriers as reports: sums of each allocator, each carrier, free blocks by size; see heap.h. */
#include "base/cleanup.h"
#include "heap/owners/owners.h"
#include "view/heap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- slabs: sums ---- */

struct slab_sum {
	const char *key, *says;
	uint64_t bytes;
};

static const struct hl_column slab_sum_columns[] = {
	{NULL, "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct slab_sum, bytes)},
	{NULL, "according to the allocator", HL_COLUMN_TEXT, HL_MEMBER(struct slab_sum, says),
	 HL_COLUMN_KEY},
};

static void emit_sums(struct hl_emit *emit, const struct hl_introspection *said)
{
	const struct slab_sum sums[] = {
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
	hl_table_begin(emit, &(struct hl_table){HL_TABLE(NULL, slab_sum_columns)});
	for (size_t i = 0; i < HL_COUNT_OF(sums); i++)
		if (sums[i].bytes)
			hl_table_row(emit, &sums[i], 0);
	hl_table_end(emit);
}

/* ---- slabs: occupancy ---- */

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

/* ---- slabs: classes ---- */

static void free_bytes(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_slab_class *class = row;

	(void)context;
	hl_cell_unsigned(emit, (class->blocks - class->used_blocks) * class->block_bytes);
}

#define SLAB(name) HL_MEMBER(struct hl_slab_class, name)
#define SLAB_USE   HL_MEMBER_SHARE(struct hl_slab_class, used_blocks, blocks)

static const struct hl_column class_columns[] = {
	{"block_bytes", "block", HL_COLUMN_BYTES, SLAB(block_bytes), HL_COLUMN_KEY},
	{"slab_bytes", "slab", HL_COLUMN_BYTES, SLAB(slab_bytes)},
	{"slabs", "slabs", HL_COLUMN_COUNT, SLAB(slabs)},
	{"full_slabs", "full", HL_COLUMN_COUNT, SLAB(full_slabs)},
	{"used_blocks", "blocks in use", HL_COLUMN_COUNT, SLAB(used_blocks)},
	{"blocks", "of", HL_COLUMN_COUNT, SLAB(blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, SLAB_USE},
	{"free_bytes", "free in slabs", HL_COLUMN_BYTES, .cell = free_bytes,
	 .flags = HL_COLUMN_BLANK_ZERO},
};

int hl_slabs_view(const struct hl_slabs *slabs, pid_t pid, const struct hl_emit_options *options)
{
	const struct hl_introspection *said = &slabs->said;
	const struct hl_allocator_traits *allocator = hl_slabs_allocator(slabs);
	uint64_t slab_sum = 0;
	struct hl_emit *emit;

	int r = hl_emit_open(options, "slabs/1", &emit);
	if (r < 0)
		return r;
	hl_emit_about(emit, NULL, pid);
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
		slab_sum += slabs->occupancy_bytes[i];
	hl_emit_blank(emit);
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE("occupancy", slot_columns), .sum = slab_sum});
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

/* ---- slabs of heaps that were read from outside ---- */

static void free_in_slabs(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_heap_class *class = row;

	(void)context;
	hl_cell_unsigned(emit, (class->slots - class->live_slots - class->cached_slots) *
				       class->slot_bytes);
}

#define CLASS(name) HL_MEMBER(struct hl_heap_class, name)
#define CLASS_USE   HL_MEMBER_SHARE(struct hl_heap_class, live_slots, slots)

static const struct hl_column heap_class_columns[] = {
	{"block_bytes", "block", HL_COLUMN_BYTES, CLASS(slot_bytes), HL_COLUMN_KEY},
	{"slabs", "slabs", HL_COLUMN_COUNT, CLASS(slabs)},
	{"slab_bytes", "in slabs", HL_COLUMN_BYTES, CLASS(slab_bytes)},
	{"resident_bytes", "in RAM", HL_COLUMN_BYTES, CLASS(resident_bytes)},
	{"used_blocks", "blocks in use", HL_COLUMN_COUNT, CLASS(live_slots)},
	{"cached_blocks", "cached", HL_COLUMN_COUNT, CLASS(cached_slots), HL_COLUMN_BLANK_ZERO},
	{"blocks", "of", HL_COLUMN_COUNT, CLASS(slots)},
	{NULL, "use%", HL_COLUMN_SHARE, CLASS_USE},
	{"free_bytes", "free in slabs", HL_COLUMN_BYTES, .cell = free_in_slabs,
	 .flags = HL_COLUMN_BLANK_ZERO},
};

void hl_heap_classes_emit(struct hl_emit *emit, const struct hl_heap *heap)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < HL_HEAP_CLASS_TENTHS; i++)
		sum += heap->occupancy_bytes[i];
	if (!heap->class_count && !hl_emit_is_json(emit))
		return;
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("occupancy", slot_columns), .sum = sum});
	for (uint32_t i = 0; i < HL_HEAP_CLASS_TENTHS; i++) {
		struct slot slot = {100 * i / HL_HEAP_CLASS_TENTHS, "", heap->occupancy_bytes[i]};
		snprintf(slot.label, sizeof(slot.label), "%u-%u %%", slot.from,
			 100 * (i + 1) / HL_HEAP_CLASS_TENTHS);
		hl_table_row(emit, &slot, 0);
	}
	hl_table_end(emit);
	hl_emit_blank(emit);
	hl_table_write(emit, &(struct hl_table){HL_TABLE("classes", heap_class_columns)},
		       heap->classes, heap->class_count, sizeof(*heap->classes));
}

#define ROWS_DEFAULT 40
#define LONE_SHARE   10 /* a carrier with a tenth of all that is free stands out */

/* There are a dozen allocators. If a node reports more, the last one stands for all others. */
#define ALLOCATORS_MAX 64

/* What some carrier has, and columns show. */
enum {
	HAS_ADDRESSES = 1,
	HAS_RESIDENCY = 2,
	HAS_CACHES = 4,
	HAS_LARGEST = 8,
	HAS_UNSCANNED = 16,
	HAS_POOL = 32,
};

/* ---- carriers: sums ---- */

struct sum {
	char allocator[sizeof(((struct hl_carrier *)0)->allocator)];
	uint64_t carriers, total_bytes, unscanned_bytes;
	uint64_t allocated_bytes, allocated_blocks;
	uint64_t cached_bytes, cached_blocks;
	uint64_t free_bytes, free_blocks, resident_bytes, free_resident_bytes;
	uint64_t pool_carriers, pool_bytes;
	struct hl_log2_histogram free_histogram;
};

static void add_to_sum(struct sum *sum, const struct hl_carrier *carrier, uint32_t width)
{
	sum->carriers++;
	sum->total_bytes += carrier->total_bytes;
	sum->unscanned_bytes += carrier->unscanned_bytes;
	sum->allocated_bytes += carrier->allocated_bytes;
	sum->allocated_blocks += carrier->allocated_blocks;
	sum->cached_bytes += carrier->cached_bytes;
	sum->cached_blocks += carrier->cached_blocks;
	sum->free_bytes += carrier->free_bytes;
	sum->free_blocks += carrier->free_blocks;
	sum->resident_bytes += carrier->resident_bytes;
	sum->free_resident_bytes += carrier->free_resident_bytes;
	sum->pool_carriers += carrier->in_pool;
	sum->pool_bytes += carrier->in_pool ? carrier->total_bytes : 0;
	for (uint32_t slot = 0; slot < width; slot++)
		sum->free_histogram.counts[slot] += carrier->free_histogram.counts[slot];
}

static int compare_sums(const void *left, const void *right)
{
	const struct sum *a = left, *b = right;

	if (a->total_bytes != b->total_bytes)
		return a->total_bytes > b->total_bytes ? -1 : 1;
	return strcmp(a->allocator, b->allocator);
}

/* ---- order ---- */

static int compare_carriers(const void *left, const void *right)
{
	const struct hl_carrier *a = *(const struct hl_carrier *const *)left;
	const struct hl_carrier *b = *(const struct hl_carrier *const *)right;

	if (a->total_bytes != b->total_bytes)
		return a->total_bytes > b->total_bytes ? -1 : 1;
	return a < b ? -1 : a > b;
}

const struct hl_carrier **hl_carriers_by_size(const struct hl_carriers *carriers)
{
	const struct hl_carrier **order = calloc(carriers->count + 1, sizeof(*order));

	for (size_t i = 0; order && i < carriers->count; i++)
		order[i] = &carriers->carriers[i];
	if (order)
		qsort(order, carriers->count, sizeof(*order), compare_carriers);
	return order;
}

/* ---- members and lines about all of them ---- */

static void emit_total(struct hl_emit *emit, const struct sum *total, unsigned facts)
{
	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "carriers", total->carriers);
	hl_emit_unsigned(emit, "total_bytes", total->total_bytes);
	hl_emit_unsigned(emit, "inuse_bytes", total->allocated_bytes);
	hl_emit_unsigned(emit, "inuse_blocks", total->allocated_blocks);
	if (facts & HAS_CACHES) {
		hl_emit_unsigned(emit, "cached_bytes", total->cached_bytes);
		hl_emit_unsigned(emit, "cached_blocks", total->cached_blocks);
	}
	hl_emit_unsigned(emit, "free_bytes", total->free_bytes);
	hl_emit_unsigned(emit, "free_blocks", total->free_blocks);
	if (facts & HAS_RESIDENCY) {
		hl_emit_unsigned(emit, "resident_bytes", total->resident_bytes);
		hl_emit_unsigned(emit, "free_resident_bytes", total->free_resident_bytes);
	}
	hl_emit_unsigned(emit, "pool_carriers", total->pool_carriers);
	hl_emit_unsigned(emit, "pool_bytes", total->pool_bytes);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_unsigned(emit, "unscanned_bytes", total->unscanned_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s in %s segment%s (carriers); %s (%s) in use, in %s block%s; %s free",
		     HL_HEAP_BYTES(total->total_bytes), HL_HEAP_COUNT(total->carriers),
		     hl_format_plural(total->carriers), HL_HEAP_BYTES(total->allocated_bytes),
		     HL_HEAP_PERCENT(total->allocated_bytes, total->total_bytes),
		     HL_HEAP_COUNT(total->allocated_blocks),
		     hl_format_plural(total->allocated_blocks), HL_HEAP_BYTES(total->free_bytes));
	if (total->pool_carriers)
		hl_emit_line(emit,
			     "in the pool, where no thread allocates from them: %s in %s segment%s",
			     HL_HEAP_BYTES(total->pool_bytes), HL_HEAP_COUNT(total->pool_carriers),
			     hl_format_plural(total->pool_carriers));
	if (total->unscanned_bytes)
		hl_emit_warning(emit, "unscanned: %s; free blocks there are not in the histograms",
				HL_HEAP_BYTES(total->unscanned_bytes));
}

/* ---- a table of allocators ---- */

#define BLANK	  HL_COLUMN_BLANK_ZERO
#define OMITTED	  HL_COLUMN_OMITTED
#define ESSENTIAL HL_COLUMN_ESSENTIAL
#define SUM(name) HL_MEMBER(struct sum, name)
#define SUM_USE	  HL_MEMBER_SHARE(struct sum, allocated_bytes, total_bytes)

static const struct hl_column sum_columns[] = {
	{"allocator", "allocator", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct sum, allocator),
	 HL_COLUMN_SHORTENED},
	{"carriers", "segments", HL_COLUMN_COUNT, SUM(carriers)},
	{"total_bytes", "total", HL_COLUMN_BYTES, SUM(total_bytes)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, SUM(allocated_bytes)},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, SUM(allocated_blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, SUM_USE},
	{NULL, "", HL_COLUMN_BAR, SUM_USE, OMITTED},
	{"cached_bytes", "cached", HL_COLUMN_BYTES, SUM(cached_bytes), BLANK, HAS_CACHES},
	{"free_bytes", "free", HL_COLUMN_BYTES, SUM(free_bytes), OMITTED},
	{"free_blocks", NULL, HL_COLUMN_COUNT, SUM(free_blocks)},
	{"free_resident_bytes", "free in RAM", HL_COLUMN_BYTES, SUM(free_resident_bytes), BLANK,
	 HAS_RESIDENCY},
	{"pool_carriers", NULL, HL_COLUMN_COUNT, SUM(pool_carriers)},
	{"pool_bytes", NULL, HL_COLUMN_BYTES, SUM(pool_bytes)},
	{NULL, "in pool", HL_COLUMN_BYTES, SUM(pool_bytes), BLANK, HAS_POOL},
	{"unscanned_bytes", NULL, HL_COLUMN_BYTES, SUM(unscanned_bytes)},
	{NULL, "unscanned", HL_COLUMN_BYTES, SUM(unscanned_bytes), BLANK, HAS_UNSCANNED},
};

static void emit_allocators(struct hl_emit *emit, const struct hl_carriers *carriers,
			    unsigned facts)
{
	struct sum sums[ALLOCATORS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		size_t at = 0;
		while (at < count && strcmp(sums[at].allocator, carrier->allocator) != 0)
			at++;
		if (at == ALLOCATORS_MAX) {
			strcpy(sums[--at].allocator, "others");
		} else if (at == count) {
			sums[count++] = (struct sum){0};
			strcpy(sums[at].allocator, carrier->allocator);
		}
		add_to_sum(&sums[at], carrier, carriers->shape.width);
	}
	qsort(sums, count, sizeof(*sums), compare_sums);
	hl_emit_blank(emit);
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE("allocators", sum_columns), .facts = facts});
	for (size_t i = 0; i < count; i++)
		hl_table_row(emit, &sums[i], 0);
	hl_table_end(emit);
}

/* ---- carriers ---- */

static void by_size(struct hl_emit *emit, const void *at, const void *shape)
{
	const struct hl_carrier *carrier = at;
	char spark[HL_HEAP_SPARK_MAX] = "";

	if (carrier->free_blocks)
		hl_heap_histogram_spark(shape, &carrier->free_histogram, spark);
	hl_cell_text(emit, spark);
}

static void pool(struct hl_emit *emit, const void *carrier, const void *context)
{
	(void)context;
	hl_cell_text(emit, ((const struct hl_carrier *)carrier)->in_pool ? "pool" : "");
}

/* What the columns do not hold. */
static void members(struct hl_emit *emit, const void *at, const void *shape)
{
	const struct hl_carrier *carrier = at;

	hl_emit_unsigned(emit, "allocated_bytes", carrier->allocated_bytes);
	hl_emit_unsigned(emit, "allocated_blocks", carrier->allocated_blocks);
	hl_emit_boolean(emit, "in_pool", carrier->in_pool);
	hl_emit_array(emit, "blocks");
	for (uint32_t i = 0; i < carrier->block_kinds; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "type", carrier->blocks[i].type);
		hl_emit_unsigned(emit, "count", carrier->blocks[i].count);
		hl_emit_unsigned(emit, "bytes", carrier->blocks[i].bytes);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_heap_histogram_emit_counts(emit, "free_histogram", shape, &carrier->free_histogram);
}

#define MEMBER(name) HL_MEMBER(struct hl_carrier, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct hl_carrier, name)
#define USE	     HL_MEMBER_SHARE(struct hl_carrier, allocated_bytes, total_bytes)

static const struct hl_column columns[] = {
	{"allocator", "allocator", HL_COLUMN_TEXT, TEXT(allocator), HL_COLUMN_SHORTENED},
	{"type", "type", HL_COLUMN_TEXT, TEXT(type), HL_COLUMN_SHORTENED},
	{NULL, "address", HL_COLUMN_ADDRESS, MEMBER(address), BLANK, HAS_ADDRESSES},
	{"address", NULL, HL_COLUMN_NUMBER, MEMBER(address)},
	{"total_bytes", "total", HL_COLUMN_BYTES, MEMBER(total_bytes), ESSENTIAL},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(allocated_bytes), ESSENTIAL},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(allocated_blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, USE},
	{NULL, "", HL_COLUMN_BAR, USE, OMITTED},
	{"cached_bytes", "cached", HL_COLUMN_BYTES, MEMBER(cached_bytes), BLANK, HAS_CACHES},
	{"cached_blocks", NULL, HL_COLUMN_COUNT, MEMBER(cached_blocks), .shown_if = HAS_CACHES},
	{"free_bytes", NULL, HL_COLUMN_BYTES, MEMBER(free_bytes)},
	{"free_resident_bytes", "free in RAM", HL_COLUMN_BYTES, MEMBER(free_resident_bytes), BLANK,
	 HAS_RESIDENCY},
	{"resident_bytes", NULL, HL_COLUMN_BYTES, MEMBER(resident_bytes),
	 .shown_if = HAS_RESIDENCY},
	{"free_blocks", "free blocks", HL_COLUMN_COUNT, MEMBER(free_blocks), BLANK},
	{"largest_free_bytes", "largest", HL_COLUMN_BYTES, MEMBER(largest_free_bytes), BLANK,
	 HAS_LARGEST},
	{NULL, "by size", HL_COLUMN_TEXT, .cell = by_size},
	{NULL, "", HL_COLUMN_TEXT, .cell = pool, .shown_if = HAS_POOL},
	{"unscanned_bytes", NULL, HL_COLUMN_BYTES, MEMBER(unscanned_bytes)},
	{NULL, "unscanned", HL_COLUMN_BYTES, MEMBER(unscanned_bytes), BLANK, HAS_UNSCANNED},
	{"blocks", NULL, HL_COLUMN_MEMBERS, .cell = members},
};

int hl_carriers_emit(struct hl_emit *emit, const struct hl_carriers *carriers, uint64_t row_limit)
{
	HL_FREED const struct hl_carrier **order = hl_carriers_by_size(carriers);
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, carriers->count);
	struct sum total = {0};
	unsigned facts = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		facts |= carrier->address ? HAS_ADDRESSES : 0;
		facts |= carrier->resident_bytes ? HAS_RESIDENCY : 0;
		facts |= carrier->cached_bytes ? HAS_CACHES : 0;
		facts |= carrier->largest_free_bytes ? HAS_LARGEST : 0;
		facts |= carrier->unscanned_bytes ? HAS_UNSCANNED : 0;
		facts |= carrier->in_pool ? HAS_POOL : 0;
		add_to_sum(&total, carrier, carriers->shape.width);
	}
	emit_total(emit, &total, facts);
	emit_allocators(emit, carriers, facts);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns),
						.context = &carriers->shape, .facts = facts});
	for (size_t i = 0; i < shown; i++) {
		bool is_heavy =
			total.free_bytes && order[i]->free_bytes >= total.free_bytes / LONE_SHARE;
		hl_table_row(emit, order[i], is_heavy ? HL_EMIT_HEAVY : 0);
	}
	hl_table_end(emit);
	hl_emit_more(emit, carriers->count - shown, "-n");
	hl_heap_histogram_emit(emit, "free_histogram", "free blocks", &carriers->shape,
			       &total.free_histogram);
	if (total.free_blocks)
		hl_emit_line(emit, "by size: one bar for each of these sizes, taller for more free "
				   "blocks, on a logarithmic scale");
	return 0;
}
