/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares names with formats; see view_format.h. */
#include "cli/view_format.h"

#include "cli/view_parse.h"

#include <string.h>

/* Formats that one expects after a name, and who writes them. Any other name means nothing. */
static const struct {
	const char *extension, *name;
	const char *writers;
} promises[] = {
	{"json", "JSON", "'heapline export --format json' does"},
	{"csv", "CSV", "'heapline export' and 'heapline timeline' do"},
	{"svg", "SVG", "'heapline flame', 'heapline graph' and 'heapline timeline' do"},
};

static const char *extension_of(const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	return dot && !strchr(dot, '/') ? dot + 1 : "";
}

int hl_view_format_of(const char *path, const char *const *words)
{
	const char *extension = extension_of(path);

	for (int i = 0; words[i]; i++)
		if (!strcmp(extension, words[i]))
			return i;
	return -1;
}

int hl_view_obey_name(const struct hl_verb *verb, const struct hl_view_command *command)
{
	const char *path = hl_view_parse_output().path, *extension = extension_of(path);

	if (command->format_given || hl_view_parse_output().json ||
	    (command->formats && hl_view_format_of(path, command->formats) >= 0))
		return HL_EXIT_DONE;
	if (!strcmp(extension, "json") && hl_verb_shares(verb, hl_view_json_options)) {
		hl_view_choose_json();
		return HL_EXIT_DONE;
	}
	for (size_t i = 0; i < HL_COUNT_OF(promises); i++)
		if (!strcmp(extension, promises[i].extension))
			return hl_cli_usage_error(
				verb, "cannot write '%s': '%s' writes no %s; %s; name it otherwise",
				path, verb->name, promises[i].name, promises[i].writers);
	return HL_EXIT_DONE;
}
