/* SPDX-License-Identifier: BSD-2-Clause */
/* Words, numbers and small bars that the views of heaps share; see heap.h. */
#include "view/heap.h"

#include <langinfo.h>
#include <string.h>

#define LEVELS 8

static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
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
			at = stpcpy(at, (is_utf8 ? blocks : letters)[level]);
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
