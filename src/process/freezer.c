/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a process is frozen by its cgroup; see process.h. */
#include "process/process.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Whether ${file} of the cgroup at ${path}, below the usual place of ${hierarchy}, has ${word}. */
static bool says(const char *hierarchy, const char *path, const char *file, const char *word)
{
	char name[PATH_MAX], text[256] = "";

	snprintf(name, sizeof(name), "/sys/fs/cgroup%s%s/%s", hierarchy, path, file);
	FILE *in = fopen(name, "re");
	if (!in)
		return false;
	size_t length = fread(text, 1, sizeof(text) - 1, in);
	text[length] = '\0';
	fclose(in);
	return strstr(text, word);
}

bool hl_process_is_frozen(pid_t pid)
{
	char text[4096], *rest = text;

	if (hl_proc_read(pid, "cgroup", text, sizeof(text)) < 0)
		return false;
	/* "NUMBER:CONTROLLERS:PATH", of version 2 without controllers. */
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (!controllers[1] && (says("", path, "cgroup.events", "frozen 1") ||
					says("/unified", path, "cgroup.events", "frozen 1")))
			return true;
		if (strstr(controllers, "freezer") &&
		    (says("/freezer", path, "freezer.state", "FROZEN") ||
		     says("/freezer", path, "freezer.state", "FREEZING")))
			return true;
	}
	return false;
}
