/* SPDX-License-Identifier: BSD-2-Clause */
/* Elements of a pprof file by their ids, which the file chooses. */
#pragma once

#include "base/index.h"

/* Elements are structs that begin with a uint64_t id. */
struct hl_pprof_table {
	size_t element_bytes;
	void *elements;
	size_t count, capacity;
	struct hl_index index;
};

/* Copies ${element} into ${table}. 0, -ENOMEM, or -EEXIST when its id is there already. */
int hl_pprof_table_add(struct hl_pprof_table *table, const void *element);

/* The element with ${id}, or NULL. Valid until the next one is added. */
void *hl_pprof_table_find(const struct hl_pprof_table *table, uint64_t id);

void hl_pprof_table_release(struct hl_pprof_table *table);
