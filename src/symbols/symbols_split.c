/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of code that runtimes made, in parts; see symbols.h. */
#include "symbols/symbols.h"

#include "base/compiler.h"
#include "guests/traits.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* After V8's kind of code: interpreted, baseline, and the optimizing compilers, whose code V8 12 and later marks if it serves all closures
 * of a function. */
#define TIERS		"~^+*"
#define OF_ALL_CLOSURES '\''

/* The function's name after V8's kind and tier; NULL: it is not V8's. */
static char *skip_kind(char *name)
{
	static const char *const kinds[] = {"JS:", "LazyCompile:", "Function:", "Eval:", "Script:"};

	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++) {
		size_t length = strlen(kinds[i]);
		if (strncmp(name, kinds[i], length) != 0 || !name[length])
			continue;
		bool has_tier = strchr(TIERS, name[length]) != NULL;
		name += length + has_tier;
		return name + (has_tier && *name == OF_ALL_CLOSURES);
	}
	return NULL;
}

/* Cuts the number after the last colon off; 0 if there is none, and nothing is cut. */
static uint32_t cut_number(char *text)
{
	char *colon = strrchr(text, ':'), *end;

	if (!colon || !isdigit((unsigned char)colon[1]))
		return 0;
	unsigned long number = strtoul(colon + 1, &end, 10);
	if (*end || number > UINT32_MAX)
		return 0;
	*colon = '\0';
	return (uint32_t)number;
}

/* Where the file begins after a function: names of either may have spaces ("get size"), but a file mostly
 * begins with a slash or its scheme. */
static char *find_file(char *text)
{
	static const char *const starts[] = {" /", " node:", " file:"};
	char *first = NULL;

	for (size_t i = 0; i < HL_COUNT_OF(starts); i++) {
		char *start = strstr(text, starts[i]);
		if (start && (!first || start < first))
			first = start;
	}
	return first ? first : strrchr(text, ' ');
}

static bool is_trace(const char *name)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *start = hl_guest_traits[i]->trace;
		if (start && !strncmp(name, start, strlen(start)))
			return true;
	}
	return false;
}

void hl_symbols_split(char *name, struct hl_symbols_frame *ret_frame)
{
	char *function = skip_kind(name), *file = NULL;
	uint32_t line = 0;

	if (function) {
		/* A column, and a line before it; older versions of V8 write the line alone. */
		uint32_t last = cut_number(function);
		line = last ? cut_number(function) : 0;
		line = line ? line : last;
		file = find_file(function);
	} else if (is_trace(name) && (file = strstr(name, "::"))) {
		*file++ = '\0';
		line = cut_number(file + 1);
	}
	if (file)
		*file++ = '\0';
	if (!function)
		function = name;
	*ret_frame = (struct hl_symbols_frame){
		.function = *function ? function : "(anonymous)",
		.function_file = file ? file : "",
		.function_line = line,
		.file = file ? file : "",
		.line = line,
	};
}
