/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of figures, which files bring along and reports use as keys. */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <string.h>

#define HL_FIGURE_NAME_MAX 63

/* The unit that ${name} ends with, or is: "pages"; NULL when there is none. */
static inline const char *hl_figure_unit(const char *name)
{
	static const char *const units[] = {"bytes",  "pages",	"objects", "stacks",
					    "faults", "events", "percent", "ms"};
	const char *last = strrchr(name, '_');

	for (size_t i = 0; i < HL_COUNT_OF(units); i++)
		if (!strcmp(last ? last + 1 : name, units[i]))
			return units[i];
	return NULL;
}

/* Lowercase words, and numbers, joined by '_', with a unit at the end. */
static inline bool hl_figure_name_is_valid(const char *name)
{
	return name[0] >= 'a' && name[0] <= 'z' && strlen(name) <= HL_FIGURE_NAME_MAX &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] && hl_figure_unit(name);
}
