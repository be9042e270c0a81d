/* SPDX-License-Identifier: BSD-2-Clause */
/* Puts counted owners under their names: the parts of owners.c, one for each source. */
#pragma once

#include "heap/owners/owner_counts.h"
#include "heap/owners/owner_names.h"
#include "heap/owners/owners.h"

/* Adds ${count} to the row of ${origin} and ${type}. 0 or -ENOMEM. */
struct hl_owner_rows {
	struct hl_allocations *allocations;
	struct hl_index index; /* of its rows, by origin and type */
};

int hl_owner_rows_add(struct hl_owner_rows *rows, const char *origin, const char *type,
		      const struct hl_owner_count *count);

void hl_owner_rows_release(struct hl_owner_rows *rows);

/* Adds a sentence. 0 or -ENOMEM. */
int hl_owners_note(struct hl_owners *owners, const char *format, ...) HL_PRINTF(2, 3);

/* The mapping that ${names} found of a file whose name begins with ${prefix}, or NULL. */
const struct hl_map *hl_owners_find_file(const struct hl_owner_names *names, const char *prefix);

/* Reads the whole of ${bytes} at ${address} of ${pid}. 0 or a negative errno: -EFAULT when some of
 * it is not there. */
int hl_owners_read_memory(pid_t pid, uint64_t address, void *ret_bytes, size_t bytes);

/* The sources. Each fills ${owners}, which has a shape and no rows. 0; -ENODATA when the process
 * does not have it; or another negative errno with a sentence. */
int hl_owners_of_recorder(pid_t pid, const struct hl_owners_settings *settings,
			  struct hl_owner_names *names, struct hl_owners *owners,
			  struct hl_error *err);
int hl_owners_of_tags(pid_t pid, const struct hl_owners_settings *settings,
		      struct hl_owner_names *names, struct hl_owners *owners, struct hl_error *err);
