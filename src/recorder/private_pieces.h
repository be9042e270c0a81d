/* SPDX-License-Identifier: BSD-2-Clause */
/* What private_pieces.c needs of each shell of the recorder: whole mappings. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Like hl_private_map_new(), a mapping for itself; with ${heads} one that reads as zero in a forked child. */
void *hl_private_map_take(size_t bytes, bool heads);
void hl_private_map_give(void *address, size_t bytes);

/* Has ${bytes} of such a mapping read as zero, and gives their memory back where that can be. */
void hl_private_map_clear(void *address, size_t bytes, bool heads);

/* In a forked child: what was cut so far is its parent's. */
void hl_private_pieces_forget(void);
