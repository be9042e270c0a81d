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
 * What the function called ${name} does, or NULL when it is none of an allocator. *${ret_rank} is
 * the smaller, the plainer the name is: of aliases, the one with the smallest is to be shown.
 */
const struct hl_allocator_name *hl_allocator_name_find(const char *name, uint32_t *ret_rank);
