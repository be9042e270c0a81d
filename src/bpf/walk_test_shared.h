/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What walk_test.bpf.c sends. */
#pragma once

#include "bpf/walk_shared.h"

struct hl_walk_test_record {
	struct hl_record_header header;
	uint32_t thread;
	uint32_t reserved;
	uint64_t stack;
};
