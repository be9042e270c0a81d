/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap on one screen: where resident memory is, the arenas, what could go back. */
#include "view/heap.h"

#include "heap/heap_figures.h"
#include "view/format.h"
#include "view/heap_words.h"

#include <inttypes.h>

#define COMMAND_COLUMNS 60 /* that tables show; JSON has more of it */

/* ---- head ---- */

static void emit_command(struct hl_emit *emit, const struct hl_heap *heap, char *buffer,
			 size_t size)
{
	size_t used = 0;
	buffer[0] = '\0';
	for (char **word = heap->process.command; word && *word && used < size; word++)
		used += (size_t)snprintf(buffer + used, size - used, "%s%s", used ? " " : "",
					 *word);
	hl_emit_text(emit, "command", buffer);
}

static const char *how_it_was_read(const struct hl_heap *heap)
{
	if (heap->from_core)
		return "from a core file";
	return heap->was_stopped ? "while it stood still" : "while it ran";
}

void hl_heap_emit_head(struct hl_emit *emit, const struct hl_heap *heap)
{
	char command[512], shortened[512], took[HL_FORMAT_MAX], chunks[HL_FORMAT_MAX],
		time[HL_FORMAT_MAX];
	hl_emit_object(emit, "process");
	emit_command(emit, heap, command, sizeof(command));
	hl_emit_integer(emit, "pid", heap->process.pid);
	hl_emit_integer(emit, "threads", heap->process.threads);
	hl_emit_object_end(emit);
	hl_emit_text(emit, "taken", hl_format_time(heap->taken_realtime_ns, time));
	hl_emit_text(emit, "allocator", heap->allocator);
	hl_emit_boolean(emit, "from_core", heap->from_core);
	hl_emit_boolean(emit, "stopped", heap->was_stopped);
	hl_emit_integer(emit, "walk_ns", hl_heap_number(heap->walk_ns));
	hl_emit_integer(emit, "chunks", hl_heap_number(heap->chunks));
	hl_emit_line(emit, "%s (pid %d, %" PRIu32 " thread%s), %s",
		     hl_format_shortened(command, COMMAND_COLUMNS, shortened, sizeof(shortened)),
		     heap->process.pid, heap->process.threads,
		     hl_format_plural(heap->process.threads), heap->allocator);
	hl_emit_line(emit, "%s chunks read in %s, %s",
		     hl_format_count((int64_t)heap->chunks, chunks),
		     hl_format_duration(heap->walk_ns, took), how_it_was_read(heap));
}

void hl_heap_emit_notes(struct hl_emit *emit, const struct hl_heap *heap)
{
	hl_emit_array(emit, "notes");
	for (size_t i = 0; i < heap->note_count; i++) {
		hl_emit_text(emit, NULL, heap->notes[i].text);
		hl_emit_line(emit, "%s", heap->notes[i].text);
	}
	hl_emit_array_end(emit);
}

/* ---- resident memory ---- */

static void emit_part(struct hl_emit *emit, const char *part, uint64_t bytes, uint64_t rss)
{
	char bar[HL_HEAP_BAR_MAX];
	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, part);
	hl_emit_cell_integer(emit, hl_heap_number(bytes));
	hl_emit_cell_percent(emit, hl_heap_number(bytes), hl_heap_number(rss));
	hl_emit_cell_text(emit, hl_heap_bar(bytes, rss, bar));
}

static void emit_rss(struct hl_emit *emit, const struct hl_heap *heap)
{
	static const struct hl_emit_column columns[] = {
		{"part", "resident memory", HL_EMIT_TEXT, HL_EMIT_KEY},
		{"bytes", "bytes", HL_EMIT_BYTES, 0},
		{NULL, "of RSS", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
	};
	const struct hl_heap_rss *rss = &heap->rss;
	const struct {
		const char *part;
		uint64_t bytes;
	} parts[] = {
		{"live blocks", rss->live_bytes},
		{"thread caches and fastbins", rss->cached_bytes},
		{"free, but in memory", rss->free_bytes},
		{"malloc's own (headers, arenas)", rss->overhead_bytes},
		{"unscanned", rss->unscanned_bytes},
		{"other allocators", rss->other_allocator_bytes},
		{"heapline's recorder", rss->recorder_bytes},
		{"stacks", rss->stack_bytes},
		{"files", rss->file_bytes},
		{"shared memory", rss->shared_bytes},
	};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "resident", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		if (parts[i].bytes || hl_emit_is_json(emit))
			emit_part(emit, parts[i].part, parts[i].bytes, rss->rss_bytes);
	for (size_t i = 0; i < HL_ANONYMOUS_COUNT; i++)
		if (rss->anonymous[i] || hl_emit_is_json(emit))
			emit_part(emit, hl_rss_anonymous_names[i], rss->anonymous[i],
				  rss->rss_bytes);
	if (!hl_emit_is_json(emit))
		emit_part(emit, "RSS", rss->rss_bytes, rss->rss_bytes);
	hl_emit_rows_end(emit);
}

/* ---- arenas ---- */

static const struct hl_emit_column arena_columns[] = {
	{"arena", "arena", HL_EMIT_NUMBER, HL_EMIT_KEY},
	{"threads", "threads", HL_EMIT_COUNT, HL_EMIT_BLANK_ZERO},
	{"carriers", "segments", HL_EMIT_COUNT, HL_EMIT_OMITTED},
	{"system_bytes", "system", HL_EMIT_BYTES, 0},
	{"inuse_bytes", "live", HL_EMIT_BYTES, 0},
	{"inuse_blocks", "blocks", HL_EMIT_COUNT, HL_EMIT_OMITTED},
	{"tcache_bytes", "tcache", HL_EMIT_BYTES, HL_EMIT_BLANK_ZERO | HL_EMIT_OMITTED},
	{"fastbin_bytes", "fastbins", HL_EMIT_BYTES, HL_EMIT_BLANK_ZERO | HL_EMIT_OMITTED},
	{"free_bytes", "free", HL_EMIT_BYTES, 0},
	{"free_resident_bytes", "in memory", HL_EMIT_BYTES, 0},
	{"largest_free_bytes", "largest", HL_EMIT_BYTES, HL_EMIT_OMITTED},
	{"top_bytes", "top", HL_EMIT_BYTES, 0},
	{"trimmable_bytes", "trimmable", HL_EMIT_BYTES, 0},
	{"unscanned_bytes", "unscanned", HL_EMIT_BYTES, HL_EMIT_BLANK_ZERO | HL_EMIT_OMITTED},
	{"overhead_bytes", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
};

static void emit_arena_cells(struct hl_emit *emit, const struct hl_heap_arena *arena)
{
	const uint64_t cells[] = {
		arena->threads,
		arena->carriers,
		arena->system_bytes,
		arena->inuse_bytes,
		arena->inuse_blocks,
		arena->tcache_bytes,
		arena->fastbin_bytes,
		arena->free_bytes,
		arena->free_resident_bytes,
		arena->largest_free_bytes,
		arena->top_bytes,
		arena->trimmable_bytes,
		arena->unscanned_bytes,
		arena->overhead_bytes,
	};
	for (size_t i = 0; i < HL_COUNT_OF(cells); i++)
		hl_emit_cell_integer(emit, hl_heap_number(cells[i]));
}

static void emit_arenas(struct hl_emit *emit, const struct hl_heap *heap, uint64_t limit)
{
	size_t shown = limit && limit < heap->arena_count && !hl_emit_is_json(emit)
			       ? (size_t)limit
			       : heap->arena_count;
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", arena_columns, HL_COUNT_OF(arena_columns));
	for (size_t i = 0; i < shown; i++) {
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, (int64_t)i);
		emit_arena_cells(emit, &heap->arenas[i]);
	}
	hl_emit_rows_end(emit);
	if (shown < heap->arena_count)
		hl_emit_line(emit, "... and %zu more; -n 0 shows all", heap->arena_count - shown);
}

static void emit_total(struct hl_emit *emit, const struct hl_heap *heap)
{
	struct hl_heap_figures figures;
	hl_heap_figures_of(heap, &figures);
	hl_emit_object(emit, "total");
	for (size_t i = 0; i < HL_HEAP_FIGURE_COUNT; i++)
		hl_emit_integer(emit, hl_heap_figure_names[i], hl_heap_number(figures.numbers[i]));
	hl_emit_object_end(emit);
	hl_emit_integer(emit, "page_bytes", hl_heap_number(heap->page_bytes));
	hl_emit_integer(emit, "trim_threshold_bytes", hl_heap_number(heap->trim_threshold));
	hl_emit_integer(emit, "mmap_threshold_bytes", hl_heap_number(heap->mmap_threshold));
	hl_emit_object(emit, "lost");
	hl_emit_integer(emit, "unscanned_bytes",
			hl_heap_number(figures.numbers[HL_HEAP_UNSCANNED]));
	hl_emit_integer(emit, "rereads", hl_heap_number(heap->rereads));
	hl_emit_integer(emit, "abandoned", hl_heap_number(heap->abandoned));
	hl_emit_object_end(emit);
}

static void say_mmapped(struct hl_emit *emit, const struct hl_heap *heap)
{
	char bytes[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX];
	if (heap->mp_mmapped_blocks)
		hl_emit_line(emit, "and %s in %s separately mapped block%s",
			     hl_format_bytes(hl_heap_number(heap->mp_mmapped_bytes), bytes),
			     hl_format_count(hl_heap_number(heap->mp_mmapped_blocks), blocks),
			     hl_format_plural(heap->mp_mmapped_blocks));
}

int hl_view_heap(const struct hl_heap *heap, const struct hl_heap_view_options *options)
{
	struct hl_emit *emit;
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "heap");
	hl_heap_emit_head(emit, heap);
	emit_total(emit, heap);
	emit_rss(emit, heap);
	emit_arenas(emit, heap, options->row_limit);
	say_mmapped(emit, heap);
	hl_heap_emit_answers(emit, heap);
	hl_heap_emit_notes(emit, heap);
	return hl_emit_finish(emit);
}
