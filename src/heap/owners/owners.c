/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses the best source of owners that a process has; see owners.h. */
#include "heap/owners/owners.h"

#include "base/array.h"
#include "base/names.h"
#include "heap/heap.h"
#include "heap/owners/owner_table.h"
#include "process/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* ---- blocks counted by owner ---- */

int hl_owner_counts_add(struct hl_owner_counts *counts, uint64_t key, uint64_t bytes,
			uint64_t blocks)
{
	if (counts->last >= counts->count || counts->counts[counts->last].key != key) {
		uint32_t hash = hl_hash_pair(key, key >> 32), at = hash, id;
		while ((id = hl_index_next(&counts->index, hash, &at)))
			if (counts->counts[id - 1].key == key)
				break;
		counts->last = id ? id - 1 : counts->count;
		if (!id &&
		    (HL_ARRAY_RESERVE(counts->counts, counts->capacity, counts->count + 1) < 0 ||
		     hl_index_add(&counts->index, hash, (uint32_t)counts->count + 1) < 0))
			return -ENOMEM;
		if (!id)
			counts->counts[counts->count++] = (struct hl_owner_count){.key = key};
	}
	struct hl_owner_count *count = &counts->counts[counts->last];
	count->blocks += blocks;
	count->bytes += bytes * blocks;
	count->histogram.counts[hl_log2_slot(&counts->shape, bytes)] += blocks;
	return 0;
}

void hl_owner_counts_release(struct hl_owner_counts *counts)
{
	hl_index_release(&counts->index);
	free(counts->counts);
}

/* ---- what the sources share ---- */

int hl_owner_rows_add(struct hl_owner_rows *rows, const char *origin, const char *type,
		      const struct hl_owner_count *count)
{
	struct hl_allocations *allocations = rows->allocations;
	struct hl_allocation *row;
	uint32_t hash = hl_hash_pair(hl_hash_bytes(origin, strlen(origin)),
				     hl_hash_bytes(type, strlen(type)));
	uint32_t id, at = hash;

	while ((id = hl_index_next(&rows->index, hash, &at))) {
		row = &allocations->rows[id - 1];
		if (strcmp(hl_strings_text(&allocations->names, row->origin), origin) == 0 &&
		    strcmp(hl_strings_text(&allocations->names, row->type), type) == 0)
			break;
	}
	if (!id) {
		int r = hl_allocations_add(allocations, origin, type, &row);
		if (r == 0)
			r = hl_index_add(&rows->index, hash, (uint32_t)allocations->count);
		if (r < 0)
			return r;
	}
	row->blocks += count->blocks;
	row->bytes += count->bytes;
	for (uint32_t slot = 0; slot < allocations->shape.width; slot++)
		row->histogram.counts[slot] += count->histogram.counts[slot];
	return 0;
}

void hl_owner_rows_release(struct hl_owner_rows *rows)
{
	hl_index_release(&rows->index);
}

int hl_owners_walk(pid_t pid, const struct hl_owners_settings *settings,
		   int (*block)(void *context, uint64_t address, uint64_t usable_bytes,
				uint64_t last_word),
		   void *context, struct hl_owners *owners, struct hl_heap **ret_heap,
		   struct hl_error *err)
{
	struct hl_heap_settings how = {.stop = settings->stop, .block = block, .context = context};
	struct hl_heap_arena total;
	struct hl_heap *heap;

	int r = hl_heap_read(pid, &how, &heap, err);
	if (r < 0)
		return r;
	hl_heap_total(heap, &total);
	owners->allocations.unscanned_bytes = total.unscanned_bytes;
	memcpy(owners->allocator, heap->allocator, sizeof(owners->allocator));
	if (ret_heap)
		*ret_heap = heap;
	else
		hl_heap_free(heap);
	return 0;
}

int hl_owners_note(struct hl_owners *owners, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int r = hl_error_append(&owners->notes, format, arguments);
	va_end(arguments);
	return r;
}

const struct hl_map *hl_owners_find_file(const struct hl_maps *maps, const char *prefix,
					 uint32_t flags)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!maps->maps[i].offset && (maps->maps[i].flags & flags) == flags &&
		    strncmp(hl_path_basename(maps->maps[i].path), prefix, strlen(prefix)) == 0)
			return &maps->maps[i];
	return NULL;
}

int hl_owners_read_memory(pid_t pid, uint64_t address, void *ret_bytes, size_t bytes)
{
	struct iovec here = {ret_bytes, bytes}, there = {(void *)(uintptr_t)address, bytes};

	ssize_t got = process_vm_readv(hl_proc_thread(pid), &here, 1, &there, 1, 0);
	if (got < 0)
		return -errno;
	return (size_t)got == bytes ? 0 : -EFAULT;
}

/* ---- owner unknown ---- */

static int take_block(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	(void)address;
	(void)last_word;
	return hl_owner_counts_add(context, 0, usable_bytes, 1);
}

static int sizes_alone(pid_t pid, const struct hl_owners_settings *settings,
		       struct hl_owners *owners, struct hl_error *err)
{
	struct hl_owner_counts counts = {.shape = owners->allocations.shape};
	struct hl_owner_rows rows = {.allocations = &owners->allocations};
	struct hl_heap *heap = NULL;

	int r = hl_owners_walk(pid, settings, take_block, &counts, owners, &heap, err);
	if (r == 0 && counts.count)
		r = hl_owner_rows_add(&rows, "[unknown]", "[unknown]", &counts.counts[0]);
	owners->hides_functions = r == 0 && heap->hides_functions;
	/* Nothing can be put into static programs; stripped, their functions are not found. */
	if (r == 0)
		r = hl_owners_note(
			owners,
			"callers are unknown: the process has neither a recorder nor the tags "
			"library; 'heapline %s -p %d%s' %s%s",
			heap->hides_functions ? "pgfault" : "attach", (int)heap->process.pid,
			heap->hides_functions ? " 60" : "",
			heap->hides_functions ? "shows what makes it grow"
					      : "records who allocates from now on",
			strstr(heap->allocator, "static")
				? ""
				: "; started with 'heapline record' or 'heapline record --tags' it "
				  "would be known");
	hl_heap_free(heap);
	hl_owner_rows_release(&rows);
	hl_owner_counts_release(&counts);
	return r;
}

/* ---- the whole ---- */

#define SHAPE_START 128
#define SHAPE_WIDTH 18

int hl_owners_read(pid_t pid, const struct hl_owners_settings *settings,
		   struct hl_owners **ret_owners, struct hl_error *err)
{
	struct hl_owner_names *names = NULL;

	struct hl_owners *owners = calloc(1, sizeof(*owners));
	if (!owners)
		return hl_error_set(err, -ENOMEM, "out of memory");
	owners->allocations.shape = settings->shape;
	owners->allocations.knows_bytes = true;
	if (!settings->shape.width)
		owners->allocations.shape =
			(struct hl_log2_shape){.start = SHAPE_START, .width = SHAPE_WIDTH};
	int r = hl_owner_names_new(pid, settings->plumbing, &names, err);
	if (r == 0) {
		owners->source = HL_OWNERS_RECORDER;
		r = hl_owner_recorder_read(pid, settings, names, owners, err);
	}
	if (r == -ENODATA) {
		owners->source = HL_OWNERS_TAGS;
		r = hl_owner_tags_read(pid, settings, names, owners, err);
	}
	if (r == -ENODATA) {
		owners->source = HL_OWNERS_NONE;
		r = sizes_alone(pid, settings, owners, err);
	}
	hl_owner_names_free(names);
	if (r < 0) {
		hl_owners_free(owners);
		return hl_error_set(err, r, "cannot tell who allocated in process %d: %s", pid,
				    strerror(-r));
	}
	hl_allocations_sort(&owners->allocations);
	*ret_owners = owners;
	return 0;
}

void hl_owners_free(struct hl_owners *owners)
{
	if (!owners)
		return;
	hl_allocations_release(&owners->allocations);
	for (char **note = owners->notes; note && *note; note++)
		free(*note);
	free(owners->notes);
	free(owners);
}
