/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks the heap of gperftools' tcmalloc: its spans by the page map, its free blocks by their chains; see tcmalloc.h. */
#include "allocators/outside/readers.h"
#include "allocators/outside/tcmalloc.h"
#include "allocators/traits.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRIES	    8u
#define CHAIN_TRIES 32u
#define AHEAD_MAX   (256u << 10) /* bytes of spans that are read together */
#define GAP_MAX	    (32u << 10)	 /* of those that have no free block, between such that do */
#define AREA_BYTES \
	(128u << 10) /* descriptors of a kind lie together, and other kinds beside them */

static bool read_now(struct hl_tcmalloc_walker *walker, uint64_t address, void *bytes,
		     size_t length)
{
	return hl_tcmalloc_read(walker->tcmalloc, walker->memory, address, bytes, length);
}

/* ---- marks ---- */

static enum hl_slab_state mark_at(const struct hl_tcmalloc_walker *walker, uint64_t number)
{
	return walker->marks[number / 4] >> number % 4 * 2 & 3;
}

/* Returns what it was before. */
static enum hl_slab_state set_mark(struct hl_tcmalloc_walker *walker, uint64_t number,
				   enum hl_slab_state state)
{
	uint8_t *marks = &walker->marks[number / 4];
	uint32_t shift = number % 4 * 2, before = *marks;

	*marks = (uint8_t)((before & ~(3u << shift)) | (uint32_t)state << shift);
	return before >> shift & 3;
}

/* The number of the mark of the place of ${class} that begins at ${block}. False: there is none. */
static inline bool find_place(const struct hl_tcmalloc_walker *walker,
			      const struct hl_tcmalloc_span *span,
			      const struct hl_tcmalloc_class *class, uint64_t block,
			      uint64_t *ret_number)
{
	uint64_t offset = block - hl_tcmalloc_span_start(walker, span);
	uint64_t place = (offset & UINT32_MAX) * class->inverse >> 32;

	*ret_number = span->first_mark + place;
	return place * class->bytes == offset && place < span->places;
}

/* ---- free blocks in spans ---- */

/* Copies a span, and those after it up to the last that has free blocks as well. What is not in memory reads as zero. */
static int read_ahead(struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	const struct hl_tcmalloc_span *end = walker->spans + walker->span_count;
	const uint64_t mask = walker->memory->page_bytes - 1;
	struct hl_pages *pages = &walker->pages;
	uint64_t start = hl_tcmalloc_span_start(walker, span),
		 stop = hl_tcmalloc_span_end(walker, span);

	if (start >= walker->ahead_start && stop <= walker->ahead_end)
		return 0;
	for (uint64_t next = stop;
	     ++span < end && span->class && hl_tcmalloc_span_start(walker, span) == next &&
	     next - stop <= GAP_MAX && hl_tcmalloc_span_end(walker, span) - start <= AHEAD_MAX;) {
		next = hl_tcmalloc_span_end(walker, span);
		stop = span->objects ? next : stop;
	}
	walker->ahead_start = start;
	walker->ahead_end = stop;
	memset(walker->ahead, 0, stop - start);
	pages->count = pages->page_count = 0;
	int r = hl_memory_scan(walker->memory, start & ~mask, (stop + mask) & ~mask, pages);
	for (size_t i = 0; i < pages->count && r == 0; i++) {
		uint64_t from = pages->runs[i].start > start ? pages->runs[i].start : start;
		uint64_t to = pages->runs[i].end < stop ? pages->runs[i].end : stop;
		if (hl_memory_read(walker->memory, from, walker->ahead + (from - start),
				   to - from) < 0)
			memset(walker->ahead + (from - start), 0, to - from);
	}
	return r == -ENOMEM ? r : 0;
}

/* Marks the blocks in the span's own chain. Whether their number is what its descriptor says. */
static bool mark_free(struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	const struct hl_tcmalloc_class *class = hl_tcmalloc_span_class(walker, span);
	uint64_t block = span->objects, number;
	uint32_t count = 0;

	for (; block; count++) {
		if (!find_place(walker, span, class, block, &number) ||
		    set_mark(walker, number, HL_SLAB_FREE) == HL_SLAB_FREE)
			return false;
		block = hl_tcmalloc_word(walker->ahead + (block - walker->ahead_start));
	}
	return count == (uint32_t)(span->places - span->used);
}

static void clear_free(struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	for (uint64_t i = span->first_mark; i < span->first_mark + span->places; i++)
		if (mark_at(walker, i) == HL_SLAB_FREE)
			set_mark(walker, i, HL_SLAB_LIVE);
}

/* Reads the descriptor again. Whether it still is that of a span of the same length there, of the same class or free. */
static bool read_again(struct hl_tcmalloc_walker *walker, struct hl_tcmalloc_span *span)
{
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];
	struct hl_tcmalloc_span now;

	walker->slabs.heap->rereads++;
	walker->ahead_end = 0;
	if (!read_now(walker, span->descriptor, bytes, sizeof(bytes)) ||
	    !hl_tcmalloc_span_parse(walker, span->page, bytes, &now) || now.pages != span->pages ||
	    (now.class != span->class && now.location == HL_TCMALLOC_IN_USE))
		return false;
	now.descriptor = span->descriptor;
	now.first_mark = span->first_mark;
	now.next_of_class = span->next_of_class;
	*span = now;
	return true;
}

/* Marks the free places of a span, again where they do not fit together. */
static int read_span(struct hl_tcmalloc_walker *walker, struct hl_tcmalloc_span *span)
{
	int r = 0;

	for (unsigned i = 0; i < TRIES; i++) {
		r = span->objects ? read_ahead(walker, span) : 0;
		if (r < 0 || mark_free(walker, span))
			return r;
		clear_free(walker, span);
		if (!read_again(walker, span))
			break;
		if (!span->class)
			return 0; /* it has just become free */
	}
	span->is_odd = true;
	return r;
}

/* ---- chains of cached blocks ---- */

/* A mark of the chain that is being read. */
#define TAKEN ((enum hl_slab_state)3)

/* Whether blocks move while they are read. */
static bool is_running(const struct hl_tcmalloc_walker *walker)
{
	return walker->memory->pid && !walker->slabs.settings->stop;
}

/*
 * Marks the blocks of a chain as taken, and keeps the numbers of their marks. Nothing is trusted: each is a place of its class and
 * in no other chain, and a chain that leads back into itself is noticed at the latest when it has been read three times (Brent's
 * algorithm). A block may have been free in its span a moment ago.
 */
static int mark_chain(struct hl_tcmalloc_walker *walker, uint32_t number, uint64_t first,
		      uint64_t length, bool *ret_fits)
{
	const struct hl_tcmalloc_class *class = &walker->tcmalloc->classes[number];
	struct hl_addresses *chain = &walker->chain;
	uint64_t block = first, lap = 0, count = 0, mark;
	int r = 0;

	for (; block && block != lap && r == 0 && count < length;) {
		const struct hl_tcmalloc_span *span = hl_tcmalloc_span_find(walker, block);
		bool is_place = span && span->class == number &&
				find_place(walker, span, class, block, &mark);
		/* A span may have got its class since it was read. */
		if (!is_place && (!is_running(walker) || !span || block % 8))
			break;
		if (is_place && mark_at(walker, mark) == HL_SLAB_CACHED)
			break;
		if (is_place && set_mark(walker, mark, TAKEN) != TAKEN)
			r = HL_ARRAY_APPEND(chain->addresses, chain->count, chain->capacity, mark);
		if ((count & (count + 1)) == 0)
			lap = block;
		count++;
		if (r == 0)
			r = hl_tcmalloc_copy(&walker->blocks, block, &block, sizeof(block));
	}
	/* A thread that was stopped may stand between a block and the count. */
	*ret_fits = count == length || (!block && (is_running(walker) || count + 1 == length));
	return r;
}

/* What was taken is cached. ${fits}: the chain that is named at ${address} fits together. */
static void settle_chain(struct hl_tcmalloc_walker *walker, bool fits, uint64_t address)
{
	for (size_t i = 0; i < walker->chain.count; i++)
		set_mark(walker, walker->chain.addresses[i], HL_SLAB_CACHED);
	walker->chain.count = 0;
	if (!fits && !walker->bad_chains++)
		walker->first_bad_chain = address;
}

/* Reads the chain of a thread's cache, again where it does not fit together: its thread is at work, at the chain's beginning,
 * and what was taken before adds to the rest. */
static int read_list(struct hl_tcmalloc_walker *walker, uint32_t class, uint64_t address)
{
	uint8_t bytes[HL_TCMALLOC_LIST_BYTES];
	bool fits = false;
	int r = 0;

	for (unsigned i = 0; i < CHAIN_TRIES && !fits && r == 0; i++) {
		uint32_t length;
		if (i && !is_running(walker))
			break;
		if (i)
			hl_tcmalloc_copies_forget(&walker->blocks);
		r = hl_tcmalloc_copy(&walker->blocks, address, bytes, sizeof(bytes));
		memcpy(&length, bytes + HL_TCMALLOC_LIST_LENGTH, sizeof(length));
		if (r == 0)
			r = mark_chain(walker, class, hl_tcmalloc_word(bytes), length, &fits);
	}
	settle_chain(walker, fits, address);
	return r;
}

static int read_transfer_cache(struct hl_tcmalloc_walker *walker, uint32_t class)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	uint64_t central = tcmalloc->central + class * HL_TCMALLOC_CENTRAL_BYTES;
	uint8_t bytes[HL_TCMALLOC_CENTRAL_BYTES];
	uint32_t used;
	int r = 0;

	if (tcmalloc->central_bytes != HL_TCMALLOC_CENTRAL_BYTES ||
	    !read_now(walker, central, bytes, sizeof(bytes)))
		return 0;
	memcpy(&used, bytes + HL_TCMALLOC_CENTRAL_USED, sizeof(used));
	for (uint32_t i = 0; i < used && i < HL_TCMALLOC_CHAINS_MAX && r == 0; i++) {
		uint32_t at = HL_TCMALLOC_CENTRAL_CHAINS + 16 * i;
		bool fits = false;
		r = mark_chain(walker, class, hl_tcmalloc_word(bytes + at),
			       tcmalloc->classes[class].batch, &fits);
		settle_chain(walker, fits, central + at);
	}
	return r;
}

/* Reads the free blocks of spans again that have changed since: blocks have come to them from caches, which now have other
 * ones. */
static int read_changed(struct hl_tcmalloc_walker *walker, uint32_t class)
{
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];
	int r = 0;

	hl_tcmalloc_copies_forget(&walker->blocks);
	for (size_t i = walker->first_of[class]; i && r == 0;) {
		struct hl_tcmalloc_span *span = &walker->spans[i - 1], now;
		i = span->next_of_class;
		r = hl_tcmalloc_copy(&walker->blocks, span->descriptor, bytes, sizeof(bytes));
		if (r < 0 || span->is_odd || !span->class ||
		    (hl_tcmalloc_span_parse(walker, span->page, bytes, &now) &&
		     now.class == class && now.objects == span->objects && now.used == span->used))
			continue;
		if (!read_again(walker, span))
			continue; /* it has gone, and was what it was */
		clear_free(walker, span);
		r = span->class ? read_span(walker, span) : 0;
	}
	return r;
}

/* Marks what is not live, spans first, then class by class what caches hold: both exchange blocks all the time, and spans that have
 * changed are read again at about the moment of the caches. */
static int read_classes(struct hl_tcmalloc_walker *walker)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	int r = 0;

	/* By page, so that many are read together. */
	for (size_t i = 0; i < walker->span_count && r == 0; i++)
		if (walker->spans[i].class)
			r = read_span(walker, &walker->spans[i]);
	for (uint32_t class = 1; class < tcmalloc->class_count && r == 0; class ++) {
		hl_tcmalloc_copies_forget(&walker->blocks);
		for (size_t i = 0; i < walker->caches.count && r == 0; i++)
			r = read_list(walker, class,
				      walker->caches.addresses[i] + class * HL_TCMALLOC_LIST_BYTES);
		if (r == 0)
			r = read_transfer_cache(walker, class);
		if (r == 0 && is_running(walker))
			r = read_changed(walker, class);
	}
	return r;
}

/* ---- stretches ---- */

static int by_start(const void *left, const void *right)
{
	const struct hl_tcmalloc_stretch *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

static int list_spans(struct hl_tcmalloc_walker *walker)
{
	int r = 0;

	for (size_t i = 0, next; i < walker->span_count && r == 0; i = next) {
		uint64_t end = hl_tcmalloc_span_end(walker, &walker->spans[i]);
		for (next = i + 1; next < walker->span_count &&
				   hl_tcmalloc_span_start(walker, &walker->spans[next]) == end;
		     next++)
			end = hl_tcmalloc_span_end(walker, &walker->spans[next]);
		r = HL_ARRAY_APPEND(walker->stretches, walker->stretch_count,
				    walker->stretch_capacity,
				    (struct hl_tcmalloc_stretch){
					    hl_tcmalloc_span_start(walker, &walker->spans[i]), end,
					    i, next - i});
	}
	return r;
}

/* Appends the metadata around what is known, within its mapping and between spans: areas of kinds that nothing here names
 * lie beside those that are. */
static int list_metadata(struct hl_tcmalloc_walker *walker)
{
	const size_t spans = walker->stretch_count;
	int r = 0;

	hl_extents_sort(&walker->known);
	for (size_t i = 0; i < walker->known.count && r == 0; i++) {
		const struct hl_extent *known = &walker->known.extents[i];
		const struct hl_map *map = hl_maps_find(&walker->memory->maps, known->start);
		struct hl_tcmalloc_stretch *last = &walker->stretches[walker->stretch_count - 1];
		if (!map)
			continue;
		size_t next = HL_LOWER_BOUND(k, spans, walker->stretches[k].end <= known->start);
		uint64_t lower = next && walker->stretches[next - 1].end > map->start
					 ? walker->stretches[next - 1].end
					 : map->start;
		uint64_t upper = next < spans && walker->stretches[next].start < map->end
					 ? walker->stretches[next].start
					 : map->end;
		if (upper < known->end || lower > known->start)
			continue; /* damaged */
		uint64_t start = known->start - lower > 2 * AREA_BYTES
					 ? known->start - 2 * AREA_BYTES
					 : lower;
		uint64_t end =
			upper - known->end > 2 * AREA_BYTES ? known->end + 2 * AREA_BYTES : upper;
		if (walker->stretch_count > spans && start < last->end)
			start = last->end;
		if (walker->stretch_count > spans && start == last->end && end > start)
			last->end = end;
		else if (end > start)
			r = HL_ARRAY_APPEND(
				walker->stretches, walker->stretch_count, walker->stretch_capacity,
				(struct hl_tcmalloc_stretch){.start = start, .end = end});
	}
	return r;
}

/* ---- what is reported ---- */

static int report_small(struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	struct hl_slab_heap *slabs = &walker->slabs;
	uint64_t start = hl_tcmalloc_span_start(walker, span),
		 end = hl_tcmalloc_span_end(walker, span);
	uint32_t size = hl_tcmalloc_span_class(walker, span)->bytes;
	int r = 0;

	if (span->is_odd) {
		hl_slab_unscanned(slabs, start, end, 1, walker->arena);
		return 0;
	}
	hl_slab_begin(slabs, start, end, size, walker->arena);
	for (uint32_t i = 0; i < span->places && r == 0; i++)
		r = hl_slab_block(slabs, start + (uint64_t)i * size, size,
				  mark_at(walker, span->first_mark + i));
	return r == 0 ? hl_slab_end(slabs) : r;
}

/* The bytes that a program may use of a sampled block, which has a span even if it is small. */
static uint64_t sampled_bytes(struct hl_tcmalloc_walker *walker,
			      const struct hl_tcmalloc_span *span)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	uint64_t whole = (uint64_t)span->pages << tcmalloc->page_shift, asked = 0;

	if (!read_now(walker, span->objects, &asked, sizeof(asked)))
		return whole;
	for (uint32_t i = 1; i < tcmalloc->class_count; i++)
		if (asked <= tcmalloc->classes[i].bytes)
			return tcmalloc->classes[i].bytes < whole ? tcmalloc->classes[i].bytes
								  : whole;
	return whole;
}

static int report_large(struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	struct hl_slab_heap *slabs = &walker->slabs;
	uint64_t start = hl_tcmalloc_span_start(walker, span),
		 end = hl_tcmalloc_span_end(walker, span);
	uint64_t usable = span->is_sampled ? sampled_bytes(walker, span) : end - start;

	hl_slab_begin(slabs, start, end, end - start, walker->arena);
	int r = hl_slab_block(slabs, start, usable, HL_SLAB_LIVE);
	return r == 0 ? hl_slab_end(slabs) : r;
}

static int report_stretch(struct hl_tcmalloc_walker *walker,
			  const struct hl_tcmalloc_stretch *stretch)
{
	const struct hl_tcmalloc_span *span = walker->spans + stretch->first,
				      *end = span + stretch->count;
	int r = hl_slab_carrier_begin(&walker->slabs, stretch->count ? "spans" : "metadata",
				      stretch->start, stretch->end, walker->arena);

	for (; span < end && r == 0; span++) {
		if (span->location != HL_TCMALLOC_IN_USE)
			hl_slab_free_run(&walker->slabs, hl_tcmalloc_span_start(walker, span),
					 hl_tcmalloc_span_end(walker, span),
					 span->location == HL_TCMALLOC_NORMAL ? HL_SLAB_FREE_PURGED
									      : HL_SLAB_FREE_STAYS,
					 walker->arena);
		else if (span->class)
			r = report_small(walker, span);
		else
			r = report_large(walker, span);
	}
	return r == 0 ? hl_slab_carrier_end(&walker->slabs) : r;
}

/* ---- the whole ---- */

/* Of the copy of spans: of one at least. */
static size_t ahead_bytes(const struct hl_tcmalloc_walker *walker)
{
	size_t most = AHEAD_MAX;

	for (uint32_t i = 1; i < walker->tcmalloc->class_count; i++) {
		size_t bytes = (size_t)walker->tcmalloc->classes[i].pages
			       << walker->tcmalloc->page_shift;
		most = bytes > most ? bytes : most;
	}
	return most;
}

static int walk(struct hl_tcmalloc_walker *walker)
{
	int r = hl_tcmalloc_read_spans(walker);

	if (r == 0)
		r = hl_tcmalloc_read_caches(walker);
	if (r == 0)
		r = hl_slab_arena_add(&walker->slabs, walker->tcmalloc->page_heap, walker->threads,
				      &walker->arena);
	if (r < 0 || walker->slabs.settings->only_arenas || !walker->span_count)
		return r;
	walker->ahead = malloc(ahead_bytes(walker));
	walker->marks = calloc(1, walker->mark_count / 4 + 1);
	r = walker->ahead && walker->marks ? read_classes(walker) : -ENOMEM;
	if (r == 0)
		r = list_spans(walker);
	if (r == 0)
		r = list_metadata(walker);
	if (r == 0)
		qsort(walker->stretches, walker->stretch_count, sizeof(*walker->stretches),
		      by_start);
	for (size_t i = 0; i < walker->stretch_count && r == 0; i++)
		r = report_stretch(walker, &walker->stretches[i]);
	if (r == 0 && walker->tcmalloc->out_of_memory)
		r = -ENOMEM;
	if (r == 0 && walker->bad_chains)
		r = hl_heap_note(walker->slabs.heap,
				 "%llu list%s of free blocks did not fit together, the first at "
				 "0x%llx: blocks of them count as live",
				 (unsigned long long)walker->bad_chains,
				 walker->bad_chains > 1 ? "s" : "",
				 (unsigned long long)walker->first_bad_chain);
	return r;
}

static const char googles[] =
	"it is Google's later tcmalloc, with caches for each processor, and not gperftools'";
static const char debugging[] =
	"it is the one for debugging, which puts blocks of its own around the program's";

/* What is not gperftools' tcmalloc as programs use it, by names of mappings; NULL: nothing says so. */
static const char *find_refusal(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *path = maps->maps[i].path, *name = hl_path_basename(path);
		if (strstr(path, "[anon:tcmalloc_region"))
			return googles;
		if (strncmp(name, "libtcmalloc", strlen("libtcmalloc")) == 0 &&
		    strstr(name, "_debug"))
			return debugging;
	}
	return NULL;
}

/* Whether the module whose variables were found holds the version for debugging, by a text among its constants. */
static bool is_for_debugging(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
			     const struct hl_tcmalloc *tcmalloc)
{
	const struct hl_map *map = hl_maps_find(&memory->maps, tcmalloc->variables_start);
	HL_CLOSED int fd = map && map->inode ? hl_memory_open_file(memory, map) : -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);

	return elf && hl_elf_has_text(elf, allocator->debugging_inside);
}

/* Whether Google's later tcmalloc is built into the program: its code has a section of its own. Not every kernel keeps the names
 * that it gives its mappings, and no core file does. */
static bool is_googles(struct hl_memory *memory)
{
	const struct hl_map *program = hl_maps_find(&memory->maps, memory->program_headers);
	HL_CLOSED int fd = program && program->inode ? hl_memory_open_file(memory, program) : -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	GElf_Shdr header;

	return elf && hl_elf_find_section(elf, "google_malloc", &header);
}

static int tcmalloc_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
			 const struct hl_heap_settings *settings, struct hl_heap *heap,
			 struct hl_error *err)
{
	const char *refusal = find_refusal(&memory->maps);
	struct hl_tcmalloc tcmalloc;
	struct hl_error why = {0};
	int r = refusal ? -ENOTSUP : hl_tcmalloc_find(memory, &tcmalloc, &why);

	if (r == -ENOTSUP && !refusal && !why.text[0] && is_googles(memory))
		refusal = googles;
	if (r == 0 && is_for_debugging(memory, allocator, &tcmalloc)) {
		refusal = debugging;
		r = -ENOTSUP;
	}
	if (r == -ENOTSUP && (refusal || why.text[0]))
		return hl_error_set(err, r, "%s", refusal ? refusal : why.text);
	if (r < 0)
		return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
	struct hl_tcmalloc_walker *walker = calloc(1, sizeof(*walker));
	if (!walker)
		return hl_error_set(err, -ENOMEM, "out of memory");
	walker->memory = memory;
	walker->tcmalloc = &tcmalloc;
	walker->metadata = (struct hl_tcmalloc_copies){.memory = memory, .shift = 17, .count = 64};
	walker->blocks = (struct hl_tcmalloc_copies){
		.memory = memory, .shift = 12, .count = HL_TCMALLOC_COPIES};
	r = hl_slab_heap_open(&walker->slabs, memory, allocator, settings, heap, err);
	if (r == 0)
		r = hl_slab_heap_close(&walker->slabs, walk(walker), err);
	free(walker->spans);
	free(walker->stretches);
	free(walker->ahead);
	free(walker->marks);
	hl_addresses_release(&walker->chain);
	hl_pages_release(&walker->pages);
	hl_addresses_release(&walker->caches);
	hl_extents_release(&walker->known);
	hl_extents_release(&walker->nodes);
	hl_tcmalloc_copies_release(&walker->metadata);
	hl_tcmalloc_copies_release(&walker->blocks);
	free(walker);
	return r;
}

const struct hl_heap_reader hl_tcmalloc_reader = {.allocator = "tcmalloc", .read = tcmalloc_read};
