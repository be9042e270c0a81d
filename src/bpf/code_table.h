/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call frame information of one file, compiled into code pages and rows for the walker in the
 * kernel (walk_shared.h), and what else its ELF headers say.
 *
 * Reads nothing but what it is told to; any file gives a table or an error, never a crash.
 */
#pragma once

#include "base/build_id.h"
#include "bpf/walk_shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
