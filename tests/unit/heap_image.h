/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process that a test made up: stretches with their bytes, all of it in memory but
 * for pages that were taken away. Where a file is asked for, there is one libc.
 */
#pragma once

#include "heap/memory.h"

#include "base/array.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define IMAGE_PAGE 4096u

struct image_part {
	uint64_t start, length;
	uint8_t *bytes;
	bool *absent; /* by page */
};

struct image {
	struct hl_memory base;
	struct image_part parts[16];
	size_t count;
	const void *file; /* of the libc */
	size_t file_length;
};

static inline struct image_part *image_part_at(struct image *image, uint64_t address)
{
	for (size_t i = 0; i < image->count; i++)
		if (address >= image->parts[i].start &&
		    address - image->parts[i].start < image->parts[i].length)
			return &image->parts[i];
	return NULL;
}

static uint64_t image_bytes_read __attribute__((unused));

static int image_read(struct hl_memory *memory, uint64_t address, void *bytes, size_t length)
{
	__atomic_fetch_add(&image_bytes_read, length, __ATOMIC_RELAXED);
	while (length) {
		const struct image_part *part = image_part_at((struct image *)memory, address);
		if (!part)
			return -EFAULT;
		uint64_t rest = part->length - (address - part->start);
		size_t piece = length < rest ? length : rest;
		memcpy(bytes, part->bytes + (address - part->start), piece);
		bytes = (uint8_t *)bytes + piece;
		address += piece;
		length -= piece;
	}
	return 0;
}

static int image_scan(struct hl_memory *memory, uint64_t start, uint64_t end,
		      struct hl_pages *pages)
{
	struct image *image = (struct image *)memory;

	for (size_t i = 0; i < image->count; i++) {
		const struct image_part *part = &image->parts[i];
		uint64_t at = start > part->start ? start : part->start;
		for (; at < end && at < part->start + part->length; at += IMAGE_PAGE) {
			if (part->absent[(at - part->start) / IMAGE_PAGE])
				continue;
			if (hl_array_reserve(&pages->runs, &pages->capacity, pages->count + 1,
					     sizeof(*pages->runs)) < 0)
				return -ENOMEM;
			struct hl_page_run *last =
				pages->count ? &pages->runs[pages->count - 1] : NULL;
			if (last && last->end == at)
				last->end += IMAGE_PAGE;
			else
				pages->runs[pages->count++] =
					(struct hl_page_run){at, at + IMAGE_PAGE, HL_PAGE_ANON};
			pages->page_count++;
		}
	}
	return 0;
}

static int image_open_file(struct hl_memory *memory, const struct hl_map *map)
{
	struct image *image = (struct image *)memory;
	int fd = memfd_create("libc", MFD_CLOEXEC);

	(void)map;
	if (fd >= 0 && write(fd, image->file, image->file_length) < 0)
		return -EIO;
	return fd;
}

static void image_free(struct hl_memory *memory)
{
	(void)memory;
}

static const struct hl_memory_kind image_kind = {
	.read = image_read, .scan = image_scan, .open_file = image_open_file, .free = image_free};

/* Adds [${start}, ${start} + ${length}), mapped under ${path}, all zero; parts come in rising
 * order.
 */
static inline uint8_t *image_add(struct image *image, uint64_t start, uint64_t length,
				 const char *path, uint64_t inode)
{
	static struct hl_map maps[16];
	struct image_part *part = &image->parts[image->count];

	image->base.kind = &image_kind;
	image->base.page_bytes = IMAGE_PAGE;
	image->base.maps.maps = maps;
	*part = (struct image_part){
		start, length,
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		NULL};
	part->absent = mmap(NULL, length / IMAGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	maps[image->count++] = (struct hl_map){.start = start,
					       .end = start + length,
					       .inode = inode,
					       .flags = HL_MAP_READ | HL_MAP_WRITE,
					       .path = (char *)(uintptr_t)path};
	image->base.maps.count = image->count;
	return part->bytes;
}

static inline void image_release(struct image *image)
{
	for (size_t i = 0; i < image->count; i++) {
		munmap(image->parts[i].bytes, image->parts[i].length);
		munmap(image->parts[i].absent, image->parts[i].length / IMAGE_PAGE);
	}
	*image = (struct image){0};
}

/* A word of it. */
static inline uint64_t *image_word(struct image *image, uint64_t address)
{
	struct image_part *part = image_part_at(image, address);

	return part ? (uint64_t *)(void *)(part->bytes + (address - part->start)) : NULL;
}
