/* SPDX-License-Identifier: BSD-2-Clause */
/* Why tool code failed, and how far long work has come. */
#pragma once

#include "base/compiler.h"

#include <stdarg.h>
#include <stdint.h>

/* Subject, reason and remedy travel upward beside the negative errno. */
struct hl_error {
	char text[1024]; /* one sentence, no newline; empty when nothing failed */
};

/*
 * Formats the sentence into ${err} (may be NULL) and returns ${code}, a negative errno, so that a
 * function can say `return hl_error_set(err, -EINVAL, "...")`. The sentence names the thing in
 * single quotes, the reason, and, after a semicolon, what to do. Keeps the first sentence when one
 * is there already.
 */
int hl_error_set(struct hl_error *err, int code, const char *format, ...) HL_PRINTF(3, 4);

/*
 * Appends a sentence to *${sentences}, an array that ends with NULL; NULL is an empty one. The
 * caller frees both. 0, or -ENOMEM with nothing changed.
 */
int hl_error_append(char ***sentences, const char *format, va_list args);

/*
 * Whoever wants to know how far long work has come embeds the struct and passes it down; whoever
 * works reports, as often as it likes, and need not know whether anybody watches.
 */
struct hl_progress {
	/* ${what}: a phrase such as "naming functions"; ${done} of ${all} units of any kind. */
	void (*report)(struct hl_progress *progress, const char *what, uint64_t done, uint64_t all);
};

/* ${progress} may be NULL. */
static inline void hl_progress_report(struct hl_progress *progress, const char *what, uint64_t done,
				      uint64_t all)
{
	if (progress)
		progress->report(progress, what, done, all);
}
