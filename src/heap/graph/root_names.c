/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of roots, by the symbols and the call frame information of the files that a process maps, with
 * libdwfl; see holders.h. */
#include "heap/graph/holders.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/machine.h"
#include "base/names.h"
#include "elf/elf.h"
#include "heap/graph/graph.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "symbols/symbols.h"

#include <elfutils/libdwfl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <unistd.h>

#define OVERLAPS_MAX  8u    /* how many symbols before the nearest may enclose an address */
#define FRAMES_MAX    512u  /* of a thread; what lies further out is called by its mapping */
#define LIBRARIES_MAX 4096u /* of a list that may be damaged */
#define DYNAMIC_MAX   (UINT64_C(64) << 10) /* bytes of a section of which a file may say anything */

/* At most. The dtv has two words for each module with thread-local storage, from number 1 on. */
#define STATIC_TLS_BYTES (UINT64_C(1) << 20)

/* Those that a function leaves as its caller had them. */
static const unsigned kept_registers[] = {HL_DWARF_KEPT};
#define KEPT_COUNT HL_COUNT_OF(kept_registers)

struct symbol {
	uint64_t address, size;
	const char *name; /* libdwfl's */
	uint32_t rank;	  /* of names for the same address the lowest is the best */
	bool is_tls;	  /* the address is an offset in the module's thread-local storage */
};

struct module {
	Dwfl_Module *module;
	bool is_read;
	uint32_t name;
	struct symbol *symbols; /* thread-local ones last, each part by address */
	size_t symbol_count, capacity, tls_at;
};

/* A part of a thread's memory. */
struct part {
	struct hl_root_name name;
	const struct module *tls; /* of which it is the thread-local storage; NULL: a frame */
};

struct hl_root_names {
	struct hl_memory *memory;
	struct hl_strings *strings;
	Dwfl *dwfl;
	struct module *modules;
	size_t module_count, module_capacity;
	size_t *tls_modules; /* in the order of their numbers */
	size_t tls_count, tls_capacity;
	struct part *parts; /* by address */
	size_t part_count, part_capacity;
	const struct hl_root_thread *threads;
	size_t thread_count;
	struct hl_root_name *of_registers; /* KEPT_COUNT for each thread */
	struct hl_runtimes runtimes;
	int error;
};

static char *default_debug_path; /* NULL: libdwfl's own, :.debug:/usr/lib/debug */

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &default_debug_path,
};

static int intern_address(struct hl_root_names *names, const char *section, uint64_t offset,
			  uint32_t *ret_id)
{
	char text[128];

	snprintf(text, sizeof(text), "%s0x%" PRIx64, section, offset);
	return hl_strings_intern(names->strings, text, ret_id);
}

/* ---- modules ---- */

/* Reports the file that is mapped from ${map} on. A file that cannot be read has no names. */
static int add_module(struct hl_root_names *names, const struct hl_map *map)
{
	struct module added = {0};
	uint64_t address;
	int fd = hl_memory_open_file(names->memory, map);
	int r = hl_strings_intern(names->strings, hl_path_basename(map->path), &added.name);

	if (fd < 0 || r < 0)
		return r;
	Elf *elf = hl_elf_open(fd);
	bool is_module =
		elf && hl_elf_is_native(elf) && hl_elf_address(elf, map->offset, false, &address);
	elf_end(elf);
	if (is_module)
		added.module = dwfl_report_elf(
			names->dwfl, hl_path_basename(map->path), map->path, fd,
			map->start - (address & ~(names->memory->page_bytes - 1)), true);
	if (!added.module) {
		close(fd);
		return 0;
	}
	return HL_ARRAY_APPEND(names->modules, names->module_count, names->module_capacity, added);
}

static int add_modules(struct hl_root_names *names)
{
	const struct hl_maps *maps = &names->memory->maps;
	int r = 0;

	dwfl_report_begin(names->dwfl);
	for (size_t i = 0; i < maps->count && r == 0; i++) {
		const struct hl_map *map = &maps->maps[i];
		if (map->inode && map->path[0] == '/' && (!i || !hl_maps_same_file(map, map - 1)))
			r = add_module(names, map);
	}
	dwfl_report_end(names->dwfl, NULL, NULL);
	return r;
}

static struct module *module_at(struct hl_root_names *names, uint64_t address)
{
	Dwfl_Module *module = dwfl_addrmodule(names->dwfl, address);

	for (size_t i = 0; module && i < names->module_count; i++)
		if (names->modules[i].module == module)
			return &names->modules[i];
	return NULL;
}

/* ---- symbols ---- */

static int compare_symbols(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	if (a->is_tls != b->is_tls)
		return a->is_tls ? 1 : -1;
	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank > b->rank ? -1 : 1;
	return strcmp(b->name, a->name);
}

static int read_symbols(struct module *module)
{
	int total = dwfl_module_getsymtab(module->module);
	int r = 0;

	module->is_read = true;
	for (int i = 1; i < total && r == 0; i++) {
		GElf_Sym symbol = {0};
		GElf_Addr address;
		const char *name = dwfl_module_getsym_info(module->module, i, &symbol, &address,
							   NULL, NULL, NULL);
		unsigned type = GELF_ST_TYPE(symbol.st_info), bind = GELF_ST_BIND(symbol.st_info);
		if (!name || !name[0] || symbol.st_shndx == SHN_UNDEF || !symbol.st_size ||
		    (type != STT_FUNC && type != STT_OBJECT && type != STT_TLS))
			continue;
		const struct symbol added = {
			.address = type == STT_TLS ? symbol.st_value : address,
			.size = symbol.st_size,
			.name = name,
			.rank = (uint32_t)strspn(name, "_") * 4 + (bind == STB_GLOBAL ? 0
								   : bind == STB_WEAK ? 1
										      : 2),
			.is_tls = type == STT_TLS,
		};
		r = HL_ARRAY_APPEND(module->symbols, module->symbol_count, module->capacity, added);
	}
	if (module->symbol_count)
		qsort(module->symbols, module->symbol_count, sizeof(*module->symbols),
		      compare_symbols);
	module->tls_at = HL_LOWER_BOUND(i, module->symbol_count, !module->symbols[i].is_tls);
	return r;
}

/* The symbol that ${address} lies in; NULL: none. */
static const struct symbol *symbol_at(const struct module *module, uint64_t address, bool is_tls)
{
	size_t from = is_tls ? module->tls_at : 0;
	size_t count = (is_tls ? module->symbol_count : module->tls_at) - from;
	const struct symbol *symbols = module->symbols + from;
	size_t end = HL_LOWER_BOUND(i, count, symbols[i].address <= address);

	for (size_t i = end; i > 0 && i + OVERLAPS_MAX > end; i--)
		if (address - symbols[i - 1].address < symbols[i - 1].size)
			return &symbols[i - 1];
	return NULL;
}

/* A static variable of a function has a number behind its name in C: "cache.0". */
static int intern_symbol(struct hl_root_names *names, const char *name, uint32_t *ret_id)
{
	char *demangled = hl_symbols_demangle(name), text[256];
	const char *dot = demangled ? NULL : strrchr(name, '.');

	if (dot && dot > name && dot[1] && !dot[1 + strspn(dot + 1, "0123456789")] &&
	    (size_t)(dot - name) < sizeof(text)) {
		snprintf(text, sizeof(text), "%.*s", (int)(dot - name), name);
		name = text;
	}
	int r = hl_strings_intern(names->strings, demangled ? demangled : name, ret_id);
	free(demangled);
	return r;
}

/* Sets the section of ${address}, and how far it is in it. */
static int find_place(struct hl_root_names *names, const struct module *module, uint64_t address,
		      uint32_t *ret_place)
{
	GElf_Addr in_section = address, bias;
	GElf_Shdr header;
	size_t texts;
	char prefix[64] = "";
	Elf_Scn *section = dwfl_module_address_section(module->module, &in_section, &bias);
	Elf *elf = section ? dwfl_module_getelf(module->module, &bias) : NULL;
	const char *name =
		elf && gelf_getshdr(section, &header) && elf_getshdrstrndx(elf, &texts) == 0
			? elf_strptr(elf, texts, header.sh_name)
			: NULL;

	if (name)
		snprintf(prefix, sizeof(prefix), "%s+", name);
	return intern_address(names, prefix, name ? in_section : address, ret_place);
}

static int name_variable(struct hl_root_names *names, struct module *module, uint64_t address,
			 struct hl_root_name *ret_name)
{
	int r = module->is_read ? 0 : read_symbols(module);
	const struct symbol *symbol = r == 0 ? symbol_at(module, address, false) : NULL;

	*ret_name =
		(struct hl_root_name){.kind = HL_ROOT_VARIABLE,
				      .module = module->name,
				      .start = symbol ? symbol->address : address,
				      .end = symbol ? symbol->address + symbol->size : address + 8};
	if (symbol)
		r = intern_symbol(names, symbol->name, &ret_name->name);
	return r == 0 ? find_place(names, module, ret_name->start, &ret_name->place) : r;
}

/* ---- thread-local storage ---- */

static bool find_segment(const struct module *module, uint32_t type, GElf_Phdr *ret_segment,
			 GElf_Addr *ret_bias)
{
	Elf *elf = dwfl_module_getelf(module->module, ret_bias);
	size_t count;

	if (!elf || elf_getphdrnum(elf, &count) < 0)
		return false;
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(elf, (int)i, ret_segment) && ret_segment->p_type == type)
			return true;
	return false;
}

static bool read_word(struct hl_root_names *names, uint64_t address, uint64_t *ret_word)
{
	return hl_memory_read(names->memory, address, ret_word, sizeof(*ret_word)) == 0;
}

/* The first element of the dynamic loader's list, which the program's own dynamic section leads to. */
static uint64_t find_libraries(struct hl_root_names *names)
{
	uint64_t pair[2], map;
	GElf_Phdr segment;
	GElf_Addr bias;

	for (size_t i = 0; i < names->module_count; i++) {
		if (!find_segment(&names->modules[i], PT_DYNAMIC, &segment, &bias))
			continue;
		for (uint64_t at = 0; at < segment.p_memsz && at < DYNAMIC_MAX;
		     at += sizeof(pair)) {
			if (hl_memory_read(names->memory, segment.p_vaddr + bias + at, pair,
					   sizeof(pair)) < 0 ||
			    pair[0] == DT_NULL)
				break;
			if (pair[0] == DT_DEBUG && pair[1] &&
			    read_word(names, pair[1] + offsetof(struct r_debug, r_map), &map))
				return map;
		}
	}
	return 0;
}

static int add_tls_module(struct hl_root_names *names, const struct module *module)
{
	GElf_Phdr segment;
	GElf_Addr bias;

	if (!module || !find_segment(module, PT_TLS, &segment, &bias))
		return 0;
	return HL_ARRAY_APPEND(names->tls_modules, names->tls_count, names->tls_capacity,
			       (size_t)(module - names->modules));
}

/* The loader numbers modules with thread-local storage in the order of its list; a module that was
 * unloaded leaves a number that later ones take, so later ones may be mistaken: see add_tls(). */
static int find_tls_modules(struct hl_root_names *names)
{
	uint64_t library = find_libraries(names), dynamic;
	int r = 0;

	if (!library && names->module_count == 1)
		return add_tls_module(names, &names->modules[0]);
	for (unsigned i = 0; library && i < LIBRARIES_MAX && r == 0; i++) {
		if (!read_word(names, library + offsetof(struct link_map, l_ld), &dynamic))
			break;
		r = add_tls_module(names, module_at(names, dynamic));
		if (!read_word(names, library + offsetof(struct link_map, l_next), &library))
			break;
	}
	return r;
}

static int add_part(struct hl_root_names *names, const struct part *part)
{
	if (part->name.start >= part->name.end)
		return 0;
	return HL_ARRAY_APPEND(names->parts, names->part_count, names->part_capacity, *part);
}

/* Whether thread-local storage of ${bytes} may begin at ${start}: the modules' follow each other from the thread pointer on. *${edge}
 * is that, then the outer end of what was found last. */
static bool is_next_tls(uint64_t start, uint64_t bytes, uint64_t *edge)
{
	bool is_next =
		HL_THREAD_TLS_IS_ABOVE ? start >= *edge : start < *edge && bytes <= *edge - start;

	if (is_next)
		*edge = start + (HL_THREAD_TLS_IS_ABOVE ? bytes : 0);
	return is_next;
}

/* Static thread-local storage of one thread: see heap/thread.h. */
static int add_tls(struct hl_root_names *names, uint64_t pointer)
{
	uint64_t dtv, start, edge = pointer, before = hl_pthread_before(names->memory, pointer);
	struct part control = {.name = {.kind = HL_ROOT_THREAD_VARIABLE,
					.start = pointer - (before == UINT64_MAX ? 0 : before),
					.end = pointer + HL_THREAD_STRUCT_END}};
	GElf_Phdr segment;
	GElf_Addr bias;
	int r = hl_strings_intern(names->strings, "struct pthread", &control.name.name);

	if (r == 0)
		r = hl_strings_intern(names->strings, "libc", &control.name.module);
	if (r == 0)
		r = add_part(names, &control);
	if (!read_word(names, pointer + HL_MACHINE_DTV, &dtv))
		return r;
	for (size_t i = 0; i < names->tls_count && r == 0; i++) {
		const struct module *module = &names->modules[names->tls_modules[i]];
		if (!read_word(names, dtv + (i + 1) * 16, &start) ||
		    (start > pointer ? start - pointer : pointer - start) > STATIC_TLS_BYTES ||
		    !find_segment(module, PT_TLS, &segment, &bias) ||
		    !is_next_tls(start, segment.p_memsz, &edge))
			continue;
		r = add_part(names, &(struct part){.name = {.kind = HL_ROOT_THREAD_VARIABLE,
							    .module = module->name,
							    .start = start,
							    .end = start + segment.p_memsz},
						   .tls = module});
	}
	return r;
}

static int name_thread_variable(struct hl_root_names *names, const struct part *part,
				uint64_t address, struct hl_root_name *ret_name)
{
	struct module *module = &names->modules[part->tls - names->modules];
	uint64_t offset = address - part->name.start;
	int r = module->is_read ? 0 : read_symbols(module);
	const struct symbol *symbol = r == 0 ? symbol_at(module, offset, true) : NULL;

	*ret_name = part->name;
	if (symbol) {
		offset = symbol->address;
		ret_name->end = ret_name->start + offset + symbol->size;
		r = intern_symbol(names, symbol->name, &ret_name->name);
	} else {
		ret_name->end = address + 8;
	}
	ret_name->start += offset;
	return r == 0 ? intern_address(names, "TLS+", offset, &ret_name->place) : r;
}

/* ---- frames ---- */

static pid_t next_thread(Dwfl *dwfl, void *context, void **thread)
{
	(void)dwfl;
	(void)context;
	(void)thread;
	return 0; /* they are asked for one by one */
}

static bool get_thread(Dwfl *dwfl, pid_t number, void *context, void **ret_thread)
{
	struct hl_root_names *names = context;

	(void)dwfl;
	*ret_thread = (void *)&names->threads[number - 1];
	return true;
}

/* A word of a stack, without its signature if it is a return address. */
static uint64_t as_code(struct hl_root_names *names, uint64_t word)
{
	uint64_t code = hl_machine_code_address(word);

	return code != word && module_at(names, code) ? code : word;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *ret_word, void *context)
{
	struct hl_root_names *names = context;

	(void)dwfl;
	for (size_t i = 0; i < names->thread_count; i++) {
		const struct hl_root_thread *thread = &names->threads[i];
		if (address >= thread->start && address < thread->start + thread->count * 8) {
			*ret_word = as_code(names, thread->words[(address - thread->start) / 8]);
			return !(address & 7);
		}
	}
	if (!read_word(names, address, ret_word))
		return false;
	*ret_word = as_code(names, *ret_word);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *context)
{
	Dwarf_Word registers[HL_DWARF_REGISTERS];

	struct hl_thread_registers from = ((const struct hl_root_thread *)context)->registers;

	for (unsigned i = 0; i < HL_DWARF_REGISTERS; i++)
		registers[i] = ((const uint64_t *)&from)[hl_dwarf_word(i)];
	dwfl_thread_state_register_pc(thread, *hl_thread_registers_pc(&from));
	return dwfl_thread_state_registers(thread, 0, HL_DWARF_REGISTERS, registers);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

static int name_function(struct hl_root_names *names, uint64_t pc, struct hl_root_name *ret_name)
{
	struct module *module = module_at(names, pc);
	int r = !module || module->is_read ? 0 : read_symbols(module);
	const struct symbol *symbol = module && r == 0 ? symbol_at(module, pc, false) : NULL;

	if (symbol)
		r = intern_symbol(names, symbol->name, &ret_name->name);
	if (module)
		ret_name->module = module->name;
	if (r < 0 || symbol)
		return r;
	return module ? find_place(names, module, pc, &ret_name->place)
		      : intern_address(names, "", pc, &ret_name->place);
}

struct walk {
	struct hl_root_names *names;
	struct part frame; /* the one seen last; its end is not known yet */
	unsigned count;
	struct hl_root_name *of_registers; /* whose values they are, as far as that is known */
	uint64_t registers[KEPT_COUNT];	   /* of the innermost frame */
	bool is_known[KEPT_COUNT];
};

/* A value is that of the outermost frame that has it: the one that put it there. */
static void follow_registers(struct walk *walk, Dwfl_Frame *state)
{
	Dwarf_Word value;

	for (size_t i = 0; i < KEPT_COUNT; i++) {
		/* What the frame before says nothing of, it has not touched. */
		bool has = dwfl_frame_reg(state, kept_registers[i], &value) == 0;
		if (walk->count == 1)
			walk->registers[i] = has ? value : 0;
		walk->is_known[i] = walk->is_known[i] || (has && walk->registers[i] != value);
		if (!walk->is_known[i])
			walk->of_registers[i] = walk->frame.name;
	}
}

static int add_frame(Dwfl_Frame *state, void *context)
{
	struct walk *walk = context;
	struct hl_root_names *names = walk->names;
	Dwarf_Word sp;
	Dwarf_Addr pc;
	bool is_activation;

	if (dwfl_frame_reg(state, HL_DWARF_SP, &sp) != 0 ||
	    !dwfl_frame_pc(state, &pc, &is_activation))
		return DWARF_CB_ABORT;
	if (walk->count == FRAMES_MAX) {
		walk->frame.name.end = sp;
		return DWARF_CB_ABORT;
	}
	if (walk->count++ == 0)
		sp -= HL_RED_ZONE_BYTES;
	else if (sp <= walk->frame.name.start)
		return DWARF_CB_ABORT;
	walk->frame.name.end = sp;
	if (walk->count > 1 && (names->error = add_part(names, &walk->frame)) < 0)
		return DWARF_CB_ABORT;
	walk->frame = (struct part){.name = {.kind = HL_ROOT_FRAME, .start = sp}};
	names->error = name_function(names, is_activation ? pc : pc - 1, &walk->frame.name);
	follow_registers(walk, state);
	return names->error < 0 ? DWARF_CB_ABORT : DWARF_CB_OK;
}

static int walk_stack(struct hl_root_names *names, size_t number)
{
	const struct hl_root_thread *thread = &names->threads[number];
	const struct hl_map *map =
		hl_maps_find(&names->memory->maps, hl_thread_registers_sp(&thread->registers));
	struct walk walk = {.names = names,
			    .of_registers = names->of_registers + number * KEPT_COUNT};

	dwfl_getthread_frames(names->dwfl, (pid_t)number + 1, add_frame, &walk);
	if (names->error < 0 || !walk.count || !map)
		return names->error;
	if (walk.frame.name.end)
		return add_part(names, &walk.frame);
	/* The outermost frame reaches to what the thread has of its own, or to the end. */
	walk.frame.name.end = map->end;
	if (hl_thread_registers_thread(&thread->registers) > walk.frame.name.start &&
	    hl_thread_registers_thread(&thread->registers) < map->end)
		walk.frame.name.end = thread->start + thread->count * 8;
	return add_part(names, &walk.frame);
}

static int compare_parts(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	return (a->name.start > b->name.start) - (a->name.start < b->name.start);
}

int hl_root_names_set_threads(struct hl_root_names *names, const struct hl_root_thread *threads,
			      size_t count)
{
	int r = 0;

	names->part_count = 0;
	names->threads = threads;
	names->thread_count = count;
	free(names->of_registers);
	names->of_registers = calloc(count * KEPT_COUNT + 1, sizeof(*names->of_registers));
	if (!names->of_registers)
		return -ENOMEM;
	for (size_t i = 0; i < count && r == 0; i++) {
		r = walk_stack(names, i);
		if (r == 0)
			r = add_tls(names, hl_thread_registers_thread(&threads[i].registers));
	}
	names->threads = NULL;
	names->thread_count = 0;
	if (names->part_count)
		qsort(names->parts, names->part_count, sizeof(*names->parts), compare_parts);
	return r;
}

/* ---- all ---- */

/* What a runtime keeps in a mapping without a name, as the balance sheet of a heap calls it; NULL: it is
 * not known. 0 or -ENOMEM. */
static int find_contents(struct hl_root_names *names, const struct hl_map *map,
			 const char **ret_contents)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};

	*ret_contents = NULL;
	if (!map || map->inode || map->path[0])
		return 0;
	int r = hl_memory_scan(names->memory, map->start, map->end, &pages);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	enum hl_anonymous_kind kind =
		hl_rss_kind(names->memory, &names->runtimes, map, map->start, map->end, &pages);
	if (hl_rss_pools(kind) || kind == HL_ANONYMOUS_V8 || kind == HL_ANONYMOUS_JAVA ||
	    kind == HL_ANONYMOUS_GO)
		*ret_contents = hl_rss_anonymous_name(kind);
	return 0;
}

static int name_mapping(struct hl_root_names *names, uint64_t address,
			struct hl_root_name *ret_name)
{
	const struct hl_map *map = hl_maps_find(&names->memory->maps, address);
	const char *contents;
	int r = find_contents(names, map, &contents);

	if (r < 0)
		return r;
	*ret_name = (struct hl_root_name){.kind = HL_ROOT_MAPPING,
					  .start = map ? map->start : address,
					  .end = map ? map->end : address + 8};
	r = hl_strings_intern(names->strings,
			      contents		    ? contents
			      : map && map->path[0] ? hl_path_basename(map->path)
						    : "[anon]",
			      &ret_name->module);
	/* All mappings of a runtime are one holder. */
	return r < 0 || contents ? r : intern_address(names, "", ret_name->start, &ret_name->place);
}

static int name_kernel_root(struct hl_root_names *names, uint64_t address,
			    struct hl_root_name *ret_name)
{
	enum hl_kernel_holder holder = hl_graph_kernel_holder(address);
	uint32_t number = hl_graph_kernel_number(address);
	char text[64];

	*ret_name = (struct hl_root_name){.kind = HL_ROOT_KERNEL,
					  .start = hl_graph_kernel_root(holder, number)};
	ret_name->end = ret_name->start + (UINT64_C(1) << HL_GRAPH_KERNEL_ROOT_BITS);
	snprintf(text, sizeof(text), "%s %u",
		 holder == HL_KERNEL_EPOLL ? "epoll descriptor" : "timer", number);
	int r = hl_strings_intern(names->strings, text, &ret_name->name);
	return r == 0 ? hl_strings_intern(names->strings, "kernel", &ret_name->module) : r;
}

/* The part that holds ${address}, of those that begin before ${end}; NULL: none. They overlap where a
 * thread's own memory lies in what its outermost frame reaches to. */
static const struct part *part_at(const struct hl_root_names *names, size_t end, uint64_t address)
{
	for (size_t i = end; i > 0 && i + OVERLAPS_MAX > end; i--)
		if (address < names->parts[i - 1].name.end)
			return &names->parts[i - 1];
	return NULL;
}

int hl_root_names_find(struct hl_root_names *names, uint64_t address, struct hl_root_name *ret_name)
{
	if (address & HL_GRAPH_KERNEL_ROOTS)
		return name_kernel_root(names, address, ret_name);
	size_t end = HL_LOWER_BOUND(i, names->part_count, names->parts[i].name.start <= address);
	const struct part *part = part_at(names, end, address);
	struct module *module = part ? NULL : module_at(names, address);
	int r = 0;

	if (part && part->tls)
		r = name_thread_variable(names, part, address, ret_name);
	else if (part)
		*ret_name = part->name;
	else if (module)
		r = name_variable(names, module, address, ret_name);
	else
		r = name_mapping(names, address, ret_name);
	if (r == 0 && end < names->part_count && names->parts[end].name.start < ret_name->end)
		ret_name->end = names->parts[end].name.start;
	return r;
}

bool hl_root_names_place(struct hl_root_names *names, uint64_t address,
			 struct hl_root_place *ret_place)
{
	size_t end = HL_LOWER_BOUND(i, names->part_count, names->parts[i].name.start <= address);
	const struct part *part = part_at(names, end, address);
	const struct module *module = part ? part->tls : module_at(names, address);

	if (!module)
		return false;
	*ret_place = (struct hl_root_place){.module = (size_t)(module - names->modules),
					    .is_thread_local = part != NULL,
					    .offset = part ? address - part->name.start : 0};
	return true;
}

size_t hl_root_names_modules(const struct hl_root_names *names)
{
	return names->module_count;
}

Dwarf *hl_root_names_dwarf(struct hl_root_names *names, size_t module, uint64_t *ret_bias)
{
	return dwfl_module_getdwarf(names->modules[module].module, ret_bias);
}

int hl_root_names_find_register(struct hl_root_names *names, size_t thread, uint64_t sp,
				unsigned number, struct hl_root_name *ret_name)
{
	for (size_t i = 0; i < KEPT_COUNT; i++)
		if (hl_dwarf_word(kept_registers[i]) == number &&
		    names->of_registers[thread * KEPT_COUNT + i].start) {
			*ret_name = names->of_registers[thread * KEPT_COUNT + i];
			return 0;
		}
	return hl_root_names_find(names, (sp & ~UINT64_C(7)) - 8, ret_name);
}

int hl_root_names_new(struct hl_memory *memory, struct hl_strings *strings,
		      struct hl_root_names **ret_names)
{
	struct hl_root_names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	names->memory = memory;
	names->strings = strings;
	names->runtimes = hl_rss_find_runtimes(memory);
	names->dwfl = dwfl_begin(&callbacks);
	int r = names->dwfl ? 0 : -ENOMEM;
	if (r == 0 && memory->pid)
		r = hl_process_name_maps(memory->pid, &memory->maps);
	if (r == 0)
		r = add_modules(names);
	if (r == 0)
		r = find_tls_modules(names);
	if (r < 0) {
		hl_root_names_free(names);
		return r;
	}
	/* Without modules there is no machine to walk stacks of: they are then called by mapping. */
	dwfl_attach_state(names->dwfl, NULL, 1, &thread_callbacks, names);
	*ret_names = names;
	return 0;
}

void hl_root_names_free(struct hl_root_names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->module_count; i++)
		free(names->modules[i].symbols);
	if (names->dwfl)
		dwfl_end(names->dwfl);
	free(names->modules);
	free(names->tls_modules);
	free(names->parts);
	free(names->of_registers);
	free(names);
}
