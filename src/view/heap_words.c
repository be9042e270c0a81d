/* SPDX-License-Identifier: BSD-2-Clause */
/* Words, numbers and small bars that the views of heaps share; see heap_words.h. */
#include "view/heap_words.h"

#include "view/format.h"

#include <langinfo.h>
#include <string.h>

#define LEVELS 8

static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const letters[LEVELS] = {"_", "-", "~", "=", "+", "*", "%", "#"};

const char *hl_heap_bar(uint64_t part, uint64_t whole, char buffer[HL_HEAP_BAR_MAX])
{
	double share = whole ? (double)part / (double)whole : 0;
	size_t length =
		share < 1 ? (size_t)(share * HL_HEAP_BAR_COLUMNS + 0.5) : HL_HEAP_BAR_COLUMNS;

	if (part && !length)
		length = 1;
	memset(buffer, '#', length);
	memset(buffer + length, '.', HL_HEAP_BAR_COLUMNS - length);
	buffer[HL_HEAP_BAR_COLUMNS] = '\0';
	return buffer;
}

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
		hl_emit_integer(emit, NULL, hl_heap_number(histogram->counts[slot]));
	hl_emit_array_end(emit);
}

static void emit_object(struct hl_emit *emit, const char *key, const struct hl_log2_shape *shape,
			const struct hl_log2_histogram *histogram)
{
	hl_emit_object(emit, key);
	hl_emit_integer(emit, "start_bytes", hl_heap_number(shape->start));
	hl_emit_integer(emit, "width", shape->width);
	hl_emit_array(emit, "first_bytes");
	for (uint32_t slot = 0; slot < shape->width; slot++)
		hl_emit_integer(emit, NULL, hl_heap_number(hl_log2_first(shape, slot)));
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

static void emit_table(struct hl_emit *emit, const char *what, const struct hl_log2_shape *shape,
		       const struct hl_log2_histogram *histogram, uint32_t slot_count)
{
	const struct hl_emit_column columns[] = {
		{NULL, "size", HL_EMIT_TEXT, 0},
		{NULL, what, HL_EMIT_COUNT, 0},
		{NULL, "share", HL_EMIT_PERCENT, 0},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_OMITTED},
	};
	char label[HL_HEAP_LABEL_MAX], bar[HL_HEAP_BAR_MAX];
	uint64_t most = highest(shape, histogram), total = 0;

	for (uint32_t slot = 0; slot < slot_count; slot++)
		total += histogram->counts[slot];
	hl_emit_rows(emit, NULL, columns, HL_COUNT_OF(columns));
	for (uint32_t slot = 0; slot < slot_count; slot++) {
		uint64_t count = histogram->counts[slot];
		hl_heap_bar(count, most, bar);
		bar[strcspn(bar, ".")] = '\0';
		hl_emit_row(emit, 0);
		hl_emit_cell_text(emit, hl_heap_slot_label(shape, slot, label));
		hl_emit_cell_integer(emit, hl_heap_number(count));
		hl_emit_cell_percent(emit, hl_heap_number(count), hl_heap_number(total));
		hl_emit_cell_text(emit, bar);
	}
	hl_emit_rows_end(emit);
}

void hl_heap_emit_histogram(struct hl_emit *emit, const char *key, const char *what,
			    const struct hl_log2_shape *shape,
			    const struct hl_log2_histogram *histogram)
{
	uint32_t slot_count = slots_used(shape, histogram);

	emit_object(emit, key, shape, histogram);
	if (hl_emit_is_json(emit))
		return;
	hl_emit_line(emit, "%s", "");
	if (slot_count)
		emit_table(emit, what, shape, histogram, slot_count);
}
