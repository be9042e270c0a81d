/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects warnings; see warnings.h. */
#include "collector/warnings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hl_warnings_add(struct hl_warnings *warnings, const char *format, ...)
{
	char text[HL_WARNING_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (uint32_t i = 0; i < warnings->count; i++)
		if (strcmp(warnings->texts[i], text) == 0)
			return false;
	if (warnings->count == HL_WARNINGS_MAX)
		return false;
	char *copy = strdup(text);
	if (!copy)
		return false;
	warnings->texts[warnings->count++] = copy;
	return true;
}

bool hl_warnings_replace(struct hl_warnings *warnings, const char *before, const char *sentence)
{
	for (uint32_t i = 0; i < warnings->count; i++) {
		if (strcmp(warnings->texts[i], before) != 0)
			continue;
		char *copy = strdup(sentence);
		if (!copy)
			return false;
		free(warnings->texts[i]);
		warnings->texts[i] = copy;
		return true;
	}
	return hl_warnings_add(warnings, "%s", sentence);
}

void hl_warnings_release(struct hl_warnings *warnings)
{
	for (uint32_t i = 0; i < warnings->count; i++)
		free(warnings->texts[i]);
	*warnings = (struct hl_warnings){0};
}
