/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which program a process runs. With "ld.so PROGRAM" the kernel knows the dynamic loader alone: /proc/PID/exe and
 * /proc/PID/auxv describe that, while the loader writes the program's headers and entry into the vector on the stack.
 */
#include "process/maps.h"
#include "process/process.h"

#include "base/cleanup.h"
#include "base/machine.h"
#include "base/names.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define AUXV_MAX 64 /* the kernel gives about 20 */

/* Fields of /proc/PID/stat, see proc(5). */
#define STAT_STACK     28
#define STAT_ARGUMENTS 48

#define STACK_BYTES_MAX (UINT64_C(16) << 20) /* pointers to arguments and environment */

static uint64_t value_of(const Elf64_auxv_t *items, size_t count, uint64_t type)
{
	for (size_t i = 0; i < count && items[i].a_type != AT_NULL; i++)
		if (items[i].a_type == type)
			return items[i].a_un.a_val;
	return 0;
}

/* The value in the vector on the stack, which follows the pointers to arguments and environment; 0 when it is not found. */
static uint64_t value_on_stack(pid_t pid, uint64_t type)
{
	uint64_t stack = 0, end = 0;
	HL_FREED uint64_t *words = NULL;

	pid = hl_proc_thread(pid);
	if (hl_process_stat_field(pid, STAT_STACK, &stack) ||
	    hl_process_stat_field(pid, STAT_ARGUMENTS, &end) || !stack || end <= stack ||
	    end - stack > STACK_BYTES_MAX || !(words = malloc(end - stack)))
		return 0;
	const struct iovec local = {words, end - stack}, remote = {(void *)stack, end - stack};
	ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
	size_t count = got > 0 ? (size_t)got / sizeof(*words) : 0;
	/* argc, the arguments, NULL, the environment, NULL */
	size_t at = count && words[0] < count ? (size_t)words[0] + 2 : count;
	while (at < count && words[at])
		at++;
	if (at >= count)
		return 0;
	return value_of((const Elf64_auxv_t *)&words[at + 1],
			(count - at - 1) / (sizeof(Elf64_auxv_t) / sizeof(*words)), type);
}

/* What the kernel shows. */
struct vector {
	Elf64_auxv_t items[AUXV_MAX];
	size_t count;
};

static void read_vector(pid_t pid, struct vector *ret_vector)
{
	ssize_t size =
		hl_proc_read(pid, "auxv", (char *)ret_vector->items, sizeof(ret_vector->items));

	ret_vector->count = size > 0 ? (size_t)size / sizeof(*ret_vector->items) : 0;
}

/* The value that the kernel shows and, in ${ret_own}, the program's own. */
static void find_value(pid_t pid, const struct vector *vector, uint64_t type, uint64_t *ret_shown,
		       uint64_t *ret_own)
{
	uint64_t shown = value_of(vector->items, vector->count, type), replaced = 0;

	/* Without a loader at AT_BASE, what was executed is static, or a loader itself. */
	if (shown && (type == AT_PHDR || type == AT_PHNUM || type == AT_ENTRY) &&
	    !value_of(vector->items, vector->count, AT_BASE))
		replaced = value_on_stack(pid, type);
	*ret_shown = shown;
	*ret_own = replaced ? replaced : shown;
}

uint64_t hl_process_auxv(pid_t pid, uint64_t type)
{
	struct vector vector;
	uint64_t shown, own;

	read_vector(pid, &vector);
	find_value(pid, &vector, type, &shown, &own);
	return own;
}

/* The path of the program that a loader which was executed has loaded; else NULL. */
static char *find_loaded(pid_t pid, const struct vector *vector)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	uint64_t shown, headers;

	find_value(pid, vector, AT_PHDR, &shown, &headers);
	if (headers == shown || hl_maps_read(pid, &maps, NULL) < 0)
		return NULL;
	const struct hl_map *map = hl_maps_find(&maps, headers);
	return map && map->inode ? strdup(map->path) : NULL;
}

/* The path that the program was executed by, as the kernel keeps it on the stack; false when it cannot be read. */
static bool read_executed(pid_t pid, const struct vector *vector, char ret_path[PATH_MAX])
{
	char name[PATH_MAX] = "", folder[PATH_MAX], link[32];
	uint64_t address = value_of(vector->items, vector->count, AT_EXECFN);
	HL_CLOSED int memory = address ? hl_proc_open_memory(pid, O_RDONLY) : -1;

	if (memory < 0 || pread(memory, name, sizeof(name) - 1, (off_t)address) <= 0)
		return false;
	if (name[0] == '/') {
		strcpy(ret_path, name);
		return true;
	}
	snprintf(link, sizeof(link), "/proc/%d/cwd", hl_proc_thread(pid));
	ssize_t length = readlink(link, folder, sizeof(folder));
	const char *relative = strncmp(name, "./", 2) == 0 ? name + 2 : name;
	return length > 0 && relative[0] &&
	       snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)length, folder, relative) < PATH_MAX;
}

/* Whether what /proc names is an emulator, which the kernel runs programs of our machine by (binfmt_misc). */
static bool is_emulator(const char *link)
{
	Elf64_Ehdr header = {0};

	HL_CLOSED int fd = open(link, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
	       !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_ident[EI_CLASS] == ELFCLASS64 &&
	       header.e_machine != HL_ELF_MACHINE;
}

static char *find_executable(pid_t pid, const struct vector *vector)
{
	static const char deleted[] = " (deleted)";
	size_t mark = sizeof(deleted) - 1;
	char link[32], path[PATH_MAX];
	struct stat status;
	char *loaded = find_loaded(pid, vector);

	if (loaded)
		return loaded;
	snprintf(link, sizeof(link), "/proc/%d/exe", hl_proc_thread(pid));
	if (is_emulator(link) && read_executed(pid, vector, path))
		return strdup(path);
	ssize_t read = readlink(link, path, sizeof(path));
	size_t length = read > 0 ? (size_t)read : 0;
	if (length > mark && !memcmp(path + length - mark, deleted, mark) &&
	    stat(link, &status) == 0 && !status.st_nlink)
		length -= mark;
	return strndup(path, length);
}

char *hl_process_executable(pid_t pid)
{
	struct vector vector;

	read_vector(pid, &vector);
	return find_executable(pid, &vector);
}

/* Whether both are paths of one file as the target sees them. */
static bool is_same_file(pid_t pid, const char *left, const char *right)
{
	char name[PATH_MAX + 64];
	struct stat a, b;

	snprintf(name, sizeof(name), "/proc/%d/root%s", hl_proc_thread(pid), left);
	if (stat(name, &a) < 0)
		return false;
	snprintf(name, sizeof(name), "/proc/%d/root%s", hl_proc_thread(pid), right);
	return stat(name, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

char *hl_process_run_path(pid_t pid)
{
	char executed[PATH_MAX];
	struct vector vector;

	read_vector(pid, &vector);
	char *path = find_executable(pid, &vector);
	/* What /proc links to has the names of descriptors there. */
	if (!path || !read_executed(pid, &vector, executed) || !strncmp(executed, "/proc/", 6))
		return path;
	const char *name = hl_path_basename(executed);
	if (strncmp(hl_path_basename(path), name, strlen(name)) == 0 ||
	    !is_same_file(pid, executed, path))
		return path;
	free(path);
	return strdup(executed);
}

int hl_process_name_maps(pid_t pid, struct hl_maps *maps)
{
	HL_FREED char *executable = hl_process_executable(pid), *run = hl_process_run_path(pid);

	for (size_t i = 0; executable && run && i < maps->count; i++) {
		struct hl_map *map = &maps->maps[i];
		if (!map->inode || strcmp(map->path, executable) != 0)
			continue;
		char *path = strdup(run);
		if (!path)
			return -ENOMEM;
		free(map->path);
		map->path = path;
	}
	return 0;
}
