/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the walker has to know of the process it looks at: which files its code comes from, where
 * they are mapped, and their call frame information.
 *
 *   file      an executable file (or the vdso); compiled once, however often it is mapped
 *   module    a file at one place in memory; module id m is the m-th module, and keeps its id when
 *             it is unmapped
 *   mapping   an executable mapping: part of a module, or code of no file
 */
#pragma once

#include "base/error.h"
#include "bpf/code_table.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_target_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;		    /* 0: the vdso */
	uint64_t size, modified_ns; /* numbers of inodes are used again */
	uint64_t hash;		    /* of a file without a build id that tells it from others */
	bool is_read;		    /* else nothing is known of its insides */
	struct hl_code_table table;
};

/* Beside each struct hl_recording_module. */
struct hl_target_module {
	uint32_t file; /* index */
};

struct hl_target_mapping {
	uint64_t start, end;
	uint32_t module;     /* id; HL_MODULE_NONE for code of no file, HL_MODULE_SCRIPT for the
				trampoline of return probes */
	uint32_t first_page; /* of the file's code pages */
	uint32_t page_count;
};

struct hl_target {
	pid_t pid;
	struct hl_target_file *files;
	size_t file_count, file_capacity;
	struct hl_recording_module *modules;
	struct hl_target_module *module_files;
	size_t module_count, module_capacity, module_file_capacity;
	struct hl_target_mapping *mappings; /* by address, as of the last refresh */
	size_t mapping_count, mapping_capacity;
	uint64_t changes;    /* of the mappings, so far */
	uint32_t lost_files; /* that could not be read: stacks end in their code, or are guessed by
				the frame pointer */
	uint32_t lost_modules; /* for which there was no id left */
};

/*
 * Reads what ${pid} has mapped. 0 or a negative errno with a sentence. Files that cannot be read or
 * make no sense are no error: they are counted.
 */
int hl_target_new(pid_t pid, struct hl_target **ret_target, struct hl_error *err);

/*
 * Reads it again. Ids, files and modules stay; new ones come after. ${changes} rises when
 * mappings are others now. On failure the last state stays. -ESRCH: the process has ended.
 */
int hl_target_refresh(struct hl_target *target, struct hl_error *err);

/* The id of the module whose code is at ${pc} now; HL_MODULE_NONE when there is none, and
 * HL_MODULE_SCRIPT in the trampoline of return probes. */
uint32_t hl_target_module_at(const struct hl_target *target, uint64_t pc);

/* The file of the ${index}-th mapping, or NULL. */
const struct hl_target_file *hl_target_mapping_file(const struct hl_target *target, size_t index);

void hl_target_free(struct hl_target *target); /* NULL is fine */
