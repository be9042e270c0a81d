/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: an ELF file of any bytes gives a code table or an error, and a table is what
 * walk_shared.h says: what the walker in the kernel relies on.
 */
#include "bpf/walker.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_page(const struct hl_code_table *table, const struct hl_code_page *page)
{
	require(page->row_count <= table->row_count &&
		page->first_row <= table->row_count - page->row_count);
	for (uint32_t i = 0; i < page->row_count; i++) {
		uint64_t offset = table->rows[page->first_row + i] >> HL_ROW_SHIFT;
		require(offset < HL_CODE_PAGE_BYTES);
		require(i ? offset >= table->rows[page->first_row + i - 1] >> HL_ROW_SHIFT
			  : offset == 0);
	}
}

static void check(const struct hl_code_table *table)
{
	require(table->segment_count <= HL_CODE_SEGMENTS_MAX);
	require(table->build_id_bytes <= sizeof(table->build_id));
	require(table->low <= table->code_low && table->code_high <= table->high);
	for (uint32_t i = 0; i < table->page_count; i++)
		check_page(table, &table->pages[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static int fd = -1;
	struct hl_code_table table;

	if (fd < 0)
		fd = memfd_create("fuzzed", MFD_CLOEXEC);
	require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
	if (hl_code_table_read(fd, 0, &table) < 0)
		return 0;
	check(&table);
	hl_code_table_release(&table);
	return 0;
}
