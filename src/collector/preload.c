/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds what is to be preloaded and prepares the environment; see launch.h. */
#include "collector/launch.h"

#include "region/protocol.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *file, *built_in, *variable, *says;
} libraries[] = {
	[HL_PRELOAD_RECORDER] = {"libheapline.so.0", "src/recorder/", "HEAPLINE_RECORDER",
				 "the recorder"},
	[HL_PRELOAD_TAGS] = {"libheapline-tags.so.0", "src/tags/", "HEAPLINE_TAGS",
			     "the library for tags"},
};

/* ${below} is a directory below ${directory}, with a trailing slash, or "". */
static bool try_path(char *ret_path, size_t capacity, const char *directory, const char *below,
		     const char *file)
{
	char path[2 * PATH_MAX];

	if (snprintf(path, sizeof(path), "%s%s%s", directory, below, file) >= (int)sizeof(path))
		return false;
	char *resolved = realpath(path, NULL);
	bool good = resolved && strlen(resolved) < capacity && access(resolved, R_OK) == 0;
	if (good)
		strcpy(ret_path, resolved);
	free(resolved);
	return good;
}

static bool find(enum hl_preload_library library, char *ret_path, size_t capacity)
{
	char directory[PATH_MAX];
	const char *file = libraries[library].file;

	const char *named = getenv(libraries[library].variable);
	if (named && named[0])
		return try_path(ret_path, capacity, named, "", "");
	ssize_t size = readlink("/proc/self/exe", directory, sizeof(directory) - 1);
	if (size > 0) {
		directory[size] = '\0';
		strrchr(directory, '/')[1] = '\0';
		if (try_path(ret_path, capacity, directory, libraries[library].built_in, file) ||
		    try_path(ret_path, capacity, directory, HL_LIBDIR_FROM_BIN "/", file))
			return true;
	}
	return try_path(ret_path, capacity, HL_LIBDIR "/", "", file);
}

int hl_preload_find(enum hl_preload_library library, char *ret_path, size_t capacity,
		    struct hl_error *err)
{
	if (!find(library, ret_path, capacity))
		return hl_error_set(err, -ENOENT,
				    "cannot find %s '%s'; install heapline, or name the file in %s",
				    libraries[library].says, libraries[library].file,
				    libraries[library].variable);
	/* What the loader separates the names in LD_PRELOAD by. */
	if (strpbrk(ret_path, ": "))
		return hl_error_set(err, -EINVAL,
				    "cannot preload '%s': the loader takes no path with a colon or "
				    "a space in it; put heapline elsewhere",
				    ret_path);
	return 0;
}

/*
 * The library's path as glibc alone understands it: with $LIB in it, which leads back to the root
 * by "..". Other loaders (musl) look for a directory of that name, find none, and start their
 * program without the library, where loading it would end the program. NULL where this does not
 * lead to our own libc, or for want of memory.
 */
static char *path_for_glibc(const char *path)
{
	static const char way_to_root[] = "/usr/$LIB/../../../../..";
	Dl_info libc;
	char *probe = NULL, *disguised = NULL;

	if (!dladdr((void *)(uintptr_t)getenv, &libc) || libc.dli_fname[0] != '/' ||
	    asprintf(&probe, "%s%s", way_to_root, libc.dli_fname) < 0)
		return NULL;
	void *handle = dlopen(probe, RTLD_LAZY | RTLD_NOLOAD);
	free(probe);
	if (!handle)
		return NULL;
	dlclose(handle);
	return asprintf(&disguised, "%s%s", way_to_root, path) < 0 ? NULL : disguised;
}

/* ---- the environment ---- */

static bool is_variable(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* "NAME=value", with ":more" after when there is more; NULL for want of memory. */
static char *make_variable(const char *name, const char *value, const char *more)
{
	char *entry;
	bool with_more = more && more[0];
	int size = asprintf(&entry, "%s=%s%s%s", name, value, with_more ? ":" : "",
			    with_more ? more : "");

	return size < 0 ? NULL : entry;
}

char **hl_preload_environment(const char *library, const char *socket, const char *token)
{
	size_t most = 4, count = 1;

	for (char **entry = environ; *entry; entry++)
		most++;
	char **environment = calloc(most, sizeof(*environment));
	if (!environment)
		return NULL;
	char *path = path_for_glibc(library);
	environment[0] = make_variable("LD_PRELOAD", path ? path : library, getenv("LD_PRELOAD"));
	free(path);
	bool good = environment[0];
	if (good && socket) {
		environment[1] = make_variable(HL_ENV_SOCKET, socket, NULL);
		environment[2] = environment[1] ? make_variable(HL_ENV_TOKEN, token, NULL) : NULL;
		good = environment[2];
		count = 3;
	}
	for (char **entry = environ; good && *entry; entry++) {
		if (is_variable(*entry, "LD_PRELOAD") || is_variable(*entry, HL_ENV_SOCKET) ||
		    is_variable(*entry, HL_ENV_TOKEN))
			continue;
		environment[count] = strdup(*entry);
		good = environment[count++];
	}
	if (good)
		return environment;
	hl_preload_environment_free(environment);
	return NULL;
}

void hl_preload_environment_free(char **environment)
{
	for (char **entry = environment; entry && *entry; entry++)
		free(*entry);
	free(environment);
}
