/* SPDX-License-Identifier: BSD-2-Clause */
/* Labels of live blocks that were not known when they were allocated: blocks and bytes by stack and label. */
#pragma once

#include "base/error.h"
#include "base/strings.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_block_owners;

/* Blocks of one stack and one label. */
struct hl_inuse_label {
	uint32_t number; /* of the stack, see block_owners.h */
	uint32_t name;	 /* in hl_inuse_labels.names */
	uint64_t blocks;
	uint64_t
		bytes; /* requested ones; of blocks whose size is not known the mean of their stack's */
};

struct hl_inuse_labels {
	const char *provider;		/* what they are: HL_TYPE_PROVIDER, a constant */
	struct hl_block_owners *owners; /* names the stacks; the reader's, who frees it later */
	struct hl_inuse_label *rows;	/* none twice */
	size_t count;
	const struct hl_strings *names;
	struct hl_strings own_names;
	void *kept; /* what has the names, freed by ${free_kept}; or NULL */
	void (*free_kept)(void *kept);
};

/* Opens the block table of the recorder in process ${pid}, of which all kinds of labels are read; to be freed.
 * 0; or a negative errno with a sentence, -ENODATA when there is no recorder that knows stacks. */
int hl_inuse_labels_open(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err);

/* Empty ones, with names of their own. NULL without memory. */
struct hl_inuse_labels *hl_inuse_labels_new(const char *provider, struct hl_block_owners *owners);

void hl_inuse_labels_free(struct hl_inuse_labels *labels); /* NULL is fine */
