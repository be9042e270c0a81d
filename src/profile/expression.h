/* SPDX-License-Identifier: BSD-2-Clause */
/* Regular expressions as people give them: extended ones, within bounds that libc stays within. */
#pragma once

#include "base/error.h"

#include <regex.h>

/*
 * Compiles ${text} for matches alone (REG_NOSUB) into ${expression}, to be given to regfree().
 * ${origin} follows the expression in messages, such as " of --focus". 0; -EINVAL with a sentence
 * when it is invalid, or would cost libc too much memory or stack; -ENOMEM.
 */
int hl_expression_compile(const char *text, const char *origin, regex_t *expression,
			  struct hl_error *err);
