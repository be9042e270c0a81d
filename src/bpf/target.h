/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The code of the process that the walker looks at: its files, where they are mapped, and their
 * call frame information.
 *
 *   file      an executable file (or the vdso); compiled once, however often it is mapped
 *   module    a file at one place in memory; module id m is the m-th module, and keeps its id when
 *             it is unmapped
 *   mapping   an executable mapping: part of a module, or code of no file
 */
#pragma once

#include "base/build_id.h"
#include "base/error.h"
#include "bpf/walk_shared.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- code tables ---- */

/*
 * The call frame information of one file, compiled into code pages and rows for the walker in the
 * kernel (walk_shared.h), and what else its ELF headers say.
 *
 * Reads nothing but what it is told to; any file gives a table or an error, never a crash.
 */

/* A loadable segment. Addresses are those in the file. */
struct hl_code_segment {
	uint64_t offset, bytes; /* in the file */
	uint64_t address;
	bool is_executable;
};

#define HL_CODE_SEGMENTS_MAX 16u

struct hl_code_table {
	struct hl_code_segment segments[HL_CODE_SEGMENTS_MAX];
	uint32_t segment_count;
	uint64_t low, high;	      /* range of all segments in memory, low rounded to pages */
	uint64_t code_low, code_high; /* range of the executable ones; code_low rounded */
	uint8_t build_id[HL_BUILD_ID_MAX]; /* see build_id.h */
	uint32_t build_id_bytes;
	bool has_rows; /* else there is no call frame information, or it is damaged from the start
			*/
	struct hl_code_page *pages; /* from code_low on */
	uint32_t page_count;
	uint64_t *rows;
	uint32_t row_count;
};

/*
 * Reads the ELF image that ${fd} has at ${start} (0 for a file; an address for /proc/PID/mem).
 * 0; -ENOEXEC when it is no ELF file for this machine, or makes no sense; -EIO and the like;
 * -ENOMEM. ${ret_table} is to be released.
 */
int hl_code_table_read(int fd, uint64_t start, struct hl_code_table *ret_table);

/* The address in the file of what is at ${offset} of the file, code if there is a choice. */
bool hl_code_table_address(const struct hl_code_table *table, uint64_t offset,
			   uint64_t *ret_address);

/* The rule for an address in the file, as the walker in the kernel finds it. */
uint64_t hl_code_table_rule(const struct hl_code_table *table, uint64_t address);

void hl_code_table_release(struct hl_code_table *table);

/* ---- targets ---- */

struct hl_target_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;		    /* 0: the vdso */
	uint64_t size, modified_ns; /* numbers of inodes are used again */
	uint64_t hash;		    /* identifies a file without a build id */
	bool is_read;		    /* else nothing is known of its insides */
	struct hl_code_table table;
};

/* One for each struct hl_recording_module. */
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
 * Reads it again. Ids, files and modules stay; new ones come after. ${changes} rises when the
 * mappings have changed. On failure the last state stays. -ESRCH: the process has ended.
 */
int hl_target_refresh(struct hl_target *target, struct hl_error *err);

/* The id of the module whose code is at ${pc} now; HL_MODULE_NONE when there is none, and
 * HL_MODULE_SCRIPT in the trampoline of return probes. */
uint32_t hl_target_module_at(const struct hl_target *target, uint64_t pc);

/* The file of the ${index}-th mapping, or NULL. */
const struct hl_target_file *hl_target_mapping_file(const struct hl_target *target, size_t index);

void hl_target_free(struct hl_target *target); /* NULL is fine */
