/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules (program, libraries, vdso) on whose code stacks stand: found when a program counter is
 * not in the rule cache, and entered into the region so that readers can name the code. A module
 * that is unloaded keeps its id, and has it again when the same file is loaded at the same place;
 * another file there gets a new id, also under the same path.
 */
#pragma once

#include "base/file_print.h"
#include "recorder/region_map.h"
#include "recorder/spin.h"
#include "unwind/unwind.h"

#include <elf.h>
#include <stdint.h>

struct hl_module_entry {
	uint64_t start, end;
	const void *loaded; /* the loader's struct link_map */
	struct hl_unwind_file file;
	bool file_sought;
	bool gone; /* unloaded */
};

struct hl_modules {
	_Atomic uint32_t lock;
	struct hl_region_map *region;
	uint64_t eh_frame, eh_frame_bytes; /* the program's, if its file cannot be opened */
	uint32_t count;			   /* entries[i] has id i + 1, as in the region */
	struct hl_module_entry entries[HL_MODULES_MAX];
};

/*
 * Finds the module of ${pc} and registers it when it is new. Returns false when no module holds the
 * address. When the region is full the module is found with id HL_MODULE_NONE, and
 * header.lost.modules is raised.
 * ${ret_replaced} says that the module has taken addresses of an older one, so that rules may be
 * stale. Thread-safe; not from a signal handler that interrupted the recorder.
 */
bool hl_modules_find(struct hl_modules *modules, uint64_t pc, struct hl_unwind_module *ret_module,
		     bool *ret_replaced);

/* Whether ${address} is the kernel's trampoline, to which functions return that a return probe
 * (uretprobe) of another tool watches. Reads /proc/self/maps: ask only for an address in no module.
 */
bool hl_modules_is_trampoline(uint64_t address);

/* Parts of the file of ${module}, mapped at the first call. As above. */
struct hl_unwind_file hl_modules_file(struct hl_modules *modules,
				      const struct hl_unwind_module *module);

/* Notes which modules are not loaded any more; about 50 ns for each. As above. */
void hl_modules_retire_unloaded(struct hl_modules *modules);

struct hl_program_headers {
	const Elf64_Phdr *first; /* NULL: they are not in memory */
	size_t count;
};

/* Those of the ELF image whose header, and the rest of its page, is at ${start}. They follow the header; those of a file that
 * BOLT has rewritten lie in its last segment, at an address that equals their offset in the file. Takes no lock. */
struct hl_program_headers hl_program_headers_at(uint64_t start);

/* ---- what a loaded module exports, read from its dynamic section in memory. Takes no lock ---- */

struct hl_exports {
	uint64_t load_bias;
	const Elf64_Sym *symbols;
	const char *names;
	const uint32_t *hash; /* DT_GNU_HASH; NULL: nothing is found */
};

/* ${dynamic}: the module's dynamic section; NULL: it has none. */
struct hl_exports hl_exports_of(const Elf64_Dyn *dynamic, uint64_t load_bias);

/*
 * The code around ${inside}, an exported function whose name begins with ${prefix}: from the first to
 * the last of such functions without another exported one in between.
 */
void hl_exports_range(const struct hl_exports *exports, const char *prefix, uint64_t inside,
		      uint64_t *ret_start, uint64_t *ret_end);

/* The address of the function called ${name}, or 0. */
uint64_t hl_exports_find(const struct hl_exports *exports, const char *name);

/* The symbol called ${name}, a function's or a variable's; NULL if there is none. */
const Elf64_Sym *hl_exports_symbol(const struct hl_exports *exports, const char *name);

/* Whether the module takes ${name} from others, or may do so, where its tables do not tell. */
bool hl_exports_may_take(const struct hl_exports *exports, const char *name);

/* Another definition of the name of ${symbol}, of another version; NULL if there is none after it. */
const Elf64_Sym *hl_exports_next_version(const struct hl_exports *exports, const Elf64_Sym *symbol);

typedef void hl_exports_visit_fn(void *context, const struct hl_exports *exports,
				 const Elf64_Sym *symbol);

/* Calls ${visit} for each exported function. */
void hl_exports_each(const struct hl_exports *exports, hl_exports_visit_fn *visit, void *context);
