/* SPDX-License-Identifier: BSD-2-Clause */
/* What another tool's file says of each stack: estimates from samples, below the callers of the
 * allocator; kept until the tree is finished and can take it. */
#pragma once

#include "profile/builder.h"

struct hl_import_value {
	uint32_t node; /* of the builder */
	int64_t alloc_bytes, alloc_objects;
	int64_t free_bytes, free_objects;
	int64_t base_bytes; /* allocated in the earlier of two profiles, if there are two */
};

/* Zero-initialize for an empty list. */
struct hl_import_values {
	struct hl_import_value *items;
	size_t count, capacity;
};

/* 0 or -ENOMEM. */
int hl_import_values_add(struct hl_import_values *values, const struct hl_import_value *value);

/*
 * Finishes the tree of ${builder}, adds ${values} up in it and in the totals, and, when
 * ${has_base}, those of the earlier profile in profile->base. 0 or -ENOMEM.
 */
int hl_import_values_finish(const struct hl_import_values *values, bool has_base,
			    struct hl_builder *builder, struct hl_profile **ret_profile);

void hl_import_values_release(struct hl_import_values *values);

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
struct hl_import_amount hl_import_values_unsample(const struct hl_import_sampling *sampling,
						  struct hl_import_amount sampled);

/*
 * Whether ${function}, in the file ${module_path} ("": none), allocates for its callers, and so
 * stands at the end of every stack.
 */
bool hl_import_values_is_allocator(const char *function, const char *module_path);
