/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The black box: a service that sleeps until a control group comes near its limit, then keeps what the group has; and keeps what the kernel knows when
 * it kills for want of memory. It outlives the group. One thread; all that is costly runs beside it, in programs that end.
 */
#pragma once

#include "base/error.h"
#include "view/emit.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_WATCH_DIRECTORY "/var/lib/heapline/watch" /* where nothing else is said */

struct hl_watch_settings {
	const char *const *groups; /* NULL-terminated paths; NULL: all that have a limit */
	const char *directory;
	uint64_t keep, bytes_max; /* see struct hl_watch_store */
	double share;		  /* of the limit, 0 to 1 */
	bool attach_sample, allow_stop;
	void (*say)(const char *sentence);
};

/* Watches until SIGINT or SIGTERM. 0, or a negative errno with a sentence. */
int hl_watch_run(const struct hl_watch_settings *settings, struct hl_error *err);

/* Tells the story of the newest kill in ${directory} or, without one, of the newest snapshot. 0, or a negative errno with a sentence: -ENOENT, there is neither. */
int hl_watch_tell_last(const char *directory, const struct hl_emit_options *options,
		       struct hl_error *err);

/* Lists the entries of ${directory}, newest first. 0 or a negative errno with a sentence. */
int hl_watch_tell_list(const char *directory, const struct hl_emit_options *options,
		       struct hl_error *err);
