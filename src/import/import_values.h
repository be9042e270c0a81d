/* SPDX-License-Identifier: BSD-2-Clause */
/* What another tool's file says of each stack, until the tree is finished and can take it. */
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
