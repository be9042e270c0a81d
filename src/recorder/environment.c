/* SPDX-License-Identifier: BSD-2-Clause */
/* Completes environments; see start.h. */
#include "recorder/start.h"

#include "base/compiler.h"
#include "region/protocol.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#define PRELOAD "LD_PRELOAD"

/* "NAME=value" as it was at the start. Ordinary memory: forked children need it, too. */
static char library[PATH_MAX]; /* the name alone; "" = nothing was kept */
static char socket_entry[128], token_entry[128];

const char *hl_environment_value(char *const *environment, const char *name)
{
	size_t length = strlen(name);

	for (; environment && *environment; environment++)
		if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

/* Length of the first name of a list as the loader separates it. */
static size_t name_length(const char *list)
{
	return strcspn(list, ": ");
}

static const char *file_name(const char *path, size_t length)
{
	size_t at = length;

	while (at > 0 && path[at - 1] != '/')
		at--;
	return path + at;
}

/* The name in ${list} whose file is called as that at ${path}. Its length, or 0. */
static size_t find_name(const char *list, const char *path, const char **ret_name)
{
	const char *file = file_name(path, strlen(path));

	while (*list) {
		size_t length = name_length(list);
		const char *name = file_name(list, length);
		size_t file_length = (size_t)(list + length - name);
		if (length && strlen(file) == file_length &&
		    strncmp(name, file, file_length) == 0) {
			*ret_name = list;
			return length;
		}
		list += length + (list[length] != '\0');
	}
	return 0;
}

static bool keep(char *place, size_t capacity, const char *name, const char *value)
{
	size_t length = strlen(name);

	if (!value || length + 1 + strlen(value) >= capacity)
		return false;
	memcpy(place, name, length);
	place[length] = '=';
	strcpy(place + length + 1, value);
	return true;
}

void hl_environment_keep(char *const *environment, const char *recorder, const char *socket,
			 const char *token)
{
	const char *list = hl_environment_value(environment, PRELOAD), *name;

	size_t length = list ? find_name(list, recorder, &name) : 0;
	if (!length || length >= sizeof(library) ||
	    !keep(socket_entry, sizeof(socket_entry), HL_ENV_SOCKET, socket) ||
	    !keep(token_entry, sizeof(token_entry), HL_ENV_TOKEN, token))
		return;
	memcpy(library, name, length);
}

static bool has(char *const *environment, const char *entry)
{
	for (; environment && *environment; environment++)
		if (strcmp(*environment, entry) == 0)
			return true;
	return false;
}

static bool is_first(const char *list)
{
	size_t length = name_length(list);

	return strlen(library) == length && strncmp(list, library, length) == 0;
}

void hl_environment_forget_token(char *const *environment)
{
	char *digits = (char *)hl_environment_value(environment, HL_ENV_TOKEN);

	if (digits)
		*digits = '\0';
	if (token_entry[0])
		strcpy(token_entry, HL_ENV_TOKEN "=");
}

/* LD_PRELOAD= the recorder : what stood there, and the end of the text; in whole pointers */
static size_t preload_bytes(const char *list)
{
	size_t bytes = sizeof(PRELOAD) + strlen(library) + 1 + (list ? strlen(list) : 0) + 1;

	return (bytes + sizeof(char *) - 1) & ~(sizeof(char *) - 1);
}

static char *token_for(bool withholds)
{
	static char none[] = HL_ENV_TOKEN "=";

	return withholds ? none : token_entry;
}

size_t hl_environment_room(char *const *environment, bool withholds)
{
	const char *list = hl_environment_value(environment, PRELOAD);

	if (!library[0] ||
	    (hl_environment_value(environment, HL_ENV_SOCKET) && !has(environment, socket_entry)) ||
	    (list && (strstr(list, "asan") || strstr(list, "tsan") || strstr(list, "lsan"))))
		return 0;
	if (list && is_first(list) && has(environment, socket_entry) &&
	    has(environment, token_for(withholds)))
		return 0;
	size_t count = 0;
	while (environment && environment[count])
		count++;
	return (count + 4) * sizeof(char *) + preload_bytes(list);
}

char *const *hl_environment_without_token(char *const *environment, void *room)
{
	static const char token[] = HL_ENV_TOKEN "=";
	char **kept = room;

	for (; environment && *environment; environment++)
		if (strncmp(*environment, token, sizeof(token) - 1) != 0)
			*kept++ = *environment;
	*kept = NULL;
	return room;
}

static bool is_one_of_three(const char *entry)
{
	static const char *const names[] = {PRELOAD "=", HL_ENV_SOCKET "=", HL_ENV_TOKEN "="};

	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (strncmp(entry, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static void write_preload(char *entry, const char *list)
{
	strcpy(entry, PRELOAD "=");
	if (!list || !list[0] || !is_first(list))
		strcat(entry, library);
	if (list && list[0] && !is_first(list))
		strcat(entry, ":");
	if (list)
		strcat(entry, list);
}

char *const *hl_environment_complete(char *const *environment, bool withholds, void *room,
				     size_t bytes)
{
	const char *list = hl_environment_value(environment, PRELOAD);

	size_t text_bytes = preload_bytes(list), count = 3;
	if (bytes < text_bytes + 4 * sizeof(char *))
		return environment;
	char **complete = (char **)((char *)room + text_bytes);
	size_t limit = (bytes - text_bytes) / sizeof(char *) - 1;
	write_preload(room, list);
	complete[0] = room;
	complete[1] = socket_entry;
	complete[2] = token_for(withholds);
	for (; environment && *environment && count < limit; environment++)
		if (!is_one_of_three(*environment))
			complete[count++] = *environment;
	complete[count] = NULL;
	return complete;
}
