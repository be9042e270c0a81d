/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the recorder will find in a file of CPython what runs scripts; see guests/outside.h. */
#include "guests/outside.h"

#include "base/cleanup.h"
#include "elf/elf.h"
#include "guests/python/python.h"
#include "guests/traits.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IMAGE_BYTES_MAX (UINT64_C(1) << 30)
#define LOOP_BYTES_MIN	8192u /* all loops have more; what only leads to one has some hundred */

/* A file as the loader lays it out: what has address ${low} is at ${bytes}. */
struct image {
	uint8_t *bytes;
	uint64_t low, high;
	uint64_t eh_frame_hdr; /* 0: it has none */
};

static void release_image(struct image *image)
{
	if (image->bytes)
		munmap(image->bytes, image->high - image->low);
}

static bool measure(Elf *elf, struct image *image)
{
	GElf_Phdr segment;

	image->low = UINT64_MAX;
	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type == PT_GNU_EH_FRAME)
			image->eh_frame_hdr = segment.p_vaddr;
		if (segment.p_type != PT_LOAD || segment.p_vaddr > UINT64_MAX - segment.p_memsz)
			continue;
		if (segment.p_vaddr < image->low)
			image->low = segment.p_vaddr;
		if (segment.p_vaddr + segment.p_memsz > image->high)
			image->high = segment.p_vaddr + segment.p_memsz;
	}
	return image->high > image->low && image->high - image->low <= IMAGE_BYTES_MAX;
}

static bool lay_out(Elf *elf, int fd, struct image *image)
{
	GElf_Phdr segment;

	if (!measure(elf, image))
		return false;
	uint64_t bytes = image->high - image->low;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return false;
	image->bytes = at;
	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		uint64_t offset = segment.p_vaddr - image->low;
		if (segment.p_type == PT_LOAD && offset < bytes &&
		    segment.p_filesz <= bytes - offset &&
		    pread(fd, image->bytes + offset, segment.p_filesz, (off_t)segment.p_offset) < 0)
			return false;
	}
	return true;
}

/* Where what has ${address} is. */
static uint64_t place(const struct image *image, uint64_t address)
{
	return (uint64_t)image->bytes + (address - image->low);
}

static bool lacks_loop(const struct image *image, const GElf_Sym *eval)
{
	uint64_t bytes = image->high - image->low;
	struct hl_python python = {.api = {
					   .eval_start = place(image, eval->st_value),
					   .eval_end = place(image, eval->st_value + eval->st_size),
					   .start = (uint64_t)image->bytes,
					   .end = (uint64_t)image->bytes + bytes,
				   }};

	if (eval->st_value - image->low >= bytes || eval->st_size > image->high - eval->st_value)
		return false;
	if (image->eh_frame_hdr - image->low < bytes)
		python.api.eh_frame_hdr = image->bytes + (image->eh_frame_hdr - image->low);
	hl_python_find_cold(&python);
	return eval->st_size + (python.cold_end - python.cold_start) < LOOP_BYTES_MIN;
}

static bool hides_loop(const char *path)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	HL_CLEANUP(release_image) struct image image = {0};
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_DYNSYM};

	while (elf && hl_elf_symbols_next(&all))
		if (strcmp(all.name, "_PyEval_EvalFrameDefault") == 0 &&
		    all.symbol.st_shndx != SHN_UNDEF)
			return lay_out(elf, fd, &image) && lacks_loop(&image, &all.symbol);
	return false;
}

const struct hl_guest_tool hl_guest_tool_python = {
	.traits = &hl_guest_traits_python,
	.hides_loop = hides_loop,
};
