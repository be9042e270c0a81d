/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the recorder inside the target that nobody else sees: zero-filled pages, backed on
 * first touch.
 *
 * The mappings are shared ones, though nobody shares them: RLIMIT_DATA counts each private page
 * that may be written, used or not, and what the recorder reserves would be missing from what the
 * program may have. A shared mapping is not copied on fork, so a forked child does not inherit it
 * (MADV_DONTFORK), except where the child must find something at its place: a head that reads as
 * zero there.
 */
#pragma once

#include "base/machine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_PRIVATE_MAP_HEAD HL_PAGE_BYTES_MAX /* bytes of a head */

/* Maps ${bytes}, zero-filled; a forked child does not have them. NULL when the system refuses.
 * Small ones share mappings, so that threads cost none. Thread-safe, async-signal-safe. */
void *hl_private_map_new(size_t bytes);

/* Gives back what hl_private_map_new returned. */
void hl_private_map_free(void *address, size_t bytes);

/* The same, each a mapping for itself: for what is few and grows, as a piece that is given back is only good for
 * others of its size. */
void *hl_private_map_new_whole(size_t bytes);
void hl_private_map_free_whole(void *address, size_t bytes);

/* The same for a head, HL_PRIVATE_MAP_HEAD bytes that are there in a forked child, too, and read as
 * zero (MADV_WIPEONFORK). */
void *hl_private_map_new_head(void);
void hl_private_map_free_head(void *head);

/* Before the program forbids itself to map memory: maps some, from which all of these come from here on while it lasts. */
void hl_private_map_prepare(void);

/* ${bytes} that begin with a head, for good. A child inherits the addresses after the head, for hl_private_map_renew(): nothing else
 * that the child maps may lie there. */
void *hl_private_map_new_headed(size_t bytes);

/* In a forked child: replaces the memory after the head by zero-filled memory of its own. False
 * without memory. */
bool hl_private_map_renew(void *address, size_t bytes);

/* Takes the region, a mapping made elsewhere, from forked children, too. */
void hl_private_map_adopt(void *address, size_t bytes);

/* Whether ${address} lies in one of all these but a head. Not in the image. */
bool hl_private_map_has(uintptr_t address);

#ifdef HL_ATTACHED
/* A file of the target that was mapped: to be given back at the end. */
void hl_private_map_keep_file(void *address, size_t bytes);

/* Gives back whatever has been mapped. */
void hl_private_map_release(void);
#else
static inline void hl_private_map_keep_file(void *address, size_t bytes)
{
	(void)address, (void)bytes; /* for the life of the process */
}
#endif

/* In a forked child, before anything else is mapped: its parent's mappings are not there. */
void hl_private_map_forget(void);

/*
 * For a fork in the middle of an event, where the child goes on with it; see start.c.
 * hl_private_map_keep(), before the fork: the child gets a head as it is, and ${bytes} that it shares at ${rest}. Undone
 * by hl_private_map_wipe(); ${rest} NULL: that is reserved. In the child, hl_private_map_replace() puts
 * zero-filled memory in the place of all mappings without a head but for ${bytes} at ${kept}, and then hl_private_map_separate()
 * makes what is at ${rest} the child's own.
 */
void hl_private_map_keep(void *head, void *rest, size_t bytes);
void hl_private_map_wipe(void *head, void *rest, size_t bytes);
void hl_private_map_replace(const void *kept, size_t bytes);
void hl_private_map_separate(void *rest, size_t bytes);

/* ---- what private_pieces.c needs of each shell of the recorder: whole mappings ---- */

/* Like hl_private_map_new(), a mapping for itself; with ${heads} one that reads as zero in a forked child. */
void *hl_private_map_take(size_t bytes, bool heads);
void hl_private_map_give(void *address, size_t bytes);

/* Has ${bytes} of such a mapping read as zero, and gives their memory back where that can be. */
void hl_private_map_clear(void *address, size_t bytes, bool heads);

/* In a forked child: what was cut so far is its parent's. */
void hl_private_pieces_forget(void);
