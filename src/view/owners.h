/* SPDX-License-Identifier: BSD-2-Clause */
/* Live blocks by owner, as a report. */
#pragma once

#include "heap/owners/owners.h"

#include <stdio.h>

struct hl_owners_view_options {
	FILE *out;
	bool json, color;
	uint64_t row_limit; /* as in hl_allocations_emit() */
};

/* 0, -ENOMEM, or the output's error. */
int hl_view_owners(const struct hl_owners *owners, pid_t pid,
		   const struct hl_owners_view_options *options);
