/* SPDX-License-Identifier: BSD-2-Clause */
/* Lost blocks by stack, or by class and size; see heap.h. */
#include "view/heap.h"

#include "heap/graph/leaks.h"

#include <ctype.h>
#include <string.h>

#define ROWS_DEFAULT 30

/* ---- rows ---- */

static void type(struct hl_emit *emit, const void *member, const void *context)
{
	const struct hl_leaks *leaks = context;

	hl_cell_text(emit, hl_strings_text(&leaks->names, *(const uint32_t *)member));
}

#define FRAMES_MAX 256u

/* The frame ${i} of those of ${row} that reports show, the outermost first. */
static const struct hl_leak_frame *frame_at(const struct hl_leaks *leaks,
					    const struct hl_leak_row *row, size_t i)
{
	size_t count = row->frame_count < FRAMES_MAX ? row->frame_count : FRAMES_MAX;

	return i < count ? &leaks->frames[row->frame + count - 1 - i] : NULL;
}

static void stack(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_leaks *leaks = context;
	const struct hl_leak_frame *frame;
	const char *names[FRAMES_MAX];
	size_t count = 0;

	while ((frame = frame_at(leaks, row, count)))
		names[count++] = hl_strings_text(&leaks->names, frame->function);
	hl_cell_stack(emit, names, count);
}

static void frames(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_leaks *leaks = context;
	const struct hl_leak_frame *frame;
	struct hl_emit_frame shown[FRAMES_MAX];
	size_t count = 0;

	while ((frame = frame_at(leaks, row, count)))
		shown[count++] = (struct hl_emit_frame){
			.function = hl_strings_text(&leaks->names, frame->function),
			.module = hl_strings_text(&leaks->names, frame->module),
			.file = hl_strings_text(&leaks->names, frame->source),
		};
	hl_cell_frames(emit, shown, count);
}

/* facts of the table */
#define KNOWS_STACKS 1u
#define HAS_UNKNOWN  2u

#define MEMBER(name) HL_MEMBER(struct hl_leak_row, name)
#define BLANK	     .flags = HL_COLUMN_BLANK_ZERO

static const struct hl_column columns[] = {
	{"lost_bytes", "lost", HL_COLUMN_BYTES, MEMBER(lost.bytes), BLANK},
	{"lost_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(lost.blocks), BLANK},
	{"indirect_bytes", "with it", HL_COLUMN_BYTES, MEMBER(indirect.bytes), BLANK},
	{"indirect_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(indirect.blocks), BLANK},
	{"possible_bytes", "possible", HL_COLUMN_BYTES, MEMBER(possible.bytes), BLANK},
	{"possible_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(possible.blocks), BLANK},
	{NULL, "not known", HL_COLUMN_BYTES, MEMBER(unknown.bytes), BLANK, .shown_if = HAS_UNKNOWN},
	{NULL, "blocks", HL_COLUMN_COUNT, MEMBER(unknown.blocks), BLANK, .shown_if = HAS_UNKNOWN},
	{"unknown_bytes", NULL, HL_COLUMN_BYTES, MEMBER(unknown.bytes)},
	{"unknown_blocks", NULL, HL_COLUMN_COUNT, MEMBER(unknown.blocks)},
	{"size", "size of each", HL_COLUMN_BYTES, MEMBER(size), BLANK},
	{"type", "type", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_leak_row, type, type),
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{NULL, "allocated by", HL_COLUMN_STACK, .cell = stack,
	 .flags = HL_COLUMN_PATH | HL_COLUMN_NAMES, .shown_if = KNOWS_STACKS},
	{"stack", NULL, HL_COLUMN_STACK, .cell = stack},
	{"frames", NULL, HL_COLUMN_FRAMES, .cell = frames},
};

static void emit_rows(struct hl_emit *emit, const struct hl_leaks *leaks, uint64_t row_limit)
{
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, leaks->row_count);
	unsigned facts = (leaks->knows_stacks ? KNOWS_STACKS : 0) |
			 (leaks->unknown.blocks ? HAS_UNKNOWN : 0);

	if (leaks->row_count)
		hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = leaks,
						.facts = facts});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &leaks->rows[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, leaks->row_count - shown, "-n");
}

/* ---- blocks ---- */

static void words(struct hl_emit *emit, const void *block, const void *context)
{
	const struct hl_leak_block *at = block;
	char text[4 * 19 + 1] = "";
	uint64_t word;

	(void)context;
	for (size_t i = 0, used = 0; i + 8 <= sizeof(at->head) && i < at->size; i += 8) {
		memcpy(&word, at->head + i, sizeof(word));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%016llx",
					 i ? " " : "", (unsigned long long)word);
	}
	hl_cell_text(emit, text);
}

static void letters(struct hl_emit *emit, const void *block, const void *context)
{
	const struct hl_leak_block *at = block;
	char text[HL_LEAK_HEAD_BYTES + 1];
	size_t length = at->size < sizeof(at->head) ? at->size : sizeof(at->head);

	(void)context;
	for (size_t i = 0; i < length; i++)
		text[i] = at->head[i] >= ' ' && at->head[i] < 0x7f ? (char)at->head[i] : '.';
	text[length] = '\0';
	hl_cell_text(emit, text);
}

#define BLOCK(name) HL_MEMBER(struct hl_leak_block, name)

static const struct hl_column block_columns[] = {
	{"address", "block", HL_COLUMN_ADDRESS, BLOCK(address), .flags = HL_COLUMN_KEY},
	{"size", "size", HL_COLUMN_BYTES, BLOCK(size)},
	{"indirect_bytes", "with it", HL_COLUMN_BYTES, BLOCK(indirect.bytes), BLANK},
	{"indirect_blocks", "blocks", HL_COLUMN_COUNT, BLOCK(indirect.blocks), BLANK},
	{"type", "type", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_leak_block, type, type),
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES},
	{"text", "text", HL_COLUMN_TEXT, .cell = letters},
	{"words", "first words", HL_COLUMN_TEXT, .cell = words, .flags = HL_COLUMN_OMITTED},
};

static void emit_blocks(struct hl_emit *emit, const struct hl_leaks *leaks)
{
	if (leaks->block_count)
		hl_emit_blank(emit);
	if (leaks->block_count || hl_emit_is_json(emit)) {
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("blocks", block_columns),
							.context = leaks});
		for (size_t i = 0; i < leaks->block_count; i++)
			hl_table_row(emit, &leaks->blocks[i], 0);
		hl_table_end(emit);
	}
}

/* ---- all ---- */

static void emit_sum(struct hl_emit *emit, const char *bytes_key, const char *blocks_key,
		     const struct hl_leak_sum *sum)
{
	hl_emit_unsigned(emit, bytes_key, sum->bytes);
	hl_emit_unsigned(emit, blocks_key, sum->blocks);
}

static void emit_total(struct hl_emit *emit, const struct hl_leaks *leaks)
{
	uint64_t unread = hl_unread_words(&leaks->unread);
	char stopped[HL_FORMAT_MAX];

	hl_emit_object(emit, "total");
	emit_sum(emit, "lost_bytes", "lost_blocks", &leaks->lost);
	emit_sum(emit, "indirect_bytes", "indirect_blocks", &leaks->indirect);
	emit_sum(emit, "possible_bytes", "possible_blocks", &leaks->possible);
	emit_sum(emit, "unknown_bytes", "unknown_blocks", &leaks->unknown);
	hl_emit_unsigned(emit, "unread_bytes", unread * 8);
	emit_sum(emit, "live_bytes", "live_blocks", &leaks->live);
	emit_sum(emit, "ignored_bytes", "ignored_blocks", &leaks->ignored);
	hl_emit_unsigned(emit, "passes", leaks->passes);
	hl_emit_unsigned(emit, "stopped_us", leaks->stopped_ns / 1000);
	hl_emit_unsigned(emit, "stopped_threads", leaks->stopped_threads);
	hl_emit_object_end(emit);
	const char *plural = leaks->passes == 1 ? "" : "es";
	if (!leaks->heap->from_core && leaks->stopped_ns &&
	    leaks->stopped_threads < leaks->heap->process.threads)
		hl_emit_line(
			emit,
			"%u pass%s over the process, of which up to %u of %u threads were stopped "
			"at once, for %s in all",
			leaks->passes, plural, leaks->stopped_threads, leaks->heap->process.threads,
			hl_format_duration(leaks->stopped_ns, stopped));
	else if (!leaks->heap->from_core && leaks->stopped_ns)
		hl_emit_line(emit, "%u pass%s over the process, which was stopped for %s in all",
			     leaks->passes, plural, hl_format_duration(leaks->stopped_ns, stopped));
	else if (!leaks->heap->from_core)
		hl_emit_line(emit, "%u pass%s over the process, which was not stopped",
			     leaks->passes, plural);
	hl_emit_blank(emit);
	hl_emit_line(emit, "of %s in %s live block%s", HL_HEAP_BYTES(leaks->live.bytes),
		     HL_HEAP_COUNT(leaks->live.blocks), hl_format_plural(leaks->live.blocks));
	hl_emit_line(emit, "  %s in %s block%s are lost: nothing leads to them",
		     HL_HEAP_BYTES(leaks->lost.bytes), HL_HEAP_COUNT(leaks->lost.blocks),
		     hl_format_plural(leaks->lost.blocks));
	if (leaks->lost.blocks && unread)
		hl_emit_line(
			emit,
			"    but up to %s of them may be in use, by pointers in memory that was "
			"not read",
			HL_HEAP_COUNT(unread));
	hl_emit_line(emit, "  %s in %s block%s are lost with them: only they lead there",
		     HL_HEAP_BYTES(leaks->indirect.bytes), HL_HEAP_COUNT(leaks->indirect.blocks),
		     hl_format_plural(leaks->indirect.blocks));
	hl_emit_line(emit, "  %s in %s block%s are possibly lost: only pointers to their inside",
		     HL_HEAP_BYTES(leaks->possible.bytes), HL_HEAP_COUNT(leaks->possible.blocks),
		     hl_format_plural(leaks->possible.blocks));
	if (leaks->unknown.blocks)
		hl_emit_line(
			emit,
			"  %s in %s block%s may be lost: nothing leads to them in the memory that "
			"was read",
			HL_HEAP_BYTES(leaks->unknown.bytes), HL_HEAP_COUNT(leaks->unknown.blocks),
			hl_format_plural(leaks->unknown.blocks));
	if (leaks->ignored.blocks)
		hl_emit_line(emit, "  %s in %s lost block%s are left out, as --ignore says",
			     HL_HEAP_BYTES(leaks->ignored.bytes),
			     HL_HEAP_COUNT(leaks->ignored.blocks),
			     hl_format_plural(leaks->ignored.blocks));
}

int hl_leaks_view(const struct hl_leaks *leaks, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "leaks/1", &emit);
	if (r < 0)
		return r;
	hl_heap_emit_head(emit, leaks->heap);
	emit_total(emit, leaks);
	emit_rows(emit, leaks, options->row_limit);
	emit_blocks(emit, leaks);
	hl_emit_blank(emit);
	if (leaks->heap->from_core)
		hl_emit_line(emit, "who keeps the rest: 'heapline holders --core FILE'");
	else
		hl_emit_line(emit, "who keeps the rest: 'heapline holders -p %d'",
			     (int)leaks->heap->process.pid);
	hl_heap_emit_notes(emit, leaks->heap);
	return hl_emit_finish(emit);
}
