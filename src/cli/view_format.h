/* SPDX-License-Identifier: BSD-2-Clause */
/* What the name of the file that -o names says of what shall be in it. */
#pragma once

#include "cli/view_options.h"

/* Index of the one of the NULL-terminated ${words} after which ${path} is named ("x.svg": svg), or
 * -1. ${path} may be NULL. */
int hl_view_format_of(const char *path, const char *const *words);

/*
 * Chooses JSON where the output is named so and ${verb} writes it. HL_EXIT_DONE; or HL_EXIT_USAGE
 * after a report, where the name promises a format that is not what ${command} writes.
 */
int hl_view_obey_name(const struct hl_verb *verb, const struct hl_view_command *command);
