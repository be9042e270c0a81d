/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process in a core file. The kernel leaves a hole in the file for each page that
 * was not in memory, and gdb for pages of zeros. Where there are no holes, as in files of older
 * gcore or in copies, all pages but those of zeros count as present.
 */
#include "heap/memory.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "heap/extents.h"
#include "heap/thread.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES_MIN 4096u
#define PAGE_BYTES_MAX 65536u

/* The part of a mapping that the file holds. */
struct core_part {
	uint64_t start, length, offset;
};

struct core_thread {
	pid_t tid;
	struct hl_thread_registers registers;
};

struct core_memory {
	struct hl_memory base;
	const uint8_t *bytes;
	size_t length;
	struct core_part *parts;
	size_t count, capacity;
	struct hl_extents data; /* extents of data in the file, if it has holes; else empty */
	struct core_thread *threads;
	size_t thread_count, thread_capacity;
};

/* ---- reading ---- */

/* The part that holds ${address}, else the next one; NULL for none. */
static const struct core_part *part_at(const struct core_memory *core, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, core->count,
				   core->parts[i].start + core->parts[i].length <= address);

	return at < core->count ? &core->parts[at] : NULL;
}

static int core_read(struct hl_memory *memory, uint64_t address, void *bytes, size_t length)
{
	struct core_memory *core = (struct core_memory *)memory;
	uint8_t *to = bytes;

	while (length) {
		const struct core_part *part = part_at(core, address);
		if (!part || part->start > address)
			return -EFAULT;
		uint64_t in_part = address - part->start, count = part->length - in_part;
		count = count < length ? count : length;
		memcpy(to, core->bytes + part->offset + in_part, count);
		to += count;
		address += count;
		length -= count;
	}
	return 0;
}

/* Whether the page at ${offset} of the file is present. Segments of gdb's files begin anywhere, so
 * a page may begin in a hole and end in data, or the other way round. */
static bool is_present(const struct core_memory *core, uint64_t offset)
{
	const uint8_t *page = core->bytes + offset;
	uint64_t last = core->base.page_bytes - 1;

	if (core->data.count)
		return hl_extents_hold(&core->data, offset) ||
		       hl_extents_hold(&core->data, offset + last);
	return page[0] || memcmp(page, page + 1, last) != 0;
}

static int scan_part(const struct core_memory *core, const struct core_part *part, uint64_t start,
		     uint64_t end, struct hl_pages *pages)
{
	const struct hl_map *map = hl_maps_find(&core->base.maps, part->start);
	uint32_t kind = map && map->inode ? HL_PAGE_FILE : HL_PAGE_ANON;
	uint64_t part_end = part->start + part->length, page = core->base.page_bytes;

	start = start > part->start ? start : part->start;
	end = end < part_end ? end : part_end;
	for (; start + page <= end; start += page) {
		struct hl_page_run *last = pages->count ? &pages->runs[pages->count - 1] : NULL;
		if (!is_present(core, part->offset + (start - part->start)))
			continue;
		pages->page_count++;
		if (last && last->end == start && last->kind == kind)
			last->end += page;
		else if (HL_ARRAY_APPEND(pages->runs, pages->count, pages->capacity,
					 (struct hl_page_run){start, start + page, kind}) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int core_scan(struct hl_memory *memory, uint64_t start, uint64_t end, struct hl_pages *pages)
{
	const struct core_memory *core = (struct core_memory *)memory;
	const struct core_part *part = part_at(core, start);
	int r = 0;

	for (; part && part < core->parts + core->count && part->start < end && r == 0; part++)
		r = scan_part(core, part, start, end, pages);
	return r;
}

static int core_open_file(struct hl_memory *memory, const struct hl_map *map)
{
	(void)memory;
	return hl_maps_open_regular(map->path);
}

static void core_free(struct hl_memory *memory)
{
	struct core_memory *core = (struct core_memory *)memory;

	if (core->bytes)
		munmap((void *)(uintptr_t)core->bytes, core->length);
	hl_maps_release(&memory->maps);
	hl_extents_release(&core->data);
	free(core->parts);
	free(core->threads);
	free(core);
}

static int core_threads(struct hl_memory *memory, hl_thread_visit *visit, void *context)
{
	const struct core_memory *core = (struct core_memory *)memory;
	int r = 0;

	for (size_t i = 0; i < core->thread_count && r == 0; i++)
		r = visit(context, &core->threads[i].registers);
	return r;
}

static const struct hl_memory_kind core_kind = {.read = core_read,
						.scan = core_scan,
						.open_file = core_open_file,
						.free = core_free,
						.threads = core_threads};

/* ---- notes, as the kernel and gcore write them ---- */

/* NT_FILE: a count and the page size, then COUNT of these, then COUNT names. */
struct core_file {
	uint64_t start, end, page;
};

/* The mapping that holds ${address}. */
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

static int read_files(const uint8_t *note, size_t note_bytes, struct hl_maps *maps)
{
	/* Core files do not say which mappings are shared; these paths are those of shared ones. */
	static const char *const shared[] = {"/dev/zero", "/memfd:", "/dev/shm/", "/SYSV"};
	uint64_t head[2]; /* the count of files, the page size */
	struct core_file file;

	if (note_bytes < sizeof(head))
		return 0;
	memcpy(head, note, sizeof(head));
	if (head[0] > (note_bytes - sizeof(head)) / sizeof(file))
		return 0;
	const uint8_t *at = note + sizeof(head);
	const char *path = (const char *)at + head[0] * sizeof(file), *next;
	const char *end = (const char *)note + note_bytes;
	for (uint64_t i = 0; i < head[0] && path < end; i++, at += sizeof(file), path = next) {
		next = path + strnlen(path, (size_t)(end - path)) + 1;
		if (next > end)
			break; /* cut off */
		memcpy(&file, at, sizeof(file));
		struct hl_map *map = map_at(maps, file.start);
		const struct hl_map *same = maps->maps;
		if (!map)
			continue;
		/* the same number for the same path */
		while (same < map && strcmp(same->path, path) != 0)
			same++;
		map->inode = (uint64_t)(same - maps->maps) + 1;
		map->offset = file.page * head[1];
		for (size_t k = 0; k < HL_COUNT_OF(shared); k++)
			if (strncmp(path, shared[k], strlen(shared[k])) == 0)
				map->flags |= HL_MAP_SHARED;
		if (set_path(map, path) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int read_thread(const uint8_t *note, size_t note_bytes, struct core_memory *core,
		       struct hl_process_facts *facts)
{
	struct elf_prstatus status;
	struct core_thread thread = {0};

	if (note_bytes < sizeof(status))
		return 0;
	memcpy(&status, note, sizeof(status));
	facts->threads++;
	thread.tid = status.pr_pid;
	memcpy(&thread.registers, status.pr_reg, sizeof(status.pr_reg));
	return HL_ARRAY_APPEND(core->threads, core->thread_count, core->thread_capacity, thread);
}

/* Marks the mapping of the first thread's stack pointer as the stack. Those of others may hold blocks, too. */
static int mark_stack(struct core_memory *core, pid_t pid)
{
	int r = 0;

	for (size_t i = 0; i < core->thread_count && r == 0; i++) {
		const struct core_thread *thread = &core->threads[i];
		struct hl_map *map =
			map_at(&core->base.maps, hl_thread_registers_sp(&thread->registers));
		if (map && !map->inode && (thread->tid == pid || !pid))
			r = set_path(map, "[stack]");
	}
	return r;
}

static int read_process(const uint8_t *note, size_t note_bytes, struct hl_process_facts *facts)
{
	struct elf_prpsinfo info;

	if (note_bytes < sizeof(info) || facts->command)
		return 0;
	memcpy(&info, note, sizeof(info));
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

static void read_auxv(const uint8_t *note, size_t note_bytes, struct core_memory *core)
{
	Elf64_auxv_t item;

	for (; note_bytes >= sizeof(item); note += sizeof(item), note_bytes -= sizeof(item)) {
		memcpy(&item, note, sizeof(item));
		if (item.a_type == AT_PHDR)
			core->base.program_headers = item.a_un.a_val;
		if (item.a_type == AT_PAGESZ && item.a_un.a_val >= PAGE_BYTES_MIN &&
		    item.a_un.a_val <= PAGE_BYTES_MAX && !(item.a_un.a_val & (item.a_un.a_val - 1)))
			core->base.page_bytes = item.a_un.a_val;
	}
}

/* Reads the notes in ${length} bytes at ${bytes}: fills ${facts}, and gives mappings of ${core} the
 * names of their files, and of stacks. What is damaged is left out. 0 or -ENOMEM. */
static int read_notes(const uint8_t *bytes, size_t length, struct core_memory *core,
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
		const uint8_t *note = bytes + sizeof(header) + name;
		if (header.n_type == NT_FILE)
			r = read_files(note, header.n_descsz, &core->base.maps);
		else if (header.n_type == NT_AUXV)
			read_auxv(note, header.n_descsz, core);
		else if (header.n_type == NT_PRSTATUS)
			r = read_thread(note, header.n_descsz, core, facts);
		else if (header.n_type == NT_PRPSINFO)
			r = read_process(note, header.n_descsz, facts);
		else if (core->thread_count)
			hl_thread_registers_add_note(
				&core->threads[core->thread_count - 1].registers, header.n_type,
				note, header.n_descsz);
		uint64_t all = sizeof(header) + name + content;
		all = all < length ? all : length;
		bytes += all;
		length -= all;
	}
	return r;
}

/* ---- opening ---- */

static bool is_cut_off(const struct core_memory *core, const Elf64_Phdr *segment)
{
	return segment->p_offset > core->length ||
	       segment->p_filesz > core->length - segment->p_offset;
}

/* Adds a mapping, and the part of it that the file holds: less than all if the file was cut off. */
static int add_segment(struct core_memory *core, const Elf64_Phdr *segment)
{
	struct hl_maps *maps = &core->base.maps;
	uint64_t length = segment->p_filesz;

	if (!segment->p_memsz || segment->p_vaddr + segment->p_memsz < segment->p_vaddr ||
	    (maps->count && maps->maps[maps->count - 1].end > segment->p_vaddr))
		return 0; /* no mapping can be so */
	struct hl_map map = {
		.start = segment->p_vaddr,
		.end = segment->p_vaddr + segment->p_memsz,
		.flags = (segment->p_flags & PF_R ? HL_MAP_READ : 0u) |
			 (segment->p_flags & PF_W ? HL_MAP_WRITE : 0u) |
			 (segment->p_flags & PF_X ? HL_MAP_EXEC : 0u),
		.path = strdup(""),
	};
	if (!map.path || HL_ARRAY_APPEND(maps->maps, maps->count, maps->capacity, map) < 0) {
		free(map.path);
		return -ENOMEM;
	}
	if (is_cut_off(core, segment))
		length = segment->p_offset < core->length ? core->length - segment->p_offset : 0;
	if (length > segment->p_memsz)
		length = segment->p_memsz;
	if (!length)
		return 0;
	return HL_ARRAY_APPEND(core->parts, core->count, core->capacity,
			       (struct core_part){segment->p_vaddr, length, segment->p_offset});
}

/* The number of segments that lie in the file whole. The first section header has it where e_phnum
 * cannot. */
static uint64_t segment_count(const struct core_memory *core, const Elf64_Ehdr *header)
{
	uint64_t count = header->e_phnum, room;
	Elf64_Shdr section;

	if (count == PN_XNUM) {
		if (header->e_shoff > core->length - sizeof(section))
			return 0;
		memcpy(&section, core->bytes + header->e_shoff, sizeof(section));
		count = section.sh_info;
	}
	if (header->e_phoff > core->length)
		return 0;
	room = (core->length - header->e_phoff) / sizeof(Elf64_Phdr);
	return count < room ? count : room;
}

static int read_core(struct core_memory *core, const char *path, struct hl_process_facts *facts,
		     struct hl_error *err)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	int r = 0;

	memcpy(&header, core->bytes, sizeof(header));
	bool is_core = memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_CORE;
	if (is_core && header.e_machine != HL_ELF_MACHINE)
		return hl_error_set(
			err, -ENOTSUP,
			"'%s' is a core file of another machine's program, not of an %s "
			"program; heapline reads it there, where the program's files are",
			path, HL_ELF_MACHINE_NAME);
	if (!is_core || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(Elf64_Phdr))
		return hl_error_set(err, -EBADMSG, "'%s' is not a core file of an %s program", path,
				    HL_ELF_MACHINE_NAME);
	uint64_t count = segment_count(core, &header);
	if (!count)
		return hl_error_set(err, -EBADMSG, "'%s' holds no memory", path);
	const uint8_t *segments = core->bytes + header.e_phoff;
	for (uint64_t i = 0; i < count && r == 0; i++) {
		memcpy(&segment, segments + i * sizeof(segment), sizeof(segment));
		core->base.is_cut_off |= is_cut_off(core, &segment);
		if (segment.p_type == PT_LOAD)
			r = add_segment(core, &segment);
	}
	/* Notes name mappings, so they come after all of them. */
	for (uint64_t i = 0; i < count && r == 0; i++) {
		memcpy(&segment, segments + i * sizeof(segment), sizeof(segment));
		if (segment.p_type == PT_NOTE && !is_cut_off(core, &segment))
			r = read_notes(core->bytes + segment.p_offset, segment.p_filesz, core,
				       facts);
	}
	if (r == 0)
		r = mark_stack(core, facts->pid);
	if (r == 0 && !core->base.maps.count)
		return hl_error_set(err, -EBADMSG, "the core file '%s' holds no memory", path);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

static int map_core(struct core_memory *core, const char *path, struct hl_error *err)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	core->length = (size_t)status.st_size;
	void *bytes = S_ISREG(status.st_mode) && core->length >= sizeof(Elf64_Ehdr)
			      ? mmap(NULL, core->length, PROT_READ, MAP_PRIVATE, fd, 0)
			      : MAP_FAILED;
	if (bytes == MAP_FAILED)
		return hl_error_set(err, -EBADMSG, "'%s' is not a core file", path);
	core->bytes = bytes;
	/* Finds the extents of data, if the file has holes and its file system tells them. */
	for (off_t length = status.st_size, start, end = 0;
	     end < length && (start = lseek(fd, end, SEEK_DATA)) >= 0;) {
		end = lseek(fd, start, SEEK_HOLE);
		if (end < 0 || (start == 0 && end >= length))
			break;
		if (hl_extents_add(&core->data, (uint64_t)start, (uint64_t)end) < 0)
			return hl_error_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

int hl_memory_core_open(const char *path, struct hl_memory **ret_memory,
			struct hl_process_facts *facts, struct hl_error *err)
{
	struct core_memory *core = calloc(1, sizeof(*core));

	if (!core)
		return hl_error_set(err, -ENOMEM, "out of memory");
	core->base.kind = &core_kind;
	core->base.page_bytes = PAGE_BYTES_MIN; /* unless its notes say more */
	int r = map_core(core, path, err);
	if (r == 0)
		r = read_core(core, path, facts, err);
	if (r < 0) {
		core_free(&core->base);
		return r;
	}
	*ret_memory = &core->base;
	return 0;
}
