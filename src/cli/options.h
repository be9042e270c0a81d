/* SPDX-License-Identifier: BSD-2-Clause */
/* Parses and describes the option tables of cli.h. */
#pragma once

#include "cli/cli.h"

#include <stdio.h>

/*
 * Parses the options in ${argv} (argv[0] is the verb's name) into their targets. -1 and the index
 * of the first operand in ${ret_first_operand}; or the exit status to leave with: after -h, which
 * writes the help, or after a usage error, which was reported.
 */
int hl_options_parse(const struct hl_verb *verb, int argc, char **argv, int *ret_first_operand);

#define HL_OPTIONS_MAX 64 /* more than any verb has; hl_options_of() asserts it */

/* All options of ${verb}, help last; returns how many. */
size_t hl_options_of(const struct hl_verb *verb,
		     const struct hl_option *ret_options[HL_OPTIONS_MAX]);

/* The table that help shows, in lines of ${width} columns. */
void hl_options_help(const struct hl_verb *verb, FILE *out, size_t width);

/* Reads a decimal number, with a suffix K, M, G or T (powers of 1024) if ${suffix_allowed}. 0 or
 * -EINVAL. */
int hl_option_parse_number(const char *text, bool suffix_allowed, uint64_t *ret_number);
