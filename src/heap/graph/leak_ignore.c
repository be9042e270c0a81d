/* SPDX-License-Identifier: BSD-2-Clause */
/* Suppressions; see leak_ignore.h. */
#include "heap/graph/leak_ignore.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND "leak:"

/* The pattern of fnmatch() for ${text}, of which only '*' has a meaning; NULL for want of memory. */
static char *make_pattern(const char *text)
{
	size_t length = strlen(text);
	bool from_start = *text == '^', to_end = length && text[length - 1] == '$';
	char *pattern = malloc(2 * length + 3), *end = pattern;

	if (!pattern)
		return NULL;
	if (!from_start)
		*end++ = '*';
	for (size_t i = from_start; i < length - to_end; i++) {
		if (strchr("?[]\\", text[i]))
			*end++ = '\\';
		*end++ = text[i];
	}
	if (!to_end)
		*end++ = '*';
	*end = '\0';
	return pattern;
}

static int add_line(struct hl_leak_ignore *ignore, const char *line)
{
	char *pattern;

	if (!*line || *line == '#')
		return 0;
	if (strncmp(line, KIND, sizeof(KIND) - 1) != 0 || !line[sizeof(KIND) - 1])
		return -EBADMSG;
	pattern = make_pattern(line + sizeof(KIND) - 1);
	if (!pattern ||
	    HL_ARRAY_APPEND(ignore->patterns, ignore->count, ignore->capacity, pattern) < 0) {
		free(pattern);
		return -ENOMEM;
	}
	return 0;
}

int hl_leak_ignore_read(struct hl_leak_ignore *ignore, const char *path, struct hl_error *err)
{
	HL_FREED char *line = NULL;
	size_t capacity = 0;
	unsigned number = 0;
	FILE *file = fopen(path, "re");
	int r = 0;

	if (!file)
		return hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	while (r == 0 && getline(&line, &capacity, file) >= 0) {
		/* Names have blanks inside: "std::vector<int, my::allocator>". */
		for (size_t end = strlen(line); end && strchr(" \t\r\n", line[end - 1]); end--)
			line[end - 1] = '\0';
		number++;
		r = add_line(ignore, line);
	}
	if (r == 0 && ferror(file))
		r = -EIO;
	fclose(file);
	if (r == -EBADMSG)
		return hl_error_set(err, r, "line %u of '%s' is not 'leak:PATTERN'", number, path);
	return r < 0 ? hl_error_set(err, r, "cannot read '%s': %s", path, strerror(-r)) : 0;
}

bool hl_leak_ignore_matches(const struct hl_leak_ignore *ignore, const char *name)
{
	for (size_t i = 0; i < ignore->count; i++)
		if (*name && fnmatch(ignore->patterns[i], name, 0) == 0)
			return true;
	return false;
}

void hl_leak_ignore_release(struct hl_leak_ignore *ignore)
{
	for (size_t i = 0; i < ignore->count; i++)
		free(ignore->patterns[i]);
	free(ignore->patterns);
	*ignore = (struct hl_leak_ignore){0};
}
