/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts Python's live blocks by stack and type; see object_types.h. */
#include "guests/python/object_types.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "guests/python/usage.h"
#include "heap/memory.h"
#include "heap/owners/owner_table.h"

#include <stdio.h>
#include <string.h>

#define PARTS_NAME_MAX (HL_PYTHON_NAME_BYTES + sizeof(" (parts)"))

struct listed {
	uint32_t number;
	uint64_t requested;
};

struct reading {
	struct hl_inuse_labels *types;
	struct hl_python_usage *usage; /* kept by the labels */
	struct listed *blocks;	       /* in rising order of address */
	size_t count, capacity;
	size_t next;	 /* the one whose type is told next */
	uint32_t *parts; /* by the name of a type, that of its parts; 0: it has had none */
	size_t parts_capacity;
	struct hl_owner_counts sums; /* by stack << 32 | name */
};

static int list(void *context, const struct hl_owned_block *block)
{
	struct reading *reading = context;
	const struct listed listed = {(uint32_t)block->number, block->requested};

	int r = hl_python_usage_add(reading->usage, block->address, block->bytes);
	return r < 0 ? r
		     : HL_ARRAY_APPEND(reading->blocks, reading->count, reading->capacity, listed);
}

/* Turns the name of a type into that of its parts. */
static int name_parts(struct reading *reading, uint32_t *name)
{
	struct hl_strings *names = &reading->usage->names;
	char text[PARTS_NAME_MAX];

	if (HL_ARRAY_RESERVE_ZEROED(reading->parts, reading->parts_capacity, *name + (size_t)1) < 0)
		return -ENOMEM;
	uint32_t *known = &reading->parts[*name];
	snprintf(text, sizeof(text), "%s (parts)", hl_strings_text(names, *name));
	int r = *known ? 0 : hl_strings_intern(names, text, known);
	*name = *known;
	return r;
}

static int add(void *context, uint32_t name, bool is_part)
{
	struct reading *reading = context;
	const struct listed *block = &reading->blocks[reading->next++];
	int r = is_part ? name_parts(reading, &name) : 0;

	return r < 0 || !name
		       ? r
		       : hl_owner_counts_add(&reading->sums, (uint64_t)block->number << 32 | name,
					     block->requested, 1);
}

static int compare(const void *left, const void *right)
{
	const struct hl_owner_count *a = left, *b = right;

	return (a->key > b->key) - (a->key < b->key);
}

static int make_rows(struct reading *reading)
{
	struct hl_inuse_labels *types = reading->types;
	struct hl_owner_counts *sums = &reading->sums;

	types->names = &reading->usage->names;
	types->rows = calloc(sums->count + 1, sizeof(*types->rows));
	if (!types->rows)
		return -ENOMEM;
	if (sums->count)
		qsort(sums->counts, sums->count, sizeof(*sums->counts), compare);
	for (; types->count < sums->count; types->count++) {
		const struct hl_owner_count *sum = &sums->counts[types->count];
		types->rows[types->count] = (struct hl_inuse_label){
			.number = (uint32_t)(sum->key >> 32),
			.name = (uint32_t)sum->key,
			.blocks = sum->blocks,
			.bytes = sum->bytes,
		};
	}
	return 0;
}

/* By its frames; or, where none are recorded, by the files that CPython is in. */
static int has_python(pid_t pid, const struct hl_block_owners *owners, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	bool found = hl_block_owners_have_runtime(owners, "python");

	int r = found ? 0 : hl_maps_read(pid, &maps, err);
	for (size_t i = 0; i < maps.count && !found; i++) {
		const char *slash = strrchr(maps.maps[i].path, '/');
		const char *name = slash ? slash + 1 : "";
		found = !strncmp(name, "libpython", 9) || !strncmp(name, "python", 6);
	}
	if (r == 0 && !found)
		r = hl_error_set(err, -ENOENT, "process %d has no Python", (int)pid);
	return r;
}

static void free_usage(void *usage)
{
	hl_python_usage_free(usage);
}

static int read_all(struct hl_memory *memory, struct reading *reading)
{
	struct hl_inuse_labels *types = reading->types;

	types->kept = reading->usage = hl_python_usage_new(memory);
	types->free_kept = free_usage;
	if (!types->kept)
		return -ENOMEM;
	int r = hl_block_owners_each(types->owners, list, reading);
	if (r == 0)
		r = hl_python_usage_each(reading->usage, add, reading);
	return r == 0 ? make_rows(reading) : r;
}

int hl_object_types_read(pid_t pid, struct hl_block_owners *owners,
			 struct hl_inuse_labels **ret_types, struct hl_error *err)
{
	struct hl_inuse_labels *types = hl_inuse_labels_new(HL_TYPE_PROVIDER, owners);
	struct reading reading = {.types = types, .sums.shape = {.start = 1, .width = 1}};
	struct hl_memory *memory = NULL;
	struct hl_error why = {0};

	int r = types ? has_python(pid, owners, &why) : -ENOMEM;
	if (r == 0)
		r = hl_memory_live_open(pid, &memory, &why);
	if (r == 0)
		r = read_all(memory, &reading);
	hl_memory_free(memory);
	hl_owner_counts_release(&reading.sums);
	free(reading.blocks);
	free(reading.parts);
	if (r < 0) {
		hl_inuse_labels_free(types);
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	}
	*ret_types = types;
	return 0;
}
