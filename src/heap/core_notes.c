/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes of core files, as the kernel and gcore write them; see core_notes.h. */
#include "heap/core_notes.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>

/* Offsets of rsp in the registers of x86-64. */
#define REGISTER_SP 19

/* NT_FILE: a count and the page size, then COUNT of these, then COUNT names. */
struct core_file {
	uint64_t start, end, page;
};

struct note {
	uint32_t type;
	const uint8_t *content;
	size_t length;
};

/* The map that begins at, or holds, ${address}. */
static struct hl_map *map_at(struct hl_maps *maps, uint64_t address)
{
	return (struct hl_map *)(uintptr_t)hl_maps_find(maps, address);
}

static int set_path(struct hl_map *map, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(map->path);
	map->path = copy;
	return 0;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Core files do not say which mappings are shared. */
static bool is_shared_name(const char *path)
{
	return begins(path, "/dev/zero") || begins(path, "/memfd:") || begins(path, "/dev/shm/") ||
	       begins(path, "/SYSV");
}

static int name_map(struct hl_maps *maps, const struct core_file *file, uint64_t page_bytes,
		    const char *path)
{
	struct hl_map *map = map_at(maps, file->start);
	const struct hl_map *same = maps->maps;

	if (!map)
		return 0;
	/* the same number for the same path */
	for (; same < map && strcmp(same->path, path) != 0; same++)
		;
	map->inode = (uint64_t)(same - maps->maps) + 1;
	map->offset = file->page * page_bytes;
	if (is_shared_name(path))
		map->flags |= HL_MAP_SHARED;
	return set_path(map, path);
}

static int read_files(const struct note *note, struct hl_maps *maps)
{
	uint64_t head[2];
	struct core_file file;

	if (note->length < sizeof(head))
		return 0;
	memcpy(head, note->content, sizeof(head));
	if (head[0] > (note->length - sizeof(head)) / sizeof(file))
		return 0;
	const uint8_t *at = note->content + sizeof(head);
	const char *name = (const char *)at + head[0] * sizeof(file);
	const char *end = (const char *)note->content + note->length;
	for (uint64_t i = 0; i < head[0] && name < end; i++, at += sizeof(file)) {
		size_t length = strnlen(name, (size_t)(end - name));
		memcpy(&file, at, sizeof(file));
		if (name + length == end)
			break;
		if (name_map(maps, &file, head[1], name) < 0)
			return -ENOMEM;
		name += length + 1;
	}
	return 0;
}

/* A thread: where its stack pointer is, there is a stack. */
static int read_thread(const struct note *note, struct hl_maps *maps,
		       struct hl_process_facts *facts)
{
	struct elf_prstatus status;

	if (note->length < sizeof(status))
		return 0;
	memcpy(&status, note->content, sizeof(status));
	facts->threads++;
	struct hl_map *map = map_at(maps, status.pr_reg[REGISTER_SP]);
	return map && !map->inode ? set_path(map, "[stack]") : 0;
}

static int read_process(const struct note *note, struct hl_process_facts *facts)
{
	struct elf_prpsinfo info;

	if (note->length < sizeof(info) || facts->command)
		return 0;
	memcpy(&info, note->content, sizeof(info));
	facts->pid = info.pr_pid;
	facts->parent_pid = info.pr_ppid;
	facts->uid = info.pr_uid;
	memcpy(facts->comm, info.pr_fname, sizeof(facts->comm) - 1);
	facts->executable = strdup("");
	facts->command = calloc(2, sizeof(*facts->command));
	if (!facts->executable || !facts->command)
		return -ENOMEM;
	facts->command[0] = strndup(info.pr_psargs, sizeof(info.pr_psargs));
	return facts->command[0] ? 0 : -ENOMEM;
}

static int read_note(const struct note *note, struct hl_maps *maps, struct hl_process_facts *facts)
{
	switch (note->type) {
	case NT_FILE:
		return read_files(note, maps);
	case NT_PRSTATUS:
		return read_thread(note, maps, facts);
	case NT_PRPSINFO:
		return read_process(note, facts);
	default:
		return 0;
	}
}

int hl_core_notes_read(const uint8_t *bytes, size_t length, struct hl_maps *maps,
		       struct hl_process_facts *facts)
{
	Elf64_Nhdr header;
	int r = 0;

	while (length >= sizeof(header) && r == 0) {
		memcpy(&header, bytes, sizeof(header));
		uint64_t name = ((uint64_t)header.n_namesz + 3) & ~UINT64_C(3);
		uint64_t content = ((uint64_t)header.n_descsz + 3) & ~UINT64_C(3);
		if (sizeof(header) + name + header.n_descsz > length)
			break;
		const struct note note = {header.n_type, bytes + sizeof(header) + name,
					  header.n_descsz};
		r = read_note(&note, maps, facts);
		uint64_t all = sizeof(header) + name + content;
		all = all < length ? all : length;
		bytes += all;
		length -= all;
	}
	return r;
}
