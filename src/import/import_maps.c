/* SPDX-License-Identifier: BSD-2-Clause */
/* Places of addresses in files; see import_stacks.h. */
#include "import/import_stacks.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "elf/elf.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the list ---- */

/* The rest of a line of proc(5) maps: "rwxp OFFSET DEVICE INODE    PATH". */
static bool parse_rest(const char *at, const char *end, struct hl_import_mapping *mapping)
{
	if (end - at < 4 || (at[0] != 'r' && at[0] != '-'))
		return false;
	mapping->executable = at[2] == 'x';
	at = hl_import_text_skip_blanks(at + 4, end);
	if (hl_import_text_hex(at, end, &mapping->offset, &at) < 0)
		return false;
	for (int word = 0; word < 2; word++) { /* device and inode */
		at = hl_import_text_skip_blanks(at, end);
		while (at < end && !hl_import_text_is_blank(*at))
			at++;
	}
	mapping->path = hl_import_text_skip_blanks(at, end);
	mapping->path_end = end;
	return true;
}

/* The rest of a line of the short form: ": PATH", or ": PATH @OFFSET"; one for all of a file. */
static bool parse_short_rest(const char *at, const char *end, struct hl_import_mapping *mapping)
{
	const char *rest;

	if (at == end || *at != ':')
		return false;
	mapping->executable = true;
	mapping->path = hl_import_text_skip_blanks(at + 1, end);
	mapping->path_end = end;
	const char *mark = memmem(mapping->path, (size_t)(end - mapping->path), " @", 2);
	if (mark && hl_import_text_hex(mark + 2, end, &mapping->offset, &rest) == 0 && rest == end)
		mapping->path_end = hl_import_text_trim(mapping->path, mark);
	return mapping->path < mapping->path_end;
}

/* "START-END" and blanks, then one of the two. */
int hl_import_maps_add(struct hl_import_maps *maps, const struct hl_import_line *line)
{
	struct hl_import_mapping mapping = {0};
	const char *at = hl_import_text_skip_blanks(line->text, line->end), *end = line->end;

	if (hl_import_text_hex(at, end, &mapping.start, &at) < 0 || at == end || *at++ != '-' ||
	    hl_import_text_hex(at, end, &mapping.end, &at) < 0 || mapping.end <= mapping.start)
		return 0;
	at = hl_import_text_skip_blanks(at, end);
	if (!parse_rest(at, end, &mapping) && !parse_short_rest(at, end, &mapping))
		return 0;
	return HL_ARRAY_APPEND(maps->mappings, maps->count, maps->capacity, mapping);
}

static int by_start(const void *left, const void *right)
{
	const struct hl_import_mapping *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

void hl_import_maps_finish(struct hl_import_maps *maps)
{
	if (maps->count)
		qsort(maps->mappings, maps->count, sizeof(*maps->mappings), by_start);
}

void hl_import_maps_release(struct hl_import_maps *maps)
{
	free(maps->mappings);
	*maps = (struct hl_import_maps){0};
}

/* ---- files ---- */

bool hl_import_maps_may_hold_code(const char *path)
{
	struct stat status;

	return path[0] && (stat(path, &status) < 0 || S_ISREG(status.st_mode));
}

uint64_t hl_import_maps_shift(const char *path, const struct hl_import_mapping *mapping)
{
	uint64_t address;

	if (path[0] != '/' || !hl_import_maps_may_hold_code(path))
		return 0;
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf || !hl_elf_address(elf, mapping->offset, mapping->executable, &address))
		return 0;
	return address - mapping->offset;
}

/* ---- addresses ---- */

int hl_import_maps_find(struct hl_import_maps *maps, struct hl_builder *builder, uint64_t address,
			uint32_t *ret_module, uint64_t *ret_address)
{
	size_t above = HL_LOWER_BOUND(i, maps->count, maps->mappings[i].start <= address);
	struct hl_import_mapping *mapping = above ? &maps->mappings[above - 1] : NULL;

	*ret_module = 0;
	*ret_address = address;
	if (!mapping || mapping->end <= address)
		return 0;
	if (!mapping->resolved) {
		HL_FREED char *path =
			strndup(mapping->path, (size_t)(mapping->path_end - mapping->path));
		if (!path)
			return -ENOMEM;
		if (hl_import_maps_may_hold_code(path)) {
			int r = hl_builder_module(builder, path, (const uint8_t *)"", 0, NULL,
						  &mapping->module);
			if (r < 0)
				return r;
			mapping->shift = hl_import_maps_shift(path, mapping);
		}
		mapping->resolved = true;
	}
	*ret_module = mapping->module;
	if (mapping->module)
		*ret_address = address - mapping->start + mapping->offset + mapping->shift;
	return 0;
}
