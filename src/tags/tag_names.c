/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of tags, and each thread's stack of them; see tag_names.h and heapline.h. */
#include "tags/tag_names.h"

#include "base/compiler.h"
#include "base/names.h"
#include "heapline/heapline.h"
#include "tags/tag_table.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static_assert(HL_TAG_NAME_BYTES == HL_TAG_NAME_MAX + 1, "what heapline.h promises");

#define SLOTS (2 * HL_TAG_NAMES_MAX)

HL_EXPORT struct hl_tag_table hl_tag_table = {
	.magic = HL_TAG_TABLE_MAGIC,
	.name_bytes = HL_TAG_NAME_BYTES,
};

__thread struct hl_tag_stack hl_tag_stack;

/* Tags by the hash of their names, open addressing; 0: free. */
static _Atomic uint16_t slots[SLOTS];

/* A tag that somebody is just writing the name of. */
#define BEING_NAMED UINT16_MAX

static uint32_t hash_of(const char *name, size_t length)
{
	uint64_t hash = length;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(hash >> 16) % SLOTS;
}

static bool is_named(uint16_t tag, const char *name, size_t length)
{
	const char *named = hl_tag_table.names[tag - 1];

	return memcmp(named, name, length) == 0 && !named[length];
}

/* Names are written by one thread each, before their number is seen. 0 when there is no room. */
static uint16_t add_name(const char *name, size_t length)
{
	uint32_t count = atomic_load(&hl_tag_table.count);

	do {
		if (count == HL_TAG_NAMES_MAX)
			return 0;
	} while (!atomic_compare_exchange_weak(&hl_tag_table.count, &count, count + 1));
	memcpy(hl_tag_table.names[count], name, length);
	return (uint16_t)(count + 1);
}

/*
 * The number of ${name}, 0 when there are too many. A thread that finds a name being written goes
 * on to the next slot rather than wait, as it may be a signal handler: then a name has two numbers,
 * which readers take for one because the texts are equal.
 */
static uint16_t find_or_add(const char *name, size_t length)
{
	uint32_t at = hash_of(name, length);

	for (uint32_t tries = 0; tries < SLOTS; tries++, at = (at + 1) % SLOTS) {
		uint16_t tag = atomic_load_explicit(&slots[at], memory_order_acquire);
		if (!tag && atomic_compare_exchange_strong(&slots[at], &tag, BEING_NAMED)) {
			tag = add_name(name, length);
			atomic_store_explicit(&slots[at], tag, memory_order_release);
			return tag;
		}
		if (tag != BEING_NAMED && is_named(tag, name, length))
			return tag;
	}
	return 0;
}

HL_EXPORT int hl_tag_push(const char *name)
{
	int length = name ? hl_mark_length(name) : -EINVAL;

	if (length > (int)HL_TAG_NAME_MAX)
		length = -ENAMETOOLONG;
	uint16_t tag = length > 0 ? find_or_add(name, (size_t)length) : 0;
	struct hl_tag_stack *stack = &hl_tag_stack;
	/* Pushed in any case, so that pops match. */
	if (stack->depth < HL_TAG_DEPTH_MAX)
		stack->tags[stack->depth] = tag;
	stack->depth++;
	if (length < 0)
		return length;
	return tag ? 0 : -ENOSPC;
}

HL_EXPORT int hl_tag_pop(void)
{
	if (!hl_tag_stack.depth)
		return -EINVAL;
	hl_tag_stack.depth--;
	return 0;
}
