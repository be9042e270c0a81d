/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap on one screen: where resident memory is and whose, the arenas, what could go back; and the difference of two heaps. */
#include "view/heap.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/heap_figures.h"
#include "heap/owners/owners.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- which stacks the live blocks in RAM are of ---- */

/* Blocks of other allocators are not part of it. */

#define HL_HEAP_STACK_TEXT 160

struct heap_stack {
	uint64_t number, bytes;
};

/* Those with bytes in RAM, the heaviest first. */
struct heap_stacks {
	const struct hl_resident *resident;
	struct heap_stack *stacks;
	size_t count;
};

#define STACKS_DEFAULT 10 /* for people */
#define FRAMES_TOLD    3  /* on a line */

static int heavier(const void *left, const void *right)
{
	const struct heap_stack *a = left, *b = right;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return (a->number > b->number) - (a->number < b->number);
}

/* None where ${resident} is NULL or knows no stacks. 0 or -ENOMEM. */
static int heap_stacks_init(struct heap_stacks *stacks, const struct hl_resident *resident)
{
	*stacks = (struct heap_stacks){.resident = resident};
	if (!resident || !resident->stack_count)
		return 0;
	stacks->stacks = calloc(resident->stack_count, sizeof(*stacks->stacks));
	if (!stacks->stacks)
		return -ENOMEM;
	for (size_t number = 1; number < resident->stack_count; number++)
		if (resident->stacks[number].walked)
			stacks->stacks[stacks->count++] =
				(struct heap_stack){number, resident->stacks[number].walked};
	if (stacks->count)
		qsort(stacks->stacks, stacks->count, sizeof(*stacks->stacks), heavier);
	return 0;
}

static void heap_stacks_release(struct heap_stacks *stacks)
{
	free(stacks->stacks);
	*stacks = (struct heap_stacks){0};
}

struct told {
	char text[HL_HEAP_STACK_TEXT];
	size_t length;
	unsigned count;
};

static const char *name_of(const struct hl_block_frame *frame)
{
	return frame->function[0] ? frame->function : frame->module;
}

/* The innermost frames. */
static int tell(void *context, const struct hl_block_frame *frame)
{
	struct told *told = context;
	int length = snprintf(told->text + told->length, sizeof(told->text) - told->length, "%s%s",
			      told->count ? " < " : "", name_of(frame));

	told->length += length > 0 ? (size_t)length : 0;
	if (told->length >= sizeof(told->text))
		told->length = sizeof(told->text) - 1;
	return ++told->count == FRAMES_TOLD;
}

static int put_frame(void *context, const struct hl_block_frame *frame)
{
	hl_emit_text(context, NULL, name_of(frame));
	return 0;
}

/* Calls ${row} for the heaviest ones, for all others and for blocks without a known stack: the sum
 * of all. ${part} is valid during the call. 0 or a negative errno. */
static int heap_stacks_each(const struct heap_stacks *stacks,
			    void (*row)(void *context, const char *part, uint64_t bytes),
			    void *context)
{
	const struct hl_resident *resident = stacks->resident;
	size_t shown = stacks->count < STACKS_DEFAULT ? stacks->count : STACKS_DEFAULT;
	char part[64];
	uint64_t rest = 0;

	for (size_t i = 0; i < shown; i++) {
		struct told told = {.text = "  ", .length = 2};
		int r = hl_block_owners_each_frame(resident->owners, stacks->stacks[i].number, tell,
						   &told);
		if (r < 0)
			return r;
		row(context, told.text, stacks->stacks[i].bytes);
	}
	for (size_t i = shown; i < stacks->count; i++)
		rest += stacks->stacks[i].bytes;
	snprintf(part, sizeof(part), "  %zu other stacks", stacks->count - shown);
	if (rest)
		row(context, part, rest);
	if (resident && resident->stack_count && resident->stacks[0].walked)
		row(context, "  of a stack that is not known", resident->stacks[0].walked);
	return 0;
}

/* The member `stacks` of JSON: all of them. 0 or a negative errno. */
static int heap_stacks_emit(struct hl_emit *emit, const struct heap_stacks *stacks)
{
	const struct hl_resident *resident = stacks->resident;
	int r = 0;

	hl_emit_array(emit, "stacks");
	for (size_t i = 0; r == 0 && i < stacks->count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_unsigned(emit, "bytes", stacks->stacks[i].bytes);
		hl_emit_array(emit, "stack");
		r = hl_block_owners_each_frame(resident->owners, stacks->stacks[i].number,
					       put_frame, emit);
		hl_emit_array_end(emit);
		hl_emit_object_end(emit);
	}
	if (resident && resident->stack_count && resident->stacks[0].walked) {
		hl_emit_object(emit, NULL);
		hl_emit_unsigned(emit, "bytes", resident->stacks[0].walked);
		hl_emit_array(emit, "stack");
		hl_emit_array_end(emit);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	return r;
}

/* ---- resident pages that few live bytes keep: what freeing a block would return ---- */

static void pages(struct hl_emit *emit, const void *at, const void *heap)
{
	const struct hl_heap_pin *pin = at;

	hl_cell_unsigned(emit,
			 (pin->end - pin->start) / ((const struct hl_heap *)heap)->page_bytes);
}

#define PIN(name) HL_MEMBER(struct hl_heap_pin, name)

static const struct hl_column pin_columns[] = {
	{"returned_bytes", "would free", HL_COLUMN_BYTES, PIN(returned_bytes)},
	{"live_bytes", "live", HL_COLUMN_BYTES, PIN(live_bytes)},
	{"live_blocks", "blocks", HL_COLUMN_COUNT, PIN(live_blocks)},
	{"start", "pages from", HL_COLUMN_ADDRESS, PIN(start), HL_COLUMN_KEY},
	{"pages", "pages", HL_COLUMN_COUNT, .cell = pages},
	{"block", "largest block", HL_COLUMN_ADDRESS, PIN(block)},
	{"block_bytes", "its size", HL_COLUMN_BYTES, PIN(block_bytes)},
};

int hl_pins_view(const struct hl_heap *heap, const struct hl_emit_options *options)
{
	uint64_t returned_bytes = 0, live_bytes = 0, live_blocks = 0;
	struct hl_emit *emit;

	int r = hl_emit_open(options, "pins/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, 0, heap->pin_count);
	hl_heap_emit_head(emit, heap);
	for (size_t i = 0; i < heap->pin_count; i++) {
		returned_bytes += heap->pins[i].returned_bytes;
		live_bytes += heap->pins[i].live_bytes;
		live_blocks += heap->pins[i].live_blocks;
	}
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "places", heap->pin_count);
	hl_emit_unsigned(emit, "returned_bytes", returned_bytes);
	hl_emit_unsigned(emit, "live_bytes", live_bytes);
	hl_emit_unsigned(emit, "live_blocks", live_blocks);
	hl_emit_object_end(emit);
	if (!heap->pin_count)
		hl_emit_line(emit, "%s", "no small live block pins much memory");
	else
		hl_emit_line(emit, "%s in small live blocks keep %s of pages in memory",
			     HL_HEAP_BYTES(live_bytes), HL_HEAP_BYTES(returned_bytes));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", pin_columns), .context = heap});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &heap->pins[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, heap->pin_count - shown, "-n");
	hl_heap_emit_notes(emit, heap);
	return hl_emit_finish(emit);
}

#define MAPPING_PERCENT 5 /* of RSS, to have a row */
#define MAPPING_ROWS	3 /* of one part */
#define MAPPING_TEXT	(HL_RSS_MAPPING_NAME_MAX + 2 * HL_FORMAT_MAX + 64)
#define WORTH_BYTES	(UINT64_C(1) << 20) /* of RSS, to be said */
#define OPEN_ROWS	10u		    /* files */

#define COMMAND_COLUMNS 60 /* that tables show; JSON has more of it */

/* ---- head ---- */

void hl_heap_emit_process(struct hl_emit *emit, const struct hl_process_facts *process,
			  const char *allocator)
{
	char command[512] = "", shortened[512];
	size_t used = 0;

	for (char **word = process->command; word && *word && used < sizeof(command); word++)
		used += (size_t)snprintf(command + used, sizeof(command) - used, "%s%s",
					 used ? " " : "", *word);
	hl_emit_about(emit, NULL, process->pid);
	hl_emit_object(emit, "process");
	hl_emit_text(emit, "command", command);
	hl_emit_integer(emit, "pid", process->pid);
	hl_emit_integer(emit, "threads", process->threads);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s (pid %d, %" PRIu32 " thread%s)%s%s",
		     hl_format_shortened(command, COMMAND_COLUMNS, shortened, sizeof(shortened)),
		     process->pid, process->threads, hl_format_plural(process->threads),
		     allocator[0] ? ", " : "", allocator);
}

void hl_heap_emit_head(struct hl_emit *emit, const struct hl_heap *heap)
{
	char took[HL_FORMAT_MAX], time[HL_FORMAT_MAX];

	hl_heap_emit_process(emit, &heap->process, heap->allocator);
	if (heap->from_core)
		hl_emit_about(emit, NULL, 0); /* it runs no more */
	hl_emit_untraceable(emit, heap->hides_functions);
	hl_emit_text(emit, "taken", hl_format_time(heap->taken_realtime_ns, time));
	hl_emit_text(emit, "allocator", heap->allocator);
	hl_emit_boolean(emit, "from_core", heap->from_core);
	hl_emit_boolean(emit, "stopped", heap->was_stopped);
	hl_emit_unsigned(emit, "walk_ns", heap->walk_ns);
	hl_emit_unsigned(emit, "chunks", heap->chunks);
	hl_emit_line(emit, "%s%sread in %s, %s", heap->chunks ? HL_HEAP_COUNT(heap->chunks) : "",
		     heap->chunks ? " chunks " : "", hl_format_duration(heap->walk_ns, took),
		     heap->from_core	 ? "from a core file"
		     : heap->was_stopped ? "while it was stopped"
					 : "while it ran");
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

static const struct hl_column part_columns[] = {
	{"part", "resident memory", HL_COLUMN_TEXT, HL_MEMBER(struct hl_rss_part, name),
	 HL_COLUMN_SHORTENED | HL_COLUMN_KEY},
	{"bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct hl_rss_part, bytes)},
	{NULL, "of RSS", HL_COLUMN_SHARE, HL_MEMBER(struct hl_rss_part, bytes)},
	{NULL, "", HL_COLUMN_BAR, HL_MEMBER(struct hl_rss_part, bytes), HL_COLUMN_OMITTED},
};

static void put_part(void *emit, const char *name, uint64_t bytes)
{
	hl_table_row(emit, &(struct hl_rss_part){name, bytes}, 0);
}

/* What an allocator that was not walked has beside the live blocks that are known. */
static const char *name_others(const struct hl_heap *heap)
{
	if (!heap->unwalked.allocator)
		return "other allocators";
	if (!heap->unwalked.has_recorder)
		return "the allocator's, live or free";
	return heap->unwalked.is_whole ? "the allocator's slack and free memory"
				       : "older blocks, slack and free memory";
}

/* The largest mappings of part ${name}, in text below its row. */
static void put_mappings(struct hl_emit *emit, const struct hl_heap_rss *rss, const char *name)
{
	char text[MAPPING_TEXT];
	unsigned rows = 0;

	for (size_t i = 0; i < rss->mapping_count; i++) {
		const struct hl_rss_mapping *mapping = &rss->mappings[i];
		if (strcmp(mapping->part, name) != 0 || rows == MAPPING_ROWS ||
		    mapping->bytes / MAPPING_PERCENT < rss->rss_bytes / 100)
			continue;
		size_t length =
			mapping->name[0]
				? (size_t)snprintf(text, sizeof(text), "  %s", mapping->name)
				: (size_t)snprintf(
					  text, sizeof(text), "  mapping of %s at 0x%" PRIx64,
					  HL_HEAP_BYTES(mapping->mapped_bytes), mapping->start);
		if (mapping->huge_bytes)
			snprintf(text + length, sizeof(text) - length, ", %s in huge pages",
				 HL_HEAP_BYTES(mapping->huge_bytes));
		put_part(emit, text, mapping->bytes);
		rows++;
	}
}

static const struct hl_column mapping_columns[] = {
	{"part", "part", HL_COLUMN_TEXT, HL_MEMBER(struct hl_rss_mapping, part)},
	{"name", "mapping", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_rss_mapping, name)},
	{"start", "start", HL_COLUMN_ADDRESS, HL_MEMBER(struct hl_rss_mapping, start)},
	{"mapped_bytes", "mapped", HL_COLUMN_BYTES, HL_MEMBER(struct hl_rss_mapping, mapped_bytes)},
	{"bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct hl_rss_mapping, bytes)},
	{"huge_bytes", "huge", HL_COLUMN_BYTES, HL_MEMBER(struct hl_rss_mapping, huge_bytes)},
};

static const struct hl_column beside_columns[] = {
	{"name", "not in RSS", HL_COLUMN_TEXT, HL_MEMBER(struct hl_rss_part, name),
	 HL_COLUMN_SHORTENED | HL_COLUMN_KEY},
	{"bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct hl_rss_part, bytes)},
};

static void put_open_files(struct hl_emit *emit, const struct hl_pod_files *open)
{
	size_t shown = hl_emit_shown(emit, HL_EMIT_ROWS_DEFAULT, OPEN_ROWS, open->count);
	char name[HL_POD_NAME_MAX], text[HL_POD_NAME_MAX + 32];
	uint64_t rest = 0;

	for (size_t i = 0; i < shown; i++) {
		hl_pod_files_name(&open->files[i], name);
		snprintf(text, sizeof(text), "%s, open, not mapped", name);
		put_part(emit, hl_emit_is_json(emit) ? name : text, open->files[i].bytes);
	}
	for (size_t i = shown; i < open->count; i++)
		rest += open->files[i].bytes;
	snprintf(text, sizeof(text), "%zu other files in memory, open, not mapped",
		 open->count - shown);
	if (rest)
		put_part(emit, text, rest);
}

/* What is charged for the process and is in no RSS. */
static void emit_not_in_rss(struct hl_emit *emit, const struct hl_heap_rss *rss)
{
	const struct hl_rss_beside *beside = &rss->beside;
	char pipes[96], swap[96] = "on swap";
	const struct hl_rss_part parts[] = {
		{pipes, beside->pipe_bytes},
		{swap, beside->swap_bytes},
		{"huge pages of hugetlbfs", beside->huge_page_bytes},
		{"page tables", beside->page_table_bytes},
		{"kernel stacks (16 KiB a thread)", beside->kernel_stack_bytes}};

	bool is_any = beside->open_file_bytes;
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		is_any |= parts[i].bytes != 0;
	if (!hl_emit_is_json(emit) && !is_any)
		return;
	hl_emit_blank(emit);
	snprintf(pipes, sizeof(pipes), "in %" PRIu64 " pipe%s, which may hold %s", beside->pipes,
		 hl_format_plural(beside->pipes), HL_HEAP_BYTES(beside->pipe_capacity_bytes));
	if (beside->swap_pss_bytes < beside->swap_bytes)
		snprintf(swap, sizeof(swap),
			 "on swap, of which it has %s if shared pages are divided",
			 HL_HEAP_BYTES(beside->swap_pss_bytes));
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("open_files", beside_columns)});
	put_open_files(emit, &rss->open);
	for (size_t i = 0; i < HL_COUNT_OF(parts) && !hl_emit_is_json(emit); i++)
		if (parts[i].bytes)
			hl_table_row(emit, &parts[i], 0);
	hl_table_end(emit);
}

/* What lies beside RSS, and what cuts across its parts. */
static void emit_beside(struct hl_emit *emit, const struct hl_heap_rss *rss)
{
	const struct hl_rss_beside *beside = &rss->beside;
	const struct {
		const char *key, *format; /* NULL: it has a row */
		uint64_t number;
	} facts[] = {
		{"swap_bytes", NULL, beside->swap_bytes},
		{"swap_pss_bytes", NULL, beside->swap_pss_bytes},
		{"huge_page_bytes", NULL, beside->huge_page_bytes},
		{"page_table_bytes", NULL, beside->page_table_bytes},
		{"kernel_stack_bytes", NULL, beside->kernel_stack_bytes},
		{"open_file_bytes", NULL, beside->open_file_bytes},
		{"pipe_bytes", NULL, beside->pipe_bytes},
		{"pipe_capacity_bytes", NULL, beside->pipe_capacity_bytes},
		{"pipes", NULL, beside->pipes},
		{"unread_pipes", NULL, beside->unread_pipes},
		{"transparent_bytes", "%s in transparent huge pages", beside->transparent_bytes},
		{"lazy_free_bytes", "%s that the program gave back by MADV_FREE",
		 beside->lazy_free_bytes},
		{"shared_bytes", "%s that are mapped more than once, here or by other processes",
		 beside->shared_bytes},
		{"pss_bytes", "%s if each page is divided among those that map it (Pss)",
		 beside->pss_bytes},
	};
	char text[512] = "";
	size_t length = 0;

	hl_emit_object(emit, "beside");
	for (size_t i = 0; i < HL_COUNT_OF(facts); i++) {
		hl_emit_unsigned(emit, facts[i].key, facts[i].number);
		/* Most of what small programs share are pages of libraries. */
		bool is_shared = facts[i].number == beside->shared_bytes ||
				 facts[i].number == beside->pss_bytes;
		if (!facts[i].format || facts[i].number < WORTH_BYTES ||
		    (is_shared && beside->shared_bytes <= rss->file_bytes))
			continue;
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s",
					   length ? ", " : "");
		length += (size_t)snprintf(text + length, sizeof(text) - length, facts[i].format,
					   HL_HEAP_BYTES(facts[i].number));
	}
	hl_emit_object_end(emit);
	if (text[0])
		hl_emit_line(emit, "of RSS: %s", text);
	emit_not_in_rss(emit, rss);
}

/* In text, live blocks are followed by their stacks, as far as these are of the walked heap. */
static int emit_rss(struct hl_emit *emit, const struct hl_heap *heap,
		    const struct heap_stacks *stacks)
{
	int r = 0;

	const struct hl_heap_rss *rss = &heap->rss;
	struct hl_rss_part parts[HL_RSS_PARTS];

	hl_rss_parts(rss, parts);
	if (!hl_emit_is_json(emit))
		parts[HL_RSS_OTHER_ALLOCATORS].name = name_others(heap);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("resident", part_columns),
						.sum = rss->rss_bytes});
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++) {
		if (parts[i].bytes || hl_emit_is_json(emit))
			hl_table_row(emit, &parts[i], 0);
		if (parts[i].bytes && !hl_emit_is_json(emit))
			put_mappings(emit, rss, parts[i].name);
		if (i == 0 && !hl_emit_is_json(emit))
			r = heap_stacks_each(stacks, put_part, emit);
	}
	for (size_t i = 0; i < HL_ANONYMOUS_COUNT; i++) {
		const struct hl_rss_part part = {hl_rss_anonymous_name(i), rss->anonymous[i]};
		if (part.name && (part.bytes || hl_emit_is_json(emit)))
			hl_table_row(emit, &part, 0);
		if (part.bytes && !hl_emit_is_json(emit))
			put_mappings(emit, rss, part.name);
	}
	if (!hl_emit_is_json(emit))
		hl_table_row(emit, &(struct hl_rss_part){"RSS", rss->rss_bytes}, 0);
	hl_table_end(emit);
	if (hl_emit_is_json(emit))
		hl_table_write(emit, &(struct hl_table){HL_TABLE("mappings", mapping_columns)},
			       rss->mappings, rss->mapping_count, sizeof(*rss->mappings));
	emit_beside(emit, rss);
	return r == 0 && hl_emit_is_json(emit) ? heap_stacks_emit(emit, stacks) : r;
}

/* ---- arenas ---- */

static void arena_number(struct hl_emit *emit, const void *arena, const void *heap)
{
	hl_cell_integer(emit, (const struct hl_heap_arena *)arena -
				      ((const struct hl_heap *)heap)->arenas);
}

#define MEMBER(name) HL_MEMBER(struct hl_heap_arena, name)
#define BLANK	     HL_COLUMN_BLANK_ZERO
#define OMITTED	     HL_COLUMN_OMITTED

static const struct hl_column arena_columns[] = {
	{"arena", "arena", HL_COLUMN_NUMBER, .cell = arena_number, .flags = HL_COLUMN_KEY},
	{"threads", "threads", HL_COLUMN_COUNT, MEMBER(threads), BLANK},
	{"carriers", "segments", HL_COLUMN_COUNT, MEMBER(carriers), OMITTED},
	{"system_bytes", "system", HL_COLUMN_BYTES, MEMBER(system_bytes)},
	{"inuse_bytes", "live", HL_COLUMN_BYTES, MEMBER(inuse_bytes)},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(inuse_blocks), OMITTED},
	{"tcache_bytes", "tcache", HL_COLUMN_BYTES, MEMBER(tcache_bytes), BLANK | OMITTED},
	{"fastbin_bytes", "fastbins", HL_COLUMN_BYTES, MEMBER(fastbin_bytes), BLANK | OMITTED},
	{"free_bytes", "free", HL_COLUMN_BYTES, MEMBER(free_bytes)},
	{"free_resident_bytes", "in memory", HL_COLUMN_BYTES, MEMBER(free_resident_bytes)},
	{"largest_free_bytes", "largest", HL_COLUMN_BYTES, MEMBER(largest_free_bytes), OMITTED},
	{"top_bytes", "top", HL_COLUMN_BYTES, MEMBER(top_bytes)},
	{"trimmable_bytes", "trimmable", HL_COLUMN_BYTES, MEMBER(trimmable_bytes)},
	{"unscanned_bytes", "unscanned", HL_COLUMN_BYTES, MEMBER(unscanned_bytes), BLANK | OMITTED},
	{"overhead_bytes", NULL, HL_COLUMN_BYTES, MEMBER(overhead_bytes)},
};

/* ---- all of it ---- */

/* In text, with the sum of arenas in their place where they are not wanted. */
static void emit_arenas(struct hl_emit *emit, const struct hl_heap *heap, bool with_arenas,
			uint64_t row_limit)
{
	size_t count = heap->arena_count;
	size_t shown = hl_emit_is_json(emit) ? count
		       : with_arenas	     ? hl_emit_shown(emit, row_limit, 0, count)
					     : 0;

	if (shown)
		hl_emit_blank(emit);
	if (shown || hl_emit_is_json(emit)) {
		hl_table_begin(
			emit, &(struct hl_table){HL_TABLE("rows", arena_columns), .context = heap});
		for (size_t i = 0; i < shown; i++)
			hl_table_row(emit, &heap->arenas[i], 0);
		hl_table_end(emit);
		hl_emit_more(emit, count - shown, "-n");
	}
	if (heap->mp_mmapped_blocks && (with_arenas || hl_emit_is_json(emit)))
		hl_emit_line(emit, "and %s in %s separately mapped block%s",
			     HL_HEAP_BYTES(heap->mp_mmapped_bytes),
			     HL_HEAP_COUNT(heap->mp_mmapped_blocks),
			     hl_format_plural(heap->mp_mmapped_blocks));
}

int hl_heap_view(const struct hl_heap *heap, const struct hl_resident *resident, bool with_arenas,
		 const struct hl_emit_options *options)
{
	HL_CLEANUP(heap_stacks_release) struct heap_stacks stacks = {0};
	struct hl_heap_figures figures;
	struct hl_emit *emit;

	int r = heap_stacks_init(&stacks, resident);
	if (r == 0)
		r = hl_emit_open(options, "heap/1", &emit);
	if (r < 0)
		return r;
	hl_heap_emit_head(emit, heap);
	hl_heap_figures_of(heap, &figures);
	hl_emit_object(emit, "total");
	for (size_t i = 0; i < HL_HEAP_FIGURE_COUNT; i++)
		hl_emit_unsigned(emit, hl_heap_figure_names[i], figures.numbers[i]);
	hl_emit_object_end(emit);
	hl_emit_unsigned(emit, "page_bytes", heap->page_bytes);
	hl_emit_unsigned(emit, "trim_threshold_bytes", heap->trim_threshold);
	hl_emit_unsigned(emit, "mmap_threshold_bytes", heap->mmap_threshold);
	hl_emit_object(emit, "lost");
	hl_emit_unsigned(emit, "unscanned_bytes", figures.numbers[HL_HEAP_UNSCANNED]);
	hl_emit_unsigned(emit, "rereads", heap->rereads);
	hl_emit_unsigned(emit, "abandoned", heap->abandoned);
	hl_emit_object_end(emit);
	if (!hl_emit_is_json(emit))
		hl_heap_verdict_emit(emit, heap);
	r = emit_rss(emit, heap, &stacks);
	emit_arenas(emit, heap, with_arenas, options->row_limit);
	for (size_t i = 0; i < heap->guest_count; i++)
		heap->guests[i].guest->heap.emit(emit, heap->guests[i].kept, options->row_limit);
	hl_heap_answers_emit(emit, heap, with_arenas);
	hl_heap_emit_notes(emit, heap);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

/* ---- what has changed between two snapshots of heaps ---- */

/* In the words of hl_heap_view(). JSON has the names of heap/heap.h. */
static const char *const words[HL_HEAP_FIGURE_COUNT] = {
	[HL_HEAP_RSS] = "RSS",
	[HL_HEAP_SYSTEM] = "malloc's arenas",
	[HL_HEAP_INUSE] = "in use in arenas",
	[HL_HEAP_INUSE_BLOCKS] = "blocks in use in arenas",
	[HL_HEAP_TCACHE] = "in thread caches",
	[HL_HEAP_FASTBIN] = "in fastbins",
	[HL_HEAP_FREE_BYTES] = "free",
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

#define DIFFERENCE(name) HL_MEMBER(struct change, name)
#define TEXT(name)	 HL_MEMBER_ARRAY(struct change, name)

/* In tables bytes are for people; JSON has them all as integers. */
static const struct hl_column diff_columns[] = {
	{"figure", NULL, HL_COLUMN_TEXT, DIFFERENCE(name)},
	{NULL, "figure", HL_COLUMN_TEXT, DIFFERENCE(words), HL_COLUMN_KEY},
	{"before", NULL, HL_COLUMN_COUNT, DIFFERENCE(before)},
	{"after", NULL, HL_COLUMN_COUNT, DIFFERENCE(after)},
	{"change", NULL, HL_COLUMN_COUNT, DIFFERENCE(change)},
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
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", diff_columns)});
	for (size_t i = 0; i < count; i++)
		hl_table_row(emit, &changes[i], 0);
	hl_table_end(emit);
	return hl_emit_finish(emit);
}
