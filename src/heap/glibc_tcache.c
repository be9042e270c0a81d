/* SPDX-License-Identifier: BSD-2-Clause */
/* The key of thread caches; see glibc_tcache.h. */
#include "heap/glibc_tcache.h"

uint64_t hl_glibc_tcache_chunk_size(const struct hl_glibc_layout *layout)
{
	return (layout->tcache_bytes + HL_CHUNK_HEADER + 15) & ~UINT64_C(15);
}

/* The second words of ${chunks}, if they are all alike. */
static uint64_t common_key(struct hl_memory *memory, const struct hl_addresses *chunks)
{
	uint64_t key = 0, word;

	for (size_t i = 0; i < chunks->count; i++) {
		uint64_t at = chunks->addresses[i] + HL_CHUNK_BLOCK + 8;
		if (hl_memory_read(memory, at, &word, sizeof(word)) < 0)
			continue;
		if (!key)
			key = word;
		else if (word != key)
			return 0;
	}
	return key;
}

uint64_t hl_glibc_tcache_key_at(struct hl_memory *memory, const struct hl_glibc *glibc,
				uint64_t address)
{
	struct hl_addresses chunks = {0};
	uint64_t head, key = 0;

	if (hl_memory_read(memory, address + 8, &head, sizeof(head)) < 0 ||
	    (head & ~HL_CHUNK_FLAGS) != hl_glibc_tcache_chunk_size(glibc->layout))
		return 0;
	if (hl_glibc_tcache_chunks(memory, glibc, address + HL_CHUNK_BLOCK, &chunks) == 0)
		key = common_key(memory, &chunks);
	hl_addresses_release(&chunks);
	return key;
}
