/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules of a process whose libc does not name them (musl, static programs, glibc before 2.35):
 * read from /proc/thread-self/maps, and from the ELF headers in memory. The answers have the form of
 * glibc's, for modules.c.
 *
 * A program counter that is in none makes the table be read again: something may have been loaded.
 * But code that a JIT makes is in none either, so such a page is remembered for a while, and
 * reading takes a small part of the time at most.
 */
#include "recorder/image/image.h"

#include "base/clock.h"
#include "recorder/modules.h"
#include "recorder/private_map.h"
#include "recorder/recorder.h"
#include "recorder/spin.h"
#include "recorder/sys.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#define PAGE_BYTES    UINT64_C(4096)
#define OBJECTS_MAX   2048u
#define NAMES_BYTES   (256u << 10)
#define UNKNOWN_MAX   512u
#define UNKNOWN_NS    HL_NS_PER_SECOND
#define READING_SHARE 20 /* reads at most this part of the time */

struct object {
	struct link_map loaded; /* l_addr and l_name, as the loader would have it */
	uint64_t start, end;
	uint64_t device, inode;
	const uint8_t *eh_frame_hdr;
	bool gone, seen;
};

/* A line of the table. */
struct line {
	uint64_t start, end, offset;
	uint64_t device, inode;
	bool readable, executable;
	const char *path; /* to the line's end */
	size_t path_bytes;
};

static struct table {
	_Atomic uint32_t lock;
	bool stale;
	uint32_t count;
	uint32_t names_used;
	uint64_t read_ns; /* when it was read, and how long that took */
	uint64_t took_ns;
	struct line first; /* of a file, at offset 0; code of the same file makes it a module */
	struct {
		uint64_t page, until_ns;
	} unknown[UNKNOWN_MAX];
	struct object objects[OBJECTS_MAX];
	char names[NAMES_BYTES];
	char first_path[PATH_MAX];
	char text[2 * PATH_MAX];
} * table;

bool hl_image_objects_init(void)
{
	table = hl_private_map_new(sizeof(*table));
	if (!table)
		return false;
	table->stale = true;
	return true;
}

/* ---- what is at an address ---- */

/* Fills in where the module that begins at ${object}->start lies. False when there is none. */
static bool read_headers(struct object *object, uint64_t readable_end)
{
	struct hl_program_headers headers = {0};
	uint64_t first = UINT64_MAX, end = 0, eh_frame_hdr = 0;

	if (readable_end - object->start >= PAGE_BYTES)
		headers = hl_program_headers_at(object->start);
	for (size_t i = 0; headers.first && i < headers.count; i++) {
		const Elf64_Phdr *it = &headers.first[i];
		if (it->p_type == PT_GNU_EH_FRAME)
			eh_frame_hdr = it->p_vaddr;
		if (it->p_type != PT_LOAD)
			continue;
		if (first == UINT64_MAX)
			first = it->p_vaddr & ~(PAGE_BYTES - 1);
		end = it->p_vaddr + it->p_memsz > end ? it->p_vaddr + it->p_memsz : end;
	}
	if (first >= end)
		return false;
	object->loaded.l_addr = object->start - first;
	object->end = object->loaded.l_addr + end;
	object->eh_frame_hdr =
		eh_frame_hdr ? (const uint8_t *)(object->loaded.l_addr + eh_frame_hdr) : NULL;
	return true;
}

/* ---- the table ---- */

static bool is_program(const struct object *object)
{
	return getauxval(AT_PHDR) - object->start < object->end - object->start;
}

/* The name as the loader would give it: none of the program itself. */
static const char *keep_name(const struct object *object, const char *path, size_t bytes)
{
	static const char deleted[] = " (deleted)";
	size_t mark = sizeof(deleted) - 1;

	if (is_program(object))
		return "";
	if (*path != '/')
		return "linux-vdso.so.1";
	if (bytes > mark && !memcmp(path + bytes - mark, deleted, mark))
		bytes -= mark;
	if (bytes + 1 > NAMES_BYTES - table->names_used)
		return NULL;
	char *name = table->names + table->names_used;
	memcpy(name, path, bytes);
	name[bytes] = '\0';
	table->names_used += (uint32_t)bytes + 1;
	return name;
}

static struct object *find_same(const struct object *object)
{
	for (uint32_t i = 0; i < table->count; i++) {
		struct object *it = &table->objects[i];
		if (!it->gone && it->start == object->start && it->end == object->end &&
		    it->device == object->device && it->inode == object->inode)
			return it;
	}
	return NULL;
}

/* Adds the module that begins with the line table->first. True when it is new. */
static bool add_object(void)
{
	const struct line *line = &table->first;
	struct object object = {
		.start = line->start,
		.device = line->device,
		.inode = line->inode,
		.seen = true,
	};

	if (hl_self_is_own_code(line->start) || !read_headers(&object, line->end))
		return false;
	struct object *same = find_same(&object);
	if (same) {
		same->seen = true;
		return false;
	}
	const char *name = keep_name(&object, line->path, line->path_bytes);
	if (!name || table->count == OBJECTS_MAX)
		return false;
	object.loaded.l_name = (char *)name;
	table->objects[table->count++] = object;
	return true;
}

static const char *read_hex(const char *at, uint64_t *ret_number)
{
	uint64_t number = 0;

	for (;; at++) {
		if (*at >= '0' && *at <= '9')
			number = number << 4 | (uint64_t)(*at - '0');
		else if (*at >= 'a' && *at <= 'f')
			number = number << 4 | (uint64_t)(*at - 'a' + 10);
		else
			break;
	}
	*ret_number = number;
	return at;
}

/* Reads a line of the form "start-end rwxp offset major:minor inode  path" (proc_pid_maps(5)), which
 * ends with a line feed. */
static struct line read_line(const char *at, const char *end)
{
	struct line line;
	uint64_t major, minor;

	at = read_hex(at, &line.start);
	at = read_hex(at + 1, &line.end);
	line.readable = at[1] == 'r';
	line.executable = at[3] == 'x';
	at = read_hex(at + 6, &line.offset);
	at = read_hex(at + 1, &major);
	at = read_hex(at + 1, &minor);
	line.device = major << 32 | minor;
	/* In decimal: as hexadecimal it tells files apart as well. */
	at = read_hex(at + 1, &line.inode);
	while (*at == ' ')
		at++;
	line.path = at;
	line.path_bytes = (size_t)(end - at);
	return line;
}

/* Whether the mapping is of a file, or of the vdso, which is an ELF file in all but that. */
static bool may_be_module(const struct line *line)
{
	static const char vdso[] = "[vdso]";

	return line->path[0] == '/' || (line->path_bytes == sizeof(vdso) - 1 &&
					!memcmp(line->path, vdso, sizeof(vdso) - 1));
}

/* True when it shows a new module. */
static bool take_line(const struct line *line)
{
	struct line *first = &table->first;

	if (!line->path_bytes || line->path_bytes >= sizeof(table->first_path))
		return false;
	if (line->offset == 0 && line->readable && may_be_module(line)) {
		*first = *line;
		memcpy(table->first_path, line->path, line->path_bytes);
		first->path = table->first_path;
	}
	if (!line->executable || !first->start || first->device != line->device ||
	    first->inode != line->inode)
		return false;
	bool is_new = add_object();
	first->start = 0;
	return is_new;
}

/* Reads all lines of ${fd}; true when there are new modules. */
static bool read_lines(int fd)
{
	size_t used = 0;
	bool is_new = false;

	for (;;) {
		long size = HL_SYS(SYS_read, fd, table->text + used, sizeof(table->text) - used);
		if (size <= 0)
			return is_new;
		used += (size_t)size;
		size_t line = 0;
		for (size_t i = 0; i < used; i++) {
			if (table->text[i] != '\n')
				continue;
			const struct line it = read_line(table->text + line, table->text + i);
			is_new |= take_line(&it);
			line = i + 1;
		}
		memmove(table->text, table->text + line, used - line);
		used -= line;
	}
}

/* Where there is no /proc, the program alone is known: its ELF header is in the page of its program
 * headers. */
static void add_program(void)
{
	uint64_t start = getauxval(AT_PHDR) & ~(PAGE_BYTES - 1);

	if (!start || table->count)
		return;
	table->first = (struct line){.start = start, .end = start + PAGE_BYTES};
	add_object();
}

static void read_table(void)
{
	uint64_t begin_ns = hl_clock_ns(HL_SYS_CLOCK);

	table->stale = false;
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)"/proc/thread-self/maps",
			      O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd >= 0) {
		for (uint32_t i = 0; i < table->count; i++)
			table->objects[i].seen = false;
		table->first.start = 0;
		bool changed = read_lines(fd);
		hl_sys_close(fd);
		for (uint32_t i = 0; i < table->count; i++) {
			struct object *object = &table->objects[i];
			changed |= !object->gone && !object->seen;
			object->gone = !object->seen;
		}
		/* What was in no module may be in one by now. */
		if (changed)
			hl_rule_cache_invalidate(&hl_recorder->unwind);
	} else {
		add_program();
	}
	table->read_ns = hl_clock_ns(HL_SYS_CLOCK);
	table->took_ns = table->read_ns - begin_ns;
}

static struct object *look_up(uint64_t pc)
{
	for (uint32_t i = 0; i < table->count; i++) {
		struct object *object = &table->objects[i];
		if (!object->gone && pc - object->start < object->end - object->start)
			return object;
	}
	return NULL;
}

/* Whether ${pc}, which is in no module, is a reason to read the table again. */
static bool is_reason(uint64_t pc)
{
	uint64_t page = pc / PAGE_BYTES, now_ns = hl_clock_ns(HL_SYS_CLOCK);

	if (now_ns - table->read_ns < READING_SHARE * table->took_ns)
		return false;
	bool is_known = table->unknown[page % UNKNOWN_MAX].page == page &&
			now_ns < table->unknown[page % UNKNOWN_MAX].until_ns;
	table->unknown[page % UNKNOWN_MAX].page = page;
	table->unknown[page % UNKNOWN_MAX].until_ns = now_ns + UNKNOWN_NS;
	return !is_known;
}

int hl_image_objects_find(uint64_t pc, struct dl_find_object *ret_object)
{
	if (hl_self_is_own_code(pc))
		return -1;
	hl_spin_lock(&table->lock);
	if (table->stale)
		read_table();
	struct object *object = look_up(pc);
	if (!object && is_reason(pc)) {
		read_table();
		object = look_up(pc);
	}
	if (object)
		*ret_object = (struct dl_find_object){
			.dlfo_map_start = (void *)object->start,
			.dlfo_map_end = (void *)object->end,
			.dlfo_link_map = &object->loaded,
			.dlfo_eh_frame = (void *)object->eh_frame_hdr,
		};
	hl_spin_unlock(&table->lock);
	return object ? 0 : -1;
}

void hl_image_objects_note_unloaded(void)
{
	hl_spin_lock(&table->lock);
	table->stale = true;
	hl_spin_unlock(&table->lock);
}
