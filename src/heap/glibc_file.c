/* SPDX-License-Identifier: BSD-2-Clause */
/* Version and roots from the file of a libc; see glibc_file.h. */
#include "heap/glibc_file.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DEFAULT_THRESHOLD  (128u << 10) /* trim_threshold, top_pad, mmap_threshold at first */
#define DEFAULT_ARENA_TEST 8u

int hl_glibc_file_map(int fd, struct hl_glibc_file *ret_file)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (status.st_size < (off_t)sizeof(Elf64_Ehdr))
		return -EBADMSG;
	void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	*ret_file = (struct hl_glibc_file){bytes, (size_t)status.st_size};
	return 0;
}

void hl_glibc_file_release(struct hl_glibc_file *file)
{
	if (file->bytes)
		munmap((void *)(uintptr_t)file->bytes, file->length);
	*file = (struct hl_glibc_file){0};
}

/* Copies ${length} bytes at ${offset}, or returns false where the file ends before. */
static bool file_get(const struct hl_glibc_file *file, uint64_t offset, void *ret, size_t length)
{
	if (offset > file->length || length > file->length - offset)
		return false;
	memcpy(ret, file->bytes + offset, length);
	return true;
}

uint32_t hl_glibc_file_minor(const struct hl_glibc_file *file)
{
	static const char banner[] = "GNU C Library ", release[] = " release version 2.";
	const uint8_t *at = memmem(file->bytes, file->length, banner, strlen(banner));

	if (!at)
		return 0;
	size_t left = file->length - (size_t)(at - file->bytes);
	at = memmem(at, left < 256 ? left : 256, release, strlen(release));
	if (!at)
		return 0;
	uint32_t minor = 0;
	for (at += strlen(release); at < file->bytes + file->length; at++) {
		if (*at < '0' || *at > '9' || minor > 1000)
			break;
		minor = minor * 10 + (uint32_t)(*at - '0');
	}
	return minor;
}

/* Segment ${index} of the file, if it has one that is loaded. */
static bool loaded_segment(const struct hl_glibc_file *file, uint32_t index, Elf64_Phdr *ret)
{
	Elf64_Ehdr header;

	return file_get(file, 0, &header, sizeof(header)) && index < header.e_phnum &&
	       file_get(file, header.e_phoff + index * sizeof(*ret), ret, sizeof(*ret)) &&
	       ret->p_type == PT_LOAD;
}

static uint32_t segment_count(const struct hl_glibc_file *file)
{
	Elf64_Ehdr header;

	if (!file_get(file, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
		return 0;
	return header.e_phnum;
}

uint64_t hl_glibc_file_address(const struct hl_glibc_file *file, uint64_t offset)
{
	uint32_t count = segment_count(file);
	Elf64_Phdr segment;

	for (uint32_t i = 0; i < count; i++) {
		if (!loaded_segment(file, i, &segment))
			continue;
		/* mappings begin at pages, segments need not */
		uint64_t first = segment.p_offset & ~UINT64_C(4095);
		if (offset >= first && offset < segment.p_offset + segment.p_filesz)
			return segment.p_vaddr + (offset - segment.p_offset);
	}
	return UINT64_MAX;
}

/* ---- places by their initial values ---- */

typedef bool place_test(const uint8_t *bytes, uint64_t address,
			const struct hl_glibc_layout *layout);

static uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* Before it has a second arena, main_arena is its own next one, and one thread is attached. */
static bool is_main_arena(const uint8_t *bytes, uint64_t address,
			  const struct hl_glibc_layout *layout)
{
	return word_at(bytes + layout->arena.next) == address &&
	       word_at(bytes + layout->arena.attached_threads) == 1;
}

static bool is_mp(const uint8_t *bytes, uint64_t address, const struct hl_glibc_layout *layout)
{
	(void)address;
	return word_at(bytes + layout->mp.trim_threshold) == DEFAULT_THRESHOLD &&
	       word_at(bytes + layout->mp.top_pad) == DEFAULT_THRESHOLD &&
	       word_at(bytes + layout->mp.mmap_threshold) == DEFAULT_THRESHOLD &&
	       word_at(bytes + layout->mp.arena_test) == DEFAULT_ARENA_TEST;
}

/* The one place of ${size} bytes in the writable segments that passes ${test}. */
static uint64_t find_place(const struct hl_glibc_file *file, place_test *test, uint64_t size,
			   const struct hl_glibc_layout *layout)
{
	uint32_t count = segment_count(file);
	uint64_t found = 0;
	Elf64_Phdr segment;

	for (uint32_t i = 0; i < count; i++) {
		if (!loaded_segment(file, i, &segment) || !(segment.p_flags & PF_W) ||
		    segment.p_offset > file->length ||
		    segment.p_filesz > file->length - segment.p_offset)
			continue;
		uint64_t skip = -segment.p_vaddr & 7;
		for (uint64_t at = skip; at + size <= segment.p_filesz; at += 8) {
			uint64_t address = segment.p_vaddr + at;
			if (!test(file->bytes + segment.p_offset + at, address, layout))
				continue;
			if (found)
				return 0;
			found = address;
		}
	}
	return found;
}

uint64_t hl_glibc_file_main_arena(const struct hl_glibc_file *file,
				  const struct hl_glibc_layout *layout)
{
	return find_place(file, is_main_arena, layout->arena.bytes, layout);
}

uint64_t hl_glibc_file_mp(const struct hl_glibc_file *file, const struct hl_glibc_layout *layout)
{
	return find_place(file, is_mp, layout->mp.bytes, layout);
}
