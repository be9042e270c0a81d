/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts by a hash index; see owner_table.h. */
#include "heap/owners/owner_table.h"

#include "base/array.h"

int hl_owner_counts_add(struct hl_owner_counts *counts, uint64_t key, uint64_t bytes,
			uint64_t blocks)
{
	if (counts->last >= counts->count || counts->counts[counts->last].key != key) {
		uint32_t hash = hl_hash_pair(key, key >> 32), at = hash, id;
		while ((id = hl_index_next(&counts->index, hash, &at)))
			if (counts->counts[id - 1].key == key)
				break;
		counts->last = id ? id - 1 : counts->count;
		if (!id &&
		    (HL_ARRAY_RESERVE(counts->counts, counts->capacity, counts->count + 1) < 0 ||
		     hl_index_add(&counts->index, hash, (uint32_t)counts->count + 1) < 0))
			return -ENOMEM;
		if (!id)
			counts->counts[counts->count++] = (struct hl_owner_count){.key = key};
	}
	struct hl_owner_count *count = &counts->counts[counts->last];
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
