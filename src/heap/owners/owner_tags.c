/* SPDX-License-Identifier: BSD-2-Clause */
/* Owners by the words that the tag shim left at the ends of blocks (tags/tag_word.h). */
#include "heap/owners/owner_table.h"

#include "base/cleanup.h"
#include "elf/elf.h"
#include "heap/heap.h"
#include "tags/tag_table.h"
#include "tags/tag_word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libheapline-tags.so"

struct tag_walk {
	struct hl_owner_counts counts; /* by the identity in the word */
	uint64_t unknown_blocks, unknown_bytes;
	uint64_t plumbing_blocks; /* their caller is allocation plumbing, and has no tag */
	struct hl_owner_tag_names *tags;
};

/* ---- the table of names ---- */

struct hl_owner_tag_names {
	struct hl_tag_table table;
	uint32_t count;
};

/* Shared objects begin at address 0 of their file, which their first mapping holds. */
static int read_table(pid_t pid, const struct hl_map *library, struct hl_owner_tag_names *tags)
{
	uint64_t address;

	HL_CLOSED int fd = hl_maps_open_file(pid, library);
	if (fd < 0)
		return fd;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf || !hl_elf_find_symbol(elf, HL_ELF_DYNSYM, HL_TAG_SYMBOL, &address))
		return -ENODATA;
	int r = hl_owners_read_memory(pid, library->start - library->offset + address, &tags->table,
				      sizeof(tags->table));
	if (r < 0)
		return r;
	if (tags->table.magic != HL_TAG_TABLE_MAGIC || tags->table.name_bytes != HL_TAG_NAME_BYTES)
		return -ENODATA;
	tags->count = tags->table.count < HL_TAG_NAMES_MAX ? tags->table.count : HL_TAG_NAMES_MAX;
	for (uint32_t i = 0; i < tags->count; i++)
		tags->table.names[i][HL_TAG_NAME_BYTES - 1] = '\0';
	return 0;
}

int hl_owner_tag_names_new(pid_t pid, const struct hl_owner_names *names,
			   struct hl_owner_tag_names **ret_tags)
{
	const struct hl_map *library = hl_owners_find_file(hl_owner_names_maps(names), LIBRARY, 0);
	struct hl_owner_tag_names *tags = library ? calloc(1, sizeof(*tags)) : NULL;

	if (!tags)
		return library ? -ENOMEM : -ENODATA;
	int r = read_table(pid, library, tags);
	if (r < 0)
		free(tags);
	else
		*ret_tags = tags;
	return r;
}

void hl_owner_tag_names_free(struct hl_owner_tag_names *tags)
{
	free(tags);
}

/* A word that leads nowhere was not a tag. */
int hl_owner_tag_names_find(const struct hl_owner_tag_names *tags, struct hl_owner_names *names,
			    uint64_t word, struct hl_owner_name *ret_name)
{
	struct hl_owner_name name = {.file = "[unknown]"};
	uint64_t address = hl_tag_address_of_word(word); /* beside a tag, its lower half */

	uint32_t tag = hl_tag_of_word(word);
	if (tag)
		address = hl_owner_names_whole(names, (uint32_t)address);
	else if (!hl_owner_names_is_code(names, address))
		address = 0;
	/* The call itself is before the address that it returns to. */
	int r = address ? hl_owner_names_find(names, address - 1, &name) : 0;
	if (r < 0)
		return r;
	if (tag && tag <= tags->count && tags->table.names[tag - 1][0]) {
		name.function = tags->table.names[tag - 1];
		name.is_plumbing = false;
	}
	*ret_name = name;
	return 0;
}

/* ---- blocks ---- */

static int take_block(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct tag_walk *walk = context;
	uint64_t end = address + usable_bytes;

	if (usable_bytes >= HL_TAG_WORD_BYTES && hl_tag_word_is_valid(last_word, end))
		return hl_owner_counts_add(&walk->counts, last_word >> 16,
					   usable_bytes - HL_TAG_WORD_BYTES, 1);
	walk->unknown_blocks++;
	walk->unknown_bytes += usable_bytes;
	return 0;
}

static int name_count(struct tag_walk *walk, struct hl_owner_names *names,
		      const struct hl_owner_count *count, struct hl_owner_rows *rows)
{
	struct hl_owner_name name;

	int r = hl_owner_tag_names_find(walk->tags, names, count->key << 16, &name);
	if (r < 0)
		return r;
	if (name.function && name.is_plumbing)
		walk->plumbing_blocks += count->blocks;
	if (name.function)
		return hl_owner_rows_add(rows, name.file, name.function, count);
	walk->unknown_blocks += count->blocks;
	walk->unknown_bytes += count->bytes;
	return 0;
}

int hl_owner_tags_read(pid_t pid, const struct hl_owners_settings *settings,
		       struct hl_owner_names *names, struct hl_owners *owners, struct hl_error *err)
{
	struct hl_owner_rows rows = {.allocations = &owners->allocations};

	struct tag_walk walk = {.counts.shape = owners->allocations.shape};
	int r = hl_owner_tag_names_new(pid, names, &walk.tags);
	if (r == 0)
		r = hl_owners_walk(pid, settings, take_block, &walk, owners, NULL, err);
	for (size_t i = 0; r == 0 && i < walk.counts.count; i++)
		r = name_count(&walk, names, &walk.counts.counts[i], &rows);
	owners->unknown_blocks = walk.unknown_blocks;
	owners->unknown_bytes = walk.unknown_bytes;
	if (r == 0 && walk.plumbing_blocks)
		r = hl_owners_note(
			owners, "blocks of allocation plumbing, such as 'xmalloc', name no caller "
				"of it: a tag keeps one function only; 'heapline record' without "
				"--tags keeps whole stacks");
	hl_owner_rows_release(&rows);
	hl_owner_counts_release(&walk.counts);
	hl_owner_tag_names_free(walk.tags);
	return r;
}
