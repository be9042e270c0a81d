/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts by a hash index; see owner_counts.h. */
#include "heap/owners/owner_counts.h"

#include "base/array.h"

static struct hl_owner_count *find(struct hl_owner_counts *counts, uint64_t key, uint32_t hash)
{
	uint32_t id, at = hash;
	while ((id = hl_index_next(&counts->index, hash, &at)))
		if (counts->counts[id - 1].key == key) {
			counts->last = id - 1;
			return &counts->counts[id - 1];
		}
	return NULL;
}

static struct hl_owner_count *add(struct hl_owner_counts *counts, uint64_t key, uint32_t hash)
{
	if (HL_ARRAY_RESERVE(counts->counts, counts->capacity, counts->count + 1) < 0 ||
	    hl_index_add(&counts->index, hash, (uint32_t)counts->count + 1) < 0)
		return NULL;
	counts->last = counts->count++;
	counts->counts[counts->last] = (struct hl_owner_count){.key = key};
	return &counts->counts[counts->last];
}

static struct hl_owner_count *find_or_add(struct hl_owner_counts *counts, uint64_t key)
{
	if (counts->last < counts->count && counts->counts[counts->last].key == key)
		return &counts->counts[counts->last];
	uint32_t hash = hl_hash_pair(key, key >> 32);
	struct hl_owner_count *found = find(counts, key, hash);
	return found ? found : add(counts, key, hash);
}

int hl_owner_counts_add(struct hl_owner_counts *counts, uint64_t key, uint64_t bytes,
			uint64_t blocks)
{
	struct hl_owner_count *count = find_or_add(counts, key);
	if (!count)
		return -ENOMEM;
	count->blocks += blocks;
	count->bytes += bytes * blocks;
	count->histogram.counts[hl_log2_slot(&counts->shape, bytes)] += blocks;
	return 0;
}

void hl_owner_counts_release(struct hl_owner_counts *counts)
{
	hl_index_release(&counts->index);
	free(counts->counts);
}
