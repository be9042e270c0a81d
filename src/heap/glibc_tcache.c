/* SPDX-License-Identifier: BSD-2-Clause */
/* Thread caches, their key and their lists; see glibc_tcache.h. */
#include "heap/glibc_tcache.h"

#include "heap/glibc_walk.h"

#include <errno.h>
#include <string.h>

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

/* Whether the block at ${address} can be a tcache: lists are empty where their count is 0, and
 * nowhere else. */
static bool is_tcache(struct hl_memory *memory, const struct hl_glibc_layout *layout,
		      uint64_t address)
{
	uint8_t bytes[1024];
	const uint8_t *heads = bytes + layout->tcache_bytes - 8 * HL_GLIBC_TCACHES;

	if (hl_memory_read(memory, address, bytes, layout->tcache_bytes) < 0)
		return false;
	for (uint32_t i = 0; i < HL_GLIBC_TCACHES; i++) {
		uint64_t head;
		uint16_t count = 0;
		memcpy(&count, bytes + i * layout->tcache_count_bytes, layout->tcache_count_bytes);
		memcpy(&head, heads + i * 8, sizeof(head));
		if (!head != !count || head & 15)
			return false;
	}
	return true;
}

int hl_glibc_cached_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			   const struct hl_addresses *blocks, struct hl_addresses *chunks)
{
	for (size_t i = 0; i < blocks->count; i++)
		if (is_tcache(memory, glibc->layout, blocks->addresses[i]) &&
		    hl_glibc_tcache_chunks(memory, glibc, blocks->addresses[i], chunks) < 0)
			return -ENOMEM;
	hl_addresses_sort(chunks);
	return 0;
}

bool hl_glibc_has_tcache_key(struct hl_memory *memory, uint64_t address, uint64_t key)
{
	uint64_t word;

	return hl_memory_read(memory, address + HL_CHUNK_BLOCK + 8, &word, sizeof(word)) == 0 &&
	       word == key;
}
