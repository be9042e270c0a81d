/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what the walk of a heap found, as JSON: heap_dump [--stop] [--blocks] [--pins] PID|CORE
 * With --blocks each live block's address and usable size, too.
 */
#include "heap/heap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool first_block = true;

static int print_block(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	(void)context;
	printf("%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", first_block ? "" : ",\n", address, usable,
	       last_word);
	first_block = false;
	return 0;
}

static void number(const char *name, uint64_t value, const char *end)
{
	printf("\"%s\": %" PRIu64 "%s", name, value, end);
}

static void print_arena(const struct hl_heap_arena *arena)
{
	printf("{");
	number("address", arena->address, ", ");
	number("threads", arena->threads, ", ");
	number("carriers", arena->carriers, ", ");
	number("system_bytes", arena->system_bytes, ", ");
	number("inuse_bytes", arena->inuse_bytes, ", ");
	number("inuse_blocks", arena->inuse_blocks, ", ");
	number("tcache_bytes", arena->tcache_bytes, ", ");
	number("tcache_blocks", arena->tcache_blocks, ", ");
	number("fastbin_bytes", arena->fastbin_bytes, ", ");
	number("fastbin_blocks", arena->fastbin_blocks, ", ");
	number("free_bytes", arena->free_bytes, ", ");
	number("free_blocks", arena->free_blocks, ", ");
	number("free_resident_bytes", arena->free_resident_bytes, ", ");
	number("largest_free_bytes", arena->largest_free_bytes, ", ");
	number("top_bytes", arena->top_bytes, ", ");
	number("trimmable_bytes", arena->trimmable_bytes, ", ");
	number("unscanned_bytes", arena->unscanned_bytes, "}");
}

static void print_carrier(const struct hl_carrier *carrier)
{
	printf("{\"allocator\": \"%s\", \"type\": \"%s\", ", carrier->allocator, carrier->type);
	number("address", carrier->address, ", ");
	number("total_bytes", carrier->total_bytes, ", ");
	number("unscanned_bytes", carrier->unscanned_bytes, ", ");
	number("allocated_bytes", carrier->allocated_bytes, ", ");
	number("allocated_blocks", carrier->allocated_blocks, ", ");
	number("cached_bytes", carrier->cached_bytes, ", ");
	number("free_bytes", carrier->free_bytes, ", ");
	number("free_blocks", carrier->free_blocks, ", ");
	number("resident_bytes", carrier->resident_bytes, ", ");
	number("free_resident_bytes", carrier->free_resident_bytes, ", ");
	number("in_pool", carrier->in_pool, ", ");
	number("strip_count", carrier->strip_count, ", \"strip\": [");
	for (uint32_t i = 0; i < carrier->strip_count; i++) {
		for (int kind = 0; kind < HL_STRETCH_COUNT; kind++)
			printf("%s%" PRIu64, kind ? "," : i ? ",[" : "[", carrier->strip[i][kind]);
		printf("]");
	}
	printf("]}");
}

static void print_rss(const struct hl_heap_rss *rss)
{
	printf("\"rss\": {");
	number("rss_bytes", rss->rss_bytes, ", ");
	number("live_bytes", rss->live_bytes, ", ");
	number("cached_bytes", rss->cached_bytes, ", ");
	number("free_bytes", rss->free_bytes, ", ");
	number("overhead_bytes", rss->overhead_bytes, ", ");
	number("unscanned_bytes", rss->unscanned_bytes, ", ");
	number("recorder_bytes", rss->recorder_bytes, ", ");
	number("other_allocator_bytes", rss->other_allocator_bytes, ", ");
	number("stack_bytes", rss->stack_bytes, ", ");
	number("file_bytes", rss->file_bytes, ", ");
	number("shared_bytes", rss->shared_bytes, ", ");
	number("anonymous_bytes", rss->anonymous_bytes, "},\n");
}

static void print_pins(const struct hl_heap *heap)
{
	printf("\"pins\": [");
	for (size_t i = 0; i < heap->pin_count; i++) {
		const struct hl_heap_pin *pin = &heap->pins[i];
		printf("%s{", i ? ",\n" : "");
		number("start", pin->start, ", ");
		number("end", pin->end, ", ");
		number("live_bytes", pin->live_bytes, ", ");
		number("live_blocks", pin->live_blocks, ", ");
		number("returned_bytes", pin->returned_bytes, ", ");
		number("block", pin->block, ", ");
		number("block_bytes", pin->block_bytes, "}");
	}
	printf("],\n");
}

static void print_heap(const struct hl_heap *heap)
{
	printf("\"allocator\": \"%s\",\n\"arenas\": [", heap->allocator);
	for (size_t i = 0; i < heap->arena_count; i++) {
		printf(i ? ",\n" : "");
		print_arena(&heap->arenas[i]);
	}
	printf("],\n\"carriers\": [");
	for (size_t i = 0; i < heap->carriers.count; i++) {
		printf(i ? ",\n" : "");
		print_carrier(&heap->carriers.carriers[i]);
	}
	printf("],\n\"notes\": [");
	for (size_t i = 0; i < heap->note_count; i++)
		printf("%s\"%s\"", i ? ",\n" : "", heap->notes[i].text);
	printf("],\n");
	print_pins(heap);
	print_rss(&heap->rss);
	number("mmapped_bytes", heap->mmapped_bytes, ", ");
	number("mmapped_blocks", heap->mmapped_blocks, ", ");
	number("mp_mmapped_bytes", heap->mp_mmapped_bytes, ", ");
	number("mp_mmapped_blocks", heap->mp_mmapped_blocks, ",\n");
	number("trim_threshold", heap->trim_threshold, ", ");
	number("mmap_threshold", heap->mmap_threshold, ", ");
	number("was_stopped", heap->was_stopped, ", ");
	number("chunks", heap->chunks, ", ");
	number("rereads", heap->rereads, ", ");
	number("abandoned", heap->abandoned, ", ");
	number("walk_ns", heap->walk_ns, "}\n");
}

int main(int argc, char **argv)
{
	struct hl_heap_settings settings = {0};
	struct hl_error err = {.text = ""};
	struct hl_heap *heap;
	int r;

	for (; argc > 2; argc--, argv++) {
		if (strcmp(argv[1], "--stop") == 0)
			settings.stop = true;
		if (strcmp(argv[1], "--pins") == 0)
			settings.want_pins = true;
		if (strcmp(argv[1], "--strips") == 0)
			settings.strip_count = 64;
		if (strcmp(argv[1], "--blocks") == 0)
			settings.block = print_block;
	}
	printf("{\"blocks\": [");
	if (strspn(argv[1], "0123456789") == strlen(argv[1]))
		r = hl_heap_read(atoi(argv[1]), &settings, &heap, &err);
	else
		r = hl_heap_read_core(argv[1], &settings, &heap, &err);
	printf("],\n");
	if (r < 0) {
		printf("\"error\": %d}\n", -r);
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	print_heap(heap);
	hl_heap_free(heap);
	return 0;
}
