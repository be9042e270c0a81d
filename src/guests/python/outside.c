/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of Python from outside, see guests/outside.h; and what reports of a heap show of it. */
#include "guests/outside.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/frame_key.h"
#include "cli/cli.h"
#include "guests/python/usage.h"
#include "heap/heap.h"
#include "heap/memory.h"
#include "heap/owners/owner_table.h"
#include "heap/owners/owners.h"
#include "view/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- live blocks by stack and type ---- */

#define PARTS_NAME_MAX (HL_PYTHON_NAME_BYTES + sizeof(" (parts)"))

struct listed {
	uint32_t number;
	uint64_t requested;
};

struct reading { /* kept by the labels */
	struct hl_inuse_labels *types;
	struct hl_memory *memory;
	struct hl_python_usage *usage;
	struct listed *blocks; /* in rising order of address */
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

static void free_reading(void *kept)
{
	struct reading *reading = kept;

	hl_python_usage_free(reading->usage);
	hl_memory_free(reading->memory);
	hl_owner_counts_release(&reading->sums);
	free(reading->blocks);
	free(reading->parts);
	free(reading);
}

static int complete(struct hl_inuse_labels *types)
{
	struct reading *reading = types->kept;
	int r = hl_python_usage_each(reading->usage, add, reading);

	return r == 0 ? make_rows(reading) : r;
}

static int list_all(pid_t pid, struct hl_inuse_labels *types, struct hl_error *err)
{
	struct reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return -ENOMEM;
	types->kept = reading;
	types->free_kept = free_reading;
	types->complete = complete;
	reading->types = types;
	reading->sums.shape = (struct hl_log2_shape){.start = 1, .width = 1};
	int r = has_python(pid, types->owners, err);
	if (r == 0)
		r = hl_memory_live_open(pid, &reading->memory, err);
	if (r == 0 && !(reading->usage = hl_python_usage_new(reading->memory)))
		r = -ENOMEM;
	return r == 0 ? hl_block_owners_each(types->owners, list, reading) : r;
}

/*
 * Lists the blocks of process ${pid} while it goes on; completed, from pages that are in memory. Labels are types: "list"; of
 * blocks that belong to lists "list (parts)". Blocks that are neither objects nor parts of one
 * are in no row. ${owners}: as hl_inuse_labels_open() gives them. 0; or a negative errno with a sentence, -ENOENT
 * when there is no Python.
 */
static int object_types_read(pid_t pid, struct hl_block_owners *owners,
			     struct hl_inuse_labels **ret_types, struct hl_error *err)
{
	struct hl_inuse_labels *types = hl_inuse_labels_new(HL_TYPE_PROVIDER, owners);
	struct hl_error why = {0};
	int r = types ? list_all(pid, types, &why) : -ENOMEM;

	if (r < 0) {
		hl_inuse_labels_free(types);
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	}
	*ret_types = types;
	return 0;
}

/* ---- options ---- */

static const struct hl_option heap_options[] = {
	{"python-arenas", 0, NULL, "also show the arenas of Python's objects, by size class",
	 HL_OPTION_FLAG, offsetof(struct hl_guest_request, pools), NULL},
	{"python-types", 0, NULL, "the same, and Python's objects by type", HL_OPTION_FLAG,

	 offsetof(struct hl_guest_request, types), NULL},
	{0},
};

struct report {
	struct hl_python_arenas arenas;
	struct hl_python_usage *usage; /* NULL if it is not wanted */
};

/* ---- reading ---- */

static int open_report(struct hl_memory *memory, const struct hl_guest_request *request,
		       void **ret_report)
{
	if (!request->pools && !request->types) {
		*ret_report = NULL;
		return 0;
	}
	struct report *report = calloc(1, sizeof(*report));
	if (!report)
		return -ENOMEM;
	if (request->types && !(report->usage = hl_python_usage_new(memory))) {
		free(report);
		return -ENOMEM;
	}
	*ret_report = report;
	return 0;
}

static int add_block(void *report, uint64_t address, uint64_t usable_bytes)
{
	struct hl_python_usage *usage = ((struct report *)report)->usage;

	return usage ? hl_python_usage_add(usage, address, usable_bytes) : 0;
}

static int read_report(void *kept, struct hl_memory *memory,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err)
{
	struct report *report = kept;
	struct hl_python_usage *usage = report->usage;
	int r = 0;

	if (usage && !settings->stop && memory->kind->stop)
		r = hl_extents_of_carriers(&heap->carriers, memory->page_bytes, &usage->heap);
	if (r == 0)
		r = hl_python_arenas_read(memory, usage ? hl_python_usage_add_pool : NULL, usage,
					  &report->arenas);
	if (r == 0 && usage)
		r = hl_python_usage_make(usage);
	if (r < 0)
		return hl_error_set(err, r, "cannot read Python's arenas: %s", strerror(-r));
	if (usage && usage->moved_objects)
		r = hl_heap_note(
			heap,
			"parts of %llu of Python's objects moved while they were read, and are "
			"missing; --stop has all",
			(unsigned long long)usage->moved_objects);
	if (r == 0 && !report->arenas.pool_bytes && !(usage && usage->total.objects))
		r = hl_heap_note(heap, "no arenas of Python's objects are in the process");
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

static void free_report(void *kept)
{
	struct report *report = kept;

	hl_python_usage_free(report->usage);
	free(report);
}

/* ---- arenas ---- */

struct size_class {
	uint64_t block_bytes, pools, used_blocks, used_bytes, free_blocks, free_bytes;
};

#define CLASS(name) HL_MEMBER(struct size_class, name)

static const struct hl_column class_columns[] = {
	{"block_bytes", "Python block", HL_COLUMN_BYTES, CLASS(block_bytes), HL_COLUMN_KEY},
	{"pools", "pools", HL_COLUMN_COUNT, CLASS(pools)},
	{"used_blocks", "used blocks", HL_COLUMN_COUNT, CLASS(used_blocks)},
	{"used_bytes", "used", HL_COLUMN_BYTES, CLASS(used_bytes)},
	{"free_blocks", "pinned blocks", HL_COLUMN_COUNT, CLASS(free_blocks)},
	{"free_bytes", "pinned", HL_COLUMN_BYTES, CLASS(free_bytes)},
};

static struct size_class class_of(const struct hl_python_arenas *arenas, uint32_t number)
{
	const struct hl_python_class *entry = &arenas->classes[number];
	uint64_t bytes = hl_python_block_bytes(number);

	return (struct size_class){bytes,
				   entry->pools,
				   entry->used_blocks,
				   entry->used_blocks * bytes,
				   entry->free_blocks,
				   entry->free_blocks * bytes};
}

static void emit_arenas(struct hl_emit *emit, const struct hl_python_arenas *arenas)
{
	struct size_class sum = {0};

	if (!arenas->pool_bytes)
		return;
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("python_classes", class_columns)});
	for (uint32_t i = 0; i < HL_PYTHON_CLASSES; i++) {
		const struct size_class entry = class_of(arenas, i);

		sum.pools += entry.pools;
		sum.used_bytes += entry.used_bytes;
		sum.free_bytes += entry.free_bytes;
		if (entry.pools)
			hl_table_row(emit, &entry, 0);
	}
	hl_table_end(emit);
	hl_emit_object(emit, "python");
	hl_emit_unsigned(emit, "arenas", arenas->arenas);
	hl_emit_unsigned(emit, "pool_bytes", arenas->pool_bytes);
	hl_emit_unsigned(emit, "pools", sum.pools);
	hl_emit_unsigned(emit, "used_bytes", sum.used_bytes);
	hl_emit_unsigned(emit, "free_bytes", sum.free_bytes);
	hl_emit_unsigned(emit, "free_pools", arenas->free_pools);
	hl_emit_object_end(emit);
	hl_emit_line(
		emit,
		"Python's objects use %s of %s pools in %s arenas; %s are free for objects of the "
		"same sizes alone, and %s in %s empty pools",
		HL_HEAP_BYTES(sum.used_bytes), HL_HEAP_COUNT(sum.pools),
		HL_HEAP_COUNT(arenas->arenas), HL_HEAP_BYTES(sum.free_bytes),
		HL_HEAP_BYTES(arenas->free_pools * arenas->pool_bytes),
		HL_HEAP_COUNT(arenas->free_pools));
}

/* ---- objects by type ---- */

static void type_name(struct hl_emit *emit, const void *row, const void *usage)
{
	const struct hl_python_usage_row *entry = row;

	hl_cell_text(emit,
		     entry->name ? hl_strings_text(&((const struct hl_python_usage *)usage)->names,
						   entry->name)
				 : "(no object)");
}

static void type_bytes(struct hl_emit *emit, const void *row, const void *usage)
{
	const struct hl_python_usage_row *entry = row;

	(void)usage;
	hl_cell_unsigned(emit, entry->object_bytes + entry->part_bytes);
}

#define USAGE(name) HL_MEMBER(struct hl_python_usage_row, name)

static const struct hl_column type_columns[] = {
	{"type", "Python type", HL_COLUMN_TEXT, .cell = type_name,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_KEY},
	{"objects", "objects", HL_COLUMN_COUNT, USAGE(objects)},
	{"bytes", "bytes", HL_COLUMN_BYTES, .cell = type_bytes},
	{"object_bytes", "objects' own", HL_COLUMN_BYTES, USAGE(object_bytes), HL_COLUMN_OMITTED},
	{"part_bytes", "of it parts", HL_COLUMN_BYTES, USAGE(part_bytes), HL_COLUMN_BLANK_ZERO},
	{"pinned_bytes", "pinned", HL_COLUMN_BYTES, USAGE(pinned_bytes), HL_COLUMN_BLANK_ZERO},
};

static void emit_types(struct hl_emit *emit, const struct hl_python_usage *usage,
		       uint64_t row_limit)
{
	if (!usage || !usage->row_count)
		return;
	size_t shown = hl_emit_is_json(emit) ? usage->row_count
					     : hl_emit_shown(emit, row_limit, 0, usage->row_count);
	hl_emit_blank(emit);
	hl_table_begin(
		emit, &(struct hl_table){HL_TABLE("python_types", type_columns), .context = usage});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &usage->rows[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, usage->row_count - shown, "-n");
	hl_emit_object(emit, "python_objects");
	hl_emit_unsigned(emit, "objects", usage->total.objects);
	hl_emit_unsigned(emit, "bytes", usage->total.object_bytes + usage->total.part_bytes);
	hl_emit_unsigned(emit, "pinned_bytes", usage->total.pinned_bytes);
	hl_emit_unsigned(emit, "unscanned_bytes", usage->unscanned_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s objects of Python have %s", HL_HEAP_COUNT(usage->total.objects),
		     HL_HEAP_BYTES(usage->total.object_bytes + usage->total.part_bytes));
	if (usage->unscanned_bytes)
		hl_emit_line(emit, "%s of pools could not be read",
			     HL_HEAP_BYTES(usage->unscanned_bytes));
}

static void emit_report(struct hl_emit *emit, const void *kept, uint64_t row_limit)
{
	const struct report *report = kept;

	emit_arenas(emit, &report->arenas);
	emit_types(emit, report->usage, row_limit);
}

/* ---- types of any block ---- */

static_assert(HL_PYTHON_WORDS <= HL_GUEST_TYPE_WORDS, "all words are given");

/* Addresses that are not types, after which the process is taken to have no Python. */
#define TRIES_MAX 4096u

struct block_types {
	struct hl_python_types types;
	bool has_found;
};

static int find_type(void **kept, struct hl_memory *memory, struct hl_strings *names,
		     const uint64_t *words, size_t count, uint32_t *ret_name)
{
	struct block_types *found = *kept ? *kept : calloc(1, sizeof(*found));
	uint32_t type = 0;

	if (!found)
		return -ENOMEM;
	if (!*kept)
		found->types = (struct hl_python_types){.memory = memory, .names = names};
	*kept = found;
	if (!found->has_found && found->types.count >= TRIES_MAX)
		return 0;
	int r = hl_python_types_find(&found->types, words, count, &type);
	if (r == 0 && type) {
		found->has_found = true;
		*ret_name = found->types.types[type - 1].name;
	}
	return r;
}

static void free_types(void *kept)
{
	struct block_types *found = kept;

	if (found)
		hl_python_types_release(&found->types);
	free(found);
}

/* ---- the table ---- */

const struct hl_guest_outside hl_guest_outside_python = {
	.labels[HL_GUEST_TYPES] = {"the types of Python's objects", object_types_read},
	.pools = {.name = "Python objects (pymalloc's arenas)",
		  .listed_by = "--python-types' lists Python's objects by type",
		  .pool_bytes = hl_python_arenas_pool_bytes,
		  .recorded = true},
	.types = {find_type, free_types},
	.heap = {open_report, add_block, read_report, emit_report, free_report},
	.options[HL_GUEST_OPTIONS_HEAP] = heap_options,
};
