/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The questions that people ask of a heap, answered in words where the numbers decide them, each
 * with the next command. Each answer stands on figures of the same report; thresholds are named, so
 * that one can disagree.
 */
#include "view/heap.h"

#include "view/format.h"
#include "view/heap_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define MUCH_PERCENT   15 /* a part that is worth a word */
#define NEARLY_PERCENT 85 /* nearly all */

/* With so few arenas there is nothing to share: one for the main thread, one for the others. */
#define ARENAS_FEW 2

#define ANSWER_MAX 1024

/* What all answers are made of. */
struct figures {
	const struct hl_heap *heap;
	struct hl_heap_arena total;
	uint64_t heap_bytes;   /* resident, of the allocator */
	uint64_t pinned_bytes; /* free but in memory, and malloc_trim returns it not */
	char target[24];       /* "-p 4711" */
	char text[ANSWER_MAX];
	size_t length;
};

static bool is_percent(uint64_t part, uint64_t whole, unsigned percent)
{
	return whole && part / percent >= whole / 100 && part;
}

static bool is_most(uint64_t part, uint64_t whole)
{
	return part > whole / 2;
}

static const char *bytes(uint64_t number, char buffer[HL_FORMAT_MAX])
{
	return hl_format_bytes(hl_heap_number(number), buffer);
}

/* Appends to the answer. */
HL_PRINTF(2, 3) static void say(struct figures *of, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int length =
		vsnprintf(of->text + of->length, sizeof(of->text) - of->length, format, arguments);
	va_end(arguments);
	of->length += length > 0 ? (size_t)length : 0;
	if (of->length >= sizeof(of->text))
		of->length = sizeof(of->text) - 1;
}

static void say_who_allocates(struct figures *of)
{
	if (of->heap->from_core)
		say(of, "a recording of the program ('heapline record') shows who allocates");
	else if (of->heap->rss.recorder_bytes)
		say(of, "'heapline allocations %s' shows who allocated it", of->target);
	else if (of->heap->is_stripped)
		say(of, "'heapline pgfault %s 60' shows what makes it grow", of->target);
	else
		say(of, "'heapline stacks %s 60' shows who allocates and keeps it", of->target);
}

static void say_who_maps(struct figures *of)
{
	if (!of->heap->from_core)
		say(of, "; 'heapline pgfault %s 60' shows the code that makes it grow", of->target);
}

/* ---- 1: leak, retention or fragmentation? ---- */

/* The largest part of RSS that is not malloc's. */
static const char *largest_outside(const struct hl_heap_rss *rss, uint64_t *ret_bytes)
{
	const char *name = "other allocators";
	uint64_t most = rss->other_allocator_bytes;
	const struct {
		const char *name;
		uint64_t bytes;
	} parts[] = {
		{"heapline's recorder", rss->recorder_bytes},
		{"stacks", rss->stack_bytes},
		{"files", rss->file_bytes},
		{"shared memory", rss->shared_bytes},
	};

	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		if (parts[i].bytes > most) {
			most = parts[i].bytes;
			name = parts[i].name;
		}
	for (size_t i = 0; i < HL_ANONYMOUS_COUNT; i++)
		if (rss->anonymous[i] > most) {
			most = rss->anonymous[i];
			name = hl_rss_anonymous_names[i];
		}
	*ret_bytes = most;
	return name;
}

static void say_it_is_outside(struct figures *of)
{
	char rss[HL_FORMAT_MAX], heap[HL_FORMAT_MAX], part[HL_FORMAT_MAX];
	uint64_t part_bytes;
	const char *name = largest_outside(&of->heap->rss, &part_bytes);

	say(of, "not in malloc's heap, which has %s of %s: %s is %s", bytes(of->heap_bytes, heap),
	    bytes(of->heap->rss.rss_bytes, rss), bytes(part_bytes, part), name);
	say_who_maps(of);
}

static const char *kind_of_waste(const struct figures *of)
{
	bool trims = is_percent(of->total.trimmable_bytes, of->heap_bytes, MUCH_PERCENT);
	bool pins = is_percent(of->pinned_bytes, of->heap_bytes, MUCH_PERCENT);

	if (trims && pins)
		return "retention and fragmentation";
	if (trims)
		return "retention";
	if (pins)
		return "fragmentation";
	if (is_percent(of->heap->rss.cached_bytes, of->heap_bytes, MUCH_PERCENT))
		return "retention in thread caches and fastbins, for the next requests";
	return "no part stands out";
}

static void say_parts(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	char all[HL_FORMAT_MAX], live[HL_FORMAT_MAX], cached[HL_FORMAT_MAX], none[HL_FORMAT_MAX],
		trimmed[HL_FORMAT_MAX], pinned[HL_FORMAT_MAX], rest[HL_FORMAT_MAX];

	say(of,
	    ": malloc has %s in memory: %s live, %s cached, %s its own, and %s free, of which %s "
	    "come back by malloc_trim(0) and %s are pinned by live blocks",
	    bytes(of->heap_bytes, all), bytes(rss->live_bytes, live),
	    bytes(rss->cached_bytes, cached),
	    bytes(rss->overhead_bytes + rss->unscanned_bytes, rest), bytes(rss->free_bytes, none),
	    bytes(rss->free_bytes - of->pinned_bytes, trimmed), bytes(of->pinned_bytes, pinned));
}

static const char *what_it_is(struct figures *of)
{
	char part[HL_FORMAT_MAX], all[HL_FORMAT_MAX];
	const struct hl_heap_rss *rss = &of->heap->rss;

	if (!is_most(of->heap_bytes, rss->rss_bytes)) {
		say_it_is_outside(of);
	} else if (is_percent(rss->unscanned_bytes, of->heap_bytes, MUCH_PERCENT)) {
		say(of, "unknown: %s could not be read%s", bytes(rss->unscanned_bytes, part),
		    of->heap->was_stopped ? "" : " while it changed; --stop reads all");
	} else if (is_percent(rss->live_bytes, of->heap_bytes, NEARLY_PERCENT)) {
		say(of,
		    "nearly all of it is live, %s of %s: if it grows, it is a leak or a cache; ",
		    bytes(rss->live_bytes, part), bytes(of->heap_bytes, all));
		say_who_allocates(of);
	} else {
		say(of, "%s", kind_of_waste(of));
		say_parts(of);
		if (is_most(rss->live_bytes, of->heap_bytes)) {
			say(of, "; most of it is live: ");
			say_who_allocates(of);
		}
	}
	return of->text;
}

/* ---- 2: why did RSS not fall? ---- */

static const char *why_it_stays(struct figures *of)
{
	char top[HL_FORMAT_MAX], threshold[HL_FORMAT_MAX];
	const struct hl_heap *heap = of->heap;

	if (!heap->arena_count)
		return NULL;
	say(of,
	    "free() keeps what is free between live blocks. It returns a separately mapped block "
	    "at "
	    "once, and the end of the heap, where %s are free now, only when a free() leaves more "
	    "than %s there",
	    bytes(heap->arenas[0].top_bytes, top), bytes(heap->trim_threshold, threshold));
	return of->text;
}

/* ---- 3: what would malloc_trim give back? ---- */

static const char *what_trim_returns(struct figures *of)
{
	char all[HL_FORMAT_MAX], most[HL_FORMAT_MAX], pages[HL_FORMAT_MAX];
	const struct hl_heap *heap = of->heap;
	uint64_t trimmable = of->total.trimmable_bytes;
	size_t best = 0;

	for (size_t i = 1; i < heap->arena_count; i++)
		if (heap->arenas[i].trimmable_bytes > heap->arenas[best].trimmable_bytes)
			best = i;
	if (!heap->arena_count || !heap->page_bytes)
		return NULL;
	if (!trimmable)
		return "nothing: it finds no page in memory that it could return";
	say(of, "%s in %s pages", bytes(trimmable, all),
	    hl_format_count(hl_heap_number(trimmable / heap->page_bytes), pages));
	if (heap->arena_count > 1)
		say(of, ", %s, %s, from arena %zu",
		    is_most(heap->arenas[best].trimmable_bytes, trimmable) ? "most of it"
									   : "the largest part",
		    bytes(heap->arenas[best].trimmable_bytes, most), best);
	say(of, " (each arena is locked while it is trimmed); the program must call it");
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
		return "none: no small live block pins much memory";
	say(of,
	    "%s in small live blocks keep %s of pages in memory, in %s place%s: 'heapline pins %s'",
	    bytes(live_bytes, live), bytes(returned_bytes, returned),
	    hl_format_count(hl_heap_number(of->heap->pin_count), places),
	    hl_format_plural(of->heap->pin_count), of->target);
	return of->text;
}

/* ---- 5: arenas ---- */

static const char *how_arenas_are(struct figures *of)
{
	const struct hl_heap *heap = of->heap;
	char all[HL_FORMAT_MAX], share[HL_FORMAT_MAX], idle_bytes[HL_FORMAT_MAX];
	uint64_t idle = 0, free_in_idle = 0, free_bytes = 0, most = 0;

	for (size_t i = 0; i < heap->arena_count; i++) {
		const struct hl_heap_arena *arena = &heap->arenas[i];
		idle += !arena->threads;
		free_in_idle += arena->threads ? 0 : arena->free_resident_bytes;
		free_bytes += arena->free_resident_bytes;
		most = arena->free_resident_bytes > most ? arena->free_resident_bytes : most;
	}
	if (heap->arena_count < 2)
		return "no: there is one";
	bool too_many = heap->arena_count > ARENAS_FEW &&
			is_percent(free_bytes - most, heap->rss.rss_bytes, MUCH_PERCENT);
	say(of, "%s: %zu arenas have %s free in memory, %s of it outside the one with most",
	    too_many ? "yes" : "no", heap->arena_count, bytes(free_bytes, all),
	    bytes(free_bytes - most, share));
	if (idle)
		say(of, "; %" PRIu64 " without a thread, with %s free", idle,
		    bytes(free_in_idle, idle_bytes));
	else
		say(of, "; no arena is without a thread");
	if (heap->arena_max)
		say(of, "; the limit is %" PRIu32 " now", heap->arena_max);
	if (too_many)
		say(of, "; start the program with MALLOC_ARENA_MAX=2 in its environment, so that "
			"threads share what is free (they then wait for each other more often)");
	return of->text;
}

/* ---- 6, 7: caches, and the next request ---- */

static const char *what_caches_hold(struct figures *of)
{
	char tcache[HL_FORMAT_MAX], fastbins[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX];
	uint64_t count = of->total.tcache_blocks + of->total.fastbin_blocks;

	say(of, "%s in thread caches, %s in fastbins, in %s block%s",
	    bytes(of->total.tcache_bytes, tcache), bytes(of->total.fastbin_bytes, fastbins),
	    hl_format_count(hl_heap_number(count), blocks), hl_format_plural(count));
	return of->text;
}

static const char *what_fits(struct figures *of)
{
	char largest[HL_FORMAT_MAX], top[HL_FORMAT_MAX], threshold[HL_FORMAT_MAX];
	uint64_t top_bytes = 0;

	for (size_t i = 0; i < of->heap->arena_count; i++)
		if (of->heap->arenas[i].top_bytes > top_bytes)
			top_bytes = of->heap->arenas[i].top_bytes;
	say(of,
	    "only if no free block of its arena is large enough: the largest free block is %s, "
	    "the largest unused top of an arena is %s; a request of %s or more is mapped "
	    "separately",
	    bytes(of->total.largest_free_bytes, largest), bytes(top_bytes, top),
	    bytes(of->heap->mmap_threshold, threshold));
	return of->text;
}

/* ---- 8: what is not malloc's? ---- */

/* How those who own a runtime's objects see them. */
static void say_of_runtime(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;

	if (is_percent(rss->anonymous[HL_ANONYMOUS_PYTHON], rss->rss_bytes, MUCH_PERCENT))
		say(of, "; started with PYTHONMALLOC=malloc, Python takes each object from malloc, "
			"and 'heapline record' shows all");
	if (is_percent(rss->anonymous[HL_ANONYMOUS_JAVA], rss->rss_bytes, MUCH_PERCENT))
		say(of, "; 'jcmd %d GC.class_histogram' lists Java objects by class",
		    of->heap->process.pid);
	if (is_percent(rss->anonymous[HL_ANONYMOUS_V8], rss->rss_bytes, MUCH_PERCENT))
		say(of, "; V8's own heap snapshots list JavaScript objects");
}

static const char *what_else_there_is(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	uint64_t outside = rss->rss_bytes - of->heap_bytes, part_bytes;
	char all[HL_FORMAT_MAX], whole[HL_FORMAT_MAX], part[HL_FORMAT_MAX];
	const char *name = largest_outside(rss, &part_bytes);

	say(of, "%s of %s RSS; ", bytes(outside, all), bytes(rss->rss_bytes, whole));
	say(of, "%s, %s, is %s", is_most(part_bytes, outside) ? "most of it" : "the largest part",
	    bytes(part_bytes, part), name);
	if (is_percent(rss->anonymous[HL_ANONYMOUS_OTHER], rss->rss_bytes, MUCH_PERCENT))
		say(of, "; the largest mapping whose owner is unknown has %s, at 0x%" PRIx64,
		    bytes(rss->largest_bytes, part), rss->largest_start);
	if (is_percent(outside - rss->file_bytes, rss->rss_bytes, MUCH_PERCENT))
		say_who_maps(of);
	say_of_runtime(of);
	return of->text;
}

static const char *whether_it_grows(struct figures *of)
{
	if (of->heap->from_core)
		return NULL;
	say(of,
	    "'heapline heap %s --save before.json' now, '--save after.json' later, then 'heapline "
	    "heap --diff before.json after.json'",
	    of->target);
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
	{"what is not malloc's?", what_else_there_is},
	{"does it grow?", whether_it_grows},
};

/* The answer to question ${i}; NULL for none. */
static const char *answer(struct figures *of, size_t i)
{
	of->text[0] = '\0';
	of->length = 0;
	return questions[i].answer(of);
}

static void write_lines(struct hl_emit *emit, struct figures *of)
{
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++) {
		const char *text = answer(of, i);
		if (!text)
			continue;
		hl_emit_line(emit, "%s", questions[i].question);
		hl_emit_line(emit, "  %s", text);
	}
	hl_emit_blank(emit);
}

struct row {
	const char *question, *answer;
};

static const struct hl_column columns[] = {
	{"question", NULL, HL_COLUMN_TEXT, HL_MEMBER(struct row, question)},
	{"answer", NULL, HL_COLUMN_TEXT, HL_MEMBER(struct row, answer)},
};

static void write_rows(struct hl_emit *emit, struct figures *of)
{
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("answers", columns)});
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++) {
		const struct row row = {questions[i].question, answer(of, i)};
		if (row.answer)
			hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
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
	if (rss->free_bytes > of.total.trimmable_bytes)
		of.pinned_bytes = rss->free_bytes - of.total.trimmable_bytes;
	if (heap->from_core)
		snprintf(of.target, sizeof(of.target), "--core FILE");
	else
		snprintf(of.target, sizeof(of.target), "-p %d", heap->process.pid);
	hl_emit_blank(emit);
	if (hl_emit_is_json(emit))
		write_rows(emit, &of);
	else
		write_lines(emit, &of);
}
