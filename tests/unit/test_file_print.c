/* SPDX-License-Identifier: BSD-2-Clause */
/* Fingerprints of files and build ids as they are kept: other versions differ, damage is not a harm.
 */
#include "base/compiler.h"
#include "base/file_print.h"

#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SYMBOLS 200u

/* A file in memory: headers, a symbol table, its names. */
static struct image {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	Elf64_Sym symbols[SYMBOLS];
	char names[SYMBOLS * 16];
	Elf64_Shdr sections[3];
} image;

static size_t image_bytes;

static void make_image(void)
{
	image = (struct image){
		.header = {.e_phoff = offsetof(struct image, segment),
			   .e_phnum = 1,
			   .e_shoff = offsetof(struct image, sections),
			   .e_shnum = 3,
			   .e_shentsize = sizeof(Elf64_Shdr)},
		.segment = {.p_type = PT_LOAD, .p_filesz = 4711},
		.sections = {{0},
			     {.sh_type = SHT_SYMTAB,
			      .sh_offset = offsetof(struct image, symbols),
			      .sh_size = sizeof(image.symbols),
			      .sh_link = 2},
			     {.sh_type = SHT_STRTAB,
			      .sh_offset = offsetof(struct image, names),
			      .sh_size = sizeof(image.names)}},
	};
	memcpy(image.header.e_ident, ELFMAG, SELFMAG);
	image.header.e_ident[EI_CLASS] = ELFCLASS64;
	for (uint32_t i = 0; i < SYMBOLS; i++) {
		image.symbols[i].st_name = i * 16;
		image.symbols[i].st_value = i * 64;
		memset(image.names + (size_t)i * 16, 'a' + (int)(i % 26), 15);
	}
	image_bytes = sizeof(image);
}

static long read_image(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	assert_int_equal(fd, 7);
	if (offset >= image_bytes)
		return 0;
	size_t size = bytes < image_bytes - offset ? bytes : image_bytes - offset;
	memcpy(buffer, (const char *)&image + offset, size);
	return (long)size;
}

static long read_nothing(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	(void)fd;
	(void)buffer;
	(void)bytes;
	(void)offset;
	return -EIO;
}

static void versions_of_a_file_have_other_hashes(void **state)
{
	uint8_t *bytes = (uint8_t *)&image;
	const size_t places[] = {offsetof(struct image, header.e_flags),
				 offsetof(struct image, segment.p_filesz),
				 offsetof(struct image, symbols[0].st_value),
				 offsetof(struct image, symbols[199].st_value),
				 offsetof(struct image, names[0]),
				 offsetof(struct image, names[199 * 16]),
				 offsetof(struct image, sections[2].sh_flags)};

	(void)state;
	make_image();
	uint64_t hash = hl_file_print_hash(7, read_image);
	assert_true(hash > HL_FILE_PRINT_UNKNOWN && hash <= INT64_MAX);
	assert_int_equal(hl_file_print_hash(7, read_image), hash);
	for (size_t i = 0; i < HL_COUNT_OF(places); i++) {
		bytes[places[i]] ^= 1;
		assert_int_not_equal(hl_file_print_hash(7, read_image), hash);
		bytes[places[i]] ^= 1;
	}
	assert_int_equal(hl_file_print_hash(7, read_image), hash);
}

static void no_other_file_has_a_hash(void **state)
{
	(void)state;
	make_image();
	assert_int_equal(hl_file_print_hash(7, read_nothing), 0);
	image.header.e_ident[EI_CLASS] = ELFCLASS32;
	assert_int_equal(hl_file_print_hash(7, read_image), 0);
	image.header.e_ident[0] = 'E';
	assert_int_equal(hl_file_print_hash(7, read_image), 0);
}

static void damaged_files_are_no_harm(void **state)
{
	(void)state;
	make_image();
	for (image_bytes = 0; image_bytes < sizeof(image); image_bytes += 7)
		hl_file_print_hash(7, read_image);
	for (size_t at = 0; at < sizeof(image); at++) {
		make_image();
		((uint8_t *)&image)[at] = 0xff;
		hl_file_print_hash(7, read_image);
	}
}

static void build_ids_of_any_length_are_told_apart(void **state)
{
	static const size_t sizes[] = {1, 2, 6, 20, 32, 33, 64, 300};
	uint8_t id[300], kept[HL_BUILD_ID_MAX], other[HL_BUILD_ID_MAX];

	(void)state;
	memset(id, 0x77, sizeof(id));
	for (size_t i = 0; i < HL_COUNT_OF(sizes); i++) {
		uint32_t bytes = hl_build_id_keep(kept, id, sizes[i]);
		assert_int_equal(bytes, sizes[i] < HL_BUILD_ID_MAX ? sizes[i] : HL_BUILD_ID_MAX);
		if (sizes[i] <= HL_BUILD_ID_MAX)
			assert_memory_equal(kept, id, bytes);
		id[sizes[i] - 1] ^= 1;
		assert_int_equal(hl_build_id_keep(other, id, sizes[i]), bytes);
		assert_memory_not_equal(kept, other, bytes);
		id[sizes[i] - 1] ^= 1;
	}
	hl_build_id_keep(kept, id, 64);
	hl_build_id_keep(other, id, 300);
	assert_memory_not_equal(kept, other, HL_BUILD_ID_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_of_a_file_have_other_hashes),
		cmocka_unit_test(no_other_file_has_a_hash),
		cmocka_unit_test(damaged_files_are_no_harm),
		cmocka_unit_test(build_ids_of_any_length_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
