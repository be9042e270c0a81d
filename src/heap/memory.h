/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process, as walks of its heap read it: of a live one, from a core file, or an
 * image that a test made. Readers ask first which pages are present and touch no others, so that
 * reading changes nothing in a live process.
 */
#pragma once

#include "base/error.h"
#include "process/maps.h"
#include "process/pagemap.h"
#include "process/process.h"

#include <stdint.h>
#include <sys/types.h>

struct hl_memory;

struct hl_memory_kind {
	/* Copies ${length} bytes. 0, -EFAULT when some are not there, -ESRCH when the process has
	 * ended, -EACCES. */
	int (*read)(struct hl_memory *memory, uint64_t address, void *bytes, size_t length);
	/* Appends the present pages in [${start}, ${end}), page-aligned. 0 or a negative errno. */
	int (*scan)(struct hl_memory *memory, uint64_t start, uint64_t end, struct hl_pages *pages);
	/* Opens the file of ${map}; a descriptor or a negative errno. */
	int (*open_file)(struct hl_memory *memory, const struct hl_map *map);
	/* Has the process stand still, and reads its mappings again; and lets it go on. NULL where
	 * nothing moves. 0 or a negative errno with a sentence. */
	int (*stop)(struct hl_memory *memory, struct hl_error *err);
	void (*go_on)(struct hl_memory *memory);
	void (*free)(struct hl_memory *memory);
};

struct hl_memory {
	const struct hl_memory_kind *kind;
	struct hl_maps maps;
	uint64_t page_bytes;
};

static inline int hl_memory_read(struct hl_memory *memory, uint64_t address, void *bytes,
				 size_t length)
{
	return memory->kind->read(memory, address, bytes, length);
}

static inline int hl_memory_scan(struct hl_memory *memory, uint64_t start, uint64_t end,
				 struct hl_pages *pages)
{
	return memory->kind->scan(memory, start, end, pages);
}

static inline int hl_memory_open_file(struct hl_memory *memory, const struct hl_map *map)
{
	return memory->kind->open_file(memory, map);
}

static inline int hl_memory_stop(struct hl_memory *memory, struct hl_error *err)
{
	return memory->kind->stop ? memory->kind->stop(memory, err) : 0;
}

static inline void hl_memory_go_on(struct hl_memory *memory)
{
	if (memory->kind->go_on)
		memory->kind->go_on(memory);
}

/* ${memory} itself is freed, too; NULL is fine. */
static inline void hl_memory_free(struct hl_memory *memory)
{
	if (memory)
		memory->kind->free(memory);
}

/* The memory of ${pid}. 0; -ESRCH; -EACCES; -ENOMEM, with a sentence. */
int hl_memory_live_open(pid_t pid, struct hl_memory **ret_memory, struct hl_error *err);

/* The memory in a core file, and what it says of the process: ${facts}, empty, to be released also
 * on failure. 0; -EBADMSG when it is not a core file; another negative errno, with a sentence. */
int hl_memory_core_open(const char *path, struct hl_memory **ret_memory,
			struct hl_process_facts *facts, struct hl_error *err);
