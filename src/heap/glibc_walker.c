/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk from chunk to chunk; see glibc.h. */
#include "heap/glibc.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES	   (UINT64_C(1) << 20)
#define AHEAD_MIN	   (UINT64_C(32) << 20) /* smaller heaps are walked before a thread has started */
#define SMALL_WINDOW_BYTES (UINT64_C(64) << 10) /* when read again */
#define BATCH		   4096u
#define FAILURES_MAX	   3u
#define FASTBIN_MAX	   176u /* largest chunk in a fastbin that mallopt allows */
#define GUARD_BYTES	   16u

/* What ends a stretch of walking. */
enum step {
	STEP_ON,  /* at the next chunk */
	STEP_END, /* the run is over */
	STEP_INCONSISTENT,
	STEP_FAILED, /* walker->error says with what */
};

struct hl_glibc_walker {
	struct hl_memory *memory;
	const struct hl_glibc *glibc;
	struct hl_glibc_walker_settings settings;
	struct hl_glibc_walker_counts counts;
	struct hl_run run;
	struct hl_pages pages;
	uint64_t window_start, window_end, window_bytes;
	uint64_t *window;
	struct hl_ahead *ahead; /* NULL: heaps so far were small */
	struct hl_chunk *batch;
	size_t batch_count;
	uint64_t at;	  /* the header that is looked at next */
	uint64_t anchor;  /* what was reported ends here: a chunk begins */
	uint64_t pending; /* the chunk before ${at}, of which it is not known whether it is in use;
			     0: none */
	uint64_t pending_size;
	bool pending_keyed;
	uint32_t failures; /* since the anchor */
	struct hl_addresses fastbins, known;
	bool has_known;
	size_t fastbin, tcache; /* cursors */
	int error;
};

/* ---- the window: present pages in a row ---- */

/* Where pages in memory in a row end, from that of ${address} on, at ${wanted} at most. 0: it is not in memory. */
static uint64_t present_end(const struct hl_glibc_walker *walker, uint64_t address, uint64_t wanted)
{
	const struct hl_pages *pages = &walker->pages;
	size_t at = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= address);

	if (at == pages->count || pages->runs[at].start > address)
		return 0;
	while (at + 1 < pages->count && pages->runs[at].end < wanted &&
	       pages->runs[at].end == pages->runs[at + 1].start)
		at++;
	return pages->runs[at].end < wanted ? pages->runs[at].end : wanted;
}

/* Asks for what follows the window, in a large heap. It begins with the header that the window's end may cut. */
static void read_ahead(struct hl_glibc_walker *walker)
{
	uint64_t start = walker->window_end - HL_CHUNK_MIN;

	if (walker->window_bytes != WINDOW_BYTES || walker->run.end - walker->run.start < AHEAD_MIN)
		return;
	uint64_t end = present_end(walker, walker->window_end, start + WINDOW_BYTES);
	if (end && !walker->ahead && hl_worker_processors() > 1)
		hl_ahead_new(walker->memory, WINDOW_BYTES, &walker->ahead);
	if (end && walker->ahead)
		hl_ahead_ask(walker->ahead, start, end);
}

/* Moves the window to ${address}; -EFAULT when that page is not in memory. The window ends where a
 * page is missing. */
static int window_move(struct hl_glibc_walker *walker, uint64_t address)
{
	walker->window_end = 0;
	if (!walker->ahead ||
	    !hl_ahead_take(walker->ahead, address, &walker->window, &walker->window_start,
			   &walker->window_end) ||
	    address + HL_CHUNK_MIN > walker->window_end) {
		uint64_t end = present_end(walker, address, address + walker->window_bytes);
		walker->window_end = 0;
		if (!end)
			return -EFAULT;
		int r = hl_memory_read(walker->memory, address, walker->window, end - address);
		if (r < 0)
			return r;
		walker->window_start = address;
		walker->window_end = end;
	}
	read_ahead(walker);
	return 0;
}

static int scan_pages(struct hl_glibc_walker *walker)
{
	uint64_t page = walker->memory->page_bytes;

	walker->pages.count = 0;
	walker->pages.page_count = 0;
	walker->window_end = 0;
	hl_ahead_forget(walker->ahead);
	int r = hl_memory_scan(walker->memory, walker->run.own_start & ~(page - 1),
			       (walker->run.end + page - 1) & ~(page - 1), &walker->pages);
	if (r == 0 && walker->settings.pages)
		walker->settings.pages(walker->settings.context, &walker->pages);
	return r;
}

/* ---- reporting ---- */

/* Whether ${set} holds ${address}. Calls must come in rising order of address. */
static bool in_set(const struct hl_addresses *set, size_t *cursor, uint64_t address)
{
	while (*cursor < set->count && set->addresses[*cursor] < address)
		++*cursor;
	return *cursor < set->count && set->addresses[*cursor] == address;
}

/* Reports what is in the batch; ${anchor} is where it ends. */
static int flush(struct hl_glibc_walker *walker, uint64_t anchor)
{
	const struct hl_glibc_walker_settings *settings = &walker->settings;
	int r = 0;

	/* Finds the cached ones among blocks that their neighbours mark as used. */
	for (size_t i = 0; i < walker->batch_count; i++) {
		struct hl_chunk *chunk = &walker->batch[i];
		if (chunk->kind > HL_CHUNK_TCACHE)
			continue;
		if (chunk->size <= FASTBIN_MAX &&
		    in_set(&walker->fastbins, &walker->fastbin, chunk->address))
			chunk->kind = HL_CHUNK_FASTBIN;
		else if (settings->tcache_chunks &&
			 in_set(settings->tcache_chunks, &walker->tcache, chunk->address))
			chunk->kind = HL_CHUNK_TCACHE;
	}
	if (walker->batch_count && settings->chunks)
		r = settings->chunks(settings->context, walker->batch, walker->batch_count);
	walker->counts.chunks += walker->batch_count;
	walker->batch_count = 0;
	walker->anchor = anchor;
	walker->failures = 0;
	walker->window_bytes = WINDOW_BYTES;
	return r;
}

static void put(struct hl_glibc_walker *walker, uint64_t address, uint64_t size, uint64_t last_word,
		enum hl_chunk_kind kind)
{
	walker->batch[walker->batch_count++] = (struct hl_chunk){address, size, last_word, kind};
}

/* ---- walking ---- */

static enum step fail(struct hl_glibc_walker *walker, int error)
{
	if (error == -EFAULT || error == -EIO)
		return STEP_INCONSISTENT;
	walker->error = error;
	return STEP_FAILED;
}

/* Reports the pending chunk: the header after it, of words ${before} and ${head}, says whether it
 * is in use. False when the two are inconsistent. */
static bool resolve(struct hl_glibc_walker *walker, uint64_t before, uint64_t head)
{
	bool in_use = head & HL_CHUNK_IN_USE_BEFORE;

	if (!walker->pending)
		return true;
	if (HL_UNLIKELY(!in_use && before != walker->pending_size))
		return false;
	put(walker, walker->pending, walker->pending_size, before,
	    !in_use		    ? HL_CHUNK_FREE
	    : walker->pending_keyed ? HL_CHUNK_TCACHE
				    : HL_CHUNK_LIVE);
	walker->pending = 0;
	return true;
}

/* Ends the run at ${walker->at}, where guards or the top begin. */
static enum step finish(struct hl_glibc_walker *walker, uint64_t size, enum hl_chunk_kind kind)
{
	put(walker, walker->at, size, 0, kind);
	walker->at += size;
	int r = flush(walker, walker->at);
	if (r == 0)
		return STEP_END;
	walker->error = r;
	return STEP_FAILED;
}

/* Handles a header whose size is not a chunk's: guards end the run, all else is inconsistent.
 * main_arena's guards are two headers of size 16; those of other heaps are one of size 16 and one
 * of size 0, or the latter alone. */
static enum step finish_at_guard(struct hl_glibc_walker *walker, uint64_t head)
{
	const struct hl_run *run = &walker->run;
	uint8_t second[16] = {0};
	uint64_t size = head & ~HL_CHUNK_FLAGS;

	if ((size && size != GUARD_BYTES) || head & HL_CHUNK_MMAPPED)
		return STEP_INCONSISTENT;
	if (size == 0)
		return run->is_main ? STEP_INCONSISTENT : finish(walker, GUARD_BYTES, HL_CHUNK_OWN);
	int r = hl_memory_read(walker->memory, walker->at + GUARD_BYTES, second, sizeof(second));
	if (r < 0)
		return fail(walker, r);
	uint64_t expected = run->is_main ? GUARD_BYTES : 0, guards = 2 * GUARD_BYTES;
	if ((hl_glibc_word(second + 8) & ~HL_CHUNK_FLAGS) != expected)
		return STEP_INCONSISTENT;
	if (run->is_main && (walker->at + guards) % walker->memory->page_bytes)
		guards += GUARD_BYTES; /* the old top was too small to be a chunk */
	return walker->at + guards > run->end ? STEP_INCONSISTENT
					      : finish(walker, guards, HL_CHUNK_OWN);
}

/* Looks at the header at ${walker->at} and goes on to the next. */
static enum step step_on(struct hl_glibc_walker *walker)
{
	uint64_t at = walker->at;
	int r;

	if (HL_UNLIKELY(at < walker->window_start || at + HL_CHUNK_MIN > walker->window_end) &&
	    (r = window_move(walker, at)) < 0)
		return fail(walker, r);
	const uint8_t *header = (const uint8_t *)walker->window + (at - walker->window_start);
	uint64_t head = hl_glibc_word(header + 8), size = head & ~HL_CHUNK_FLAGS;
	if (HL_UNLIKELY(!resolve(walker, hl_glibc_word(header), head)))
		return STEP_INCONSISTENT;
	if (HL_UNLIKELY(walker->batch_count >= BATCH) && (r = flush(walker, at)) != 0) {
		walker->error = r;
		return STEP_FAILED;
	}
	if (HL_UNLIKELY(size < HL_CHUNK_MIN || size & 8 || head & HL_CHUNK_MMAPPED))
		return finish_at_guard(walker, head);
	if (HL_UNLIKELY(size >= walker->run.end - at))
		return size == walker->run.end - at && walker->run.top
			       ? finish(walker, size, HL_CHUNK_TOP)
			       : STEP_INCONSISTENT;
	walker->pending = at;
	walker->pending_size = size;
	walker->pending_keyed = at + HL_CHUNK_MIN <= walker->window_end &&
				hl_glibc_word(header + 24) == walker->settings.tcache_key &&
				walker->settings.tcache_key &&
				size <= walker->settings.tcache_max_bytes + HL_CHUNK_HEADER;
	walker->at = at + size;
	return STEP_ON;
}

/* ---- what to do about inconsistency ---- */

/* Reads the top again. True when it has moved, which changes the end of the run. */
static bool look_for_top(struct hl_glibc_walker *walker)
{
	struct hl_glibc_arena arena;
	uint64_t old_end = walker->run.end;

	if (!walker->run.top ||
	    hl_glibc_state_arena(walker->memory, walker->glibc, walker->run.arena, &arena) < 0)
		return false;
	uint64_t end = arena.top + arena.top_bytes;
	if (arena.top < walker->run.start || end < arena.top || end <= walker->anchor ||
	    end > walker->run.limit)
		return false;
	walker->run.top = arena.top;
	walker->run.end = end;
	return end != old_end;
}

/* Whether the page at ${address} came into memory since the run was scanned. */
static bool came_to_memory(struct hl_glibc_walker *walker, uint64_t address)
{
	uint64_t page = walker->memory->page_bytes, start = address & ~(page - 1);
	struct hl_pages pages = {0};
	bool is_present = !hl_pages_contain(&walker->pages, address) &&
			  hl_memory_scan(walker->memory, start, start + page, &pages) == 0 &&
			  pages.count;

	hl_pages_release(&pages);
	return is_present;
}

static int read_again(struct hl_glibc_walker *walker)
{
	bool is_stale = look_for_top(walker) || came_to_memory(walker, walker->at);

	walker->counts.rereads++;
	/* the first entry may be the allocator's own */
	walker->batch_count =
		walker->anchor == walker->run.start && walker->run.own_start < walker->anchor;
	walker->pending = 0;
	walker->at = walker->anchor;
	walker->window_end = 0;
	hl_ahead_forget(walker->ahead);
	walker->window_bytes = SMALL_WINDOW_BYTES;
	return is_stale ? scan_pages(walker) : 0;
}

/* Reports the consistent chunks, and as unscanned all from there to the next known chunk: one in a
 * fastbin or a bin, or the top. */
static int give_up(struct hl_glibc_walker *walker)
{
	uint64_t from = walker->pending ? walker->pending : walker->at;
	struct hl_addresses *known = &walker->known;
	struct hl_glibc_arena arena;
	int r;

	if (!walker->has_known &&
	    hl_glibc_state_arena(walker->memory, walker->glibc, walker->run.arena, &arena) == 0 &&
	    ((r = hl_glibc_state_fastbins(walker->memory, walker->glibc, &arena, known)) < 0 ||
	     (r = hl_glibc_state_bins(walker->memory, walker->glibc, &arena, known)) < 0))
		return r;
	walker->has_known = true;
	size_t i = hl_addresses_at(known, from + HL_CHUNK_MIN);
	uint64_t next = i < known->count ? known->addresses[i] : UINT64_MAX;
	if (walker->run.top > from && walker->run.top < next)
		next = walker->run.top;
	next = next < walker->run.end ? next : walker->run.end;
	walker->counts.abandoned++;
	if (!walker->counts.first_abandoned)
		walker->counts.first_abandoned = from;
	put(walker, from, next - from, 0, HL_CHUNK_UNSCANNED);
	walker->pending = 0;
	walker->at = next;
	r = flush(walker, next);
	walker->window_bytes = SMALL_WINDOW_BYTES; /* more damage is likely nearby */
	return r;
}

int hl_glibc_walker_run(struct hl_glibc_walker *walker, const struct hl_run *run, uint64_t *ret_end)
{
	struct hl_glibc_arena arena;

	walker->run = *run;
	walker->at = walker->anchor = run->start;
	walker->pending = 0;
	walker->batch_count = 0;
	walker->failures = 0;
	walker->error = 0;
	walker->window_bytes = WINDOW_BYTES;
	walker->has_known = false;
	walker->known.count = 0;
	walker->fastbins.count = 0;
	walker->fastbin = 0;
	walker->tcache = 0;
	int r = hl_glibc_state_arena(walker->memory, walker->glibc, run->arena, &arena);
	if (r == 0)
		r = hl_glibc_state_fastbins(walker->memory, walker->glibc, &arena,
					    &walker->fastbins);
	if (r == 0)
		r = scan_pages(walker);
	if (run->own_start < run->start)
		put(walker, run->own_start, run->start - run->own_start, 0, HL_CHUNK_OWN);
	while (r == 0 && walker->anchor < walker->run.end) {
		enum step step;
		while ((step = step_on(walker)) == STEP_ON)
			;
		if (step == STEP_FAILED)
			return walker->error;
		if (step == STEP_END)
			break;
		if (walker->settings.is_strict)
			return -EBADMSG;
		r = ++walker->failures < FAILURES_MAX ? read_again(walker) : give_up(walker);
	}
	if (r == 0)
		*ret_end = walker->anchor;
	return r;
}

int hl_glibc_walker_new(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_walker_settings *settings,
			struct hl_glibc_walker **ret_walker)
{
	struct hl_glibc_walker *walker = calloc(1, sizeof(*walker));

	if (!walker)
		return -ENOMEM;
	walker->memory = memory;
	walker->glibc = glibc;
	walker->settings = *settings;
	walker->window = malloc(WINDOW_BYTES);
	walker->batch = calloc(BATCH + 1, sizeof(*walker->batch)); /* and the top or a guard */
	if (!walker->window || !walker->batch) {
		hl_glibc_walker_free(walker);
		return -ENOMEM;
	}
	*ret_walker = walker;
	return 0;
}

const struct hl_glibc_walker_counts *hl_glibc_walker_counts(const struct hl_glibc_walker *walker)
{
	return &walker->counts;
}

void hl_glibc_walker_free(struct hl_glibc_walker *walker)
{
	if (!walker)
		return;
	hl_pages_release(&walker->pages);
	hl_addresses_release(&walker->fastbins);
	hl_addresses_release(&walker->known);
	hl_ahead_free(walker->ahead);
	free(walker->window);
	free(walker->batch);
	free(walker);
}
