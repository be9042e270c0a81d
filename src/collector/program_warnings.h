/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is said of programs of which a recording, or a trace, shows less than one may expect: memory that grows outside
 * malloc, allocators and runtimes that are not seen, an end by the kernel.
 */
#pragma once

#include "collector/warnings.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_archive;
struct hl_region_settings;
struct hl_tracked;

/* ---- memory control groups ---- */

/*
 * The memory control group of a recorded process. The recorder's memory counts to it, and the kernel kills a process when
 * it reaches its limit.
 */
struct hl_memory_group;

/* Looks at the group of ${pid} as it is now. NULL: it cannot be read from here, or there is no memory. */
struct hl_memory_group *hl_memory_group_open(pid_t pid);

/* Whether an exact recording of ${pid} may need what is left below the limit; ${sentence} says so. */
bool hl_memory_group_describe_room(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES]);

void hl_memory_group_free(struct hl_memory_group *group); /* NULL is fine */

/* ---- growth outside malloc ---- */

/*
 * Programs whose memory grew though they hardly called malloc: their runtime maps memory for itself. What is recorded or
 * traced of one is empty, or nearly so, and says what would show that memory.
 */
struct hl_outside_malloc {
	pid_t pid;
	const char *executable;
	bool runs;		  /* has not ended */
	bool ran_before;	  /* when it was looked at first */
	bool is_traced;		  /* from outside, where objects of interpreters are not seen */
	uint64_t allocations;	  /* that were seen */
	int64_t malloc_bytes;	  /* the most in use of these */
	int64_t alloc_bytes;	  /* of all of these: malloc may keep what was freed */
	int64_t rss_growth_bytes; /* meanwhile, of anonymous memory */
};

/* Writes the sentence. False where malloc explains the growth, or there is hardly any. */
bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES]);

/* ---- recorded programs ---- */

/* Programs that are not searched again for allocators of their own; a build runs a few over and
 * over. */
#define HL_EXAMINED_MAX 64

/* What was said of a recording's programs. Zero-initialize. */
struct hl_program_warnings {
	struct {
		dev_t device;
		ino_t inode;
	} examined[HL_EXAMINED_MAX]; /* programs that were searched for allocators */
	uint32_t examined_count;
	bool has_warned_of_growth;
};

/* Of a process that has begun, whose RLIMIT_AS is ${limit}. */
void hl_program_warnings_address_space(struct hl_archive *archive,
				       const struct hl_region_settings *settings,
				       const struct hl_tracked *tracked, uint64_t limit);

/* Of a process that was told to go on by samples. Says it once, and has reports call the figures estimates from the next save on. */
void hl_program_warnings_sampling(struct hl_archive *archive, struct hl_tracked *tracked);

/* Of a process whose end has been noted: the same, its end, its program, its scripts. */
void hl_program_warnings_end(struct hl_program_warnings *warnings, struct hl_archive *archive,
			     struct hl_tracked *tracked);

/* Of a process whose totals are known, once in a recording. */
void hl_program_warnings_growth(struct hl_program_warnings *warnings, struct hl_archive *archive,
				const struct hl_region_settings *settings,
				const struct hl_tracked *tracked);
