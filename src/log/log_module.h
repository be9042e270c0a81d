/* SPDX-License-Identifier: BSD-2-Clause */
/* A module as logs name it: on whose code a stack stood. */
#pragma once

#include <stdint.h>

struct hl_log_module {
	const char *path; /* "" when unknown */
	uint64_t start, end;
	uint64_t load_bias;
	uint8_t build_id[32];
	uint32_t build_id_bytes;
};
