/* SPDX-License-Identifier: BSD-2-Clause */
/* Pinned pages; see account.h. */
#include "heap/account.h"

#include "base/array.h"

#define LIVE_SHARE 8u  /* live blocks fill at most an eighth of a pinned page */
#define TRIM_KEPT  48u /* malloc_trim keeps the first bytes of a free chunk */

void hl_pins_begin(struct hl_pins *pins, uint64_t page_bytes)
{
	*pins = (struct hl_pins){.page_bytes = page_bytes};
}

/* Adds ${bytes} of ${chunk}, which lie on the page. */
static void add_part(struct hl_pins *pins, const struct hl_chunk *chunk, uint64_t bytes)
{
	if (chunk->kind == HL_CHUNK_FREE || chunk->kind == HL_CHUNK_FASTBIN ||
	    chunk->kind == HL_CHUNK_TOP)
		return;
	if (chunk->kind != HL_CHUNK_LIVE || chunk->size > pins->page_bytes / LIVE_SHARE) {
		pins->is_blocked = true;
		return;
	}
	pins->live_bytes += bytes;
	pins->live_blocks++;
	pins->straddles = pins->straddles || chunk->address < pins->page;
	if (chunk->size > pins->block_bytes) {
		pins->block = chunk->address + HL_CHUNK_BLOCK;
		pins->block_bytes = chunk->size - HL_CHUNK_HEADER;
	}
}

/* Pages in a row end. */
static int end_run(struct hl_pins *pins, struct hl_heap *heap)
{
	uint64_t mask = pins->page_bytes - 1;
	struct hl_heap_pin pin = pins->run;
	uint64_t first = (pins->run_first_chunk + TRIM_KEPT + mask) & ~mask;

	pins->run.end = 0;
	first = first > pin.start ? first : pin.start;
	if (first >= pin.end)
		return 0;
	pin.returned_bytes = pin.end - first;
	return HL_ARRAY_APPEND(heap->pins, heap->pin_count, heap->pin_capacity, pin);
}

/* A pinned page extends the run, any other ends it. */
static int end_page(struct hl_pins *pins, const struct hl_pages *pages, struct hl_heap *heap)
{
	struct hl_heap_pin *run = &pins->run;

	if (pins->is_blocked || !pins->live_blocks ||
	    pins->live_bytes > pins->page_bytes / LIVE_SHARE ||
	    !hl_pages_contain(pages, pins->page))
		return end_run(pins, heap);
	if (!run->end) {
		*run = (struct hl_heap_pin){.start = pins->page};
		pins->run_first_chunk = pins->first_chunk;
		pins->straddles = false;
	}
	run->end = pins->page + pins->page_bytes;
	run->live_bytes += pins->live_bytes;
	run->live_blocks += pins->live_blocks - pins->straddles;
	if (pins->block_bytes > run->block_bytes) {
		run->block = pins->block;
		run->block_bytes = pins->block_bytes;
	}
	return 0;
}

static void begin_page(struct hl_pins *pins, uint64_t page, uint64_t first_chunk)
{
	pins->page = page;
	pins->first_chunk = first_chunk;
	pins->live_bytes = pins->live_blocks = pins->block_bytes = 0;
	pins->is_blocked = pins->straddles = false;
}

int hl_pins_chunk(struct hl_pins *pins, const struct hl_chunk *chunk, const struct hl_pages *pages,
		  struct hl_heap *heap)
{
	uint64_t at = chunk->address, end = at + chunk->size, mask = pins->page_bytes - 1;
	int r = 0;

	if (!pins->page)
		begin_page(pins, at & ~mask, at);
	while (end >= pins->page + pins->page_bytes && r == 0) {
		uint64_t page_end = pins->page + pins->page_bytes;
		add_part(pins, chunk, page_end - at);
		r = end_page(pins, pages, heap);
		at = page_end;
		/* pages of one chunk alone are not pinned */
		if (r == 0 && end - at >= pins->page_bytes) {
			r = end_run(pins, heap);
			at = end & ~mask;
		}
		begin_page(pins, at, at < end ? chunk->address : at);
	}
	if (at < end && r == 0)
		add_part(pins, chunk, end - at);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct hl_heap_pin *x = a, *y = b;

	if (x->returned_bytes != y->returned_bytes)
		return x->returned_bytes < y->returned_bytes ? 1 : -1;
	return (x->start > y->start) - (x->start < y->start);
}

void hl_pins_sort(struct hl_heap *heap)
{
	if (heap->pin_count)
		qsort(heap->pins, heap->pin_count, sizeof(*heap->pins), compare);
}
