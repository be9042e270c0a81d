/* SPDX-License-Identifier: BSD-2-Clause */
/* Holds and copies files of modules; see directory.h. */
#include "collector/directory.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/frame_key.h"
#include "elf/elf.h"
#include "process/maps.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More files are looked for at their path alone: of a process that has a descriptor for each other one, too. */
#define HELD_MAX 1024u

/* A larger file is not copied. */
#define COPY_BYTES_MAX (UINT64_C(2) << 30)

/* What tells a file from others. */
struct version {
	uint8_t build_id[HL_BUILD_ID_MAX];
	uint32_t build_id_bytes;
	struct hl_file_print print; /* whatever the build id is */
};

struct hl_held_file {
	struct hl_held_file *next;
	uint32_t dev_major, dev_minor; /* as in lists of mappings */
	uint64_t inode;
	unsigned uses;
	int fd;
	bool is_read, is_refused; /* ${version} is; a copy could not be written */
	struct version version;
};

struct range {
	uint64_t start, end;
	struct hl_held_file *file;
};

struct hl_module_files {
	struct hl_held_files *held;
	struct range *ranges; /* of code, the newest last */
	size_t count, capacity;
	uint32_t module_count; /* at the last look */
	bool has_looked;
	bool *used; /* by module: some node lies in it */
	size_t used_count;
};

struct hl_module_files *hl_module_files_new(struct hl_held_files *held)
{
	struct hl_module_files *files = calloc(1, sizeof(*files));

	if (files)
		files->held = held;
	return files;
}

static void drop(struct hl_held_file **link)
{
	struct hl_held_file *file = *link;

	*link = file->next;
	close(file->fd);
	free(file);
}

/* Closes files without a process until ${most} are left: the last ones, which have had none for longest. */
static void close_idle(struct hl_held_files *held, unsigned most)
{
	while (held->idle > most) {
		struct hl_held_file **last = NULL;
		for (struct hl_held_file **link = &held->first; *link; link = &(*link)->next)
			if (!(*link)->uses)
				last = link;
		held->idle--;
		drop(last);
	}
}

void hl_held_files_release(struct hl_held_files *held)
{
	close_idle(held, 0);
}

/* Whether nobody can want to unmount its file system, which an open file prevents. */
static bool is_on_root(const struct hl_held_file *file)
{
	struct stat root, own;

	return stat("/", &root) == 0 && fstat(file->fd, &own) == 0 && root.st_dev == own.st_dev;
}

static void let_go(struct hl_held_files *held, struct hl_held_file *file)
{
	struct hl_held_file **link = &held->first;

	if (--file->uses)
		return;
	while (*link != file)
		link = &(*link)->next;
	if (!is_on_root(file)) {
		drop(link);
		return;
	}
	*link = file->next;
	file->next = held->first;
	held->first = file;
	held->idle++;
	close_idle(held, held->idle_max);
}

static uint64_t mtime_ns(const struct stat *status)
{
	return (uint64_t)status->st_mtim.tv_sec * HL_NS_PER_SECOND +
	       (uint64_t)status->st_mtim.tv_nsec;
}

/* While no process ran the file, it may have been written to. */
static void resume_use(struct hl_held_files *held, struct hl_held_file *file)
{
	struct stat status;

	held->idle--;
	file->is_read &= fstat(file->fd, &status) == 0 &&
			 mtime_ns(&status) == file->version.print.mtime_ns &&
			 (uint64_t)status.st_size == file->version.print.bytes;
}

void hl_module_files_free(struct hl_module_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < files->count; i++)
		let_go(files->held, files->ranges[i].file);
	free(files->ranges);
	free(files->used);
	free(files);
}

/* ---- holding ---- */

/* The open file of ${map}, which counts one use more; NULL. */
static struct hl_held_file *hold(struct hl_held_files *held, pid_t pid, const struct hl_map *map)
{
	unsigned count = 0;

	for (struct hl_held_file *file = held->first; file; file = file->next, count++)
		if (file->inode == map->inode && file->dev_major == map->dev_major &&
		    file->dev_minor == map->dev_minor) {
			if (!file->uses++)
				resume_use(held, file);
			return file;
		}
	struct hl_held_file *file = count < HELD_MAX ? calloc(1, sizeof(*file)) : NULL;
	int fd = file ? hl_maps_open_file(pid, map) : -1;
	if (fd < 0) {
		free(file);
		return NULL;
	}
	*file = (struct hl_held_file){
		.next = held->first,
		.dev_major = map->dev_major,
		.dev_minor = map->dev_minor,
		.inode = map->inode,
		.uses = 1,
		.fd = fd,
	};
	held->first = file;
	return file;
}

static bool has_range(const struct hl_module_files *files, const struct hl_map *map)
{
	for (size_t i = 0; i < files->count; i++) {
		const struct range *range = &files->ranges[i];
		if (range->start == map->start && range->end == map->end &&
		    range->file->inode == map->inode && range->file->dev_major == map->dev_major &&
		    range->file->dev_minor == map->dev_minor)
			return true;
	}
	return false;
}

void hl_module_files_look(struct hl_module_files *files, pid_t pid, uint32_t module_count)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (files->has_looked && files->module_count == module_count)
		return;
	files->has_looked = true;
	files->module_count = module_count;
	if (hl_maps_read(pid, &maps, NULL) < 0)
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		if (!map->inode || !(map->flags & HL_MAP_EXEC) || has_range(files, map) ||
		    HL_ARRAY_RESERVE(files->ranges, files->capacity, files->count + 1) < 0)
			continue;
		struct hl_held_file *file = hold(files->held, pid, map);
		if (file)
			files->ranges[files->count++] = (struct range){map->start, map->end, file};
	}
}

/* ---- which version it is ---- */

static void read_version(int fd, struct version *ret_version)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	const uint8_t *id;
	struct stat status;
	size_t bytes = elf ? hl_elf_build_id(elf, &id) : 0;

	*ret_version = (struct version){0};
	if (bytes)
		ret_version->build_id_bytes = hl_build_id_keep(ret_version->build_id, id, bytes);
	if (fstat(fd, &status) == 0)
		ret_version->print = (struct hl_file_print){
			.bytes = (uint64_t)status.st_size,
			.mtime_ns = mtime_ns(&status),
			.hash = hl_elf_hash(fd),
		};
}

static bool is_version(const struct version *version, const struct hl_recording_module *module)
{
	if (version->build_id_bytes != module->build_id_bytes ||
	    memcmp(version->build_id, module->build_id, version->build_id_bytes) != 0)
		return false;
	return module->build_id_bytes >= HL_BUILD_ID_UNIQUE ||
	       hl_file_print_is_same(&version->print, &module->print);
}

/* The file of ${module}, whose fingerprint is completed by it where only its place tells which one it is. NULL: it is not held. */
static struct hl_held_file *find_file(const struct hl_module_files *files,
				      struct hl_recording_module *module, bool is_program)
{
	for (size_t i = files->count; i-- > 0;) {
		const struct range *range = &files->ranges[i];
		struct hl_held_file *file = range->file;
		if (range->start < module->start || range->start >= module->end)
			continue;
		if (!file->is_read)
			read_version(file->fd, &file->version);
		file->is_read = true;
		/* The recorder opens the program by /proc/self/exe, which may be a dynamic loader that was executed. */
		if (module->build_id_bytes < HL_BUILD_ID_UNIQUE &&
		    (is_program || module->print.hash == HL_FILE_PRINT_UNKNOWN))
			module->print = file->version.print;
		if (is_version(&file->version, module))
			return file;
	}
	return NULL;
}

/* ---- copying ---- */

/* Whether whoever opens the path of ${module} finds ${file}, or another one of the same version. */
static bool is_at_path(const struct hl_held_file *file, const struct hl_recording_module *module)
{
	struct stat held, found;
	struct version version;

	if (module->path[0] != '/' || stat(module->path, &found) < 0 || !S_ISREG(found.st_mode) ||
	    fstat(file->fd, &held) < 0)
		return false;
	if (found.st_dev == held.st_dev && found.st_ino == held.st_ino)
		return true;
	HL_CLOSED int fd = open(module->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	read_version(fd, &version);
	return is_version(&version, module);
}

static int copy(const struct hl_held_file *file, int directory_fd, const char *name)
{
	char temporary[HL_MODULE_FILE_MAX + 8];

	if (file->version.print.bytes > COPY_BYTES_MAX)
		return -EFBIG;
	snprintf(temporary, sizeof(temporary), ".%s.tmp", name);
	HL_CLOSED int fd =
		openat(directory_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	int r = hl_directory_copy_bytes(file->fd, fd, file->version.print.bytes);
	if (r == 0 && renameat(directory_fd, temporary, directory_fd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(directory_fd, temporary, 0);
	return r;
}

static void keep_module(const struct hl_module_files *files, struct hl_recording_module *module,
			bool is_program, int directory_fd)
{
	char name[HL_MODULE_FILE_MAX];
	struct hl_held_file *file = find_file(files, module, is_program);

	if (file && !file->is_refused && !is_at_path(file, module) &&
	    hl_recording_module_file(module->build_id, module->build_id_bytes, &module->print,
				     name) &&
	    faccessat(directory_fd, name, F_OK, 0) < 0)
		file->is_refused = copy(file, directory_fd, name) < 0;
}

/* Notes the modules in which nodes lie. */
static int mark_used(struct hl_module_files *files, const struct hl_recording_process *process,
		     uint32_t first_node)
{
	if (files->used_count < process->module_count) {
		bool *used = realloc(files->used, process->module_count * sizeof(*used));
		if (!used)
			return -ENOMEM;
		memset(used + files->used_count, 0,
		       (process->module_count - files->used_count) * sizeof(*used));
		files->used = used;
		files->used_count = process->module_count;
	}
	for (uint32_t i = 0; i < process->node_count - first_node; i++) {
		uint64_t number = process->nodes[i].frame >> HL_MODULE_SHIFT;
		if (number && number <= process->module_count)
			files->used[number - 1] = true;
	}
	return 0;
}

void hl_module_files_keep(struct hl_module_files *files, struct hl_recording_process *process,
			  uint32_t first_node, int directory_fd)
{
	if (!files->count || mark_used(files, process, first_node) < 0)
		return;
	for (uint32_t i = 0; i < process->module_count; i++) {
		struct hl_recording_module *module = &process->modules[i];
		if (files->used[i])
			keep_module(files, module, !strcmp(module->path, process->executable),
				    directory_fd);
	}
}
