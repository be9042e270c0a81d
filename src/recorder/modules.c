/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and registers modules; see modules.h. */
#include "recorder/modules.h"

#include "base/clock.h"
#include "guests/guest.h"
#include "recorder/libc.h"
#include "recorder/private_map.h"
#include "recorder/sys.h"
#include "unwind/cfi.h"
#include "unwind/saved.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

/* ---- the file of a module ---- */

/*
 * The file of a module. The recorder opens one for two reasons only: a module without a build id,
 * which could be another one of the same name, and code that .eh_frame has no rule for. By raw
 * system calls: errno is kept, nothing is allocated.
 */

#define COMPARED_MAX 4096u /* bytes of headers: more need not be mapped */

static long read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	return hl_sys6(SYS_pread64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

/* Whether the file begins with the ELF header and program headers that are at ${image}. */
static bool has_headers_of(int fd, const uint8_t *image)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
	uint64_t end = header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr);
	uint8_t bytes[256];

	for (uint64_t at = 0; at < end && at < COMPARED_MAX; at += sizeof(bytes)) {
		size_t size = end - at < sizeof(bytes) ? (size_t)(end - at) : sizeof(bytes);
		if (read_at(fd, bytes, size, at) != (long)size ||
		    memcmp(bytes, image + at, size) != 0)
			return false;
	}
	return true;
}

/*
 * Opens the ELF file ${path} ("" = the running program). ${image} is where the module lies in
 * memory, NULL for the running program: a file with other headers, written over the path since, is
 * not opened. A file descriptor to be closed, or negative.
 */
static int module_file_open(const char *path, const void *image)
{
	const char *name = *path ? path : "/proc/self/exe";

	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)name, O_RDONLY | O_CLOEXEC | O_NONBLOCK,
			      0, 0, 0);
	if (fd >= 0 && image && !has_headers_of(fd, image)) {
		hl_sys_close(fd);
		return -1;
	}
	return fd;
}

/* The fingerprint of an open file; HL_FILE_PRINT_UNKNOWN when it cannot be read. */
static struct hl_file_print module_file_print(int fd)
{
	struct stat status;

	uint64_t hash = hl_file_print_hash(fd, read_at);
	if (!hash || HL_SYS(SYS_fstat, fd, &status, 0) != 0)
		return (struct hl_file_print){.hash = HL_FILE_PRINT_UNKNOWN};
	return (struct hl_file_print){
		.bytes = (uint64_t)status.st_size,
		.mtime_ns = (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
			    (uint64_t)status.st_mtim.tv_nsec,
		.hash = hash,
	};
}

/* Maps ${section}; NULL when it is not in the file or cannot be mapped. */
static const uint8_t *map_section(int fd, const Elf64_Shdr *section, uint64_t file_bytes)
{
	uint64_t skipped = section->sh_offset % HL_PAGE_BYTES_MAX;

	if (!section->sh_size || section->sh_offset > file_bytes ||
	    section->sh_size > file_bytes - section->sh_offset)
		return NULL;
	long address = hl_sys6(SYS_mmap, 0, (long)(section->sh_size + skipped), PROT_READ,
			       MAP_PRIVATE, fd, (long)(section->sh_offset - skipped));
	if (address < 0 && address > -4096)
		return NULL;
	hl_private_map_keep_file((void *)address, section->sh_size + skipped);
	return (const uint8_t *)address + skipped;
}

static bool read_section(int fd, const Elf64_Ehdr *header, uint32_t index, Elf64_Shdr *ret_section)
{
	uint64_t offset = header->e_shoff + index * sizeof(*ret_section);

	return read_at(fd, ret_section, sizeof(*ret_section), offset) == (long)sizeof(*ret_section);
}

/* The caller compares all of ${name}, with its NUL. */
static bool has_name(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section, const char *name,
		     size_t bytes)
{
	char text[16];

	return read_at(fd, text, bytes, names->sh_offset + section->sh_name) == (long)bytes &&
	       !memcmp(text, name, bytes);
}

static bool is_debug_frame(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = ".debug_frame";

	return section->sh_type != SHT_NOBITS && !(section->sh_flags & SHF_COMPRESSED) &&
	       has_name(fd, names, section, name, sizeof(name));
}

static bool is_eh_frame(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = ".eh_frame";

	return section->sh_flags & SHF_ALLOC && section->sh_type != SHT_NOBITS &&
	       has_name(fd, names, section, name, sizeof(name));
}

static bool is_go_functions(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = HL_GO_FUNCTIONS_SECTION;

	return section->sh_type != SHT_NOBITS && has_name(fd, names, section, name, sizeof(name));
}

/* ---- .eh_frame without an index ---- */

struct rows {
	struct hl_cfi_row *rows; /* NULL: they are only counted */
	size_t count, capacity;
};

static int take_row(void *context, const struct hl_cfi_row *row)
{
	struct rows *rows = context;

	if (rows->rows && rows->count == rows->capacity)
		return -ENOSPC;
	if (rows->rows)
		rows->rows[rows->count] = *row;
	rows->count++;
	return 0;
}

/* Compiles the .eh_frame of ${module} at ${address}, also where the file cannot be opened: a few milliseconds, once, for a
 * program of some megabytes. Damaged information is used as far as it goes. */
static struct hl_unwind_file module_file_compile(const struct hl_unwind_module *module,
						 uint64_t address, uint64_t bytes)
{
	struct hl_unwind_file file = {0};

	if (module->eh_frame_hdr || !bytes || address < module->start || address > module->end ||
	    bytes > module->end - address)
		return file;
	const struct hl_cfi_section frames = {
		.bytes = (const uint8_t *)address,
		.size = bytes,
		.address = address,
	};
	struct rows rows = {0};
	hl_cfi_compile(&frames, module->start, take_row, &rows);
	rows.capacity = rows.count;
	rows.count = 0;
	size_t row_bytes = rows.capacity * sizeof(*rows.rows);
	rows.rows = row_bytes ? hl_private_map_new(row_bytes) : NULL;
	if (!rows.rows)
		return file;
	hl_cfi_compile(&frames, module->start, take_row, &rows);
	file.row_count = hl_cfi_rows_finish(rows.rows, rows.count);
	file.rows = rows.rows;
	return file;
}

/* Maps the uncompressed .debug_frame, the symbol table and Go's table of functions of the file of ${module}, and compiles its
 * .eh_frame where nothing in memory leads to that, for the life of the process. */
static struct hl_unwind_file module_file_map(int fd, const struct hl_unwind_module *module)
{
	struct hl_unwind_file file = {0};
	Elf64_Ehdr header;
	Elf64_Shdr names, section, symbols = {0}, frames = {0}, eh_frame = {0}, go = {0};
	struct stat status;

	if (HL_SYS(SYS_fstat, fd, &status, 0) != 0 ||
	    read_at(fd, &header, sizeof(header), 0) != (long)sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
	    !read_section(fd, &header, header.e_shstrndx, &names))
		return file;
	for (uint32_t i = 0; i < header.e_shnum && read_section(fd, &header, i, &section); i++) {
		if (section.sh_type == SHT_SYMTAB ||
		    (section.sh_type == SHT_DYNSYM && symbols.sh_type != SHT_SYMTAB))
			symbols = section;
		else if (is_debug_frame(fd, &names, &section))
			frames = section;
		else if (is_eh_frame(fd, &names, &section))
			eh_frame = section;
		else if (is_go_functions(fd, &names, &section))
			go = section;
	}
	file = module_file_compile(module, module->load_bias + eh_frame.sh_addr, eh_frame.sh_size);
	file.debug_frame = map_section(fd, &frames, (uint64_t)status.st_size);
	file.debug_frame_bytes = file.debug_frame ? frames.sh_size : 0;
	if (symbols.sh_offset % _Alignof(Elf64_Sym) == 0)
		file.symbols =
			(const Elf64_Sym *)map_section(fd, &symbols, (uint64_t)status.st_size);
	hl_go_functions_open(map_section(fd, &go, (uint64_t)status.st_size), go.sh_size, &file.go);
	file.symbol_count = file.symbols ? symbols.sh_size / sizeof(Elf64_Sym) : 0;
	return file;
}

/* ---- modules ---- */

#define USUAL_TRAMPOLINE UINT64_C(0x7fffffffe000)

/* "./a.so" is stored as "DIRECTORY/a.so". */
static const char *without_dot(const char *name)
{
	return name[0] == '.' && name[1] == '/' ? name + 2 : name;
}

/* Whether module ${index} is the one that the loader calls ${name}: the end of its path. */
static bool same_path(const struct hl_region_map *region, uint32_t index, const char *name)
{
	const struct hl_region_module *module = &region->modules[index];
	uint64_t bytes = strlen(without_dot(name));

	bool relative = name[0] != '/' && strchr(name, '/');
	if (relative ? bytes > module->path_bytes : bytes != module->path_bytes)
		return false;
	return !memcmp(region->strings + module->path_offset + module->path_bytes - bytes,
		       without_dot(name), bytes);
}

struct hl_program_headers hl_program_headers_at(uint64_t start)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)start;
	uint64_t at = start + header->e_phoff;

	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phentsize != sizeof(Elf64_Phdr) ||
	    header->e_phoff > INT64_MAX) /* sums of it would wrap */
		return (struct hl_program_headers){0};
	const struct hl_program_headers found = {(const Elf64_Phdr *)at, header->e_phnum};
	uint64_t bytes = found.count * sizeof(*found.first);
	if (header->e_phoff + bytes <= COMPARED_MAX)
		return found;
	if (at % _Alignof(Elf64_Phdr) || !hl_memory_range_is_readable(at, at + bytes - 1))
		return (struct hl_program_headers){0};
	for (size_t i = 0; i < found.count; i++)
		if (found.first[i].p_type == PT_PHDR &&
		    found.first[i].p_offset == header->e_phoff &&
		    found.first[i].p_vaddr == header->e_phoff)
			return found;
	return (struct hl_program_headers){0};
}

struct program_headers {
	struct hl_program_headers headers;
	bool anywhere; /* what they describe is mapped, even outside of [start, end) */
};

/*
 * The program's own come from the kernel: its segments may leave gaps, and then [start, end) is one
 * of them, without an ELF header. A library's are read from the ELF header at its start.
 */
static struct program_headers program_headers(const struct hl_region_module *module,
					      const char *name)
{
	if (!*name)
		return (struct program_headers){
			{(const Elf64_Phdr *)getauxval(AT_PHDR), getauxval(AT_PHNUM)}, true};
	if (module->end - module->start < sizeof(Elf64_Ehdr))
		return (struct program_headers){0};
	return (struct program_headers){hl_program_headers_at(module->start), false};
}

/* Copies the build id out of a note segment. */
static void read_build_id(struct hl_region_module *module, const uint8_t *note, uint64_t bytes)
{
	while (bytes >= sizeof(Elf64_Nhdr)) {
		const Elf64_Nhdr *header = (const Elf64_Nhdr *)note;
		uint64_t name = (header->n_namesz + UINT64_C(3)) & ~UINT64_C(3);
		uint64_t size =
			sizeof(*header) + name + ((header->n_descsz + UINT64_C(3)) & ~UINT64_C(3));
		if (size > bytes)
			return;
		const uint8_t *description = note + sizeof(*header) + name;
		if (header->n_type == NT_GNU_BUILD_ID && header->n_descsz &&
		    header->n_namesz == 4 && !memcmp(note + sizeof(*header), "GNU", 4)) {
			module->build_id_bytes =
				hl_build_id_keep(module->build_id, description, header->n_descsz);
			return;
		}
		note += size;
		bytes -= size;
	}
}

static void find_build_id(struct hl_region_module *module, const char *name)
{
	struct program_headers found = program_headers(module, name);
	struct hl_program_headers headers = found.headers;

	for (size_t i = 0; headers.first && i < headers.count && !module->build_id_bytes; i++) {
		const Elf64_Phdr *header = &headers.first[i];
		uint64_t address = module->load_bias + header->p_vaddr;
		bool mapped =
			found.anywhere || (address >= module->start && address <= module->end &&
					   header->p_memsz <= module->end - address);
		if (header->p_type == PT_NOTE && mapped)
			read_build_id(module, (const uint8_t *)address, header->p_memsz);
	}
}

/* Where the module's headers are in memory; NULL for the program, whose file is known otherwise. */
static const void *image_of(const struct hl_region_module *module, const char *name)
{
	return *name ? (const void *)module->start : NULL;
}

/* Reads what distinguishes the module from another one of the same name at the same place. ${name}
 * is the loader's. */
static void identify(struct hl_region_module *module, const char *name)
{
	bool is_file = !*name || strchr(name, '/');

	find_build_id(module, name);
	if (module->build_id_bytes >= HL_BUILD_ID_UNIQUE || !is_file)
		return;
	module->print.hash = HL_FILE_PRINT_UNKNOWN;
	int fd = module_file_open(name, image_of(module, name));
	if (fd < 0)
		return;
	module->print = module_file_print(fd);
	hl_sys_close(fd);
}

static bool is_same_file(const struct hl_region_module *a, const struct hl_region_module *b)
{
	bool is_known =
		a->build_id_bytes >= HL_BUILD_ID_UNIQUE || hl_file_print_is_known(&a->print);

	return is_known && a->build_id_bytes == b->build_id_bytes &&
	       !memcmp(a->build_id, b->build_id, sizeof(a->build_id)) &&
	       hl_file_print_is_same(&a->print, &b->print);
}

/*
 * Writes the working directory and a slash to ${buffer}, of PATH_MAX + 1 bytes; returns how many
 * bytes, 0 when it has no path. A name without a directory is not a file's ("linux-vdso.so.1").
 */
static uint64_t put_directory(char *buffer, const char *name)
{
	if (name[0] == '/' || !strchr(name, '/'))
		return 0;
	long bytes = HL_SYS(SYS_getcwd, buffer, PATH_MAX, 0); /* with its NUL */
	if (bytes < 2 || buffer[0] != '/')
		return 0;
	buffer[bytes - 1] = '/';
	return bytes > 2 ? (uint64_t)bytes : 1;
}

/* The loader knows libraries by the paths that it was given, which may be relative to a directory
 * that the program leaves later. */
static bool store_path(struct hl_region_map *region, const char *name,
		       struct hl_region_module *module)
{
	uint64_t used = atomic_load_explicit(&region->header->string_bytes, memory_order_relaxed);

	uint64_t bytes = strlen(name);
	if (!hl_region_map_commit(region, HL_AREA_STRINGS, used + PATH_MAX + 1 + bytes + 1))
		return false;
	uint64_t directory = put_directory(region->strings + used, name);
	if (directory)
		name = without_dot(name);
	bytes = strlen(name);
	memcpy(region->strings + used + directory, name, bytes + 1);
	module->path_offset = (uint32_t)used;
	module->path_bytes = (uint32_t)(directory + bytes);
	atomic_store_explicit(&region->header->string_bytes,
			      (uint32_t)(used + directory + bytes + 1), memory_order_release);
	return true;
}

/* Enters the module into the region; returns its index or -1. Under the lock. */
static int64_t add_entry(struct hl_modules *modules, struct hl_region_module *module,
			 const char *name)
{
	struct hl_region_map *region = modules->region;
	uint32_t index = modules->count;

	if (index >= HL_MODULES_MAX ||
	    !hl_region_map_commit(region, HL_AREA_MODULES,
				  (index + UINT64_C(1)) * sizeof(*module)) ||
	    !store_path(region, name, module)) {
		atomic_fetch_add(&region->header->lost.modules, 1);
		return -1;
	}
	region->modules[index] = *module;
	modules->entries[index] =
		(struct hl_module_entry){.start = module->start, .end = module->end};
	modules->count = index + 1;
	atomic_store_explicit(&region->header->module_count, index + 1, memory_order_release);
	return index;
}

/* Retires live modules that overlap [start, end), which is another module's now. */
static bool retire_overlapping(struct hl_modules *modules, uint64_t start, uint64_t end)
{
	bool retired = false;

	for (uint32_t i = 0; i < modules->count; i++) {
		struct hl_module_entry *entry = &modules->entries[i];
		if (entry->gone || entry->start >= end || entry->end <= start)
			continue;
		entry->gone = retired = true;
	}
	return retired;
}

/* The live module that lies exactly there and has this name; its index or -1. */
static int64_t find_live(const struct hl_modules *modules, const struct dl_find_object *object)
{
	for (uint32_t i = 0; i < modules->count; i++) {
		const struct hl_module_entry *entry = &modules->entries[i];
		if (!entry->gone && entry->start == (uint64_t)object->dlfo_map_start &&
		    entry->end == (uint64_t)object->dlfo_map_end &&
		    entry->loaded == object->dlfo_link_map &&
		    same_path(modules->region, i, object->dlfo_link_map->l_name))
			return i;
	}
	return -1;
}

/* A module that was unloaded and is there again, the same file at the same place: its index or -1.
 */
static int64_t find_gone(const struct hl_modules *modules, const struct hl_region_module *module,
			 const char *name)
{
	for (uint32_t i = 0; i < modules->count; i++) {
		const struct hl_module_entry *entry = &modules->entries[i];
		if (entry->gone && entry->start == module->start && entry->end == module->end &&
		    same_path(modules->region, i, name) &&
		    is_same_file(&modules->region->modules[i], module))
			return i;
	}
	return -1;
}

static const Elf64_Dyn *find_dynamic(const struct hl_region_module *module, const char *name)
{
	struct hl_program_headers headers = program_headers(module, name).headers;

	for (size_t i = 0; headers.first && i < headers.count; i++)
		if (headers.first[i].p_type == PT_DYNAMIC)
			return (const Elf64_Dyn *)(module->load_bias + headers.first[i].p_vaddr);
	return NULL;
}

/* Has the next event open the module where it is an interpreter. */
static void tell_guests(struct hl_modules *modules, const struct hl_region_module *module,
			const struct dl_find_object *object)
{
	struct hl_region_header *header = modules->region->header;
	const char *name = object->dlfo_link_map->l_name;
	struct hl_exports exports = hl_exports_of(find_dynamic(module, name), module->load_bias);
	const struct hl_guest_module noted = {
		.exports = &exports,
		.object = object,
		.start = module->start,
		.end = module->end,
		.is_program = !*name,
		.no_scripts = atomic_load(&header->flags) & HL_REGION_NO_SCRIPTS,
	};

	if (hl_guests_note(header, &noted))
		atomic_fetch_or(&header->mode, HL_MODE_PROBE);
}

/* Its index or -1. Under the lock. */
static int64_t find_or_add(struct hl_modules *modules, const struct dl_find_object *object,
			   bool *ret_replaced)
{
	const char *name = object->dlfo_link_map->l_name;

	int64_t index = find_live(modules, object);
	if (index >= 0)
		return index;
	struct hl_region_module module = {
		.start = (uint64_t)object->dlfo_map_start,
		.end = (uint64_t)object->dlfo_map_end,
		.load_bias = object->dlfo_link_map->l_addr,
	};
	*ret_replaced = retire_overlapping(modules, module.start, module.end);
	identify(&module, name);
	index = find_gone(modules, &module, name);
	if (index < 0)
		index = add_entry(modules, &module, name);
	tell_guests(modules, &module, object);
	if (index < 0)
		return index;
	modules->entries[index].gone = false;
	modules->entries[index].loaded = object->dlfo_link_map;
	return index;
}

bool hl_modules_find(struct hl_modules *modules, uint64_t pc, struct hl_unwind_module *ret_module,
		     bool *ret_replaced)
{
	struct dl_find_object object;

	*ret_replaced = false;
	if (_dl_find_object((void *)pc, &object) != 0)
		return false;
	hl_spin_lock(&modules->lock);
	int64_t index = find_or_add(modules, &object, ret_replaced);
	hl_spin_unlock(&modules->lock);
	*ret_module = (struct hl_unwind_module){
		.id = (uint32_t)(index + 1),
		.start = (uint64_t)object.dlfo_map_start,
		.end = (uint64_t)object.dlfo_map_end,
		.eh_frame_hdr = object.dlfo_eh_frame,
		.load_bias = object.dlfo_link_map->l_addr,
	};
	return true;
}

struct hl_unwind_file hl_modules_file(struct hl_modules *modules,
				      const struct hl_unwind_module *module)
{
	uint32_t id = module->id;

	if (id == HL_MODULE_NONE || id == HL_MODULE_SCRIPT)
		return (struct hl_unwind_file){0};
	const struct hl_region_module *it = &modules->region->modules[id - 1];
	struct hl_module_entry *entry = &modules->entries[id - 1];
	const char *path = modules->region->strings + it->path_offset;
	hl_spin_lock(&modules->lock);
	if (!entry->file_sought && (!*path || *path == '/')) {
		int fd = module_file_open(path, image_of(it, path));
		if (fd >= 0) {
			entry->file = module_file_map(fd, module);
			hl_sys_close(fd);
		} else if (!*path) {
			entry->file = module_file_compile(module, modules->eh_frame,
							  modules->eh_frame_bytes);
		}
	}
	entry->file_sought = true;
	struct hl_unwind_file found = entry->file;
	hl_spin_unlock(&modules->lock);
	return found;
}

/* A line of /proc/PID/maps that is being read. */
struct line {
	uint64_t start;
	bool has_start;	  /* the '-' has come */
	unsigned matched; /* of the name, at the line's end so far */
};

static bool ends_trampolines_line(struct line *line, char next, uint64_t address)
{
	static const char name[] = "[uprobes]\n";

	line->matched = next == name[line->matched] ? line->matched + 1 : next == name[0];
	if (next == '\n') {
		bool found = line->matched == sizeof(name) - 1 && line->start == address;
		*line = (struct line){0};
		return found;
	}
	line->has_start = line->has_start || next == '-';
	if (!line->has_start)
		line->start =
			line->start << 4 | (uint64_t)(next <= '9' ? next - '0' : next - 'a' + 10);
	return false;
}

/* It has a page of its own and is at its start, as long as there are uretprobes. The kernel takes
 * the last page of the address space if that is free. */
bool hl_modules_is_trampoline(uint64_t address)
{
	char bytes[512];
	struct line line = {0};
	bool found = false;

	if (address % 4096 != 0)
		return false;
	if (address == USUAL_TRAMPOLINE)
		return true;
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC,
			      0, 0, 0);
	if (fd < 0)
		return false;
	for (long size; !found && (size = HL_SYS(SYS_read, fd, bytes, sizeof(bytes))) > 0;)
		for (long i = 0; i < size && !found; i++)
			found = ends_trampolines_line(&line, bytes[i], address);
	hl_sys_close(fd);
	return found;
}

void hl_modules_retire_unloaded(struct hl_modules *modules)
{
	struct dl_find_object object;

	hl_spin_lock(&modules->lock);
	for (uint32_t i = 0; i < modules->count; i++) {
		struct hl_module_entry *entry = &modules->entries[i];
		entry->gone = entry->gone || _dl_find_object((void *)entry->start, &object) != 0 ||
			      entry->loaded != object.dlfo_link_map;
	}
	hl_spin_unlock(&modules->lock);
	HL_GUESTS_CALL(unloaded);
}
