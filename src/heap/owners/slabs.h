/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs of allocators that keep such: what the allocator itself says, asked through the
 * recorder in the process. Such allocators keep blocks of one size together, so what keeps memory
 * is not how large holes are but how full slabs are.
 */
#pragma once

#include "allocators/traits.h"
#include "base/error.h"
#include "region/introspection.h"

#include <sys/types.h>

struct hl_slabs {
	struct hl_introspection said;
	/* Bytes of slabs by how full they are. Of classes the full slabs are known, and
	 * the mean of the others. */
	uint64_t occupancy_bytes[HL_OCCUPANCY_SLOTS];
};

/* Whose figures they are; NULL: of nobody. */
const struct hl_allocator_traits *hl_slabs_allocator(const struct hl_slabs *slabs);

/*
 * Asks process ${pid}. 0; -ENODATA when no recorder is in it; -ENOTSUP when its allocator cannot be
 * asked; -ETIMEDOUT when it allocates nothing for a while, which is when it would answer; another
 * negative errno when its collector cannot be reached. Always with a sentence.
 */
int hl_slabs_ask(pid_t pid, struct hl_slabs *ret_slabs, struct hl_error *err);

/* How full the slabs of ${said} are, see struct hl_slabs. */
void hl_slabs_occupancy(const struct hl_introspection *said,
			uint64_t ret_bytes[HL_OCCUPANCY_SLOTS]);
