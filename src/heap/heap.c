/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap of a process, of glibc or of an allocator in src/allocators: joins the walk, the pages in memory, and facts of the process; its sums. */
#include "heap/heap.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "heap/glibc_reader.h"
#include "heap/other_allocators.h"
#include "heap/slab_heap.h"

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

/* Has guests keep what their options ask for. */
static int begin_guests(struct hl_memory *memory, const struct hl_guest_request *requests,
			struct hl_heap *heap)
{
	for (size_t i = 0; hl_guests_outside[i]; i++) {
		struct hl_heap_guest *added = &heap->guests[heap->guest_count];
		added->guest = hl_guests_outside[i];
		int r = added->guest->heap.open
				? added->guest->heap.open(memory, &requests[i], &added->kept)
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

/* ---- other allocators ---- */

static const struct hl_allocator_traits *traits_of(const struct hl_heap_reader *reader)
{
	size_t i = 0;

	while (strcmp(hl_allocator_traits[i].name, reader->allocator) != 0)
		i++;
	return &hl_allocator_traits[i];
}

/* Adds an allocator that was walked to the name of the heap's. */
static void add_name(struct hl_heap *heap, const struct hl_allocator_traits *allocator)
{
	size_t length = heap->has_glibc || heap->walked ? strlen(heap->allocator) : 0;

	snprintf(heap->allocator + length, sizeof(heap->allocator) - length, "%s%s",
		 length ? " and " : "", heap->walked_name[0] ? heap->walked_name : allocator->name);
	heap->walked_name[0] = '\0';
	heap->walked = heap->walked ? heap->walked : allocator;
}

/*
 * Reads the heaps that are not glibc's. ${refusal} gets a sentence about one that is there and could not be read, of
 * *${ret_refused}. -ENOTSUP: none was read; what the visitor of blocks returned; other negative errnos with a sentence.
 */
static int read_others(struct hl_memory *memory, const struct hl_heap_settings *settings,
		       bool is_of_glibc, struct hl_heap *heap,
		       const struct hl_allocator_traits **ret_refused, struct hl_error *refusal,
		       struct hl_error *err)
{
	for (size_t i = 0; hl_heap_readers[i]; i++) {
		const struct hl_heap_reader *reader = hl_heap_readers[i];
		const struct hl_allocator_traits *allocator = traits_of(reader);
		struct hl_error why = {0};
		size_t arena_count = heap->arena_count;
		if (reader->is_of_libc && is_of_glibc)
			continue;
		heap->walking = NULL;
		int r = reader->read(memory, allocator, settings, heap, &why);
		/* It failed before it had proven a heap and reported any of it: the memory that it read changes, or is gone. */
		if (r != 0 && r != -ENOTSUP && r != -ENOMEM && r != -ESRCH && !heap->walking &&
		    heap->arena_count == arena_count) {
			heap->walked_name[0] = '\0';
			continue;
		}
		if (r == 0) {
			add_name(heap, allocator);
		} else if (r == -ENOTSUP && why.text[0]) {
			*ret_refused = allocator;
			*refusal = why;
		} else if (r != -ENOTSUP) {
			if (err)
				*err = why;
			return r;
		}
	}
	return heap->walked ? 0 : -ENOTSUP;
}

/* Whether functions that allocate cannot be traced. */
static bool hides_functions(struct hl_memory *memory, const struct hl_heap *heap,
			    const struct hl_glibc *glibc)
{
	bool is_program = heap->walked ? !hl_other_allocator_library(&memory->maps).allocator
				       : glibc->minor == 0 && !glibc->is_unknown;

	return (heap->walked && heap->walked->hides_calls) ||
	       (is_program && hl_other_allocator_built_in(memory).hides_functions);
}

/* ---- the walk ---- */

/* What is to be said where no heap was read, and ${err} says it of glibc's. Returns ${r}. */
static int refuse(struct hl_memory *memory, int r, const struct hl_heap *heap,
		  const struct hl_other_found *other, const struct hl_error *refusal,
		  struct hl_error *err)
{
	char remedy[HL_OTHER_REMEDY_MAX];

	hl_other_allocator_remedy(other, &memory->maps, pid_of(heap), remedy);
	if (other->allocator) {
		if (err)
			err->text[0] = '\0'; /* what was said of glibc does not matter then */
		return hl_error_set(err, -ENOTSUP,
				    "the process allocates by %s%s, whose heap cannot be read from "
				    "outside%s%s; %s",
				    other->allocator->name,
				    other->is_built_in ? ", built into its program" : "",
				    refusal->text[0] ? ": " : "", refusal->text, remedy);
	}
	if (memory->is_cut_off && (r == -ENOTSUP || r == -EFAULT)) {
		if (err)
			err->text[0] = '\0'; /* it is a consequence */
		return hl_error_set(
			err, -EBADMSG,
			"the core file is cut off, and what leads to the heap is missing; "
			"a full disk or 'ulimit -c' may be why");
	}
	size_t length = r == -ENOTSUP && err ? strlen(err->text) : 0;
	if (length && remedy[0]) /* nothing is known of the allocator */
		snprintf(err->text + length, sizeof(err->text) - length, "; %s", remedy);
	return r;
}

static int finish_walk(struct hl_memory *memory, const struct hl_heap_settings *settings,
		       const struct hl_other_found *other, struct hl_heap *heap,
		       struct hl_error *err)
{
	int r = 0;

	if (memory->is_cut_off &&
	    hl_heap_note(heap, "%s", "the core file is cut off: memory is missing") < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!settings->only_arenas && (r = hl_rss_add_others(memory, heap)) < 0)
		return hl_error_set(err, r, "cannot read which pages are in memory: %s",
				    strerror(-r));
	r = read_guests(memory, settings, heap, err);
	if (r == 0 && other->allocator && note_other(other, &memory->maps, heap) < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	return r;
}

int hl_heap_walk(struct hl_memory *memory, const struct hl_heap_settings *settings,
		 struct hl_heap *heap, struct hl_error *err)
{
	struct hl_other_found other = hl_other_allocator_library(&memory->maps);
	const struct hl_allocator_traits *refused = NULL;
	struct hl_error refusal = {0};
	struct hl_glibc glibc = {0};
	int r = hl_glibc_roots_find(memory, &glibc, err);
	bool is_of_glibc = r == 0;
	/* Then a text in the program proves nothing: some hold an allocator's and do not use it. */
	bool is_unknown_glibc = r == -ENOTSUP && glibc.is_unknown;

	heap->page_bytes = memory->page_bytes;
	if (settings->guests && begin_guests(memory, settings->guests, heap) < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (r == 0)
		r = hl_glibc_heap_read(memory, &glibc, settings, heap, err);
	if (r != 0 && r != -ENOTSUP)
		return refuse(memory, r, heap, &(struct hl_other_found){0}, &refusal, err);
	heap->has_glibc = r == 0 && !has_no_glibc_heap(heap);
	size_t empty_arenas = heap->has_glibc ? 0 : heap->arena_count;
	heap->arena_count -= empty_arenas;
	int others = read_others(memory, settings, is_of_glibc, heap, &refused, &refusal, err);
	if (others == -ENOTSUP)
		heap->arena_count += empty_arenas;
	else if (others != 0)
		return others;
	else if (err)
		err->text[0] = '\0'; /* what was said of glibc does not matter then */
	r = others == 0 ? 0 : r;
	if (heap->walked && other.allocator == heap->walked)
		other.allocator = NULL;
	if (!other.allocator && refused)
		other = (struct hl_other_found){.allocator = refused, .is_built_in = true};
	if (!other.allocator && !heap->has_glibc && !heap->walked && !is_unknown_glibc)
		other = hl_other_allocator_built_in(memory);
	heap->hides_functions = hides_functions(memory, heap, &glibc);
	if (r != 0 || (other.allocator && !heap->has_glibc && !heap->walked))
		return refuse(memory, r, heap, &other, &refusal, err);
	return finish_walk(memory, settings, &other, heap, err);
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
	bool has_recorder = hl_maps_have_file(&memory->maps, "memfd:heapline");
	char remedy[HL_OTHER_REMEDY_MAX];

	if (!other.allocator)
		other = hl_other_allocator_built_in(memory);
	heap->unwalked = (struct hl_heap_unwalked){
		.allocator = other.allocator ? other.allocator->name : "the program's allocator",
		.can_be_asked = has_recorder && !other.is_built_in && other.allocator &&
				other.allocator->answers_as};
	snprintf(heap->allocator, sizeof(heap->allocator), "%s%s", heap->unwalked.allocator,
		 other.allocator && other.is_built_in ? ", built into its program" : "");
	heap->hides_functions = (other.allocator && other.allocator->hides_calls) ||
				(other.is_built_in && other.hides_functions);
	count_as_others(&heap->rss);
	if (has_recorder)
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

	heap->has_services = !heap->from_core && hl_own_memory_has_services(&memory->maps);
	heap->has_scripts = !heap->from_core && hl_own_memory_has_scripts(&memory->maps);
	if (!heap->from_core && heap->rss.anonymous[HL_ANONYMOUS_OTHER] &&
	    hl_own_memory_find(heap->process.executable, heap->process.pid, &memory->maps, &own) &&
	    !own.is_objects)
		memcpy(heap->own_memory, own.what, sizeof(own.what));
	for (size_t i = 0; !heap->from_core && hl_guests_outside[i]; i++)
		if (hl_guests_outside[i]->advise &&
		    hl_guests_outside[i]->advise(&heap->process, &heap->advice))
			break;
}

/* Asks the guest whose pools are the largest part of what is mapped how they divide. Without an answer the report is as good. */
static void divide_pools(struct hl_memory *memory, struct hl_heap *heap)
{
	const uint64_t *anonymous = heap->rss.anonymous;
	size_t largest = 0;

	for (size_t i = 1; i < HL_ANONYMOUS_COUNT; i++)
		largest = anonymous[i] > anonymous[largest] ? i : largest;
	const struct hl_guest_pools *pools = hl_rss_pools(largest);
	if (pools && pools->divide && anonymous[largest] &&
	    pools->divide(memory, &heap->pools.division) == 0)
		heap->pools.name = pools->name;
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
	if (r == 0 && !(settings && settings->only_arenas))
		divide_pools(memory, heap);
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
	free(heap->classes);
	free(heap->pins);
	free(heap->notes);
	free(heap);
}
