/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts lie in linked blocks that never move; an index finds them. See strings.h. */
#include "base/strings.h"

#include "base/array.h"

#include <string.h>

/* Each block is twice as large as the one before: each module has a table, and most stay short. */
#define BLOCK_BYTES_LEAST 1024
#define BLOCK_BYTES_MOST  (64 * 1024)

static int add_block(struct hl_strings *strings, size_t needed)
{
	size_t twice = 2 * strings->block_bytes;
	size_t usual = twice < BLOCK_BYTES_LEAST  ? BLOCK_BYTES_LEAST
		       : twice > BLOCK_BYTES_MOST ? BLOCK_BYTES_MOST
						  : twice;
	size_t bytes = sizeof(char *) + (needed > usual ? needed : usual);
	char *block = malloc(bytes);

	if (!block)
		return -ENOMEM;
	memcpy(block, &strings->block, sizeof(char *));
	strings->block = block;
	strings->block_used = sizeof(char *);
	strings->block_bytes = bytes;
	return 0;
}

static int add_text(struct hl_strings *strings, const char *text, size_t length, uint32_t hash,
		    uint32_t *ret_id)
{
	size_t id = strings->count ? strings->count : 1, bytes = length + 1;

	if (HL_ARRAY_RESERVE(strings->texts, strings->capacity, id + 1) < 0)
		return -ENOMEM;
	if ((!strings->block || strings->block_bytes - strings->block_used < bytes) &&
	    add_block(strings, bytes) < 0)
		return -ENOMEM;
	char *copy = strings->block + strings->block_used;
	memcpy(copy, text, bytes);
	strings->block_used += bytes;
	strings->texts[id] = copy;
	int r = hl_index_add(&strings->index, hash, (uint32_t)id);
	if (r < 0)
		return r;
	strings->count = id + 1;
	*ret_id = (uint32_t)id;
	return 0;
}

int hl_strings_intern(struct hl_strings *strings, const char *text, uint32_t *ret_id)
{
	if (!text || !text[0]) {
		*ret_id = 0;
		return 0;
	}
	size_t length = strlen(text);
	uint32_t hash = hl_hash_bytes(text, length), at = hash, id;
	while ((id = hl_index_next(&strings->index, hash, &at)))
		if (!strcmp(strings->texts[id], text)) {
			*ret_id = id;
			return 0;
		}
	return add_text(strings, text, length, hash, ret_id);
}

const char *hl_strings_text(const struct hl_strings *strings, uint32_t id)
{
	return id ? strings->texts[id] : "";
}

void hl_strings_release(struct hl_strings *strings)
{
	while (strings->block) {
		char *next;
		memcpy(&next, strings->block, sizeof(next));
		free(strings->block);
		strings->block = next;
	}
	free(strings->texts);
	hl_index_release(&strings->index);
	*strings = (struct hl_strings){0};
}
