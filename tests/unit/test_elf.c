/* SPDX-License-Identifier: BSD-2-Clause */
/* src/elf: what it says of this very program, and of damaged copies of it. */
#include "elf/elf.h"

#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define EVERY_SYMBOL (HL_ELF_SYMTAB | HL_ELF_DYNSYM)

/* Not static: it is in the symbol table. */
int landmark(int number);
int landmark(int number)
{
	return number + 1;
}

static uint64_t load_bias(void)
{
	const struct link_map *map = _r_debug.r_map;

	return map->l_addr;
}

static void a_symbol_is_where_the_program_has_it(void **state)
{
	(void)state;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	Elf *elf = hl_elf_open(fd);
	uint64_t address, offset, again;
	uint8_t code[16];

	assert_non_null(elf);
	assert_true(hl_elf_is_native(elf));
	assert_true(hl_elf_find_symbol(elf, HL_ELF_SYMTAB, "landmark", &address));
	assert_int_equal(load_bias() + address, (uint64_t)(uintptr_t)landmark);
	assert_true(hl_elf_code_offset(elf, address, &offset));
	assert_int_equal(pread(fd, code, sizeof(code), (off_t)offset), sizeof(code));
	assert_memory_equal(code, (const void *)(uintptr_t)landmark, sizeof(code));
	assert_true(hl_elf_address(elf, offset, true, &again));
	assert_int_equal(again, address);
	assert_false(hl_elf_find_symbol(elf, EVERY_SYMBOL, "nobody", &address));
	elf_end(elf);
	close(fd);
}

static void sections_are_found_by_name(void **state)
{
	(void)state;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	Elf *elf = hl_elf_open(fd);
	GElf_Shdr header;

	assert_non_null(elf);
	assert_non_null(hl_elf_find_section(elf, ".dynsym", &header));
	assert_int_equal(header.sh_type, SHT_DYNSYM);
	assert_null(hl_elf_find_section(elf, ".nothing", &header));
	elf_end(elf);
	close(fd);
}

/* As -z nosectionheader makes files. */
static void hide_sections(int fd)
{
	static const Elf64_Off none;
	static const Elf64_Half zeros[2];

	pwrite(fd, &none, sizeof(none), offsetof(Elf64_Ehdr, e_shoff));
	pwrite(fd, zeros, sizeof(zeros), offsetof(Elf64_Ehdr, e_shnum));
}

/* A copy of this program without section headers. */
static int without_sections(void)
{
	int source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int fd = memfd_create("bare", MFD_CLOEXEC);
	struct stat status;

	assert_int_equal(fstat(source, &status), 0);
	off_t from = 0;
	while (from < status.st_size)
		assert_true(sendfile(fd, source, &from, (size_t)(status.st_size - from)) > 0);
	close(source);
	hide_sections(fd);
	return fd;
}

static void the_dynamic_section_names_symbols_where_there_are_no_section_headers(void **state)
{
	(void)state;
	int source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd = without_sections();
	Elf *whole = hl_elf_open(source), *bare = hl_elf_open(fd);
	struct hl_elf_symbols of_whole = {.elf = whole, .tables = HL_ELF_DYNSYM};
	struct hl_elf_symbols of_bare = {.elf = bare, .tables = EVERY_SYMBOL};
	size_t count = 0;

	assert_non_null(bare);
	while (hl_elf_symbols_next(&of_whole)) {
		assert_true(hl_elf_symbols_next(&of_bare));
		assert_string_equal(of_bare.name, of_whole.name);
		assert_int_equal(of_bare.symbol.st_value, of_whole.symbol.st_value);
		count++;
	}
	assert_true(count > 5);
	assert_false(hl_elf_symbols_next(&of_bare));
	elf_end(whole);
	elf_end(bare);
	close(source);
	close(fd);
}

static void files_of_other_kinds_are_refused(void **state)
{
	(void)state;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	assert_null(hl_elf_open(fd));
	assert_null(hl_elf_open(-1));
	close(fd);
}

static void a_debug_file_has_its_build_id_as_its_name(void **state)
{
	(void)state;
	static const uint8_t id[] = {0x0a, 0xb1, 0xc2};
	char path[64];

	assert_true(hl_elf_debug_path("/debug", id, sizeof(id), path, sizeof(path)));
	assert_string_equal(path, "/debug/.build-id/0a/b1c2.debug");
	assert_false(hl_elf_debug_path("/debug", id, 1, path, sizeof(path)));
	assert_false(hl_elf_debug_path("/debug", id, sizeof(id), path, 20));
}

/* Asks everything of a file, whatever it is. */
static void ask(int fd)
{
	Elf *elf = hl_elf_open(fd);
	uint64_t number;
	GElf_Shdr header;

	if (!elf)
		return;
	hl_elf_is_native(elf);
	struct hl_elf_symbols all = {.elf = elf, .tables = EVERY_SYMBOL};
	while (hl_elf_symbols_next(&all))
		assert_true(strlen(all.name) < SIZE_MAX); /* read to its end */
	for (uint64_t at = 0; at < 1 << 16; at += 512) {
		hl_elf_code_offset(elf, at, &number);
		hl_elf_address(elf, at, at & 512, &number);
	}
	hl_elf_find_section(elf, ".nothing", &header);
	hl_elf_hash(fd);
	elf_end(elf);
}

static void damage_harms_nobody(void **state)
{
	(void)state;
	int source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat status;
	assert_int_equal(fstat(source, &status), 0);
	size_t size = (size_t)status.st_size;
	uint8_t *whole = malloc(size);
	assert_non_null(whole);
	assert_int_equal(pread(source, whole, size, 0), size);
	close(source);
	Elf64_Ehdr header;
	memcpy(&header, whole, sizeof(header));

	srand(1);
	int fd = memfd_create("damaged", MFD_CLOEXEC);
	for (int round = 0; round < 300; round++) {
		/* headers of the file, its segments and its sections, and anything else */
		const size_t places[] = {0, header.e_phoff, header.e_shoff, (size_t)rand() % size};
		size_t first = places[round % 4] + (size_t)rand() % 512;
		size_t length = round % 5 ? size : (size_t)rand() % size;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, whole, length, 0), length);
		for (size_t i = 0; i < 8 && first + i * 8 < length; i++) {
			uint8_t byte = (uint8_t)rand();
			assert_int_equal(pwrite(fd, &byte, 1, (off_t)(first + i * 8)), 1);
		}
		if (round % 2)
			hide_sections(fd);
		ask(fd);
	}
	close(fd);
	free(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_symbol_is_where_the_program_has_it),
		cmocka_unit_test(sections_are_found_by_name),
		cmocka_unit_test(
			the_dynamic_section_names_symbols_where_there_are_no_section_headers),
		cmocka_unit_test(files_of_other_kinds_are_refused),
		cmocka_unit_test(a_debug_file_has_its_build_id_as_its_name),
		cmocka_unit_test(damage_harms_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
