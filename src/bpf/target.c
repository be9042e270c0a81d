/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads mappings and files of a process; see walker.h. */
#include "bpf/walker.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "elf/elf.h"
#include "process/maps.h"
#include "process/process.h"
#include "unwind/rule.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The loader's name for it, and so the recorder's. */
#define VDSO_MAPPING "[vdso]"
#define VDSO_NAME    "linux-vdso.so.1"
/* Functions with a return probe return to this mapping. */
#define TRAMPOLINE_MAPPING "[uprobes]"

static bool is_vdso(const struct hl_map *map)
{
	return !map->inode && strcmp(map->path, VDSO_MAPPING) == 0;
}

/* ---- files ---- */

/* The newest known file that is the same as ${file}; the count when there is none. A file that can
 * no longer be opened is identified by its inode alone. */
static size_t find_file(const struct hl_target_files *files, const struct hl_target_file *file,
			bool is_open)
{
	for (size_t i = files->count; i-- > 0;) {
		const struct hl_target_file *known = &files->list[i];
		const struct hl_code_table *a = &known->table, *b = &file->table;
		if (known->inode != file->inode || known->dev_major != file->dev_major ||
		    known->dev_minor != file->dev_minor)
			continue;
		bool same_contents = a->build_id_bytes >= HL_BUILD_ID_UNIQUE &&
				     a->build_id_bytes == b->build_id_bytes &&
				     !memcmp(a->build_id, b->build_id, a->build_id_bytes);
		if (!is_open || same_contents ||
		    (known->size == file->size && known->modified_ns == file->modified_ns))
			return i;
	}
	return files->count;
}

/* ${fd} below 0: it cannot be read. Takes the table over. */
static int add_file(struct hl_target *target, const struct hl_map *map, struct hl_target_file *file,
		    int fd, size_t *ret_index)
{
	struct hl_target_files *files = target->files;

	int r = HL_ARRAY_RESERVE(files->list, files->capacity, files->count + 1);

	if (r == 0 && fd >= 0)
		r = hl_code_table_read(fd, is_vdso(map) ? map->start : 0, &file->table);
	if (r == -ENOMEM)
		return r;
	file->is_read = fd >= 0 && r == 0;
	if (file->is_read && !is_vdso(map) && file->table.build_id_bytes < HL_BUILD_ID_UNIQUE)
		file->hash = hl_elf_hash(fd);
	*ret_index = find_file(files, file, true);
	if (*ret_index < files->count) { /* rewritten, but the same */
		hl_code_table_release(&file->table);
		return 0;
	}
	target->lost_files += !file->is_read;
	files->list[files->count++] = *file;
	return 0;
}

/* The index of the file that ${map} maps; -ENOMEM is the only failure. A file that cannot be opened
 * or makes no sense is kept without a code table. */
static int file_of(struct hl_target *target, const struct hl_map *map, size_t *ret_index)
{
	struct hl_target_file file = {
		.dev_major = map->dev_major,
		.dev_minor = map->dev_minor,
		.inode = map->inode,
	};
	struct stat status;

	HL_CLOSED int fd = is_vdso(map) ? hl_proc_open_memory(target->pid, O_RDONLY)
					: hl_maps_open_file(target->pid, map);
	if (fd == -ENOMEM)
		return fd;
	if (map->inode && fd >= 0 && fstat(fd, &status) == 0) {
		file.size = (uint64_t)status.st_size;
		file.modified_ns = (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
				   (uint64_t)status.st_mtim.tv_nsec;
	}
	size_t index = find_file(target->files, &file, fd >= 0);
	if (index == target->files->count) {
		int r = add_file(target, map, &file, fd, &index);
		if (r < 0)
			return r;
	}
	*ret_index = index;
	return 0;
}

/* ---- modules ---- */

/* Sets the place and load bias of the module of ${map}. */
static void place_module(const struct hl_target_file *file, const struct hl_map *map,
			 struct hl_recording_module *module)
{
	const struct hl_code_table *table = &file->table;
	uint64_t address;

	if (file->is_read && hl_code_table_address(table, map->offset, &address)) {
		module->load_bias = map->start - address;
		module->start = module->load_bias + table->low;
		module->end = module->load_bias + table->high;
		memcpy(module->build_id, table->build_id, sizeof(module->build_id));
		module->build_id_bytes = table->build_id_bytes;
		if (file->hash)
			module->print =
				(struct hl_file_print){file->size, file->modified_ns, file->hash};
	} else {
		module->load_bias = map->start - map->offset;
		module->start = map->start;
		module->end = map->end;
	}
}

static int add_module(struct hl_target *target, size_t file, const char *path,
		      struct hl_recording_module *module)
{
	size_t needed = target->module_count + 1;

	if (needed >= HL_MODULE_SCRIPT) {
		target->lost_modules++;
		return 0;
	}
	int r = HL_ARRAY_RESERVE(target->modules, target->module_capacity, needed);
	if (r == 0)
		r = HL_ARRAY_RESERVE(target->module_files, target->module_file_capacity, needed);
	if (r < 0 || !(module->path = strdup(path)))
		return -ENOMEM;
	target->modules[target->module_count] = *module;
	target->module_files[target->module_count].file = (uint32_t)file;
	target->module_count = needed;
	return 0;
}

/* The id of the module that ${map} belongs to; new files and modules are added. */
static int module_of(struct hl_target *target, const struct hl_map *map, uint32_t *ret_id)
{
	struct hl_recording_module module = {0};
	size_t file;

	int r = file_of(target, map, &file);
	if (r < 0)
		return r;
	place_module(&target->files->list[file], map, &module);
	for (size_t i = 0; i < target->module_count; i++)
		if (target->module_files[i].file == file &&
		    target->modules[i].load_bias == module.load_bias) {
			*ret_id = (uint32_t)i + 1;
			return 0;
		}
	size_t before = target->module_count;
	r = add_module(target, file, is_vdso(map) ? VDSO_NAME : map->path, &module);
	if (target->module_count > before)
		*ret_id = (uint32_t)target->module_count;
	return r;
}

/* ---- mappings ---- */

struct mapping_list {
	struct hl_target_mapping *mappings;
	size_t count, capacity;
};

/* Which of the file's code pages a mapping holds. */
static void place_pages(const struct hl_target *target, struct hl_target_mapping *mapping)
{
	const struct hl_recording_module *module = &target->modules[mapping->module - 1];
	const struct hl_target_file *file =
		&target->files->list[target->module_files[mapping->module - 1].file];
	uint64_t address = mapping->start - module->load_bias;
	uint64_t first = (address - file->table.code_low) >> HL_CODE_PAGE_SHIFT;
	uint64_t count = (mapping->end - mapping->start) >> HL_CODE_PAGE_SHIFT;

	if (address < file->table.code_low || first >= file->table.page_count)
		return;
	if (count > file->table.page_count - first)
		count = file->table.page_count - first;
	mapping->first_page = (uint32_t)first;
	mapping->page_count = (uint32_t)count;
}

/*
 * Code of no file right after a module's, and where the module's must be: the program has moved it
 * into memory of its own, such as huge pages. *${ret_id} is the module; else it is as it was.
 */
static int module_before(struct hl_target *target, const struct mapping_list *list,
			 const struct hl_maps *maps, size_t index, uint32_t *ret_id)
{
	const struct hl_map *map = &maps->maps[index];
	const struct hl_map *before = index ? &maps->maps[index - 1] : NULL;
	const struct hl_target_mapping *last =
		list->count ? &list->mappings[list->count - 1] : NULL;
	uint32_t id = HL_MODULE_NONE;
	int r = 0;

	if (last && last->end == map->start)
		id = last->module;
	else if (before && before->end == map->start && before->inode &&
		 !(before->flags & HL_MAP_SHARED)) /* the loader's are private */
		r = module_of(target, before, &id);
	if (r == 0 && id != HL_MODULE_NONE && id != HL_MODULE_SCRIPT &&
	    map->end <= target->modules[id - 1].end)
		*ret_id = id;
	return r;
}

static int add_mapping(struct hl_target *target, struct mapping_list *list,
		       const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index];
	struct hl_target_mapping mapping = {.start = map->start, .end = map->end};

	int r = hl_array_reserve(&list->mappings, &list->capacity, list->count + 1,
				 sizeof(mapping));
	if (r == 0 && !map->inode && strcmp(map->path, TRAMPOLINE_MAPPING) == 0) {
		/* A lookup pc there is the byte before it. */
		mapping.start--;
		mapping.module = HL_MODULE_SCRIPT;
		list->mappings[list->count++] = mapping;
		return 0;
	}
	if (r == 0)
		r = map->inode || is_vdso(map)
			    ? module_of(target, map, &mapping.module)
			    : module_before(target, list, maps, index, &mapping.module);
	if (r < 0)
		return r;
	if (mapping.module != HL_MODULE_NONE)
		place_pages(target, &mapping);
	list->mappings[list->count++] = mapping;
	return 0;
}

static bool is_same_list(const struct hl_target *target, const struct mapping_list *list)
{
	if (list->count != target->mapping_count)
		return false;
	for (size_t i = 0; i < list->count; i++) {
		const struct hl_target_mapping *a = &list->mappings[i], *b = &target->mappings[i];
		if (a->start != b->start || a->end != b->end || a->module != b->module)
			return false;
	}
	return true;
}

int hl_target_refresh(struct hl_target *target, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	struct mapping_list list = {0};

	int r = hl_maps_read(target->pid, &maps, err);
	if (r < 0)
		return r;
	r = hl_process_name_maps(target->pid, &maps);
	for (size_t i = 0; i < maps.count && r == 0; i++)
		if (maps.maps[i].flags & HL_MAP_EXEC && maps.maps[i].end <= HL_FRAME_PC_MASK)
			r = add_mapping(target, &list, &maps, i);
	if (r < 0) {
		free(list.mappings);
		return hl_error_set(err, r, "cannot read the code of process '%d': out of memory",
				    (int)target->pid);
	}
	target->changes += !is_same_list(target, &list);
	free(target->mappings);
	target->mappings = list.mappings;
	target->mapping_count = list.count;
	target->mapping_capacity = list.capacity;
	return 0;
}

int hl_target_new(pid_t pid, struct hl_target_files *files, struct hl_target **ret_target,
		  struct hl_error *err)
{
	struct hl_target *target = calloc(1, sizeof(*target));

	if (!target)
		return hl_error_set(err, -ENOMEM, "cannot look at process '%d': out of memory",
				    (int)pid);
	target->pid = pid;
	target->files = files ? files : &target->own_files;
	int r = hl_target_refresh(target, err);
	if (r < 0) {
		hl_target_free(target);
		return r;
	}
	*ret_target = target;
	return 0;
}

uint32_t hl_target_module_at(const struct hl_target *target, uint64_t pc)
{
	size_t at = HL_LOWER_BOUND(i, target->mapping_count, target->mappings[i].end <= pc);

	if (at == target->mapping_count || pc < target->mappings[at].start)
		return HL_MODULE_NONE;
	return target->mappings[at].module;
}

const struct hl_target_file *hl_target_mapping_file(const struct hl_target *target, size_t index)
{
	uint32_t module = target->mappings[index].module;

	return module == HL_MODULE_NONE || module == HL_MODULE_SCRIPT
		       ? NULL
		       : &target->files->list[target->module_files[module - 1].file];
}

uint64_t hl_target_covered_bytes(const struct hl_target *target, size_t index)
{
	const struct hl_target_mapping *mapping = &target->mappings[index];
	const struct hl_target_file *file = hl_target_mapping_file(target, index);
	uint64_t covered = 0;

	for (uint32_t i = 0; file && i < mapping->page_count; i++) {
		const struct hl_code_page *page = &file->table.pages[mapping->first_page + i];
		uint64_t start = 0, rule = 0; /* HL_RULE_NONE */
		/* Rules may be missing for a large gap between functions, whose code is unknown. */
		if (page->row_count == 1 &&
		    (file->table.rows[page->first_row] & HL_FRAME_PC_MASK) ==
			    (HL_RULE_FRAME_POINTER & HL_FRAME_PC_MASK))
			continue;
		for (uint32_t k = 0; k <= page->row_count; k++) {
			uint64_t row = k < page->row_count
					       ? file->table.rows[page->first_row + k]
					       : (uint64_t)HL_CODE_PAGE_BYTES << HL_ROW_SHIFT;
			covered += rule ? (row >> HL_ROW_SHIFT) - start : 0;
			start = row >> HL_ROW_SHIFT;
			rule = row & HL_FRAME_PC_MASK;
		}
	}
	return covered;
}

void hl_target_files_release(struct hl_target_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		hl_code_table_release(&files->list[i].table);
	free(files->list);
	*files = (struct hl_target_files){0};
}

void hl_target_free(struct hl_target *target)
{
	if (!target)
		return;
	hl_target_files_release(&target->own_files);
	for (size_t i = 0; i < target->module_count; i++)
		free(target->modules[i].path);
	free(target->modules);
	free(target->module_files);
	free(target->mappings);
	free(target);
}
