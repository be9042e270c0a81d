/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the container and the pod of a process by its cgroups; see session.h. */
#include "push/session.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ID_LENGTH   64 /* of a container: hexadecimal digits */
#define UUID_LENGTH 36 /* of a pod */

static size_t digits_at(const char *text)
{
	size_t count = 0;

	while (isxdigit((unsigned char)text[count]))
		count++;
	return count;
}

/* Whether a UUID is at ${text}, whose parts are joined by '-', or by '_' in names of systemd's slices. */
static bool is_uuid(const char *text)
{
	for (size_t i = 0; i < UUID_LENGTH; i++) {
		bool joins = i == 8 || i == 13 || i == 18 || i == 23;
		if (joins ? text[i] != '-' && text[i] != '_' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return true;
}

void hl_push_find_container(const char *cgroups, char container[HL_PUSH_CONTAINER_MAX],
			    char pod[HL_PUSH_CONTAINER_MAX])
{
	container[0] = pod[0] = '\0';
	for (const char *at = cgroups; *at; at++) {
		bool begins = at == cgroups || !isxdigit((unsigned char)at[-1]);
		/* The last one is the innermost: containers may run containers. */
		if (begins && digits_at(at) == ID_LENGTH)
			snprintf(container, HL_PUSH_CONTAINER_MAX, "%.*s", ID_LENGTH, at);
		if (strncmp(at, "pod", strlen("pod")) != 0 || !is_uuid(at + strlen("pod")))
			continue;
		snprintf(pod, HL_PUSH_CONTAINER_MAX, "%.*s", UUID_LENGTH, at + strlen("pod"));
		for (char *c = pod; *c; c++)
			if (*c == '_')
				*c = '-';
	}
}
