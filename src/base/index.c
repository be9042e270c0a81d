/* SPDX-License-Identifier: BSD-2-Clause */
/* Open addressing with linear probing; see index.h. */
#include "base/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void insert(struct hl_index_slot *slots, size_t capacity, struct hl_index_slot entry)
{
	size_t at = entry.hash & (capacity - 1);

	while (slots[at].id)
		at = (at + 1) & (capacity - 1);
	slots[at] = entry;
}

int hl_index_reserve(struct hl_index *index, size_t count)
{
	size_t capacity = index->capacity ? index->capacity : 64;

	while (capacity / 8 * 5 < count) /* load of at most 5/8 keeps probes short */
		capacity *= 2;
	if (capacity == index->capacity)
		return 0;
	struct hl_index_slot *slots = calloc(capacity, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < index->capacity; i++)
		if (index->slots[i].id)
			insert(slots, capacity, index->slots[i]);
	free(index->slots);
	index->slots = slots;
	index->capacity = capacity;
	return 0;
}

int hl_index_add(struct hl_index *index, uint32_t hash, uint32_t id)
{
	int r = hl_index_reserve(index, index->used + 1);

	if (r < 0)
		return r;
	insert(index->slots, index->capacity, (struct hl_index_slot){hash, id});
	index->used++;
	return 0;
}

uint32_t hl_index_next(const struct hl_index *index, uint32_t hash, uint32_t *at)
{
	if (!index->capacity)
		return 0;
	for (;;) {
		const struct hl_index_slot *slot = &index->slots[(*at)++ & (index->capacity - 1)];
		if (!slot->id)
			return 0;
		if (slot->hash == hash)
			return slot->id;
	}
}

void hl_index_release(struct hl_index *index)
{
	free(index->slots);
	*index = (struct hl_index){0};
}

/* The finalizer of MurmurHash3 (public domain) over the two halves, mixed by an odd constant. */
uint32_t hl_hash_pair(uint64_t a, uint64_t b)
{
	uint64_t h = a * 0x9e3779b97f4a7c15u + b;

	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdu;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53u;
	h ^= h >> 33;
	return (uint32_t)h;
}

/* Eight bytes a step; the tail is padded with zeros, and the length tells it from a real zero. */
uint32_t hl_hash_bytes(const void *bytes, size_t length)
{
	const unsigned char *at = bytes;
	uint64_t h = length, word;

	for (size_t done = 0; done < length; done += sizeof(word)) {
		size_t left = length - done;
		word = 0;
		memcpy(&word, at + done, left < sizeof(word) ? left : sizeof(word));
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return hl_hash_pair(h, length);
}
