/* SPDX-License-Identifier: BSD-2-Clause */
/* What has changed between two snapshots of heaps. */
#include "view/heap.h"

#include "heap/heap_figures.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In the words of hl_heap_view(). JSON has the names of heap_figures.h. */
static const char *const words[HL_HEAP_FIGURE_COUNT] = {
	[HL_HEAP_RSS] = "RSS",
	[HL_HEAP_SYSTEM] = "malloc's arenas",
	[HL_HEAP_INUSE] = "in use in arenas",
	[HL_HEAP_INUSE_BLOCKS] = "blocks in use in arenas",
	[HL_HEAP_TCACHE] = "in thread caches",
	[HL_HEAP_FASTBIN] = "in fastbins",
	[HL_HEAP_FREE] = "free",
	[HL_HEAP_FREE_RESIDENT] = "free, but in memory",
	[HL_HEAP_LARGEST_FREE] = "largest free block",
	[HL_HEAP_TOP] = "free at the ends of arenas",
	[HL_HEAP_TRIMMABLE] = "malloc_trim(0) would give back",
	[HL_HEAP_UNSCANNED] = "unscanned",
	[HL_HEAP_OVERHEAD] = "malloc's own (headers, arenas)",
	[HL_HEAP_MMAPPED] = "blocks with mappings of their own",
	[HL_HEAP_MMAPPED_BLOCKS] = "number of these",
	[HL_HEAP_MMAPPED_UNLOCATED] = "of these, not located",
	[HL_HEAP_ARENAS] = "arenas",
	[HL_HEAP_CARRIERS] = "carriers",
	[HL_HEAP_THREADS] = "threads",
	[HL_HEAP_RESIDENT_LIVE] = "in RAM: live blocks",
	[HL_HEAP_RESIDENT_CACHED] = "in RAM: thread caches and fastbins",
	[HL_HEAP_RESIDENT_FREE] = "in RAM: free",
	[HL_HEAP_RESIDENT_OVERHEAD] = "in RAM: malloc's own (headers, arenas)",
	[HL_HEAP_RESIDENT_UNSCANNED] = "in RAM: unscanned",
	[HL_HEAP_RESIDENT_OTHER_ALLOCATORS] = "in RAM: other allocators",
	[HL_HEAP_RESIDENT_RECORDER] = "in RAM: heapline's recorder",
	[HL_HEAP_RESIDENT_STACKS] = "in RAM: stacks",
	[HL_HEAP_RESIDENT_FILES] = "in RAM: files",
	[HL_HEAP_RESIDENT_SHARED] = "in RAM: shared memory",
	[HL_HEAP_RESIDENT_ANONYMOUS] = "in RAM: other anonymous mappings",
};

static void emit_snapshot(struct hl_emit *emit, const char *key,
			  const struct hl_heap_figures *figures)
{
	hl_emit_object(emit, key);
	hl_emit_text(emit, "command", figures->command);
	hl_emit_integer(emit, "pid", figures->pid);
	hl_emit_text(emit, "taken", figures->taken);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s: %s (pid %" PRId64 "), %s", key, figures->command, figures->pid,
		     figures->taken);
}

struct change {
	const char *name, *words;
	bool is_bytes;
	int64_t before, after, change;
	char before_text[HL_FORMAT_MAX], after_text[HL_FORMAT_MAX], change_text[HL_FORMAT_MAX + 1];
};

#define MEMBER(name) HL_MEMBER(struct change, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct change, name)

/* In tables bytes are for people; JSON has them all as integers. */
static const struct hl_column columns[] = {
	{"figure", NULL, HL_COLUMN_TEXT, MEMBER(name)},
	{NULL, "figure", HL_COLUMN_TEXT, MEMBER(words), HL_COLUMN_KEY},
	{"before", NULL, HL_COLUMN_COUNT, MEMBER(before)},
	{"after", NULL, HL_COLUMN_COUNT, MEMBER(after)},
	{"change", NULL, HL_COLUMN_COUNT, MEMBER(change)},
	{NULL, "before", HL_COLUMN_TEXT, TEXT(before_text)},
	{NULL, "after", HL_COLUMN_TEXT, TEXT(after_text)},
	{NULL, "change", HL_COLUMN_TEXT, TEXT(change_text)},
};

/* Bytes before numbers of things, which cannot be compared with them. */
static int larger_change(const void *left, const void *right)
{
	const struct change *a = left, *b = right;
	int64_t x = llabs(a->change), y = llabs(b->change);

	if (a->is_bytes != b->is_bytes)
		return a->is_bytes ? -1 : 1;
	if (x != y)
		return x < y ? 1 : -1;
	return (a->name > b->name) - (a->name < b->name);
}

static size_t fill_changes(const struct hl_heap_figures *before,
			   const struct hl_heap_figures *after, struct change *changes)
{
	size_t count = 0;

	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++) {
		struct change *row = &changes[count];
		*row = (struct change){
			.name = hl_heap_figure_names[i],
			.words = words[i],
			.is_bytes = hl_heap_figure_is_bytes((enum hl_heap_figure)i),
			.before = hl_heap_number(before->numbers[i]),
			.after = hl_heap_number(after->numbers[i]),
		};
		if (!row->before && !row->after)
			continue;
		row->change = row->after - row->before;
		hl_format_figure(row->before, row->is_bytes, row->before_text);
		hl_format_figure(row->after, row->is_bytes, row->after_text);
		row->change_text[0] = '+';
		hl_format_figure(row->change, row->is_bytes, row->change_text + (row->change > 0));
		count++;
	}
	qsort(changes, count, sizeof(*changes), larger_change);
	return count;
}

int hl_heap_diff_view(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
		      const struct hl_emit_options *options)
{
	struct change changes[HL_HEAP_FIGURE_COUNT];
	size_t count = fill_changes(before, after, changes);
	struct hl_emit *emit;

	int r = hl_emit_open(options, "heap-diff/1", &emit);
	if (r < 0)
		return r;
	emit_snapshot(emit, "before", before);
	emit_snapshot(emit, "after", after);
	if (before->pid != after->pid || strcmp(before->command, after->command) != 0)
		hl_emit_warning(emit, "%s", "the snapshots are of different processes");
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < count; i++)
		hl_table_row(emit, &changes[i], 0);
	hl_table_end(emit);
	return hl_emit_finish(emit);
}
