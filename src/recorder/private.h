/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the recorder inside the target that nobody else sees: zero-filled pages, backed on
 * first touch, and zero again in a forked child (MADV_WIPEONFORK). Every mapping is remembered, so
 * that a child can give back what it inherited.
 */
#pragma once

#include <stddef.h>

/* Maps ${bytes}, zero-filled. NULL when the system refuses. Thread-safe, async-signal-safe. */
void *hl_private_map(size_t bytes);

/* Gives back what hl_private_map returned. */
void hl_private_unmap(void *address, size_t bytes);

/* Remembers a mapping made elsewhere (the region), so that hl_private_forget gives it back too. */
void hl_private_adopt(void *address, size_t bytes);

/* In a forked child, before anything else is mapped: unmaps all that was inherited. */
void hl_private_forget(void);
