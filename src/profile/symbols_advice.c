/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks files up in dpkg's lists; see profile.h. */
#include "profile/profile.h"

#include "base/array.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define PACKAGE_MAX 128 /* names are far shorter */

/* Almost every package has a PACKAGE-dbgsym. The C library's has another name. */
#define LIBC_OWNER   "libc6"
#define LIBC_SYMBOLS "libc6-dbg"

/* A module without source lines, and who owns its file. */
struct orphan {
	const char *path; /* see path_key() */
	char *resolved;	  /* the path's storage where it is not the module's; or NULL */
	uint32_t module;
	char owner[PACKAGE_MAX];	 /* "": not known so far */
	char debug_package[PACKAGE_MAX]; /* beside OWNER-dbgsym; "": none is known */
};

struct orphans {
	struct orphan *list; /* by path */
	size_t count, capacity;
};

/* /lib is a link to /usr/lib, and packages list a file under either name. */
static const char *path_key(const char *path)
{
	return strncmp(path, "/usr/", 5) == 0 ? path + 4 : path;
}

static int by_path(const void *left, const void *right)
{
	return strcmp(((const struct orphan *)left)->path, ((const struct orphan *)right)->path);
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), end_length = strlen(end);

	return length >= end_length && !strcmp(text + length - end_length, end);
}

/* ---- owners ---- */

/* One list: the paths of a package's files, a line each. */
static void search_list(const char *path, const char *package, struct orphans *orphans)
{
	FILE *in = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	if (!in)
		return;
	while ((length = getline(&line, &room, in)) > 0) {
		if (line[length - 1] == '\n')
			line[length - 1] = '\0';
		const struct orphan wanted = {.path = path_key(line)};
		struct orphan *found = bsearch(&wanted, orphans->list, orphans->count,
					       sizeof(*orphans->list), by_path);
		if (found)
			snprintf(found->owner, sizeof(found->owner), "%s", package);
	}
	free(line);
	fclose(in);
}

static int find_owners(const char *directory, struct orphans *orphans)
{
	char *folder, *path, package[PACKAGE_MAX];
	int r = 0;

	if (asprintf(&folder, "%s/info", directory) < 0)
		return -ENOMEM;
	DIR *lists = opendir(folder);
	for (const struct dirent *entry; r == 0 && lists && (entry = readdir(lists));) {
		/* From "libc6:amd64.list" to "libc6". */
		const char *name = entry->d_name;
		size_t length = strcspn(name, ":");
		if (!ends_with(name, ".list"))
			continue;
		if (!name[length])
			length -= strlen(".list");
		if (snprintf(package, sizeof(package), "%.*s", (int)length, name) >= PACKAGE_MAX)
			continue;
		if (asprintf(&path, "%s/%s", folder, entry->d_name) < 0) {
			r = -ENOMEM;
			break;
		}
		search_list(path, package, orphans);
		free(path);
	}
	if (lists)
		closedir(lists);
	free(folder);
	return r;
}

/* ---- debug packages ---- */

/* For foo-minimal these are foo-minimal-dbg and foo-dbg. */
static bool is_debug_package_of(const char *package, const char *owner)
{
	size_t stem = ends_with(package, "-dbg") ? strlen(package) - strlen("-dbg") : 0;
	const char *dash = strrchr(owner, '-');

	return stem && !strncmp(package, owner, stem) &&
	       (!owner[stem] || (dash && stem == (size_t)(dash - owner)));
}

/* A list of packages that could be installed; most systems keep a short one. */
static int find_debug_packages(const char *directory, struct orphans *orphans)
{
	char *path, *line = NULL, package[PACKAGE_MAX];
	size_t room = 0;

	if (asprintf(&path, "%s/available", directory) < 0)
		return -ENOMEM;
	FILE *in = fopen(path, "re");
	free(path);
	while (in && getline(&line, &room, in) > 0) {
		if (sscanf(line, "Package: %127s", package) != 1)
			continue;
		for (size_t i = 0; i < orphans->count; i++)
			if (is_debug_package_of(package, orphans->list[i].owner))
				strcpy(orphans->list[i].debug_package, package);
	}
	free(line);
	if (in)
		fclose(in);
	return 0;
}

/* ---- all of it ---- */

/* Puts the packages in the place of HL_SYMBOLS_REMEDY. */
static int advise(struct hl_profile *profile, const struct orphan *orphan)
{
	struct hl_profile_module *module = &profile->modules[orphan->module];
	const char *reason = hl_profile_text(profile, module->symbols_reason);
	int kept = (int)(strlen(reason) - strlen(HL_SYMBOLS_REMEDY));
	const char *owner = orphan->owner, *other = orphan->debug_package;
	char *text;
	int r;

	if (!strcmp(owner, LIBC_OWNER))
		r = asprintf(&text, "%.*sinstall " LIBC_SYMBOLS " or set DEBUGINFOD_URLS", kept,
			     reason);
	else if (other[0])
		r = asprintf(&text, "%.*sinstall %s or %s-dbgsym, or set DEBUGINFOD_URLS", kept,
			     reason, other, owner);
	else
		r = asprintf(&text, "%.*sinstall %s-dbgsym or set DEBUGINFOD_URLS", kept, reason,
			     owner);
	if (r < 0)
		return -ENOMEM;
	r = hl_strings_intern(&profile->strings, text, &module->symbols_reason);
	free(text);
	return r;
}

int hl_symbols_advice_add(struct hl_profile *profile, const char *directory)
{
	struct orphans orphans = {0};
	int r = 0;

	for (uint32_t i = 1; r == 0 && i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		const char *path = hl_profile_text(profile, module->path);
		if (!module->used || path[0] != '/' ||
		    !ends_with(hl_profile_text(profile, module->symbols_reason), HL_SYMBOLS_REMEDY))
			continue;
		/* Another package may own a link to the file, by which it was run. */
		char *resolved = realpath(path, NULL);
		const struct orphan orphan = {
			.path = path_key(resolved ? resolved : path),
			.resolved = resolved,
			.module = i,
		};
		r = HL_ARRAY_APPEND(orphans.list, orphans.count, orphans.capacity, orphan);
		if (r < 0)
			free(resolved);
	}
	if (r == 0 && orphans.count) {
		qsort(orphans.list, orphans.count, sizeof(*orphans.list), by_path);
		r = find_owners(directory, &orphans);
	}
	if (r == 0 && orphans.count)
		r = find_debug_packages(directory, &orphans);
	for (size_t i = 0; r == 0 && i < orphans.count; i++)
		if (orphans.list[i].owner[0])
			r = advise(profile, &orphans.list[i]);
	for (size_t i = 0; i < orphans.count; i++)
		free(orphans.list[i].resolved);
	free(orphans.list);
	return r;
}
