/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Release by scope, for tool code: what a local variable holds is released where its scope ends.
 *
 *	HL_FREED char *path = NULL;
 *	HL_CLOSED int fd = open(...);
 *	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
 *	...
 *	*ret_path = HL_TAKE(path);
 *
 * Such a variable is set where it is declared.
 */
#pragma once

#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* free(), close(): nothing for NULL or a negative descriptor; neither changes errno. */
#define HL_FREED  HL_CLEANUP(hl_cleanup_free)
#define HL_CLOSED HL_CLEANUP(hl_cleanup_close)

/* The value of ${pointer}, which becomes NULL: the scope no longer owns it. */
#define HL_TAKE(pointer)                                \
	({                                              \
		__typeof__(pointer) taken_ = (pointer); \
		(pointer) = NULL;                       \
		taken_;                                 \
	})

/* For pointers that their own ${free_function} takes: HL_CLEANUP(free_function##_at). */
#define HL_DEFINE_FREE_AT(type, free_function)                \
	static inline void free_function##_at(type **pointer) \
	{                                                     \
		free_function(*pointer);                      \
	}

static inline void hl_cleanup_free(void *pointer)
{
	void *storage;

	memcpy(&storage, pointer, sizeof(storage)); /* the pointer's own type is not known here */
	free(storage);
}

static inline void hl_cleanup_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

/* The descriptor *${fd}, which becomes -1: the scope no longer owns it. */
static inline int hl_cleanup_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}
