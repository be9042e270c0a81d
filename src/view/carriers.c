/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers as a report: sums of each allocator, each carrier, free blocks by size; see carriers.h.
 */
#include "view/carriers.h"

#include "base/array.h"
#include "view/format.h"
#include "view/heap_words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_DEFAULT 40
#define LONE_SHARE   10 /* a carrier with a tenth of all that is free stands out */
/* There are a dozen allocators. Of a node that lies about them the last one is all others. */
#define ALLOCATORS_MAX 64

/* ---- what is known ---- */

/* Columns that are worth showing. */
struct knowledge {
	bool addresses, residency, caches, largest, unscanned, pool;
};

static struct knowledge knowledge_of(const struct hl_carriers *carriers)
{
	struct knowledge knows = {0};

	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		knows.addresses |= carrier->address != 0;
		knows.residency |= carrier->resident_bytes != 0;
		knows.caches |= carrier->cached_bytes != 0;
		knows.largest |= carrier->largest_free_bytes != 0;
		knows.unscanned |= carrier->unscanned_bytes != 0;
		knows.pool |= carrier->in_pool;
	}
	return knows;
}

/* Flags of a column that not all carriers fill. */
static unsigned if_known(bool known)
{
	return known ? HL_EMIT_BLANK_ZERO : HL_EMIT_HIDDEN;
}

/* ---- sums ---- */

struct sum {
	char allocator[sizeof(((struct hl_carrier *)0)->allocator)];
	uint64_t carriers, total_bytes, unscanned_bytes;
	uint64_t allocated_bytes, allocated_blocks;
	uint64_t cached_bytes, cached_blocks;
	uint64_t free_bytes, free_blocks, resident_bytes, free_resident_bytes;
	uint64_t pool_carriers, pool_bytes;
	struct hl_log2_histogram free_histogram;
};

/* Zero-initialize for an empty one. */
struct sums {
	struct sum *sums;
	size_t count, capacity;
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

static struct sum sum_of_all(const struct hl_carriers *carriers)
{
	struct sum total = {0};

	for (size_t i = 0; i < carriers->count; i++)
		add_to_sum(&total, &carriers->carriers[i], carriers->shape.width);
	return total;
}

static struct sum *sum_named(struct sums *sums, const char *allocator)
{
	for (size_t i = 0; i < sums->count; i++)
		if (!strcmp(sums->sums[i].allocator, allocator))
			return &sums->sums[i];
	if (sums->count == ALLOCATORS_MAX) {
		struct sum *others = &sums->sums[ALLOCATORS_MAX - 1];
		strcpy(others->allocator, "others");
		return others;
	}
	if (HL_ARRAY_RESERVE(sums->sums, sums->capacity, sums->count + 1) < 0)
		return NULL;
	struct sum *sum = &sums->sums[sums->count++];
	*sum = (struct sum){0};
	strcpy(sum->allocator, allocator);
	return sum;
}

static int compare_sums(const void *left, const void *right)
{
	const struct sum *a = left, *b = right;

	if (a->total_bytes != b->total_bytes)
		return a->total_bytes > b->total_bytes ? -1 : 1;
	return strcmp(a->allocator, b->allocator);
}

/* Of each allocator, the largest first. 0 or -ENOMEM; free ret_sums->sums. */
static int sum_by_allocator(const struct hl_carriers *carriers, struct sums *ret_sums)
{
	struct sums sums = {0};

	for (size_t i = 0; i < carriers->count; i++) {
		struct sum *sum = sum_named(&sums, carriers->carriers[i].allocator);
		if (!sum) {
			free(sums.sums);
			return -ENOMEM;
		}
		add_to_sum(sum, &carriers->carriers[i], carriers->shape.width);
	}
	if (sums.count)
		qsort(sums.sums, sums.count, sizeof(*sums.sums), compare_sums);
	*ret_sums = sums;
	return 0;
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

static void emit_totals(struct hl_emit *emit, const struct sum *total,
			const struct knowledge *knows)
{
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "carriers", hl_heap_number(total->carriers));
	hl_emit_integer(emit, "total_bytes", hl_heap_number(total->total_bytes));
	hl_emit_integer(emit, "inuse_bytes", hl_heap_number(total->allocated_bytes));
	hl_emit_integer(emit, "inuse_blocks", hl_heap_number(total->allocated_blocks));
	if (knows->caches) {
		hl_emit_integer(emit, "cached_bytes", hl_heap_number(total->cached_bytes));
		hl_emit_integer(emit, "cached_blocks", hl_heap_number(total->cached_blocks));
	}
	hl_emit_integer(emit, "free_bytes", hl_heap_number(total->free_bytes));
	hl_emit_integer(emit, "free_blocks", hl_heap_number(total->free_blocks));
	if (knows->residency) {
		hl_emit_integer(emit, "resident_bytes", hl_heap_number(total->resident_bytes));
		hl_emit_integer(emit, "free_resident_bytes",
				hl_heap_number(total->free_resident_bytes));
	}
	hl_emit_integer(emit, "pool_carriers", hl_heap_number(total->pool_carriers));
	hl_emit_integer(emit, "pool_bytes", hl_heap_number(total->pool_bytes));
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_integer(emit, "unscanned_bytes", hl_heap_number(total->unscanned_bytes));
	hl_emit_object_end(emit);
}

static void emit_summary(struct hl_emit *emit, const struct sum *total)
{
	char all[HL_FORMAT_MAX], live[HL_FORMAT_MAX], share[HL_FORMAT_MAX], none[HL_FORMAT_MAX];
	char carriers[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX], pool[HL_FORMAT_MAX];

	hl_emit_line(emit, "%s in %s segment%s (carriers); %s (%s) in use, in %s block%s; %s free",
		     hl_format_bytes(hl_heap_number(total->total_bytes), all),
		     hl_format_count(hl_heap_number(total->carriers), carriers),
		     hl_format_plural(total->carriers),
		     hl_format_bytes(hl_heap_number(total->allocated_bytes), live),
		     hl_format_percent(hl_heap_number(total->allocated_bytes),
				       hl_heap_number(total->total_bytes), share),
		     hl_format_count(hl_heap_number(total->allocated_blocks), blocks),
		     hl_format_plural(total->allocated_blocks),
		     hl_format_bytes(hl_heap_number(total->free_bytes), none));
	if (total->pool_carriers)
		hl_emit_line(emit,
			     "in the pool, where no thread allocates from them: %s in %s segment%s",
			     hl_format_bytes(hl_heap_number(total->pool_bytes), pool),
			     hl_format_count(hl_heap_number(total->pool_carriers), carriers),
			     hl_format_plural(total->pool_carriers));
	if (total->unscanned_bytes)
		hl_emit_warning(emit, "unscanned: %s; free blocks there are not in the histograms",
				hl_format_bytes(hl_heap_number(total->unscanned_bytes), all));
}

/* ---- a table of allocators ---- */

static void emit_sum(struct hl_emit *emit, const struct sum *sum)
{
	char bar[HL_HEAP_BAR_MAX];

	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, sum->allocator);
	hl_emit_cell_integer(emit, hl_heap_number(sum->carriers));
	hl_emit_cell_integer(emit, hl_heap_number(sum->total_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->allocated_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->allocated_blocks));
	hl_emit_cell_percent(emit, hl_heap_number(sum->allocated_bytes),
			     hl_heap_number(sum->total_bytes));
	hl_emit_cell_text(emit, hl_heap_bar(sum->allocated_bytes, sum->total_bytes, bar));
	hl_emit_cell_integer(emit, hl_heap_number(sum->cached_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->free_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->free_blocks));
	hl_emit_cell_integer(emit, hl_heap_number(sum->free_resident_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->pool_carriers));
	hl_emit_cell_integer(emit, hl_heap_number(sum->pool_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(sum->unscanned_bytes));
}

static int emit_allocators(struct hl_emit *emit, const struct hl_carriers *carriers,
			   const struct knowledge *knows)
{
	const struct hl_emit_column columns[] = {
		{"allocator", "allocator", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{"carriers", "segments", HL_EMIT_COUNT, 0},
		{"total_bytes", "total", HL_EMIT_BYTES, 0},
		{"inuse_bytes", "in use", HL_EMIT_BYTES, 0},
		{"inuse_blocks", "blocks", HL_EMIT_COUNT, 0},
		{NULL, "use%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"cached_bytes", "cached", HL_EMIT_BYTES, if_known(knows->caches)},
		{"free_bytes", "free", HL_EMIT_BYTES, HL_EMIT_OMITTED},
		{"free_blocks", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"free_resident_bytes", "free in RAM", HL_EMIT_BYTES, if_known(knows->residency)},
		{"pool_carriers", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"pool_bytes", "in pool", HL_EMIT_BYTES,
		 knows->pool ? HL_EMIT_BLANK_ZERO : HL_EMIT_JSON_ONLY},
		{"unscanned_bytes", "unscanned", HL_EMIT_BYTES,
		 knows->unscanned ? HL_EMIT_BLANK_ZERO : HL_EMIT_JSON_ONLY},
	};
	struct sums sums;

	int r = sum_by_allocator(carriers, &sums);
	if (r < 0)
		return r;
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "allocators", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < sums.count; i++)
		emit_sum(emit, &sums.sums[i]);
	hl_emit_rows_end(emit);
	free(sums.sums);
	return 0;
}

/* ---- a table of carriers ---- */

static void begin_carriers(struct hl_emit *emit, const struct knowledge *knows)
{
	unsigned resident = if_known(knows->residency), cached = if_known(knows->caches);
	const struct hl_emit_column columns[] = {
		{"allocator", "allocator", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{"type", "type", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{NULL, "address", HL_EMIT_TEXT,
		 HL_EMIT_TEXT_ONLY | (knows->addresses ? 0 : HL_EMIT_HIDDEN)},
		{"address", NULL, HL_EMIT_NUMBER, HL_EMIT_JSON_ONLY},
		{"total_bytes", "total", HL_EMIT_BYTES, 0},
		{"inuse_bytes", "in use", HL_EMIT_BYTES, 0},
		{"inuse_blocks", "blocks", HL_EMIT_COUNT, 0},
		{NULL, "use%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"cached_bytes", "cached", HL_EMIT_BYTES, cached},
		{"cached_blocks", NULL, HL_EMIT_COUNT,
		 knows->caches ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN},
		{"free_bytes", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
		{"free_resident_bytes", "free in RAM", HL_EMIT_BYTES, resident},
		{"resident_bytes", NULL, HL_EMIT_BYTES,
		 knows->residency ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN},
		{"free_blocks", "free blocks", HL_EMIT_COUNT, HL_EMIT_BLANK_ZERO},
		{"largest_free_bytes", "largest", HL_EMIT_BYTES, if_known(knows->largest)},
		{NULL, "by size", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | (knows->pool ? 0 : HL_EMIT_HIDDEN)},
		{"unscanned_bytes", "unscanned", HL_EMIT_BYTES,
		 knows->unscanned ? HL_EMIT_BLANK_ZERO : HL_EMIT_JSON_ONLY},
	};
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
}

/* What the columns do not hold; nothing in tables. */
static void emit_members(struct hl_emit *emit, const struct hl_carrier *carrier,
			 const struct hl_log2_shape *shape)
{
	hl_emit_integer(emit, "allocated_bytes", hl_heap_number(carrier->allocated_bytes));
	hl_emit_integer(emit, "allocated_blocks", hl_heap_number(carrier->allocated_blocks));
	hl_emit_boolean(emit, "in_pool", carrier->in_pool);
	hl_emit_array(emit, "blocks");
	for (uint32_t i = 0; i < carrier->block_kinds; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "type", carrier->blocks[i].type);
		hl_emit_integer(emit, "count", hl_heap_number(carrier->blocks[i].count));
		hl_emit_integer(emit, "bytes", hl_heap_number(carrier->blocks[i].bytes));
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_heap_emit_counts(emit, "free_histogram", shape, &carrier->free_histogram);
}

static void emit_carrier(struct hl_emit *emit, const struct hl_carrier *carrier,
			 const struct hl_log2_shape *shape)
{
	char address[32], bar[HL_HEAP_BAR_MAX], spark[HL_HEAP_SPARK_MAX];

	snprintf(address, sizeof(address), "%#" PRIx64, carrier->address);
	hl_emit_cell_text(emit, carrier->allocator);
	hl_emit_cell_text(emit, carrier->type);
	hl_emit_cell_text(emit, carrier->address ? address : "");
	hl_emit_cell_integer(emit, hl_heap_number(carrier->address));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->total_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->allocated_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->allocated_blocks));
	hl_emit_cell_percent(emit, hl_heap_number(carrier->allocated_bytes),
			     hl_heap_number(carrier->total_bytes));
	hl_emit_cell_text(emit, hl_heap_bar(carrier->allocated_bytes, carrier->total_bytes, bar));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->cached_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->cached_blocks));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->free_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->free_resident_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->resident_bytes));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->free_blocks));
	hl_emit_cell_integer(emit, hl_heap_number(carrier->largest_free_bytes));
	hl_emit_cell_text(emit, carrier->free_blocks
					? hl_heap_spark(shape, &carrier->free_histogram, spark)
					: "");
	hl_emit_cell_text(emit, carrier->in_pool ? "pool" : "");
	hl_emit_cell_integer(emit, hl_heap_number(carrier->unscanned_bytes));
	emit_members(emit, carrier, shape);
}

static size_t count_shown(const struct hl_emit *emit, const struct hl_carriers *carriers,
			  uint64_t row_limit)
{
	if (row_limit == HL_CARRIERS_ROWS_DEFAULT)
		row_limit = hl_emit_is_json(emit) ? 0 : ROWS_DEFAULT;
	return row_limit && row_limit < carriers->count ? (size_t)row_limit : carriers->count;
}

static unsigned emphasis_of(const struct hl_carrier *carrier, const struct sum *total)
{
	return total->free_bytes && carrier->free_bytes >= total->free_bytes / LONE_SHARE
		       ? HL_EMIT_HEAVY
		       : 0;
}

static int emit_carriers(struct hl_emit *emit, const struct hl_carriers *carriers,
			 const struct sum *total, const struct knowledge *knows, uint64_t row_limit)
{
	const struct hl_carrier **order = hl_carriers_by_size(carriers);
	size_t shown = count_shown(emit, carriers, row_limit);
	char more[HL_FORMAT_MAX];

	if (!order)
		return -ENOMEM;
	hl_emit_line(emit, "%s", "");
	begin_carriers(emit, knows);
	for (size_t i = 0; i < shown; i++) {
		hl_emit_row(emit, emphasis_of(order[i], total));
		emit_carrier(emit, order[i], &carriers->shape);
	}
	hl_emit_rows_end(emit);
	free(order);
	if (shown < carriers->count)
		hl_emit_line(emit, "... and %s more; --rows 0 shows all",
			     hl_format_count(hl_heap_number(carriers->count - shown), more));
	return 0;
}

/* ---- all of it ---- */

int hl_carriers_emit(struct hl_emit *emit, const struct hl_carriers *carriers, uint64_t row_limit)
{
	const struct knowledge knows = knowledge_of(carriers);
	const struct sum total = sum_of_all(carriers);

	emit_totals(emit, &total, &knows);
	emit_summary(emit, &total);
	int r = emit_allocators(emit, carriers, &knows);
	if (r == 0)
		r = emit_carriers(emit, carriers, &total, &knows, row_limit);
	if (r < 0)
		return r;
	hl_heap_emit_histogram(emit, "free_histogram", "free blocks", &carriers->shape,
			       &total.free_histogram);
	if (total.free_blocks)
		hl_emit_line(emit, "by size: one bar for each of these sizes, taller for more free "
				   "blocks, on a logarithmic scale");
	return 0;
}
