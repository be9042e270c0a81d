/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's image, laid out in the process of a test as heapline lays it out in another, and what
 * it has counted. */
#pragma once

#include "hook/image_bytes.h"
#include "region/attached.h"
#include "region/region.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Ends the test where it cannot begin. */
static inline void must(bool holds)
{
	if (holds)
		return;
	perror("the image cannot be laid out");
	abort();
}

/* ---- the image and its region ---- */

static char *image;
static size_t image_bytes;
static struct hl_attached *attached;
static struct hl_region_header *region;

static inline const Elf64_Ehdr *header(void)
{
	return (const Elf64_Ehdr *)image;
}

static inline const Elf64_Phdr *program_header(unsigned i)
{
	return (const Elf64_Phdr *)(image + header()->e_phoff) + i;
}

static inline uint64_t dynamic(int64_t tag)
{
	for (unsigned i = 0; i < header()->e_phnum; i++) {
		if (program_header(i)->p_type != PT_DYNAMIC)
			continue;
		const Elf64_Dyn *it = (const Elf64_Dyn *)(image + program_header(i)->p_vaddr);
		for (; it->d_tag != DT_NULL; it++)
			if (it->d_tag == tag)
				return it->d_un.d_val;
	}
	return 0;
}

static inline void relocate(void)
{
	const Elf64_Rela *it = (const Elf64_Rela *)(image + dynamic(DT_RELA));

	for (uint64_t left = dynamic(DT_RELASZ) / sizeof(*it); left; left--, it++) {
		must(ELF64_R_TYPE(it->r_info) == R_X86_64_RELATIVE);
		uint64_t value = (uint64_t)image + (uint64_t)it->r_addend;
		memcpy(image + it->r_offset, &value, sizeof(value));
	}
}

static inline void find_attached(void)
{
	const Elf64_Sym *symbol = (const Elf64_Sym *)(image + dynamic(DT_SYMTAB)) + 1;

	must(!strcmp(image + dynamic(DT_STRTAB) + symbol->st_name, HL_ATTACHED_SYMBOL));
	attached = (struct hl_attached *)(image + symbol->st_value);
	must(attached->magic == HL_ATTACHED_MAGIC);
}

static inline void lay_out(void)
{
	Elf64_Ehdr file;
	Elf64_Phdr segments[16];

	memcpy(&file, hl_image, sizeof(file));
	must(file.e_phnum <= 16);
	memcpy(segments, hl_image + file.e_phoff, file.e_phnum * sizeof(*segments));
	image_bytes = 0;
	for (unsigned i = 0; i < file.e_phnum; i++)
		if (segments[i].p_type == PT_LOAD)
			image_bytes = segments[i].p_vaddr + segments[i].p_memsz;
	image_bytes = (image_bytes + 4095) & ~(size_t)4095;
	image = mmap(NULL, image_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(image != MAP_FAILED);
	for (unsigned i = 0; i < file.e_phnum; i++)
		if (segments[i].p_type == PT_LOAD)
			memcpy(image + segments[i].p_vaddr, hl_image + segments[i].p_offset,
			       segments[i].p_filesz);
	relocate();
	for (unsigned i = 0; i < file.e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X)
			must(mprotect(image + segments[i].p_vaddr, segments[i].p_memsz,
				      PROT_READ | PROT_EXEC) == 0);
	find_attached();
}

static inline int make_region(uint64_t *ret_bytes, enum hl_mode mode, uint64_t sample_bytes)
{
	struct hl_region_header layout = {.sample_bytes = sample_bytes};

	hl_region_layout(&layout, 0, mode);
	layout.sample_bytes = sample_bytes;
	atomic_store(&layout.mode, hl_mode_first(mode));
	int fd = (int)syscall(SYS_memfd_create, "image-region", 0);
	must(fd >= 0);
	must(ftruncate(fd, (off_t)layout.region_bytes) == 0);
	must(pwrite(fd, &layout, sizeof(layout), 0) == sizeof(layout));
	region = mmap(NULL, layout.region_bytes, PROT_READ, MAP_SHARED, fd, 0);
	must(region != MAP_FAILED);
	*ret_bytes = layout.region_bytes;
	return fd;
}

/* As heapline has a stopped thread do it: on a stack of the image's own. */
static inline int64_t call_on(uint64_t stack_top, uint64_t function, const void *argument)
{
	int64_t result;

	__asm__ volatile("mov %%rsp, %%rbx\n\t"
			 "mov %[stack], %%rsp\n\t"
			 "call *%[function]\n\t"
			 "mov %%rbx, %%rsp"
			 : "=a"(result)
			 : [stack] "r"(stack_top), [function] "r"(function), "D"(argument)
			 : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

/* Calls ${function} while the thread pointer is ${fs_base}. It may not be the test's own code. */
static __attribute__((naked, unused)) void *
call_with_fs_base(uint64_t fs_base __attribute__((unused)),
		  uint64_t function __attribute__((unused)),
		  uint64_t argument __attribute__((unused)))
{
	__asm__("push %rbx\n\t"
		"push %r12\n\t"
		"push %r13\n\t"
		"push %fs:0\n\t"
		"sub $8, %rsp\n\t"
		"mov %rsi, %r12\n\t"
		"mov %rdx, %r13\n\t"
		"mov %rdi, %rsi\n\t"
		"mov $0x1002, %edi\n\t" /* ARCH_SET_FS */
		"mov $158, %eax\n\t"	/* arch_prctl */
		"syscall\n\t"
		"mov %r13, %rdi\n\t"
		"call *%r12\n\t"
		"mov %rax, %rbx\n\t"
		"mov 8(%rsp), %rsi\n\t"
		"mov $0x1002, %edi\n\t"
		"mov $158, %eax\n\t"
		"syscall\n\t"
		"mov %rbx, %rax\n\t"
		"add $16, %rsp\n\t"
		"pop %r13\n\t"
		"pop %r12\n\t"
		"pop %rbx\n\t"
		"ret");
}

/* ---- counters ---- */

struct sums {
	uint64_t alloc_bytes, alloc_objects, free_bytes, free_objects;
};

static inline void add_sums(struct sums *to, const struct sums *it)
{
	to->alloc_bytes += it->alloc_bytes;
	to->alloc_objects += it->alloc_objects;
	to->free_bytes += it->free_bytes;
	to->free_objects += it->free_objects;
}

static inline const void *area(enum hl_area_id id)
{
	return (const char *)region + region->areas[id].offset;
}

static inline struct sums counted(void)
{
	const struct hl_cell_chunk *chunk = area(HL_AREA_CELLS);
	struct sums sums = {0};

	for (uint32_t left = atomic_load(&region->chunk_count); left; left--, chunk++)
		for (uint32_t i = 0; i < atomic_load(&chunk->used); i++) {
			const struct hl_cell *cell = &chunk->cells[i];
			add_sums(&sums, &(struct sums){cell->alloc_bytes, cell->alloc_objects,
						       cell->free_bytes, cell->free_objects});
		}
	return sums;
}
