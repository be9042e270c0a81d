/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What heapline leaves in a process that it has entered: enough to take the recorder out again, also
 * for another heapline when the first one was killed. A page of its own, before the image.
 */
#pragma once

#include "hook/entries.h"
#include "hook/relocate.h"
#include "hook/remote.h"
#include "process/maps.h"

#include <stdint.h>

#define HL_RECORD_PAGE_MAGIC   "HLRECORD"
#define HL_RECORD_PAGE_VERSION 3u
#define HL_RECORD_PAGE_BYTES   UINT64_C(4096)
#define HL_RECORD_BLOCKS_MAX   16u

enum hl_record_state {
	HL_RECORD_MADE,	   /* nothing points to the image yet */
	HL_RECORD_STARTED, /* it has memory of its own; entries may be patched */
	HL_RECORD_STOPPED, /* that memory is given back */
};

struct hl_record_patch {
	uint64_t address;
	uint8_t original[HL_PATCH_BYTES], jump[HL_PATCH_BYTES];
	uint8_t is_late; /* of a library that came later, and may have gone */
	uint8_t unused;
	uint32_t file; /* of that: the lower half of its inode's number */
};

struct hl_record_block {
	uint64_t address, bytes;
};

struct hl_record_page {
	char magic[8];
	uint32_t version;
	uint32_t state; /* enum hl_record_state */
	/* Who made it, as seen in PID namespace ${tool_namespace}. */
	uint32_t tool_pid;
	uint32_t
		target_pid; /* as the target sees itself: in its forked children this is another's */
	uint64_t tool_start_ticks, tool_namespace;
	uint64_t attached; /* struct hl_attached */
	uint32_t block_count, patch_count;
	struct hl_record_block
		blocks[HL_RECORD_BLOCKS_MAX]; /* memory that is mapped; this page first */
	struct hl_record_patch patches[HL_ENTRIES_MAX];
};

/* Finds the page that some heapline has left, of any version. False when there is none. */
bool hl_record_page_find(const struct hl_remote *remote, const struct hl_maps *maps,
			 struct hl_record_page *ret_page);

/* Whether the one who made it is in our PID namespace; then, whether it still runs. */
bool hl_record_page_is_from_here(const struct hl_record_page *page);
bool hl_record_page_is_owned(const struct hl_record_page *page);

/* Fills in who makes it: this process, for ${target}. */
void hl_record_page_sign(struct hl_record_page *page, pid_t target);

/* The pid of ${pid} in its own PID namespace; 0 when unknown. */
uint32_t hl_record_page_inner_pid(pid_t pid);
