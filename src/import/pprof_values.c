/* SPDX-License-Identifier: BSD-2-Clause */
/* From columns of a pprof file to the profile's counters; see pprof_values.h. */
#include "import/pprof_values.h"

#include "base/array.h"
#include "import/import_values.h"

#include <stdio.h>

/* ---- types ---- */

enum {
	INUSE_OBJECTS = 2,
	INUSE_SPACE,
};

const struct hl_pprof_type hl_pprof_types[] = {
	{"alloc_objects", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"alloc_space", HL_VALUE_ALLOC, HL_UNIT_BYTES},
	[INUSE_OBJECTS] = {"inuse_objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	[INUSE_SPACE] = {"inuse_space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"temporary_objects", HL_VALUE_TEMPORARY, HL_UNIT_OBJECTS},
	{"slack_space", HL_VALUE_SLACK, HL_UNIT_BYTES},
	{"peak_objects", HL_VALUE_PEAK, HL_UNIT_OBJECTS},
	{"peak_space", HL_VALUE_PEAK, HL_UNIT_BYTES},
	/* pprof itself, of heap files of gperftools, and crates of Rust: */
	{"objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	/* Perfetto's heapprofd */
	{"Unreleased malloc count", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"Unreleased malloc size", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"Total malloc count", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"Total malloc size", HL_VALUE_ALLOC, HL_UNIT_BYTES},
};

const char *const hl_pprof_unit_names[] = {"bytes", "count"};

/* The type of that name; NULL where it does not count memory. */
static const struct hl_pprof_type *find_named(const char *name)
{
	for (size_t i = 0; i < HL_COUNT_OF(hl_pprof_types); i++)
		if (!strcmp(hl_pprof_types[i].name, name))
			return &hl_pprof_types[i];
	return NULL;
}

/* The type of that name, if it counts in a unit that is ours, and if no column before is it. */
static const struct hl_pprof_type *find_type(struct hl_pprof_values *values, const char *name,
					     const char *unit)
{
	const struct hl_pprof_type *type = find_named(name);
	bool is_bytes = !strcmp(unit, hl_pprof_unit_names[HL_UNIT_BYTES]);

	if (!type || is_bytes != (type->unit == HL_UNIT_BYTES))
		return NULL;
	return values->known[type->value][type->unit] ? NULL : type;
}

int hl_pprof_values_add_type(struct hl_pprof_values *values, const char *name, const char *unit)
{
	struct hl_pprof_column column = {.type = find_type(values, name, unit)};

	int r = HL_ARRAY_RESERVE(values->columns, values->column_capacity,
				 values->column_count + 1);
	if (r < 0)
		return r;
	column.name = strdup(name);
	column.unit = strdup(unit);
	if (!column.name || !column.unit) {
		free(column.name);
		free(column.unit);
		return -ENOMEM;
	}
	if (column.type)
		values->known[column.type->value][column.type->unit] = true;
	values->columns[values->column_count++] = column;
	return 0;
}

static bool counts_memory(const struct hl_pprof_values *values)
{
	for (size_t i = 0; i < values->column_count; i++)
		if (values->columns[i].type)
			return true;
	return false;
}

static struct hl_pprof_column *find_column(const struct hl_pprof_values *values,
					   const char *preferred)
{
	struct hl_pprof_column *found = &values->columns[values->column_count - 1];

	for (size_t i = values->column_count; i-- > 0;)
		if (!strcmp(values->columns[i].name, preferred))
			found = &values->columns[i];
	return found;
}

static int warn_of(struct hl_profile *profile, const struct hl_pprof_column *column)
{
	char *sentence;

	if (asprintf(&sentence,
		     "the file does not count memory in use, but '%s' in %s, which is "
		     "shown as %s in use",
		     column->name, column->unit[0] ? column->unit : "no unit",
		     hl_unit_names[column->type->unit]) < 0)
		return -ENOMEM;
	int r = hl_profile_warn(profile, "%s", sentence);
	free(sentence);
	return r;
}

int hl_pprof_values_choose(struct hl_pprof_values *values, const char *preferred,
			   struct hl_profile *profile)
{
	int r = 0;

	if (!counts_memory(values)) {
		struct hl_pprof_column *column = find_column(values, preferred);
		bool is_bytes = !strcmp(column->unit, hl_pprof_unit_names[HL_UNIT_BYTES]);
		column->type = &hl_pprof_types[is_bytes ? INUSE_SPACE : INUSE_OBJECTS];
		values->known[column->type->value][column->type->unit] = true;
		r = warn_of(profile, column);
	}
	memcpy(profile->known, values->known, sizeof(profile->known));
	return r;
}

/* ---- values ---- */

/*
 * A file counts memory in use, a profile freed memory. Where only one of alloc and inuse is known
 * the other is taken to be equal, and not shown.
 */
static void fill(struct hl_profile_counters *counters, const struct hl_pprof_values *values,
		 int64_t figures[HL_VALUE_COUNT][HL_UNIT_COUNT])
{
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		if (!values->known[HL_VALUE_ALLOC][unit])
			figures[HL_VALUE_ALLOC][unit] = figures[HL_VALUE_INUSE][unit];
		if (!values->known[HL_VALUE_INUSE][unit])
			figures[HL_VALUE_INUSE][unit] = figures[HL_VALUE_ALLOC][unit];
	}
	const int64_t *inuse = figures[HL_VALUE_INUSE], *alloc = figures[HL_VALUE_ALLOC];
	*counters = (struct hl_profile_counters){
		.alloc_bytes = alloc[HL_UNIT_BYTES],
		.alloc_objects = alloc[HL_UNIT_OBJECTS],
		.free_bytes = alloc[HL_UNIT_BYTES] - inuse[HL_UNIT_BYTES],
		.free_objects = alloc[HL_UNIT_OBJECTS] - inuse[HL_UNIT_OBJECTS],
		.peak_bytes = figures[HL_VALUE_PEAK][HL_UNIT_BYTES],
		.peak_objects = figures[HL_VALUE_PEAK][HL_UNIT_OBJECTS],
		.temporary_objects = figures[HL_VALUE_TEMPORARY][HL_UNIT_OBJECTS],
		.slack_bytes = figures[HL_VALUE_SLACK][HL_UNIT_BYTES],
	};
}

int hl_pprof_values_add(struct hl_pprof_values *values, uint32_t node, const int64_t *numbers)
{
	int64_t figures[HL_VALUE_COUNT][HL_UNIT_COUNT] = {0};
	struct hl_pprof_value item = {.node = node};

	for (size_t i = 0; i < values->column_count; i++) {
		const struct hl_pprof_type *type = values->columns[i].type;
		if (type)
			figures[type->value][type->unit] = numbers[i];
	}
	fill(&item.counters, values, figures);
	return HL_ARRAY_APPEND(values->items, values->count, values->capacity, item);
}

int hl_pprof_values_finish(const struct hl_pprof_values *values, struct hl_builder *builder,
			   struct hl_profile **ret_profile)
{
	struct hl_profile *profile;
	uint32_t *final_ids;

	int r = hl_builder_finish(builder, &final_ids, &profile);
	if (r < 0)
		return r;
	for (size_t i = 0; i < values->count; i++) {
		const struct hl_pprof_value *item = &values->items[i];
		hl_profile_counters_add(&profile->counters[final_ids[item->node]], &item->counters);
		hl_profile_counters_add(&profile->total, &item->counters);
	}
	free(final_ids);
	profile->imported = true;
	profile->complete = true;
	profile->unfiltered_total = profile->total;
	*ret_profile = profile;
	return 0;
}

void hl_pprof_values_release(struct hl_pprof_values *values)
{
	for (size_t i = 0; i < values->column_count; i++) {
		free(values->columns[i].name);
		free(values->columns[i].unit);
	}
	free(values->columns);
	free(values->items);
	*values = (struct hl_pprof_values){0};
}
