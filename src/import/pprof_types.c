/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of values in pprof's format; see pprof_types.h. */
#include "import/pprof_types.h"

#include <string.h>

const struct hl_pprof_type hl_pprof_types[HL_PPROF_TYPE_COUNT] = {
	{"alloc_objects", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"alloc_space", HL_VALUE_ALLOC, HL_UNIT_BYTES},
	{"inuse_objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"inuse_space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"temporary_objects", HL_VALUE_TEMPORARY, HL_UNIT_OBJECTS},
	{"slack_space", HL_VALUE_SLACK, HL_UNIT_BYTES},
	{"peak_objects", HL_VALUE_PEAK, HL_UNIT_OBJECTS},
	{"peak_space", HL_VALUE_PEAK, HL_UNIT_BYTES},
};

const char *const hl_pprof_unit_names[] = {"bytes", "count"};

static const struct hl_pprof_type other_names[] = {
	/* pprof itself, of heap files of gperftools, and crates of Rust */
	{"objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	/* Perfetto's heapprofd */
	{"Unreleased malloc count", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"Unreleased malloc size", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"Total malloc count", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"Total malloc size", HL_VALUE_ALLOC, HL_UNIT_BYTES},
};

static const struct hl_pprof_type *find(const struct hl_pprof_type *types, size_t count,
					const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

const struct hl_pprof_type *hl_pprof_type_find(const char *name)
{
	const struct hl_pprof_type *type = find(hl_pprof_types, HL_PPROF_TYPE_COUNT, name);
	return type ? type : find(other_names, HL_COUNT_OF(other_names), name);
}
