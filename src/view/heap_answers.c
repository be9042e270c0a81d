/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The questions that people ask of a heap, answered in words where the numbers decide them. Each
 * answer stands on figures of the same report; thresholds are named, so that one can disagree.
 */
#include "view/heap.h"

#include "view/format.h"
#include "view/heap_words.h"

#include <inttypes.h>

/* A part that is worth a word. */
#define MUCH_PERCENT 15

/* The largest arena holds so many times the mean of the others: from here on they are uneven. */
#define UNEVEN_FACTOR 4

#define ANSWER_MAX 512

/* What all answers are made of. */
struct figures {
	const struct hl_heap *heap;
	struct hl_heap_arena total;
	uint64_t heap_bytes; /* resident, of the allocator */
	char text[ANSWER_MAX];
};

static bool is_percent(uint64_t part, uint64_t whole, unsigned percent)
{
	return whole && part / percent >= whole / 100 && part;
}

static const char *bytes(uint64_t number, char buffer[HL_FORMAT_MAX])
{
	return hl_format_bytes(hl_heap_number(number), buffer);
}

/* ---- 1: leak, retention or fragmentation? ---- */

static const char *what_it_is(struct figures *of)
{
	char live[HL_FORMAT_MAX], free_bytes[HL_FORMAT_MAX], cached[HL_FORMAT_MAX];
	const struct hl_heap_rss *rss = &of->heap->rss;
	const char *verdict;
	if (!is_percent(of->heap_bytes, rss->rss_bytes, MUCH_PERCENT))
		verdict = "none of them: most of RSS is not this allocator's";
	else if (is_percent(rss->unscanned_bytes, of->heap_bytes, MUCH_PERCENT))
		verdict = "it cannot be told: much could not be read while it moved; --stop reads "
			  "all";
	else if (is_percent(rss->live_bytes, of->heap_bytes, 100 - MUCH_PERCENT))
		verdict = "what is there is live: if it grows, it is a leak or a cache; see who "
			  "owns it with 'heapline allocations' or 'heapline stacks'";
	else if (is_percent(of->total.trimmable_bytes, of->heap_bytes, MUCH_PERCENT))
		verdict = "retention: much is free, and malloc_trim could give it back";
	else if (is_percent(rss->free_bytes, of->heap_bytes, MUCH_PERCENT))
		verdict = "fragmentation: much is free, but live blocks keep its pages; see "
			  "'heapline pins'";
	else if (is_percent(rss->cached_bytes, of->heap_bytes, MUCH_PERCENT))
		verdict =
			"retention: much lies in thread caches and fastbins, for the next requests "
			"of the same size";
	else
		verdict = "a bit of each";
	snprintf(of->text, sizeof(of->text), "%s (%s live, %s cached, %s free but in memory)",
		 verdict, bytes(rss->live_bytes, live), bytes(rss->cached_bytes, cached),
		 bytes(rss->free_bytes, free_bytes));
	return of->text;
}

/* ---- 2: why did RSS not fall? ---- */

static const char *why_it_stays(struct figures *of)
{
	char top[HL_FORMAT_MAX], threshold[HL_FORMAT_MAX], stays[HL_FORMAT_MAX],
		trimmed[HL_FORMAT_MAX];
	const struct hl_heap *heap = of->heap;
	if (!heap->arena_count)
		return NULL;
	snprintf(
		of->text, sizeof(of->text),
		"free() gives back mapped blocks, and of a heap only its end, when that has more "
		"than %s: the main heap's has %s; of %s that are free but in memory malloc_trim(0) "
		"would return %s",
		bytes(heap->trim_threshold, threshold), bytes(heap->arenas[0].top_bytes, top),
		bytes(of->total.free_resident_bytes, stays),
		bytes(of->total.trimmable_bytes, trimmed));
	return of->text;
}

/* ---- 3: what would malloc_trim give back? ---- */

static const char *what_trim_returns(struct figures *of)
{
	char all[HL_FORMAT_MAX], most[HL_FORMAT_MAX], pages[HL_FORMAT_MAX];
	const struct hl_heap *heap = of->heap;
	size_t best = 0;
	for (size_t i = 1; i < heap->arena_count; i++)
		if (heap->arenas[i].trimmable_bytes > heap->arenas[best].trimmable_bytes)
			best = i;
	if (!heap->arena_count || !heap->page_bytes)
		return NULL;
	if (!of->total.trimmable_bytes)
		return "nothing: it finds no page in memory that it could return";
	snprintf(of->text, sizeof(of->text),
		 "%s in %s pages, most of it, %s, from arena %zu; each arena is locked meanwhile",
		 bytes(of->total.trimmable_bytes, all),
		 hl_format_count(hl_heap_number(of->total.trimmable_bytes / heap->page_bytes),
				 pages),
		 bytes(heap->arenas[best].trimmable_bytes, most), best);
	return of->text;
}

/* ---- 4: which live blocks pin pages? ---- */

static const char *what_pins(struct figures *of)
{
	char returned[HL_FORMAT_MAX], live[HL_FORMAT_MAX], places[HL_FORMAT_MAX];
	uint64_t returned_bytes = 0, live_bytes = 0;
	for (size_t i = 0; i < of->heap->pin_count; i++) {
		returned_bytes += of->heap->pins[i].returned_bytes;
		live_bytes += of->heap->pins[i].live_bytes;
	}
	if (!of->heap->pin_count)
		return "none that keep much more than they are";
	snprintf(of->text, sizeof(of->text),
		 "%s in live blocks keep %s of pages in memory, in %s place%s; see 'heapline pins'",
		 bytes(live_bytes, live), bytes(returned_bytes, returned),
		 hl_format_count(hl_heap_number(of->heap->pin_count), places),
		 hl_format_plural(of->heap->pin_count));
	return of->text;
}

/* ---- 5: arenas ---- */

static const char *how_arenas_are(struct figures *of)
{
	const struct hl_heap *heap = of->heap;
	char idle_bytes[HL_FORMAT_MAX], largest[HL_FORMAT_MAX];
	uint64_t idle = 0, free_in_idle = 0, most = 0, sum = 0;
	for (size_t i = 0; i < heap->arena_count; i++) {
		const struct hl_heap_arena *arena = &heap->arenas[i];
		idle += !arena->threads;
		free_in_idle += arena->threads ? 0 : arena->free_resident_bytes;
		most = arena->system_bytes > most ? arena->system_bytes : most;
		sum += arena->system_bytes;
	}
	if (heap->arena_count < 2)
		return "one arena: MALLOC_ARENA_MAX would change nothing";
	bool uneven = most > (sum - most) / (heap->arena_count - 1) * UNEVEN_FACTOR;
	snprintf(of->text, sizeof(of->text),
		 "%zu arenas, filled %s (the largest has %s); %" PRIu64
		 " without a thread hold %s that is free%s",
		 heap->arena_count, uneven ? "unevenly" : "evenly", bytes(most, largest), idle,
		 bytes(free_in_idle, idle_bytes),
		 is_percent(free_in_idle, of->heap_bytes, MUCH_PERCENT)
			 ? "; a smaller MALLOC_ARENA_MAX would share it"
			 : "");
	return of->text;
}

/* ---- 6, 7: caches, and the next request ---- */

static const char *what_caches_hold(struct figures *of)
{
	char tcache[HL_FORMAT_MAX], fastbins[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX];
	snprintf(of->text, sizeof(of->text),
		 "%s in thread caches, %s in fastbins, %s blocks in all",
		 bytes(of->total.tcache_bytes, tcache), bytes(of->total.fastbin_bytes, fastbins),
		 hl_format_count(hl_heap_number(of->total.tcache_blocks + of->total.fastbin_blocks),
				 blocks));
	return of->text;
}

static const char *what_fits(struct figures *of)
{
	char largest[HL_FORMAT_MAX], top[HL_FORMAT_MAX], threshold[HL_FORMAT_MAX];
	uint64_t top_bytes = 0;
	for (size_t i = 0; i < of->heap->arena_count; i++)
		if (of->heap->arenas[i].top_bytes > top_bytes)
			top_bytes = of->heap->arenas[i].top_bytes;
	snprintf(of->text, sizeof(of->text),
		 "the largest free block has %s, the largest rest at an end %s; a request of %s or "
		 "more is mapped by itself",
		 bytes(of->total.largest_free_bytes, largest), bytes(top_bytes, top),
		 bytes(of->heap->mmap_threshold, threshold));
	return of->text;
}

/* ---- 8: why do the program's own counters differ from RSS? ---- */

static const char *what_else_there_is(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	char heap_text[HL_FORMAT_MAX], files[HL_FORMAT_MAX], stacks[HL_FORMAT_MAX],
		other[HL_FORMAT_MAX];
	snprintf(of->text, sizeof(of->text),
		 "of RSS the allocator has %s; %s are files, %s stacks, %s other memory",
		 bytes(of->heap_bytes, heap_text), bytes(rss->file_bytes, files),
		 bytes(rss->stack_bytes, stacks),
		 bytes(rss->anonymous_bytes + rss->shared_bytes + rss->other_allocator_bytes,
		       other));
	return of->text;
}

/* ---- all of them ---- */

static const struct {
	const char *question;
	const char *(*answer)(struct figures *of); /* NULL: the numbers do not tell */
} questions[] = {
	{"leak, retention or fragmentation?", what_it_is},
	{"why does RSS not fall after free?", why_it_stays},
	{"what would malloc_trim(0) give back?", what_trim_returns},
	{"which live blocks keep pages?", what_pins},
	{"are there too many arenas?", how_arenas_are},
	{"how much is in thread caches?", what_caches_hold},
	{"will the next request make the heap grow?", what_fits},
	{"why is RSS not what the program counts?", what_else_there_is},
};

static void write_lines(struct hl_emit *emit, struct figures *of)
{
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++) {
		const char *answer = questions[i].answer(of);
		if (answer)
			hl_emit_line(emit, "%s %s", questions[i].question, answer);
	}
	hl_emit_line(emit, "%s",
		     "who owns the memory? 'heapline allocations'; is it getting worse? "
		     "'heapline heap --save' now, '--diff' later");
	hl_emit_line(emit, "%s", "");
}

static void write_rows(struct hl_emit *emit, struct figures *of)
{
	static const struct hl_emit_column columns[] = {
		{"question", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"answer", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
	};
	hl_emit_rows(emit, "answers", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++) {
		const char *answer = questions[i].answer(of);
		if (!answer)
			continue;
		hl_emit_row(emit, 0);
		hl_emit_cell_text(emit, questions[i].question);
		hl_emit_cell_text(emit, answer);
	}
	hl_emit_rows_end(emit);
}

void hl_heap_emit_answers(struct hl_emit *emit, const struct hl_heap *heap)
{
	const struct hl_heap_rss *rss = &heap->rss;
	struct figures of = {
		.heap = heap,
		.heap_bytes = rss->live_bytes + rss->cached_bytes + rss->free_bytes +
			      rss->overhead_bytes + rss->unscanned_bytes,
	};
	hl_heap_total(heap, &of.total);
	hl_emit_line(emit, "%s", "");
	if (hl_emit_is_json(emit))
		write_rows(emit, &of);
	else
		write_lines(emit, &of);
}
