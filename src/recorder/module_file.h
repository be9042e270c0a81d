/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file of a module. The recorder opens one for two reasons only: a module without a build id,
 * which could be another one of the same name, and code that .eh_frame has no rule for. By raw
 * system calls: errno is kept, nothing is allocated.
 */
#pragma once

#include "base/file_print.h"
#include "unwind/unwind.h"

/*
 * Opens the ELF file ${path} ("" = the running program). ${image} is where the module lies in
 * memory, NULL for the running program: a file with other headers, written over the path since, is
 * not opened. A file descriptor to be closed, or negative.
 */
int hl_module_file_open(const char *path, const void *image);

/* The fingerprint of an open file; HL_FILE_PRINT_UNKNOWN when it cannot be read. */
struct hl_file_print hl_module_file_print(int fd);

/* Maps the uncompressed .debug_frame, the symbol table and Go's table of functions of the file of ${module}, and compiles its
 * .eh_frame where nothing in memory leads to that, for the life of the process. */
struct hl_unwind_file hl_module_file_map(int fd, const struct hl_unwind_module *module);

/* The latter alone, where the file cannot be opened: its .eh_frame lies at ${address}. */
struct hl_unwind_file hl_module_file_compile(const struct hl_unwind_module *module,
					     uint64_t address, uint64_t bytes);
