/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many addresses a second get their names: symbols_bench FILE [COUNT]. Takes COUNT (a million)
 * distinct addresses, evenly spread over FILE's code, in an order that has no locality.
 */
#include "symbols/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STRIDE 7919 /* a prime: COUNT must not be a multiple of it */

struct code {
	uint64_t start, bytes;
};

/* The largest executable segment. */
static int find_code(const char *path, struct code *ret_code)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return -1;
	const Elf64_Ehdr *header =
		mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (header == MAP_FAILED)
		return -1;
	const Elf64_Phdr *segments = (const Elf64_Phdr *)((const char *)header + header->e_phoff);
	*ret_code = (struct code){0};
	for (int i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_X &&
		    segments[i].p_filesz > ret_code->bytes)
			*ret_code = (struct code){segments[i].p_vaddr, segments[i].p_filesz};
	munmap((void *)header, (size_t)status.st_size);
	return ret_code->bytes ? 0 : -1;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Finds all addresses; returns how many frames they have, or -1. */
static long find_all(struct hl_symbols *symbols, struct code code, uint64_t count)
{
	const struct hl_symbols_frame *frames;
	size_t frame_count;
	long sum = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t at = i * STRIDE % count;
		uint64_t address =
			code.start + (uint64_t)((double)code.bytes * (double)at / (double)count);
		if (hl_symbols_find(symbols, address, &frames, &frame_count) < 0)
			return -1;
		sum += (long)frame_count;
	}
	return sum;
}

int main(int argc, char **argv)
{
	struct hl_symbols *symbols;
	struct code code;

	if (argc < 2 || find_code(argv[1], &code) < 0) {
		fputs("usage: symbols_bench ELF-FILE [COUNT]\n", stderr);
		return 2;
	}
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	if (count > code.bytes)
		count = code.bytes;
	double start = now();
	if (hl_symbols_open(argv[1], NULL, 0, &symbols) < 0)
		return 1;
	long frames = find_all(symbols, code, count);
	double elapsed = now() - start;
	printf("%s: %llu addresses, %ld frames, %s, %.2f s, %.0f addresses/s\n", argv[1],
	       (unsigned long long)count, frames,
	       hl_symbols_source_name(hl_symbols_source(symbols)), elapsed,
	       (double)count / elapsed);
	hl_symbols_free(symbols);
	return frames < 0;
}
