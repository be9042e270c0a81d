/* SPDX-License-Identifier: BSD-2-Clause */
/* Help texts, made from the table of verbs. */
#pragma once

#include "cli/cli.h"

#include <stdio.h>

/* What heapline is and its verbs. */
void hl_help_program(FILE *out);

/* One verb: usage, summary, options. */
void hl_help_verb(const struct hl_verb *verb, FILE *out);
