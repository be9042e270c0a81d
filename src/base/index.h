/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash index: finds ids by the hash of what they stand for. It stores (hash, id) alone; the
 * caller has the elements and compares them:
 *
 *	uint32_t id, at = hash;
 *	while ((id = hl_index_next(&index, hash, &at)))
 *		if (elements[id] is the one)
 *			return id;
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hl_index_slot {
	uint32_t hash, id; /* id 0: free */
};

/* Zero-initialize for an empty index. */
struct hl_index {
	struct hl_index_slot *slots;
	size_t capacity; /* 0 or a power of two */
	size_t used;
};

/* Makes room for ${count} ids in all. 0 or -ENOMEM. */
int hl_index_reserve(struct hl_index *index, size_t count);

/* Adds ${id} (not 0). 0, or -ENOMEM with the index unchanged. */
int hl_index_add(struct hl_index *index, uint32_t hash, uint32_t id);

/* The next id stored under ${hash}, or 0. *${at} is ${hash} at first. */
uint32_t hl_index_next(const struct hl_index *index, uint32_t hash, uint32_t *at);

void hl_index_release(struct hl_index *index);

uint32_t hl_hash_pair(uint64_t a, uint64_t b);
uint32_t hl_hash_bytes(const void *bytes, size_t length);
