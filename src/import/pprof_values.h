/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The values of heap profiles in pprof's format: their names, which we write and read; which of
 * them count memory, and what they say of each stack.
 */
#pragma once

#include "profile/builder.h"

struct hl_pprof_type {
	const char *name;
	enum hl_value value;
	enum hl_unit unit;
};

/*
 * The first HL_PPROF_TYPE_COUNT are those that we write, in the order of Go's own heap profiles,
 * which all know; ours come after. The last of them is what readers show that know nothing of a
 * default. The others are only read.
 */
#define HL_PPROF_TYPE_COUNT 8
extern const struct hl_pprof_type hl_pprof_types[];

/* "bytes" and "count"; by enum hl_unit. */
extern const char *const hl_pprof_unit_names[];

/* Prefixes of comments that hold what pprof has no field for. */
#define HL_PPROF_COMMAND "command: "
#define HL_PPROF_MODE	 "mode: "

struct hl_pprof_column {
	char *name, *unit;		  /* as the file has them */
	const struct hl_pprof_type *type; /* NULL: not shown */
};

struct hl_pprof_value {
	uint32_t node; /* of the builder */
	struct hl_profile_counters counters;
};

/* Zero-initialize for an empty one. */
struct hl_pprof_values {
	struct hl_pprof_column *columns;
	struct hl_pprof_value *items;
	size_t column_count, column_capacity;
	size_t count, capacity;
	bool known[HL_VALUE_COUNT][HL_UNIT_COUNT];
};

/* The next of a sample's values is called ${name}, in ${unit}; both are copied. 0 or -ENOMEM. */
int hl_pprof_values_add_type(struct hl_pprof_values *values, const char *name, const char *unit);

/*
 * Decides which values are shown, once there is a type: those that count memory. If none does, the
 * one called ${preferred} or else the last is shown as memory in use, and a warning in ${profile}
 * says so. 0 or -ENOMEM.
 */
int hl_pprof_values_choose(struct hl_pprof_values *values, const char *preferred,
			   struct hl_profile *profile);

/* Adds a sample's ${numbers}, one for each type, to ${node}. 0 or -ENOMEM. */
int hl_pprof_values_add(struct hl_pprof_values *values, uint32_t node, const int64_t *numbers);

/* Finishes the tree of ${builder}, and fills its figures and totals. 0 or -ENOMEM. */
int hl_pprof_values_finish(const struct hl_pprof_values *values, struct hl_builder *builder,
			   struct hl_profile **ret_profile);

void hl_pprof_values_release(struct hl_pprof_values *values);
