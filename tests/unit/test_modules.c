/* SPDX-License-Identifier: BSD-2-Clause */
/* Program headers of what claims to be an ELF image: whatever it says, nothing is read that is not mapped. */
#include "recorder/modules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define PAGE_BYTES UINT64_C(4096)

/* Two pages, with none before and after. */
static uint64_t make_image(uint64_t offset, uint16_t count)
{
	uint8_t *pages = mmap(NULL, 4 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(mprotect(pages + PAGE_BYTES, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
	Elf64_Ehdr *header = (Elf64_Ehdr *)(void *)(pages + PAGE_BYTES);
	memcpy(header->e_ident, ELFMAG, SELFMAG);
	header->e_ident[EI_CLASS] = ELFCLASS64;
	header->e_phentsize = sizeof(Elf64_Phdr);
	header->e_phoff = offset;
	header->e_phnum = count;
	return (uint64_t)header;
}

static const Elf64_Phdr *found(uint64_t start)
{
	return hl_program_headers_at(start).first;
}

static void headers_follow_the_header(void **state)
{
	uint64_t start = make_image(sizeof(Elf64_Ehdr), 3);

	(void)state;
	assert_ptr_equal(found(start), (void *)(start + sizeof(Elf64_Ehdr)));
	assert_int_equal(hl_program_headers_at(start).count, 3);
}

static void headers_in_a_last_segment_name_their_own_place(void **state)
{
	uint64_t start = make_image(PAGE_BYTES, 2);
	Elf64_Phdr *headers = (Elf64_Phdr *)(start + PAGE_BYTES);

	(void)state;
	assert_null(found(start));
	headers[1] = (Elf64_Phdr){.p_type = PT_PHDR, .p_offset = PAGE_BYTES, .p_vaddr = PAGE_BYTES};
	assert_ptr_equal(found(start), headers);
}

static void headers_that_are_not_mapped_are_not_read(void **state)
{
	const struct {
		uint64_t offset;
		uint16_t count;
	} cases[] = {
		{PAGE_BYTES, 2 * PAGE_BYTES / sizeof(Elf64_Phdr)}, /* the last ones are not there */
		{2 * PAGE_BYTES, 1},
		{-(uint64_t)64, 2}, /* the end of it lies after the image's beginning */
		{-PAGE_BYTES, 1},
		{UINT64_MAX - 55, 1},
		{INT64_MAX - 7, UINT16_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_null(found(make_image(cases[i].offset, cases[i].count)));
	/* At addresses where the sum with the image's own would wrap. */
	uint64_t start = make_image(0, 2);
	((Elf64_Ehdr *)start)->e_phoff = -start - 64;
	assert_null(found(start));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_follow_the_header),
		cmocka_unit_test(headers_in_a_last_segment_name_their_own_place),
		cmocka_unit_test(headers_that_are_not_mapped_are_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
