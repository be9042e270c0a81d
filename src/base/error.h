/* SPDX-License-Identifier: BSD-2-Clause */
/* Error text for tool code: subject, reason and remedy travel upward beside the negative errno. */
#pragma once

#include "base/compiler.h"

#include <stdarg.h>

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
