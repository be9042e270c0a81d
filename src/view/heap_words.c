/* SPDX-License-Identifier: BSD-2-Clause */
/* Words, numbers and small bars that the views of heaps share; see heap_words.h. */
#include "view/heap_words.h"

#include "view/format.h"

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

const char *hl_heap_spark(const struct hl_log2_shape *shape,
			  const struct hl_log2_histogram *histogram, char buffer[HL_HEAP_SPARK_MAX])
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

/* "896 B", "3 KiB", "1,920 B": nothing is rounded. */
static const char *format_exact(uint64_t bytes, char buffer[HL_FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t unit = 0;
	char count[HL_FORMAT_MAX];

	for (; bytes >= 1024 && bytes % 1024 == 0; bytes /= 1024)
		unit++;
	snprintf(buffer, HL_FORMAT_MAX, "%.20s %s", hl_format_count(hl_heap_number(bytes), count),
		 units[unit]);
	return buffer;
}

const char *hl_heap_slot_label(const struct hl_log2_shape *shape, uint32_t slot,
			       char buffer[HL_HEAP_LABEL_MAX])
{
	char low[HL_FORMAT_MAX], high[HL_FORMAT_MAX];

	format_exact(hl_log2_first(shape, slot), low);
	format_exact(hl_log2_end(shape, slot), high);
	if (shape->width == 1)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "all sizes");
	else if (slot == 0)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "below %s", high);
	else if (slot + 1 == shape->width)
		snprintf(buffer, HL_HEAP_LABEL_MAX, "%s and more", low);
	else
		snprintf(buffer, HL_HEAP_LABEL_MAX, "%s .. <%s", low, high);
	return buffer;
}

/* ---- histograms in full ---- */

void hl_heap_emit_counts(struct hl_emit *emit, const char *key, const struct hl_log2_shape *shape,
			 const struct hl_log2_histogram *histogram)
{
	hl_emit_array(emit, key);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		hl_emit_unsigned(emit, NULL, histogram->counts[slot]);
	hl_emit_array_end(emit);
}

static void emit_object(struct hl_emit *emit, const char *key, const struct hl_log2_shape *shape,
			const struct hl_log2_histogram *histogram)
{
	hl_emit_object(emit, key);
	hl_emit_unsigned(emit, "start_bytes", shape->start);
	hl_emit_integer(emit, "width", shape->width);
	hl_emit_array(emit, "first_bytes");
	for (uint32_t slot = 0; slot < shape->width; slot++)
		hl_emit_unsigned(emit, NULL, hl_log2_first(shape, slot));
	hl_emit_array_end(emit);
	hl_heap_emit_counts(emit, "counts", shape, histogram);
	hl_emit_object_end(emit);
}

/* What stands after the last slot that has anything. */
static uint32_t slots_used(const struct hl_log2_shape *shape,
			   const struct hl_log2_histogram *histogram)
{
	uint32_t count = shape->width;

	while (count && !histogram->counts[count - 1])
		count--;
	return count;
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

static void emit_table(struct hl_emit *emit, const char *what, const struct hl_log2_shape *shape,
		       const struct hl_log2_histogram *histogram, uint32_t slot_count)
{
	const struct hl_column columns[] = {
		{NULL, "size", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct slot, label)},
		{NULL, what, HL_COLUMN_COUNT, HL_MEMBER(struct slot, count)},
		{NULL, "share", HL_COLUMN_SHARE, HL_MEMBER(struct slot, count)},
		{NULL, "", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct slot, count, bar),
		 .flags = HL_COLUMN_OMITTED},
	};
	uint64_t most = highest(shape, histogram), total = 0;

	for (uint32_t i = 0; i < slot_count; i++)
		total += histogram->counts[i];
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE(NULL, columns), .context = &most, .sum = total});
	for (uint32_t i = 0; i < slot_count; i++) {
		struct slot slot = {.count = histogram->counts[i]};
		hl_heap_slot_label(shape, i, slot.label);
		hl_table_row(emit, &slot, 0);
	}
	hl_table_end(emit);
}

void hl_heap_emit_histogram(struct hl_emit *emit, const char *key, const char *what,
			    const struct hl_log2_shape *shape,
			    const struct hl_log2_histogram *histogram)
{
	uint32_t slot_count = slots_used(shape, histogram);

	emit_object(emit, key, shape, histogram);
	if (hl_emit_is_json(emit))
		return;
	hl_emit_blank(emit);
	if (slot_count)
		emit_table(emit, what, shape, histogram, slot_count);
}
