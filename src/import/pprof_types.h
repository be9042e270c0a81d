/* SPDX-License-Identifier: BSD-2-Clause */
/* What heap profiles in pprof's format call their values; written by us and read from others. */
#pragma once

#include "profile/profile.h"

struct hl_pprof_type {
	const char *name;
	enum hl_value value;
	enum hl_unit unit;
};

/*
 * Those that we write, in the order of Go's own heap profiles, which all know; ours come after.
 * The last one is what readers show that know nothing of a default.
 */
#define HL_PPROF_TYPE_COUNT 8
extern const struct hl_pprof_type hl_pprof_types[HL_PPROF_TYPE_COUNT];

/* "bytes" and "count"; by enum hl_unit. */
extern const char *const hl_pprof_unit_names[];

/* The type of that name, under which other tools may know it; NULL when none counts memory so. */
const struct hl_pprof_type *hl_pprof_type_find(const char *name);

/* Beginnings of comments that tell what pprof has no field for. */
#define HL_PPROF_COMMAND "command: "
#define HL_PPROF_MODE	 "mode: "
