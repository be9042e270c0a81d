/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who owns the live blocks of a process: from the block table of a recorder inside it, from the
 * words of the tag shim; else unknown.
 *
 *	origin	the library, or the program, whose code called the allocator
 *	type	the function there, or the tag that the program had set
 */
#pragma once

#include "base/error.h"
#include "heap/carriers.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum hl_owners_source {
	HL_OWNERS_RECORDER, /* sizes are what was asked for */
	HL_OWNERS_TAGS,	    /* sizes are what may be used, without the word */
	HL_OWNERS_NONE,	    /* sizes alone, in one row */
};

struct hl_owners {
	struct hl_allocations allocations;
	enum hl_owners_source source;
	bool sizes_are_means; /* each block counts with the mean size of its call site */
	char allocator[96];   /* "glibc 2.36"; "" when it did not matter */
	uint64_t unknown_blocks, unknown_bytes; /* live blocks without an owner; in no row */
	char **notes;				/* NULL-terminated sentences, or NULL */
};

struct hl_owners_settings {
	struct hl_log2_shape shape; /* width 0: 128, 18 */
	bool stop;		    /* as in struct hl_heap_settings */
	bool plumbing;		    /* name operator new and the like, not their callers */
};

/* Reads ${pid} from the best source there is. 0 or a negative errno with a sentence, as
 * hl_heap_read(). */
int hl_owners_read(pid_t pid, const struct hl_owners_settings *settings,
		   struct hl_owners **ret_owners, struct hl_error *err);

void hl_owners_free(struct hl_owners *owners); /* NULL is fine */
