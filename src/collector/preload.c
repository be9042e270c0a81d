/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds what is to be preloaded and prepares the environment; see preload.h. */
#include "collector/preload.h"

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
	[HL_PRELOAD_RECORDER] = {"libheapline.so", "src/recorder/", "HEAPLINE_RECORDER",
				 "the recorder"},
	[HL_PRELOAD_TAGS] = {"libheapline-tags.so", "src/tags/", "HEAPLINE_TAGS",
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

/* Directory of this executable, with a trailing slash. */
static bool own_directory(char *directory, size_t capacity)
{
	ssize_t size = readlink("/proc/self/exe", directory, capacity - 1);
	if (size <= 0)
		return false;
	directory[size] = '\0';
	strrchr(directory, '/')[1] = '\0';
	return true;
}

static bool find(enum hl_preload_library library, char *ret_path, size_t capacity)
{
	char directory[PATH_MAX];
	const char *file = libraries[library].file;
	const char *named = getenv(libraries[library].variable);
	if (named && named[0])
		return try_path(ret_path, capacity, named, "", "");
	if (own_directory(directory, sizeof(directory)) &&
	    (try_path(ret_path, capacity, directory, libraries[library].built_in, file) ||
	     try_path(ret_path, capacity, directory, HL_LIBDIR_FROM_BIN "/", file)))
		return true;
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
 * by
 * "..". Other loaders (musl) look for a directory of that name, find none, and start their program
 * without the library, where loading it would end the program. NULL where this does not lead to
 * our own libc, or for want of memory.
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

static bool is_ours(const char *entry)
{
	return is_variable(entry, "LD_PRELOAD") || is_variable(entry, HL_ENV_SOCKET) ||
	       is_variable(entry, HL_ENV_TOKEN);
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

static size_t count_environment(void)
{
	size_t count = 0;
	while (environ[count])
		count++;
	return count;
}

static bool copy_others(char **environment, size_t *count)
{
	for (char **entry = environ; *entry; entry++) {
		if (is_ours(*entry))
			continue;
		environment[*count] = strdup(*entry);
		if (!environment[(*count)++])
			return false;
	}
	return true;
}

/* Adds what heapline itself sets. */
static bool add_ours(char **environment, size_t *count, const char *library, const char *socket,
		     const char *token)
{
	char *path = path_for_glibc(library);
	environment[0] = make_variable("LD_PRELOAD", path ? path : library, getenv("LD_PRELOAD"));
	free(path);
	*count = 1;
	if (!socket)
		return environment[0];
	environment[1] = make_variable(HL_ENV_SOCKET, socket, NULL);
	environment[2] = make_variable(HL_ENV_TOKEN, token, NULL);
	*count = 3;
	return environment[0] && environment[1] && environment[2];
}

char **hl_preload_environment(const char *library, const char *socket, const char *token)
{
	size_t count;
	char **environment = calloc(count_environment() + 4, sizeof(*environment));
	if (!environment)
		return NULL;
	if (add_ours(environment, &count, library, socket, token) &&
	    copy_others(environment, &count))
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
