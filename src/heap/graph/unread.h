/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory where pointers to blocks may lie, and that was not read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hl_heap;

struct hl_unread {
	uint64_t swapped_bytes;
	uint64_t secret_bytes; /* of memfd_secret(2) */
	uint64_t closed_bytes; /* pages without access that the system does not show */
	bool has_io_uring;     /* whose requests lead to blocks, too */
};

/* Keeps in ${unread} what it or ${other} has more of: what was seen at several moments. */
void hl_unread_join(struct hl_unread *unread, const struct hl_unread *other);

/* How many blocks may be in use by pointers there. */
uint64_t hl_unread_words(const struct hl_unread *unread);

/* Adds a note to ${heap} for each kind. ${verb} is the command that has --swapped. 0 or -ENOMEM. */
int hl_unread_note(const struct hl_unread *unread, struct hl_heap *heap, const char *verb);
