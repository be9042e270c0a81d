/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What could not be sent, in files of a directory, until it can be. The directory is made when there is something to keep, and is used
 * by one process, which locks it, and one thread. A second push to the same place has the directory "2" in it, a third one "3".
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_push_spool;

/*
 * The spool in ${path}, which keeps at most ${most} bytes; what earlier processes left there, and no other has taken, is in it. 0; -EBUSY
 * when 64 processes use it; another negative errno. With a sentence.
 */
int hl_push_spool_open(const char *path, uint64_t most, struct hl_push_spool **ret_spool,
		       struct hl_error *err);
void hl_push_spool_free(struct hl_push_spool *spool); /* NULL is fine */

size_t hl_push_spool_count(const struct hl_push_spool *spool);

/* Whether ${size} more bytes fit without dropping any. */
bool hl_push_spool_has_room(const struct hl_push_spool *spool, uint64_t size);

/*
 * Adds ${size} ${bytes} at the end. The oldest are dropped where there is no room: how many is added to *${dropped}, and it may be the
 * new one. 0 or a negative errno with a sentence.
 */
int hl_push_spool_add(struct hl_push_spool *spool, const void *bytes, size_t size,
		      uint64_t *dropped, struct hl_error *err);

/* The oldest, with a NUL after it, to be freed. 0 or a negative errno with a sentence; -ENOENT when there is none. */
int hl_push_spool_first(struct hl_push_spool *spool, char **ret_bytes, size_t *ret_size,
			struct hl_error *err);

/* Forgets the oldest. */
void hl_push_spool_pop(struct hl_push_spool *spool);
