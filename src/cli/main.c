/* SPDX-License-Identifier: BSD-2-Clause */
/* The heapline program: records and says its version by itself, and loads the library of verbs for all else. */
#include "cli/cli.h"

#include "base/self.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "heapline-verbs.so"

/* ---- the table of verbs ---- */

const struct hl_guest_outside *const hl_guests_outside[HL_GUESTS_OUTSIDE_MAX + 1];

const struct hl_verb *hl_verb_at(size_t number)
{
	static const struct hl_verb *const verbs[] = {&hl_verb_record, &hl_verb_version};

	return number < HL_COUNT_OF(verbs) ? verbs[number] : NULL;
}

int hl_verb_run(const struct hl_verb *verb, void *request, int argc, char **argv)
{
	return verb->run(request, argc, argv);
}

/* ---- the library ---- */

/*
 * A program with file capabilities may have been linked into a folder of a user who has not got them, and could exchange what lies
 * there between a look at it and its use. So no one but root may change any name on the way, and none is a link.
 */
static bool is_trusted(const char *path)
{
	char part[PATH_MAX + sizeof(HL_PRIVATE_FROM_BIN LIBRARY)];
	size_t length = 0;
	struct stat file;

	if (!getauxval(AT_SECURE))
		return access(path, R_OK) == 0;
	if (path[0] != '/')
		return false;
	do {
		length += 1 + strcspn(path + length + 1, "/");
		snprintf(part, sizeof(part), "%.*s", (int)length, path);
		if (lstat(part, &file) < 0 || file.st_uid || S_ISLNK(file.st_mode) ||
		    file.st_mode & (S_IWGRP | S_IWOTH))
			return false;
	} while (path[length]);
	return S_ISREG(file.st_mode);
}

/* Beside the program in a build, elsewhere in an installation, which may have been moved. */
static void *open_library(void)
{
	static const char *const places[] = {LIBRARY, HL_PRIVATE_FROM_BIN "/" LIBRARY};
	char program[PATH_MAX], path[PATH_MAX + sizeof(HL_PRIVATE_FROM_BIN LIBRARY)];

	if (!hl_self_path(program))
		snprintf(program, sizeof(program), "%s", (const char *)getauxval(AT_EXECFN));
	size_t size = strlen(program);
	while (size > 0 && program[size - 1] != '/')
		size--;
	for (size_t i = 0; i < HL_COUNT_OF(places); i++) {
		snprintf(path, sizeof(path), "%.*s%s", (int)size, program, places[i]);
		if (is_trusted(path))
			return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	}
	return dlopen(HL_PRIVATE "/" LIBRARY, RTLD_LAZY | RTLD_LOCAL);
}

/* Both are of one build, or the structures that they share differ. 0; else the exit status. */
static int check_version(void *library)
{
	const char *version = dlsym(library, HL_VERBS_VERSION);
	const struct link_map *map;

	if (version && !strcmp(version, HL_VERSION))
		return 0;
	dlinfo(library, RTLD_DI_LINKMAP, &map);
	return hl_cli_error("this is heapline " HL_VERSION ", but its library '%s' is of version "
			    "%s; install heapline again",
			    map->l_name, version ? version : "unknown");
}

static bool is_own_verb(const char *word)
{
	return hl_verb_find(word) || !strcmp(word, "--version") || !strcmp(word, "-V");
}

int main(int argc, char **argv)
{
	if (argc > 1 && is_own_verb(argv[1]))
		return hl_cli_run(argc, argv);
	void *library = open_library();
	if (!library)
		return hl_cli_error("cannot load the library of verbs: %s; install heapline again",
				    dlerror());
	int status = check_version(library);
	if (status)
		return status;
	hl_verbs_main_fn *run;
	*(void **)&run = dlsym(library, HL_VERBS_MAIN);
	return run(argc, argv);
}
