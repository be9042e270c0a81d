/* SPDX-License-Identifier: BSD-2-Clause */
/* What reports of a heap show of PHP, see guests/outside.h. */
#include "guests/outside.h"

#include "base/error.h"
#include "cli/cli.h"
#include "guests/php/zend_mm.h"
#include "heap/heap.h"
#include "view/heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hl_option heap_options[] = {
	{"php", 0, NULL, "also show what PHP's memory manager holds, by size of block",
	 HL_OPTION_FLAG, offsetof(struct hl_guest_request, pools), NULL},
	{0},
};

/* ---- reading ---- */

static int open_report(struct hl_memory *memory, const struct hl_guest_request *request,
		       void **ret_report)
{
	(void)memory;
	*ret_report = request->pools ? calloc(1, sizeof(struct hl_php_memory)) : NULL;
	return request->pools && !*ret_report ? -ENOMEM : 0;
}

/* Blocks of malloc() are not PHP's. */
static int add_block(void *kept, uint64_t address, uint64_t usable_bytes)
{
	(void)kept, (void)address, (void)usable_bytes;
	return 0;
}

static int read_report(void *kept, struct hl_memory *memory,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err)
{
	struct hl_php_memory *php = kept;

	int r = hl_php_memory_read(memory, php);
	if (r < 0)
		return hl_error_set(err, r, "cannot read PHP's memory: %s", strerror(-r));
	if (!php->heaps)
		r = hl_heap_note(heap, "no chunks of PHP's memory manager are in the process; with "
				       "USE_ZEND_ALLOC=0 PHP allocates by malloc");
	else if (php->has_changed)
		r = hl_heap_note(heap, "PHP's memory changed while it was read%s",
				 settings->stop ? ", or is laid out as in no release that is known"
						: ": its parts do not add up; --stop has them so");
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

/* ---- showing ---- */

struct size_class {
	uint64_t block_bytes, pages, used_blocks, used_bytes, free_blocks, free_bytes;
};

#define CLASS(name) HL_MEMBER(struct size_class, name)

static const struct hl_column class_columns[] = {
	{"block_bytes", "PHP block", HL_COLUMN_BYTES, CLASS(block_bytes), HL_COLUMN_KEY},
	{"pages", "pages", HL_COLUMN_COUNT, CLASS(pages)},
	{"used_blocks", "used blocks", HL_COLUMN_COUNT, CLASS(used_blocks)},
	{"used_bytes", "used", HL_COLUMN_BYTES, CLASS(used_bytes)},
	{"free_blocks", "free blocks", HL_COLUMN_COUNT, CLASS(free_blocks)},
	{"free_bytes", "free", HL_COLUMN_BYTES, CLASS(free_bytes)},
};

static void emit_bins(struct hl_emit *emit, const struct hl_php_memory *php, uint64_t *ret_free)
{
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("php_bins", class_columns)});
	for (uint32_t i = 0; i < HL_PHP_BINS; i++) {
		const struct hl_php_bin *bin = &php->bins[i];
		uint64_t bytes = hl_php_block_bytes(i), used = bin->blocks - bin->free_blocks;
		const struct size_class row = {
			bytes,	      bin->pages,	used,
			used * bytes, bin->free_blocks, bin->free_blocks * bytes};

		*ret_free += row.free_bytes;
		if (bin->pages)
			hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
}

static void emit_report(struct hl_emit *emit, const void *kept, uint64_t row_limit)
{
	const struct hl_php_memory *php = kept;
	uint64_t free_bytes = 0;

	(void)row_limit;
	if (!php->heaps)
		return;
	hl_emit_blank(emit);
	emit_bins(emit, php, &free_bytes);
	const struct {
		const char *key;
		uint64_t value;
	} figures[] = {
		{"heaps", php->heaps},
		{"used_bytes", php->used_bytes},
		{"peak_bytes", php->peak_bytes},
		{"mapped_bytes", php->mapped_bytes},
		{"mapped_peak_bytes", php->mapped_peak_bytes},
		{"chunks", php->chunks},
		{"cached_chunks", php->cached_chunks},
		{"free_pages", php->free_pages},
		{"free_bytes", free_bytes},
		{"large_blocks", php->large_blocks},
		{"large_bytes", php->large_bytes},
		{"huge_blocks", php->huge_blocks},
		{"huge_bytes", php->huge_bytes},
		{"opcache_bytes", php->shared_bytes},
		{"opcache_free_bytes", php->shared_free_bytes},
		{"opcache_wasted_bytes", php->shared_wasted_bytes},
	};
	hl_emit_object(emit, "php");
	for (size_t i = 0; i < HL_COUNT_OF(figures); i++)
		hl_emit_unsigned(emit, figures[i].key, figures[i].value);
	hl_emit_object_end(emit);
	hl_emit_line(emit,
		     "PHP uses %s (peak %s) of %s in %s chunks and %s huge blocks; %s are free for "
		     "blocks of the same sizes alone, %s in empty pages, %s in cached chunks",
		     HL_HEAP_BYTES(php->used_bytes), HL_HEAP_BYTES(php->peak_bytes),
		     HL_HEAP_BYTES(php->mapped_bytes), HL_HEAP_COUNT(php->chunks),
		     HL_HEAP_COUNT(php->huge_blocks), HL_HEAP_BYTES(free_bytes),
		     HL_HEAP_BYTES(php->free_pages << 12), HL_HEAP_BYTES(php->cached_chunks << 21));
	hl_emit_line(emit, "large blocks, of whole pages: %s with %s; huge ones: %s with %s",
		     HL_HEAP_COUNT(php->large_blocks), HL_HEAP_BYTES(php->large_bytes),
		     HL_HEAP_COUNT(php->huge_blocks), HL_HEAP_BYTES(php->huge_bytes));
	if (php->shared_bytes)
		hl_emit_line(
			emit,
			"opcache's shared memory, of all processes of this server: %s, %s of it "
			"free, %s wasted",
			HL_HEAP_BYTES(php->shared_bytes), HL_HEAP_BYTES(php->shared_free_bytes),
			HL_HEAP_BYTES(php->shared_wasted_bytes));
}

/* ---- what it is, in a sentence ---- */

static int divide(struct hl_memory *memory, struct hl_guest_division *ret_division)
{
	struct hl_php_memory php;

	int r = hl_php_memory_read(memory, &php);
	if (r < 0 || !php.heaps)
		return r < 0 ? r : -ENOENT;
	uint64_t cached = php.cached_chunks * HL_PHP_CHUNK_BYTES;
	uint64_t rest = php.used_bytes + cached;
	uint64_t free_bytes = php.mapped_bytes > rest ? php.mapped_bytes - rest : 0;
	snprintf(ret_division->parts, sizeof(ret_division->parts),
		 "zend_mm uses %s of %s; %s are free in chunks, and %s in %s cached ones",
		 HL_HEAP_BYTES(php.used_bytes), HL_HEAP_BYTES(php.mapped_bytes),
		 HL_HEAP_BYTES(free_bytes), HL_HEAP_BYTES(cached),
		 HL_HEAP_COUNT(php.cached_chunks));
	if (php.used_bytes > php.mapped_bytes / 2)
		return 0;
	ret_division->waste = cached >= free_bytes || !php.used_bytes
				      ? "retention"
				      : "retention or fragmentation";
	ret_division->remedy = php.cached_chunks ? "the end of each request gives back all other "
						   "chunks but one, and about half of "
						   "the cached ones"
			       : php.chunks > php.heaps ? "gc_mem_caches() gives back chunks "
							  "without a block, the end of the request "
							  "nearly all"
							: "one chunk stays";
	return 0;
}

const struct hl_guest_outside hl_guest_outside_php = {
	.labels[HL_GUEST_AGES] = {"which requests of PHP blocks have outlived", hl_php_ages_read},
	.pools = {.name = "PHP's memory (zend_mm's chunks)",
		  .listed_by = "--php' shows what they are cut into",
		  .recorded = true,
		  .pool_bytes = hl_php_chunk_bytes,
		  .divide = divide},
	.heap = {.open = open_report,
		 .add_block = add_block,
		 .read = read_report,
		 .emit = emit_report,
		 .free = free},
	.options[HL_GUEST_OPTIONS_HEAP] = heap_options,
};
