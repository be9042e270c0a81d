/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations by origin and type as a report, with histograms of their sizes, and live blocks by owner; see heap.h. */
#include "heap/owners/owners.h"
#include "view/heap.h"

#include <langinfo.h>
#include <string.h>

/* ---- bars of histograms ---- */

#define LEVELS 8

static const char *const bars[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const letters[LEVELS] = {"_", "-", "~", "=", "+", "*", "%", "#"};

/* How many binary digits ${count} has: 0 for 0. */
static unsigned magnitude(uint64_t count)
{
	return count ? 64u - (unsigned)__builtin_clzll(count) : 0;
}

static uint64_t highest(const struct hl_log2_shape *shape,
			const struct hl_log2_histogram *histogram)
{
	uint64_t most = 0;

	for (uint32_t slot = 0; slot < shape->width; slot++)
		if (histogram->counts[slot] > most)
			most = histogram->counts[slot];
	return most;
}

const char *hl_heap_histogram_spark(const struct hl_log2_shape *shape,
				    const struct hl_log2_histogram *histogram,
				    char buffer[HL_HEAP_SPARK_MAX])
{
	bool is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	unsigned most = magnitude(highest(shape, histogram));
	char *at = buffer;

	for (uint32_t slot = 0; slot < shape->width; slot++) {
		unsigned height = magnitude(histogram->counts[slot]);
		size_t level = most > 1 && height ? (height - 1) * (LEVELS - 1) / (most - 1) : 0;
		if (!height)
			at = stpcpy(at, is_utf8 ? "·" : ".");
		else
			at = stpcpy(at, (is_utf8 ? bars : letters)[level]);
	}
	*at = '\0';
	return buffer;
}

/* ---- slots ---- */

const char *hl_heap_histogram_label(const struct hl_log2_shape *shape, uint32_t slot,
				    char buffer[HL_HEAP_LABEL_MAX])
{
	char low[HL_FORMAT_MAX], high[HL_FORMAT_MAX];

	hl_format_exact_bytes(hl_log2_first(shape, slot), low);
	hl_format_exact_bytes(hl_log2_end(shape, slot), high);
	if (shape->width == 1)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "all sizes");
	else if (hl_log2_end(shape, slot) == 0)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "unused");
	else if (slot == 0)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "below %s", high);
	else if (slot + 1 == shape->width)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "%s and more", low);
	else
		snprintf(buffer, HL_HEAP_LABEL_MAX, "%s .. <%s", low, high);
	return buffer;
}

/* ---- histograms in full ---- */

void hl_heap_histogram_emit_counts(struct hl_emit *emit, const char *key,
				   const struct hl_log2_shape *shape,
				   const struct hl_log2_histogram *histogram)
{
	hl_emit_array(emit, key);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		hl_emit_unsigned(emit, NULL, histogram->counts[slot]);
	hl_emit_array_end(emit);
}

struct slot {
	char label[HL_HEAP_LABEL_MAX];
	uint64_t count;
};

/* As long as its share of the highest slot. */
static void bar(struct hl_emit *emit, const void *count, const void *highest)
{
	char text[HL_FORMAT_MAX];

	hl_format_bar(*(const uint64_t *)count, *(const uint64_t *)highest, text);
	text[strcspn(text, ".")] = '\0';
	hl_cell_text(emit, text);
}

void hl_heap_histogram_emit(struct hl_emit *emit, const char *key, const char *what,
			    const struct hl_log2_shape *shape,
			    const struct hl_log2_histogram *histogram)
{
	const struct hl_column columns[] = {
		{NULL, "size", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct slot, label)},
		{NULL, what, HL_COLUMN_COUNT, HL_MEMBER(struct slot, count)},
		{NULL, "share", HL_COLUMN_SHARE, HL_MEMBER(struct slot, count)},
		{NULL, "", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct slot, count, bar),
		 .flags = HL_COLUMN_OMITTED},
	};
	uint64_t most = highest(shape, histogram), total = 0;
	uint32_t used = 0; /* slots, up to the last one that has anything */

	hl_emit_object(emit, key);
	hl_emit_unsigned(emit, "start_bytes", shape->start);
	hl_emit_integer(emit, "width", shape->width);
	hl_emit_array(emit, "first_bytes");
	for (uint32_t slot = 0; slot < shape->width; slot++)
		hl_emit_unsigned(emit, NULL, hl_log2_first(shape, slot));
	hl_emit_array_end(emit);
	hl_heap_histogram_emit_counts(emit, "counts", shape, histogram);
	hl_emit_object_end(emit);
	if (hl_emit_is_json(emit))
		return;
	for (uint32_t slot = 0; slot < shape->width; slot++) {
		total += histogram->counts[slot];
		used = histogram->counts[slot] ? slot + 1 : used;
	}
	hl_emit_blank(emit);
	if (!used)
		return;
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE(NULL, columns), .context = &most, .sum = total});
	for (uint32_t i = 0; i < used; i++) {
		struct slot slot = {.count = histogram->counts[i]};
		hl_heap_histogram_label(shape, i, slot.label);
		hl_table_row(emit, &slot, 0);
	}
	hl_table_end(emit);
}

/* ---- allocations by origin and type ---- */

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

/* ---- live blocks by owner: allocations, and how far one may believe them ---- */

static const struct {
	const char *name, *says;
} sources[] = {
	[HL_OWNERS_RECORDER] = {"recorder", "by the recorder in it; requested sizes"},
	[HL_OWNERS_TAGS] = {"tags", "by the tags in its blocks; usable sizes"},
	[HL_OWNERS_NONE] = {"none", "sizes alone"},
};

int hl_owners_view(const struct hl_owners *owners, pid_t pid, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "allocations/1", &emit);
	if (r < 0)
		return r;
	hl_emit_about(emit, NULL, pid);
	hl_emit_untraceable(emit, owners->hides_functions);
	hl_emit_object(emit, "process");
	hl_emit_integer(emit, "pid", pid);
	hl_emit_object_end(emit);
	hl_emit_text(emit, "source", sources[owners->source].name);
	hl_emit_text(emit, "allocator", owners->allocator);
	hl_emit_boolean(emit, "sizes_are_means", owners->sizes_are_means);
	hl_emit_line(emit, "live blocks of process %d%s%s, %s", pid,
		     owners->allocator[0] ? ", " : "", owners->allocator,
		     sources[owners->source].says);
	if (owners->sizes_are_means)
		hl_emit_warning(emit, "%s",
				"each block counts with the mean size of its call site: with this "
				"allocator only '--mode mem-record' knows the size of each");
	hl_allocations_emit(emit, &owners->allocations, options->row_limit);
	hl_emit_object(emit, "unknown");
	hl_emit_unsigned(emit, "inuse_blocks", owners->unknown_blocks);
	hl_emit_unsigned(emit, "inuse_bytes", owners->unknown_bytes);
	hl_emit_object_end(emit);
	if (owners->unknown_blocks)
		hl_emit_line(emit, "%s more, in %s block%s, have no known owner",
			     HL_HEAP_BYTES(owners->unknown_bytes),
			     HL_HEAP_COUNT(owners->unknown_blocks),
			     hl_format_plural(owners->unknown_blocks));
	hl_emit_array(emit, "notes");
	for (char **note = owners->notes; note && *note; note++) {
		hl_emit_text(emit, NULL, *note);
		hl_emit_line(emit, "%s", *note);
	}
	hl_emit_array_end(emit);
	return hl_emit_finish(emit);
}
