/* SPDX-License-Identifier: BSD-2-Clause */
/* From what a sampling allocator kept back to what there was. */
#pragma once

#include <stdint.h>

enum hl_import_sampling_kind {
	HL_SAMPLING_NONE,      /* every allocation is counted */
	HL_SAMPLING_POISSON,   /* jemalloc */
	HL_SAMPLING_TRUNCATED, /* gperftools and Go: the same, with fractions cut as Go's pprof does
				*/
};

struct hl_import_sampling {
	enum hl_import_sampling_kind kind;
	double mean_bytes; /* between samples */
};

struct hl_import_amount {
	int64_t objects, bytes;
};

/* An estimate, as good as the file allows, of the blocks that ${sampled} are samples of. */
struct hl_import_amount hl_import_unsample(const struct hl_import_sampling *sampling,
					   struct hl_import_amount sampled);
