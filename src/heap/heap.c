/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap of a process, of glibc or musl: joins the walk, the pages in memory, and facts of the process; its sums. */
#include "heap/heap.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "heap/glibc_reader.h"
#include "heap/musl.h"
#include "heap/other_allocators.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether glibc has no memory, or is not there. */
static bool has_no_glibc_heap(const struct hl_heap *heap)
{
	struct hl_heap_arena total;

	hl_heap_total(heap, &total);
	return total.system_bytes == 0 && heap->mp_mmapped_blocks == 0;
}

static pid_t pid_of(const struct hl_heap *heap)
{
	return heap->from_core ? 0 : heap->process.pid;
}

/* Counts memory without a file, of which nothing else is known, as another allocator's. */
static void count_as_others(struct hl_heap_rss *rss)
{
	static const enum hl_anonymous_kind its_own[] = {HL_ANONYMOUS_BREAK, HL_ANONYMOUS_OTHER};

	for (size_t i = 0; i < HL_COUNT_OF(its_own); i++) {
		rss->other_allocator_bytes += rss->anonymous[its_own[i]];
		rss->anonymous_bytes -= rss->anonymous[its_own[i]];
		rss->anonymous[its_own[i]] = 0;
	}
}

/* Notes an allocator beside glibc's. */
static int note_other(const struct hl_other_found *other, const struct hl_maps *maps,
		      struct hl_heap *heap)
{
	char remedy[HL_OTHER_REMEDY_MAX];

	count_as_others(&heap->rss);
	return hl_heap_note(heap,
			    "the process also has %s, whose heap cannot be read from outside; "
			    "other anonymous mappings are counted as its own; %s",
			    other->allocator->name,
			    hl_other_allocator_remedy(other, maps, pid_of(heap), remedy));
}

/* Has guests keep what their options ask for. ${has_blocks}: blocks are added, which glibc's are alone. */
static int begin_guests(struct hl_memory *memory, const struct hl_guest_request *requests,
			bool has_blocks, struct hl_heap *heap)
{
	for (size_t i = 0; hl_guests_outside[i]; i++) {
		struct hl_heap_guest *added = &heap->guests[heap->guest_count];
		added->guest = hl_guests_outside[i];
		int r = added->guest->heap.open ? added->guest->heap.open(memory, &requests[i],
									  has_blocks, &added->kept)
						: 0;
		if (r < 0)
			return r;
		heap->guest_count += added->kept != NULL;
	}
	return 0;
}

static int read_guests(struct hl_memory *memory, const struct hl_heap_settings *settings,
		       struct hl_heap *heap, struct hl_error *err)
{
	bool stops = heap->guest_count && settings->stop;
	int r = stops ? hl_memory_stop(memory, err) : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < heap->guest_count && r == 0; i++)
		r = heap->guests[i].guest->heap.read(heap->guests[i].kept, memory, settings, heap,
						     err);
	if (stops)
		hl_memory_go_on(memory);
	return r;
}

/* Reads the heap of musl, where there is none of glibc. -ENOTSUP: nor is there one of musl. */
static int read_musl(struct hl_memory *memory, const struct hl_heap_settings *settings,
		     struct hl_heap *heap, struct hl_error *err)
{
	struct hl_musl musl;
	int r = hl_musl_find(memory, &musl);

	if (r < 0)
		return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
	if (err)
		err->text[0] = '\0'; /* what was said of glibc does not matter then */
	return hl_musl_heap_read(memory, &musl, settings, heap, err);
}

int hl_heap_walk(struct hl_memory *memory, const struct hl_heap_settings *settings,
		 struct hl_heap *heap, struct hl_error *err)
{
	struct hl_other_found other = hl_other_allocator_library(&memory->maps);
	struct hl_glibc glibc = {0};
	char remedy[HL_OTHER_REMEDY_MAX];
	int r = hl_glibc_roots_find(memory, &glibc, err);
	/* Then a text in the program proves nothing: some hold an allocator's and do not use it. */
	bool is_unknown_glibc = r == -ENOTSUP && glibc.is_unknown;

	heap->page_bytes = memory->page_bytes;
	if (settings->guests && begin_guests(memory, settings->guests, r == 0, heap) < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (r == 0)
		r = hl_glibc_heap_read(memory, &glibc, settings, heap, err);
	else if (r == -ENOTSUP)
		r = read_musl(memory, settings, heap, err);
	if (heap->is_musl && other.allocator && other.allocator->is_walked)
		other.allocator = NULL;
	if ((r == -ENOTSUP || (r == 0 && has_no_glibc_heap(heap))) && !other.allocator &&
	    !is_unknown_glibc)
		other = hl_other_allocator_built_in(memory);
	if (other.allocator && (r == -ENOTSUP || (r == 0 && has_no_glibc_heap(heap)))) {
		if (err)
			err->text[0] = '\0'; /* what was said of glibc does not matter then */
		return hl_error_set(
			err, -ENOTSUP,
			"the process allocates by %s%s, whose heap cannot be read from "
			"outside; %s",
			other.allocator->name, other.is_built_in ? ", built into its program" : "",
			hl_other_allocator_remedy(&other, &memory->maps, pid_of(heap), remedy));
	}
	if (memory->is_cut_off && (r == -ENOTSUP || r == -EFAULT)) {
		if (err)
			err->text[0] = '\0'; /* it is a consequence */
		return hl_error_set(
			err, -EBADMSG,
			"the core file is cut off, and what leads to the heap is missing; "
			"a full disk or 'ulimit -c' may be why");
	}
	if (r == 0 && memory->is_cut_off &&
	    (r = hl_heap_note(heap, "%s", "the core file is cut off: memory is missing")) < 0)
		hl_error_set(err, r, "out of memory");
	if (r == 0 && glibc.minor == 0 && !glibc.is_unknown)
		heap->is_stripped = hl_other_allocator_built_in(memory).is_stripped;
	size_t length = r == -ENOTSUP && err ? strlen(err->text) : 0;
	/* Nothing is known of the allocator. */
	if (length && hl_other_allocator_remedy(&other, &memory->maps, pid_of(heap), remedy)[0])
		snprintf(err->text + length, sizeof(err->text) - length, "; %s", remedy);
	if (r == 0 && !settings->only_arenas && (r = hl_rss_add_others(memory, heap)) < 0)
		hl_error_set(err, r, "cannot read which pages are in memory: %s", strerror(-r));
	if (r == 0)
		r = read_guests(memory, settings, heap, err);
	if (r == 0 && other.allocator && (r = note_other(&other, &memory->maps, heap)) < 0)
		hl_error_set(err, r, "out of memory");
	return r;
}

struct hl_heap *hl_heap_new(void)
{
	struct hl_heap *heap = calloc(1, sizeof(*heap));

	if (heap)
		heap->taken_realtime_ns = hl_clock_ns(CLOCK_REALTIME);
	return heap;
}

/* Whose heap it is that was not walked. */
static int note_unwalked(struct hl_memory *memory, struct hl_heap *heap)
{
	struct hl_other_found other = hl_other_allocator_library(&memory->maps);
	bool is_preloaded = hl_maps_have_file(&memory->maps, "libheapline.so");
	char remedy[HL_OTHER_REMEDY_MAX];

	if (!other.allocator)
		other = hl_other_allocator_built_in(memory);
	heap->unwalked = (struct hl_heap_unwalked){
		.allocator = other.allocator ? other.allocator->name : "the program's allocator",
		.can_be_asked = is_preloaded && !other.is_built_in && other.allocator &&
				other.allocator->answers_as};
	snprintf(heap->allocator, sizeof(heap->allocator), "%s%s", heap->unwalked.allocator,
		 other.allocator && other.is_built_in ? ", built into its program" : "");
	heap->is_stripped = other.allocator && (other.allocator->hides_calls ||
						(other.is_built_in && other.is_stripped));
	count_as_others(&heap->rss);
	if (hl_maps_have_file(&memory->maps, "memfd:heapline"))
		return 0;
	return hl_heap_note(
		heap, "what is live and what is free cannot be read from outside; %s",
		hl_other_allocator_remedy(&other, &memory->maps, heap->process.pid, remedy));
}

static int read_pages(struct hl_memory *memory, struct hl_heap *heap, struct hl_error *err)
{
	heap->page_bytes = memory->page_bytes;
	int r = hl_rss_add_others(memory, heap);

	if (r < 0)
		return hl_error_set(err, r, "cannot read which pages are in memory: %s",
				    strerror(-r));
	r = note_unwalked(memory, heap);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

/* Objects of guests have parts of their own in the balance. */
static void find_own_memory(const struct hl_memory *memory, struct hl_heap *heap)
{
	struct hl_own_memory own;

	if (!heap->from_core && heap->rss.anonymous[HL_ANONYMOUS_OTHER] &&
	    hl_own_memory_find(heap->process.executable, heap->process.pid, &memory->maps, &own) &&
	    !own.is_objects)
		memcpy(heap->own_memory, own.what, sizeof(own.what));
}

/* Reads ${memory} into ${heap} unless ${r}, the result of opening it, is an error. Frees ${memory},
 * and on failure ${heap}. */
static int finish(int r, struct hl_memory *memory, const struct hl_heap_settings *settings,
		  struct hl_heap *heap, struct hl_heap **ret_heap, struct hl_error *err)
{
	uint64_t begin = hl_clock_ns(CLOCK_MONOTONIC);

	if (r == 0)
		r = settings ? hl_heap_walk(memory, settings, heap, err)
			     : read_pages(memory, heap, err);
	if (r == 0)
		find_own_memory(memory, heap);
	hl_memory_free(memory);
	if (r != 0) {
		hl_heap_free(heap);
		return r;
	}
	heap->walk_ns = hl_clock_ns(CLOCK_MONOTONIC) - begin;
	*ret_heap = heap;
	return 0;
}

int hl_heap_read(pid_t pid, const struct hl_heap_settings *settings, struct hl_heap **ret_heap,
		 struct hl_error *err)
{
	struct hl_memory *memory = NULL;
	struct hl_heap *heap = hl_heap_new();

	if (!heap)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_process_facts_read(pid, &heap->process, err);
	if (r == 0)
		r = hl_memory_live_open(pid, &memory, err);
	return finish(r, memory, settings, heap, ret_heap, err);
}

int hl_heap_read_pages(pid_t pid, struct hl_heap **ret_heap, struct hl_error *err)
{
	return hl_heap_read(pid, NULL, ret_heap, err);
}

int hl_heap_read_core(const char *path, const struct hl_heap_settings *settings,
		      struct hl_heap **ret_heap, struct hl_error *err)
{
	struct hl_memory *memory = NULL;
	struct hl_heap *heap = hl_heap_new();

	if (!heap)
		return hl_error_set(err, -ENOMEM, "out of memory");
	heap->from_core = true;
	heap->was_stopped = true;
	int r = hl_memory_core_open(path, &memory, &heap->process, err);
	return finish(r, memory, settings, heap, ret_heap, err);
}

void hl_heap_total(const struct hl_heap *heap, struct hl_heap_arena *ret_total)
{
	struct hl_heap_arena total = {0};

	for (size_t i = 0; i < heap->arena_count; i++) {
		const struct hl_heap_arena *arena = &heap->arenas[i];
		total.threads += arena->threads;
		total.carriers += arena->carriers;
		total.system_bytes += arena->system_bytes;
		total.max_system_bytes += arena->max_system_bytes;
		total.inuse_bytes += arena->inuse_bytes;
		total.inuse_blocks += arena->inuse_blocks;
		total.tcache_bytes += arena->tcache_bytes;
		total.tcache_blocks += arena->tcache_blocks;
		total.fastbin_bytes += arena->fastbin_bytes;
		total.fastbin_blocks += arena->fastbin_blocks;
		total.free_bytes += arena->free_bytes;
		total.free_blocks += arena->free_blocks;
		total.free_resident_bytes += arena->free_resident_bytes;
		if (arena->largest_free_bytes > total.largest_free_bytes)
			total.largest_free_bytes = arena->largest_free_bytes;
		total.top_bytes += arena->top_bytes;
		total.trimmable_bytes += arena->trimmable_bytes;
		total.unscanned_bytes += arena->unscanned_bytes;
		total.overhead_bytes += arena->overhead_bytes;
	}
	*ret_total = total;
}

int hl_heap_note(struct hl_heap *heap, const char *format, ...)
{
	va_list arguments;

	if (HL_ARRAY_RESERVE(heap->notes, heap->note_capacity, heap->note_count + 1) < 0)
		return -ENOMEM;
	struct hl_heap_note *note = &heap->notes[heap->note_count++];
	va_start(arguments, format);
	vsnprintf(note->text, sizeof(note->text), format, arguments);
	va_end(arguments);
	return 0;
}

void hl_heap_free(struct hl_heap *heap)
{
	if (!heap)
		return;
	hl_process_facts_release(&heap->process);
	hl_carriers_release(&heap->carriers);
	for (size_t i = 0; i < heap->guest_count; i++)
		heap->guests[i].guest->heap.free(heap->guests[i].kept);
	free(heap->arenas);
	free(heap->rss.mappings);
	hl_pod_files_release(&heap->rss.open);
	free(heap->pins);
	free(heap->notes);
	free(heap);
}
