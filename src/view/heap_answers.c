/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The questions that people ask of a heap, answered in words where the numbers decide them, each
 * with the next command. Each answer stands on figures of the same report; thresholds are named, so
 * that one can disagree.
 */
#include "allocators/traits.h"
#include "view/heap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define MUCH_PERCENT   15		   /* a part that is worth a word */
#define NEARLY_PERCENT 85		   /* nearly all */
#define LITTLE_BYTES   (UINT64_C(4) << 20) /* beside files, of which no part stands out */

/* With so few arenas there is nothing to share: one for the main thread, one for the others. */
#define ARENAS_FEW 2

#define ANSWER_MAX 1024

/* What all answers are made of. */
struct figures {
	const struct hl_heap *heap;
	struct hl_heap_arena total;
	uint64_t heap_bytes;   /* resident, of the allocator */
	uint64_t pinned_bytes; /* free but in memory, and ${purge} returns it not */
	char purge[96];	       /* what makes the allocator return free memory; "": nothing does */
	char purge_question[128];
	char target[24];  /* "-p 4711" */
	const char *kind; /* of the verdict, see docs/schema/heap.json; set by the first answer */
	const char *part; /* that is largest; NULL: none is named */
	uint64_t part_bytes;
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
		say(of, "%s%s%s'heapline allocations %s' shows who allocated it",
		    of->heap->has_services ? "'heapline services " : "",
		    of->heap->has_services ? of->target : "",
		    of->heap->has_services ? "' shows which service has it, and " : "", of->target);
	else if (of->heap->has_services)
		say(of,
		    "'heapline attach %s -d 60 -o FILE' records it, then 'heapline top --by "
		    "service "
		    "--value inuse FILE' shows which service has it",
		    of->target);
	else if (of->heap->has_scripts)
		say(of, "'heapline attach %s -d 60' records who allocates and keeps it",
		    of->target);
	else if (of->heap->hides_functions)
		say(of, "'heapline pgfault %s 60' shows what makes it grow", of->target);
	else
		say(of, "'heapline stacks %s 60' shows who allocates and keeps it", of->target);
}

/* Whether ${name} is of the pools of a guest, and 'attach' records what it cuts from them. */
static bool is_recorded(const char *name)
{
	for (size_t kind = HL_ANONYMOUS_GUESTS; kind < HL_ANONYMOUS_V8; kind++) {
		const struct hl_guest_pools *pools = hl_rss_pools(kind);
		if (pools && name == pools->name)
			return pools->recorded;
	}
	return false;
}

bool hl_heap_is_collected(const char *part)
{
	for (size_t kind = HL_ANONYMOUS_GUESTS; kind < HL_ANONYMOUS_V8; kind++) {
		const struct hl_guest_pools *pools = hl_rss_pools(kind);
		if (pools && !strcmp(part, pools->name))
			return !pools->recorded;
	}
	return !strcmp(part, hl_rss_anonymous_name(HL_ANONYMOUS_V8)) ||
	       !strcmp(part, hl_rss_anonymous_name(HL_ANONYMOUS_JAVA));
}

const char *hl_heap_profiles(const char *part)
{
	return strcmp(part, hl_rss_anonymous_name(HL_ANONYMOUS_GO)) == 0 ? HL_GO_PROFILES : NULL;
}

/* What lists the objects of a runtime whose heap ${name} is, by type. False: it is not a heap of those. */
static bool say_objects(struct figures *of, const char *name)
{
	for (size_t kind = HL_ANONYMOUS_GUESTS; kind < HL_ANONYMOUS_V8; kind++)
		if (name == hl_rss_anonymous_name(kind)) {
			say(of, "; 'heapline heap %s %s", of->target,
			    hl_rss_pools(kind)->listed_by);
			return true;
		}
	if (of->heap->from_core)
		return false;
	if (name == hl_rss_anonymous_name(HL_ANONYMOUS_JAVA))
		say(of, "; 'jcmd %d GC.class_histogram' lists Java objects by class",
		    of->heap->process.pid);
	else if (name == hl_rss_anonymous_name(HL_ANONYMOUS_V8))
		say(of, "; V8's own heap snapshots list JavaScript objects");
	else
		return false;
	return true;
}

static void say_advice(struct figures *of)
{
	const struct hl_guest_advice *advice = &of->heap->advice;

	if (advice->command[0])
		say(of, "; '%s' %s", advice->command, advice->what);
	else
		say(of, "; %s", advice->what);
}

/* How the code, or the objects, behind the largest part that is not malloc's are seen. */
static void say_who_maps(struct figures *of, const char *name, uint64_t bytes)
{
	const struct hl_heap_rss *rss = &of->heap->rss;

	if (of->heap->from_core)
		return;
	if (rss->beside.lazy_free_bytes > bytes / 2 &&
	    name == hl_rss_anonymous_name(HL_ANONYMOUS_OTHER))
		say(of,
		    "; %s of RSS were given back by madvise(MADV_FREE): the kernel takes such "
		    "pages when it needs memory",
		    HL_HEAP_BYTES(rss->beside.lazy_free_bytes));
	else if (rss->piece_bytes > bytes / 2 &&
		 (name == hl_rss_anonymous_name(HL_ANONYMOUS_OTHER) || is_recorded(name)))
		say(of,
		    "; pools have cut %s of pieces that are in use from such memory: 'heapline "
		    "allocations %s' shows who allocated them",
		    HL_HEAP_BYTES(rss->piece_bytes), of->target);
	else if (of->heap->advice.what && name == hl_rss_anonymous_name(HL_ANONYMOUS_OTHER))
		say_advice(of);
	else if (is_recorded(name) && !rss->recorder_bytes)
		say(of, "; 'heapline attach %s -d 60' records who allocates and keeps it",
		    of->target);
	else if (of->heap->own_memory[0] && !rss->recorder_bytes &&
		 name == hl_rss_anonymous_name(HL_ANONYMOUS_OTHER))
		say(of, "; 'heapline attach %s -d 60' records %s", of->target,
		    of->heap->own_memory);
	else if (!say_objects(of, name)) {
		say(of, "; 'heapline pgfault %s 60' shows the code that makes it grow", of->target);
		/* A note says it of a heap that is not walked. */
		if (hl_heap_profiles(name) && !of->heap->unwalked.allocator)
			say(of, "; %s", hl_heap_profiles(name));
	}
}

/* ---- 1: leak, retention or fragmentation? ---- */

/* The largest part of RSS that is not malloc's. Files are left out: the kernel takes their pages back when it needs memory.
 * So is heapline's recorder, which is not the program's; and, unless it is most of RSS, what was changed of files that are
 * mapped privately, which grows no further than these are long: an archive of classes, or what a loader has relocated. */
static const char *largest_outside(const struct figures *of, uint64_t *ret_bytes)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	const char *name = "other allocators";
	uint64_t most = of->heap->unwalked.allocator ? 0 : rss->other_allocator_bytes;

	if (rss->stack_bytes > most)
		most = rss->stack_bytes, name = "stacks";
	if (rss->shared_bytes > most)
		most = rss->shared_bytes, name = hl_rss_shared_name;
	for (size_t i = 0; i < HL_ANONYMOUS_COUNT; i++)
		if (rss->anonymous[i] > most &&
		    (i != HL_ANONYMOUS_FILE || is_most(rss->anonymous[i], rss->rss_bytes))) {
			most = rss->anonymous[i];
			name = hl_rss_anonymous_name(i);
		}
	*ret_bytes = most;
	return name;
}

static const char *kind_of_waste(struct figures *of)
{
	bool trims = is_percent(of->total.trimmable_bytes, of->heap_bytes, MUCH_PERCENT);
	bool pins = is_percent(of->pinned_bytes, of->heap_bytes, MUCH_PERCENT);

	if (trims && pins)
		return of->kind = "retention and fragmentation";
	if (trims)
		return of->kind = "retention";
	if (pins)
		return of->kind = "fragmentation";
	of->kind = "caches";
	if (is_percent(of->heap->rss.cached_bytes, of->heap_bytes, MUCH_PERCENT))
		return "retention in thread caches and fastbins, for the next requests";
	of->kind = "none";
	return "no part stands out";
}

/* For an allocator that cannot be walked, a recorder knows the live blocks; the free memory is unknown. */
static void say_unwalked(struct figures *of)
{
	const struct hl_heap_unwalked *unwalked = &of->heap->unwalked;
	uint64_t live_bytes = of->heap->rss.live_bytes;
	const char *name = unwalked->allocator, *all = HL_HEAP_BYTES(of->heap_bytes);

	of->kind = "unknown";
	if (!unwalked->has_recorder) {
		say(of,
		    "unknown: how much of the %s that %s has is live cannot be read from outside; ",
		    all, name);
		say_who_allocates(of);
		return;
	}
	const char *live = HL_HEAP_BYTES(live_bytes);
	if (!unwalked->is_whole && !is_percent(live_bytes, of->heap_bytes, NEARLY_PERCENT))
		say(of,
		    "unknown: of the %s that %s has, %s are live blocks that were allocated since "
		    "the recorder came, and older blocks are not told from free memory; ",
		    all, name, live);
	else if (is_percent(live_bytes, of->heap_bytes, NEARLY_PERCENT))
		say(of,
		    "nearly all of it is live, %s of %s: if it grows, it is a leak or a cache; ",
		    live, all);
	else
		say(of,
		    "retention or fragmentation: %s has %s in memory: %s live, and %s are slack, "
		    "cached or free; ",
		    name, all, live, HL_HEAP_BYTES(of->heap->rss.other_allocator_bytes));
	if (unwalked->is_whole || is_percent(live_bytes, of->heap_bytes, NEARLY_PERCENT))
		of->kind = is_percent(live_bytes, of->heap_bytes, NEARLY_PERCENT) ? "live" : "free";
	if (unwalked->can_be_asked)
		say(of, "'heapline carriers %s --ask' asks how full its slabs are; ", of->target);
	say(of, "'heapline allocations %s' shows who allocated what is live", of->target);
}

static uint64_t largest_of_heap(const struct hl_heap *heap)
{
	const struct hl_heap_rss *rss = &heap->rss;
	const uint64_t parts[] = {rss->live_bytes, rss->cached_bytes, rss->free_bytes,
				  rss->overhead_bytes + rss->unscanned_bytes,
				  heap->unwalked.allocator ? rss->other_allocator_bytes : 0};
	uint64_t most = 0;

	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		most = parts[i] > most ? parts[i] : most;
	return most;
}

/* How the ${all} bytes of a heap that is not live as a whole divide. */
static void say_waste(struct figures *of, const char *all, const char *live)
{
	const struct hl_heap_rss *rss = &of->heap->rss;

	say(of, "%s: malloc has %s in memory: %s live, %s cached, %s its own, and %s free, ",
	    kind_of_waste(of), all, live, HL_HEAP_BYTES(rss->cached_bytes),
	    HL_HEAP_BYTES(rss->overhead_bytes + rss->unscanned_bytes),
	    HL_HEAP_BYTES(rss->free_bytes));
	if (of->purge[0])
		say(of, "of which %s come back by %s and %s are pinned by live blocks",
		    HL_HEAP_BYTES(rss->free_bytes - of->pinned_bytes), of->purge,
		    HL_HEAP_BYTES(of->pinned_bytes));
	else
		say(of, "pinned by live blocks");
	if (is_most(rss->live_bytes, of->heap_bytes)) {
		say(of, "; most of it is live: ");
		say_who_allocates(of);
	}
}

static void say_outside(struct figures *of, const char *name, uint64_t bytes)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	const struct hl_guest_division *division =
		name == of->heap->pools.name ? &of->heap->pools.division : NULL;

	if (division && division->waste) {
		say(of, "%s outside of malloc's heap: %s has %s of %s: %s; %s", division->waste,
		    name, HL_HEAP_BYTES(bytes), HL_HEAP_BYTES(rss->rss_bytes), division->parts,
		    division->remedy);
		return;
	}
	say(of, "not in %s heap, which has %s of %s: %s, %s, is %sthe largest part",
	    of->heap->unwalked.allocator ? "the allocator's" : "malloc's",
	    HL_HEAP_BYTES(of->heap_bytes), HL_HEAP_BYTES(rss->rss_bytes), name,
	    HL_HEAP_BYTES(bytes), rss->file_bytes > bytes ? "but for files " : "");
	if (division)
		say(of, ": %s", division->parts);
	say_who_maps(of, name, bytes);
}

static const char *what_it_is(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	const char *all = HL_HEAP_BYTES(of->heap_bytes);
	const char *live = HL_HEAP_BYTES(rss->live_bytes);
	uint64_t part_bytes;
	const char *name = largest_outside(of, &part_bytes);

	if (is_percent(rss->file_bytes, rss->rss_bytes, NEARLY_PERCENT) &&
	    rss->rss_bytes - rss->file_bytes < LITTLE_BYTES) {
		of->kind = "files";
		say(of,
		    "no part stands out: %s of %s are pages of files, which the kernel takes back "
		    "when it needs memory",
		    HL_HEAP_BYTES(rss->file_bytes), HL_HEAP_BYTES(rss->rss_bytes));
	} else if (part_bytes > largest_of_heap(of->heap)) {
		of->kind = "outside";
		of->part = name;
		of->part_bytes = part_bytes;
		say_outside(of, name, part_bytes);
	} else if (of->heap->unwalked.allocator) {
		say_unwalked(of);
	} else if (is_percent(rss->unscanned_bytes, of->heap_bytes, MUCH_PERCENT)) {
		of->kind = "unknown";
		say(of, "unknown: %s could not be read%s", HL_HEAP_BYTES(rss->unscanned_bytes),
		    rss->beside.swap_bytes  ? "; pages on swap are not read"
		    : of->heap->was_stopped ? ""
					    : " while it changed; --stop reads all");
	} else if (is_percent(rss->live_bytes, of->heap_bytes, NEARLY_PERCENT)) {
		of->kind = "live";
		if (is_most(of->heap_bytes, rss->rss_bytes))
			say(of,
			    "nearly all of it is live, %s of %s: if it grows, it is a leak or a "
			    "cache; ",
			    live, all);
		else
			say(of,
			    "%slive blocks are the largest part, %s of %s: if they grow, it is a "
			    "leak or a cache; ",
			    rss->file_bytes > rss->live_bytes ? "but for files " : "", live,
			    HL_HEAP_BYTES(rss->rss_bytes));
		say_who_allocates(of);
	} else {
		say_waste(of, all, live);
	}
	return of->text;
}

/* ---- 2: why did RSS not fall? ---- */

static const char *why_it_stays(struct figures *of)
{
	const struct hl_heap *heap = of->heap;

	if (!heap->arena_count)
		return NULL;
	if (!heap->has_glibc && heap->walked)
		return heap->walked->stays;
	say(of,
	    "free() keeps what is free between live blocks. It returns a separately mapped block "
	    "at once, and the end of the heap, where %s are free now, only when a free() leaves "
	    "more than %s there",
	    HL_HEAP_BYTES(heap->arenas[0].top_bytes), HL_HEAP_BYTES(heap->trim_threshold));
	return of->text;
}

/* ---- 3: what would malloc_trim give back? ---- */

static const char *what_trim_returns(struct figures *of)
{
	const struct hl_heap *heap = of->heap;
	uint64_t trimmable = of->total.trimmable_bytes;
	size_t best = 0;

	for (size_t i = 1; i < heap->arena_count; i++)
		if (heap->arenas[i].trimmable_bytes > heap->arenas[best].trimmable_bytes)
			best = i;
	if (!of->purge[0] || !heap->page_bytes)
		return NULL;
	if (!trimmable)
		return "nothing: it finds no page in memory that it could return";
	say(of, "%s in %s pages", HL_HEAP_BYTES(trimmable),
	    HL_HEAP_COUNT(trimmable / heap->page_bytes));
	if (heap->arena_count > 1)
		say(of, ", %s, %s, from arena %zu",
		    is_most(heap->arenas[best].trimmable_bytes, trimmable) ? "most of it"
									   : "the largest part",
		    HL_HEAP_BYTES(heap->arenas[best].trimmable_bytes), best);
	say(of, "%s; the program must call it",
	    heap->walked ? "" : " (each arena is locked while it is trimmed)");
	return of->text;
}

/* ---- 4: which live blocks pin pages? ---- */

static const char *what_pins(struct figures *of)
{
	uint64_t returned_bytes = 0, live_bytes = 0;

	for (size_t i = 0; i < of->heap->pin_count; i++) {
		returned_bytes += of->heap->pins[i].returned_bytes;
		live_bytes += of->heap->pins[i].live_bytes;
	}
	if (!of->heap->pin_count)
		return "none: no small live block pins much memory";
	say(of,
	    "%s in small live blocks keep %s of pages in memory, in %s place%s: 'heapline pins %s'",
	    HL_HEAP_BYTES(live_bytes), HL_HEAP_BYTES(returned_bytes),
	    HL_HEAP_COUNT(of->heap->pin_count), hl_format_plural(of->heap->pin_count), of->target);
	return of->text;
}

/* ---- 5: arenas ---- */

static const char *how_arenas_are(struct figures *of)
{
	const struct hl_heap *heap = of->heap;
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
	    too_many ? "yes" : "no", heap->arena_count, HL_HEAP_BYTES(free_bytes),
	    HL_HEAP_BYTES(free_bytes - most));
	if (idle)
		say(of, "; %" PRIu64 " without a thread, with %s free", idle,
		    HL_HEAP_BYTES(free_in_idle));
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
	uint64_t count = of->total.tcache_blocks + of->total.fastbin_blocks;

	say(of, "%s in %scaches", HL_HEAP_BYTES(of->total.tcache_bytes),
	    of->heap->walked ? "" : "thread ");
	if (!of->heap->walked)
		say(of, ", %s in fastbins", HL_HEAP_BYTES(of->total.fastbin_bytes));
	say(of, ", in %s block%s", HL_HEAP_COUNT(count), hl_format_plural(count));
	return of->text;
}

static const char *what_fits(struct figures *of)
{
	uint64_t top_bytes = 0;

	for (size_t i = 0; i < of->heap->arena_count; i++)
		if (of->heap->arenas[i].top_bytes > top_bytes)
			top_bytes = of->heap->arenas[i].top_bytes;
	say(of,
	    "only if no free block of its arena is large enough: the largest free block is %s, "
	    "the largest unused top of an arena is %s; a request of %s or more is mapped "
	    "separately",
	    HL_HEAP_BYTES(of->total.largest_free_bytes), HL_HEAP_BYTES(top_bytes),
	    HL_HEAP_BYTES(of->heap->mmap_threshold));
	return of->text;
}

/* ---- 8: what is not malloc's? ---- */

static const char *what_else_there_is(struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;
	uint64_t outside = rss->rss_bytes - of->heap_bytes, part_bytes;
	const char *name = largest_outside(of, &part_bytes);

	say(of, "%s of %s RSS; ", HL_HEAP_BYTES(outside), HL_HEAP_BYTES(rss->rss_bytes));
	say(of, "%s, %s, is %s",
	    is_most(part_bytes, outside) ? "most of it"
	    : rss->recorder_bytes > part_bytes
		    ? "but for files and heapline's recorder the largest part"
		    : "but for files the largest part",
	    HL_HEAP_BYTES(part_bytes), name);
	if (is_percent(rss->anonymous[HL_ANONYMOUS_OTHER], rss->rss_bytes, MUCH_PERCENT))
		say(of, "; the largest mapping whose owner is unknown has %s, at 0x%" PRIx64,
		    HL_HEAP_BYTES(rss->largest_bytes), rss->largest_start);
	if (is_percent(outside - rss->file_bytes, rss->rss_bytes, MUCH_PERCENT) &&
	    part_bytes <= largest_of_heap(of->heap))
		say_who_maps(of, name, part_bytes);
	/* How those who own a runtime's objects see them. */
	for (size_t i = HL_ANONYMOUS_GUESTS; i <= HL_ANONYMOUS_JAVA; i++)
		if (is_percent(rss->anonymous[i], rss->rss_bytes, MUCH_PERCENT) &&
		    (hl_rss_anonymous_name(i) != name || of->heap->from_core ||
		     (is_recorded(name) && !rss->recorder_bytes)))
			say_objects(of, hl_rss_anonymous_name(i));
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

/* Where text shows an answer; JSON has them all. */
enum place {
	ON_TOP,
	BELOW,
	BELOW_IF_FREE, /* there is much free memory */
	WITH_ARENAS,
};

/* Of which heaps a question is asked. */
enum asked {
	OF_ALL,
	OF_WALKED, /* whose blocks are known */
	OF_GLIBC,
};

static const struct {
	const char *question;			   /* NULL: figures.purge_question */
	const char *(*answer)(struct figures *of); /* NULL: the numbers do not tell */
	enum place place;
	enum asked asked;
} questions[] = {
	{"leak, retention or fragmentation?", what_it_is, ON_TOP, OF_ALL},
	{"why does RSS not fall after free?", why_it_stays, BELOW_IF_FREE, OF_WALKED},
	{NULL, what_trim_returns, BELOW, OF_WALKED},
	{"which live blocks keep pages?", what_pins, BELOW, OF_WALKED},
	{"are there too many arenas?", how_arenas_are, BELOW, OF_GLIBC},
	{"how much is in thread caches?", what_caches_hold, WITH_ARENAS, OF_WALKED},
	{"will the next request make the heap grow?", what_fits, WITH_ARENAS, OF_GLIBC},
	{"what is not malloc's?", what_else_there_is, BELOW, OF_ALL},
	{"does it grow?", whether_it_grows, BELOW, OF_ALL},
};

static struct figures figures_of(const struct hl_heap *heap)
{
	const struct hl_heap_rss *rss = &heap->rss;
	struct figures of = {
		.heap = heap,
		.heap_bytes = rss->live_bytes + rss->cached_bytes + rss->free_bytes +
			      rss->overhead_bytes + rss->unscanned_bytes +
			      (heap->unwalked.allocator ? rss->other_allocator_bytes : 0),
	};

	const char *others = heap->walked ? heap->walked->purge : NULL;
	bool has_glibc = heap->has_glibc || !heap->walked;

	snprintf(of.purge, sizeof(of.purge), "%s%s%s", has_glibc ? "malloc_trim(0)" : "",
		 has_glibc && others ? " and " : "", others ? others : "");
	snprintf(of.purge_question, sizeof(of.purge_question), "what would %s give back?",
		 of.purge);
	hl_heap_total(heap, &of.total);
	if (rss->free_bytes > of.total.trimmable_bytes)
		of.pinned_bytes = rss->free_bytes - of.total.trimmable_bytes;
	if (heap->from_core)
		snprintf(of.target, sizeof(of.target), "--core FILE");
	else
		snprintf(of.target, sizeof(of.target), "-p %d", heap->process.pid);
	return of;
}

static const char *answer(struct figures *of, size_t i)
{
	const struct hl_heap *heap = of->heap;
	bool is_asked = questions[i].asked == OF_ALL ||
			(heap->arena_count &&
			 (questions[i].asked == OF_WALKED || heap->has_glibc || !heap->walked));

	of->text[0] = '\0';
	of->length = 0;
	return is_asked ? questions[i].answer(of) : NULL;
}

static const char *question(const struct figures *of, size_t i)
{
	return questions[i].question ? questions[i].question : of->purge_question;
}

void hl_heap_verdict_emit(struct hl_emit *emit, const struct hl_heap *heap)
{
	struct figures of = figures_of(heap);

	hl_emit_blank(emit);
	hl_emit_line(emit, "%s", question(&of, 0));
	hl_emit_line(emit, "  %s", answer(&of, 0));
}

/* The command that goes on: the first one that the first answer names for this process, without a file to be chosen. */
static void emit_named_next(struct hl_emit *emit, struct figures *of)
{
	char *command = strstr(of->text, "'heapline "), *file;

	if (command) {
		command++;
		command[strcspn(command, "'")] = '\0';
		if ((file = strstr(command, " -o FILE")))
			*file = '\0';
	}
	hl_emit_next(emit, command && strstr(command, of->target) ? command : NULL);
}

/* The first answer as figures, for programs. */
static void emit_verdict(struct hl_emit *emit, struct figures *of)
{
	const struct hl_heap_rss *rss = &of->heap->rss;

	answer(of, 0);
	hl_emit_object(emit, "verdict");
	hl_emit_text(emit, "kind", of->kind);
	hl_emit_text(emit, "part", of->part ? of->part : "");
	hl_emit_integer(emit, "part_bytes", hl_heap_number(of->part_bytes));
	hl_emit_integer(emit, "heap_bytes", hl_heap_number(of->heap_bytes));
	hl_emit_integer(emit, "returnable_bytes",
			hl_heap_number(rss->free_bytes - of->pinned_bytes));
	hl_emit_integer(emit, "pinned_bytes", hl_heap_number(of->pinned_bytes));
	hl_emit_text(emit, "purge", of->purge);
	hl_emit_object_end(emit);
	if (hl_emit_is_json(emit) && of->part == hl_rss_anonymous_name(HL_ANONYMOUS_OTHER) &&
	    of->heap->advice.command[0])
		hl_emit_next(emit, of->heap->advice.command);
	else if (hl_emit_is_json(emit) && of->heap->unwalked.allocator)
		emit_named_next(emit, of); /* not 'leaks' */
}

/* "no" is an answer to what is not worth a line. */
static bool is_no(const char *answer)
{
	return strncmp(answer, "no", 2) == 0 && answer[2] && strchr("nt:", answer[2]);
}

void hl_heap_answers_emit(struct hl_emit *emit, const struct hl_heap *heap, bool has_arenas)
{
	struct figures of = figures_of(heap);
	bool has_much_free = is_percent(heap->rss.free_bytes, heap->rss.rss_bytes, MUCH_PERCENT);
	char noes[256] = "";

	hl_emit_blank(emit);
	emit_verdict(emit, &of);
	hl_emit_array(emit, "answers");
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++) {
		const char *text = answer(&of, i);
		enum place place = questions[i].place;
		size_t length = strlen(noes);
		if (!text)
			continue;
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "question", question(&of, i));
		hl_emit_text(emit, "answer", text);
		hl_emit_object_end(emit);
		if (place == ON_TOP ||
		    (!has_arenas &&
		     (place == WITH_ARENAS || (place == BELOW_IF_FREE && !has_much_free))))
			continue;
		if (!has_arenas && is_no(text)) {
			snprintf(noes + length, sizeof(noes) - length, " %s", question(&of, i));
			continue;
		}
		hl_emit_line(emit, "%s", question(&of, i));
		hl_emit_line(emit, "  %s", text);
	}
	hl_emit_array_end(emit);
	if (noes[0]) {
		hl_emit_line(emit, "%s", noes + 1);
		hl_emit_line(emit, "  no; --arenas tells more");
	}
	hl_emit_blank(emit);
}
