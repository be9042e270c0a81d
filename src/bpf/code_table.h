/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files share that make code tables of ELF images: reading, rows, and what the
 * instructions of functions say that have no call frame information.
 *
 * Errors are negative errno: -ENOEXEC where the image is shorter than its headers say.
 */
#pragma once

#include "bpf/walker.h"
#include "unwind/cfi.h"

#include <elf.h>

#define HL_CODE_IMAGE_FRAME_BYTES_MAX (UINT64_C(1) << 30) /* of a section about frames or symbols */

/* An ELF image that is being read. */
struct hl_code_image {
	int fd;
	uint64_t start;
	Elf64_Ehdr header;
	Elf64_Phdr *segments; /* header.e_phnum, to be freed */
};

int hl_code_image_read(const struct hl_code_image *image, void *buffer, uint64_t bytes,
		       uint64_t offset);
/* The bytes are to be freed. */
int hl_code_image_read_new(const struct hl_code_image *image, uint64_t bytes, uint64_t offset,
			   void **ret_bytes);
int hl_code_image_read_section(const struct hl_code_image *image, uint32_t number,
			       Elf64_Shdr *ret_section);
/* The uncompressed section ${wanted}, of up to 15 characters: -ENOENT when there is none. */
int hl_code_image_find_section(const struct hl_code_image *image, const char *wanted,
			       Elf64_Shdr *ret_section);

struct hl_code_image_rows {
	struct hl_cfi_row *rows;
	size_t count, capacity;
};

/* What the first rows have no rule for. */
struct hl_code_image_gaps {
	struct hl_code_image_rows *rows;
	size_t known; /* rows, finished */
};

/* hl_cfi_sink_fn: ${context} is a struct hl_code_image_rows, or hl_code_image_gaps. */
int hl_code_image_keep_row(void *context, const struct hl_cfi_row *row);
int hl_code_image_keep_row_in_gap(void *context, const struct hl_cfi_row *row);

/* The functions of an image by its symbols and Go's table. src/unwind/rule_cache.c has the same for
 * the recorder. */
struct hl_code_functions {
	Elf64_Sym *symbols;
	size_t count;
	struct hl_code_image_rows returns; /* where stacks change or start */
};

/* ${rows}: those of .eh_frame, finished; only functions that they leave out are read. 0 or -ENOMEM,
 * and what was found is to be released either way. */
int hl_code_functions_find(const struct hl_code_image *image, const struct hl_code_table *table,
			   const struct hl_code_image_rows *rows,
			   struct hl_code_functions *functions);

/*
 * Adds rows where ${rows}, finished, leave code between functions out, as the recorder would follow it: all of a large gap, and functions
 * in a small one that make rbp their frame pointer. Finishes ${rows}. 0 or -ENOMEM.
 */
int hl_code_functions_add_gap_rows(const struct hl_code_image *image,
				   const struct hl_code_table *table,
				   struct hl_code_image_rows *rows);

/* Adds rows of functions that make rbp their frame pointer where ${rows}, all others', have no
 * rule, and then those of returns; finishes ${rows}. 0 or -ENOMEM. */
int hl_code_functions_add_rows(const struct hl_code_functions *functions,
			       const struct hl_code_image *image, const struct hl_code_table *table,
			       struct hl_code_image_rows *rows);
void hl_code_functions_release(struct hl_code_functions *functions);
