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

/* One line for each option: `--name`, then the words that it takes, if they are fixed. */
void hl_options_list(const struct hl_verb *verb, FILE *out);

/* The table that help shows. */
void hl_options_help(const struct hl_verb *verb, FILE *out);

/* Reads a decimal number, with a suffix K, M, G or T (powers of 1024) if ${suffix_allowed}. 0 or
 * -EINVAL. */
int hl_option_parse_number(const char *text, bool suffix_allowed, uint64_t *ret_number);
