/* SPDX-License-Identifier: BSD-2-Clause */
/* The names that functions of allocators go by. */
#pragma once

#include "bpf/heap_shared.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_allocator_name {
	const char *name;
	enum hl_heap_call call;
	bool throws; /* an exception may leave the function */
};

/*
 * What the function called ${name} does, or NULL when it does not belong to an allocator. The
 * plainer the name, the smaller *${ret_rank}: show the alias with the smallest rank.
 */
const struct hl_allocator_name *hl_allocator_name_find(const char *name, uint32_t *ret_rank);
