/* SPDX-License-Identifier: BSD-2-Clause */
/* Slabs that an allocator told of, as a report. */
#pragma once

#include "heap/owners/slabs.h"
#include "view/heap.h"

/* 0, -ENOMEM, or the output's error. */
int hl_view_slabs(const struct hl_slabs *slabs, pid_t pid, const struct hl_emit_options *options);
