/* SPDX-License-Identifier: BSD-2-Clause */
/* From addresses to files and functions; see owner_table.h. */
#include "heap/owners/owner_table.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/strings.h"
#include "elf/elf.h"
#include "process/process.h"
#include "symbols/symbols.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A file with code, by its path and version. */
struct named_file {
	uint32_t path; /* of names->strings */
	uint8_t build_id[HL_BUILD_ID_MAX];
	uint32_t build_id_bytes;
	struct hl_file_print print;
	struct hl_symbols *symbols;
};

struct hl_owner_names {
	pid_t pid;
	struct hl_maps maps;
	struct hl_strings strings;
	struct named_file *files;
	size_t file_count, file_capacity;
	struct hl_plumbing plumbing;
	bool folds_plumbing;
};

int hl_owner_names_new(pid_t pid, bool plumbing, struct hl_owner_names **ret_names,
		       struct hl_error *err)
{
	struct hl_owner_names *names = calloc(1, sizeof(*names));

	if (!names)
		return hl_error_set(err, -ENOMEM, "out of memory");
	names->pid = pid;
	hl_plumbing_init(&names->plumbing);
	names->folds_plumbing = !plumbing;
	int r = hl_maps_read(pid, &names->maps, err);
	if (r == 0 && (r = hl_process_name_maps(pid, &names->maps)) < 0)
		hl_error_set(err, r, "out of memory");
	if (r < 0) {
		hl_owner_names_free(names);
		return r;
	}
	*ret_names = names;
	return 0;
}

const struct hl_maps *hl_owner_names_maps(const struct hl_owner_names *names)
{
	return &names->maps;
}

bool hl_owner_names_is_code(const struct hl_owner_names *names, uint64_t address)
{
	const struct hl_map *map = hl_maps_find(&names->maps, address);

	return map && map->flags & HL_MAP_EXEC;
}

uint64_t hl_owner_names_whole(const struct hl_owner_names *names, uint32_t low)
{
	uint64_t whole = 0;

	for (size_t i = 0; i < names->maps.count; i++) {
		const struct hl_map *map = &names->maps.maps[i];
		uint64_t candidate = (map->start & ~(uint64_t)UINT32_MAX) | low;
		if (candidate < map->start)
			candidate += UINT64_C(1) << 32;
		if (!(map->flags & HL_MAP_EXEC) || candidate < map->start || candidate >= map->end)
			continue;
		if (whole)
			return 0;
		whole = candidate;
	}
	return whole;
}

/* ---- files ---- */

static int add_file(struct hl_owner_names *names, uint32_t path, const char *open_path,
		    const struct hl_recording_module *module, struct named_file **ret_file)
{
	int r = HL_ARRAY_RESERVE(names->files, names->file_capacity, names->file_count + 1);

	if (r < 0)
		return r;
	struct named_file *file = &names->files[names->file_count];
	*file = (struct named_file){
		.path = path, .build_id_bytes = module->build_id_bytes, .print = module->print};
	memcpy(file->build_id, module->build_id, sizeof(file->build_id));
	r = hl_symbols_open_elsewhere(open_path, NULL, file->build_id, file->build_id_bytes,
				      &file->print, &file->symbols);
	if (r < 0)
		return r;
	names->file_count++;
	*ret_file = file;
	return 0;
}

static struct named_file *find_file(struct hl_owner_names *names, uint32_t path,
				    const struct hl_recording_module *module)
{
	for (size_t i = 0; i < names->file_count; i++) {
		struct named_file *file = &names->files[i];
		if (file->path == path && file->build_id_bytes == module->build_id_bytes &&
		    !memcmp(file->build_id, module->build_id, file->build_id_bytes) &&
		    hl_file_print_is_same(&file->print, &module->print))
			return file;
	}
	return NULL;
}

static bool is_plumbing(const struct hl_owner_names *names, const struct named_file *file,
			const char *function)
{
	return names->folds_plumbing &&
	       (hl_plumbing_is_module(hl_strings_text(&names->strings, file->path)) ||
		hl_plumbing_matches(&names->plumbing, function));
}

static int find_function(struct hl_owner_names *names, struct named_file *file, uint64_t address,
			 uint32_t outward, struct hl_owner_name *ret_name)
{
	const struct hl_symbols_frame *frames;
	size_t count;
	uint32_t function, source;
	size_t at = 0;

	int r = hl_symbols_find(file->symbols, address, &frames, &count);
	if (r < 0)
		return r;
	while (at + 1 < count && is_plumbing(names, file, frames[at].function))
		at++;
	at = outward < count - at ? at + outward : count - 1;
	r = hl_strings_intern(&names->strings, frames[at].function, &function);
	if (r == 0)
		r = hl_strings_intern(&names->strings, frames[at].file, &source);
	if (r < 0)
		return r;
	*ret_name = (struct hl_owner_name){
		.file = hl_path_basename(hl_strings_text(&names->strings, file->path)),
		.function = hl_strings_text(&names->strings, function),
		.source = hl_strings_text(&names->strings, source),
		.is_plumbing = is_plumbing(names, file, frames[at].function),
		.outer = (uint32_t)(count - 1 - at),
	};
	return 0;
}

int hl_owner_names_find_in_file(struct hl_owner_names *names, const char *path,
				const struct hl_recording_module *module, uint64_t address,
				uint32_t outward, struct hl_owner_name *ret_name)
{
	uint32_t id;

	int r = hl_strings_intern(&names->strings, path, &id);
	if (r < 0)
		return r;
	struct named_file *file = find_file(names, id, module);
	if (!file)
		r = add_file(names, id, path, module, &file);
	return r < 0 ? r : find_function(names, file, address, outward, ret_name);
}

int hl_owner_names_find(struct hl_owner_names *names, uint64_t address,
			struct hl_owner_name *ret_name)
{
	const struct hl_map *map = hl_maps_find(&names->maps, address);
	const struct hl_recording_module as_mapped = {0};
	char path[PATH_MAX];
	struct stat status;
	uint32_t id;

	if (!map || !map->path[0]) {
		*ret_name = (struct hl_owner_name){.file = "[no file]", .function = "[unknown]"};
		return 0;
	}
	int r = hl_strings_intern(&names->strings, map->path, &id);
	if (r < 0)
		return r;
	struct named_file *file = find_file(names, id, &as_mapped);
	if (!file) {
		/* Its own path where that leads to the same file, for people know it by that. */
		bool is_same = stat(map->path, &status) == 0 && status.st_ino == map->inode &&
			       major(status.st_dev) == map->dev_major &&
			       minor(status.st_dev) == map->dev_minor;
		if (is_same || hl_maps_file_path(names->pid, map, path, sizeof(path)) < 0)
			snprintf(path, sizeof(path), "%s", map->path);
		r = add_file(names, id, path, &as_mapped, &file);
	}
	if (r < 0)
		return r;
	uint64_t in_file = map->offset + (address - map->start);
	HL_CLOSED int fd = hl_maps_open_file(names->pid, map);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (elf)
		hl_elf_address(elf, in_file, true, &in_file);
	return find_function(names, file, in_file, 0, ret_name);
}

void hl_owner_names_free(struct hl_owner_names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->file_count; i++)
		hl_symbols_free(names->files[i].symbols);
	free(names->files);
	hl_strings_release(&names->strings);
	hl_maps_release(&names->maps);
	free(names);
}
