/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces of Erlang's syntax for terms. */
#pragma once

#include "heap/histogram.h"

#include <stdio.h>

/* An atom, quoted where it must be. What is no UTF-8 in ${text} becomes U+FFFD. */
void hl_erlang_put_atom(FILE *out, const char *text);

/* A tuple of the counts. */
void hl_erlang_put_histogram(FILE *out, const struct hl_log2_shape *shape,
			     const struct hl_log2_histogram *histogram);

/* A comment that tells what sizes each of the slots of ${what} has. */
void hl_erlang_put_slots(FILE *out, const char *what, const struct hl_log2_shape *shape);
