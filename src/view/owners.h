/* SPDX-License-Identifier: BSD-2-Clause */
/* Live blocks by owner, as a report. */
#pragma once

#include "heap/owners/owners.h"
#include "view/emit.h"

/* 0, -ENOMEM, or the output's error. */
int hl_view_owners(const struct hl_owners *owners, pid_t pid,
		   const struct hl_emit_options *options);
