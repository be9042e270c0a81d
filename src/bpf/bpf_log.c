/* SPDX-License-Identifier: BSD-2-Clause */
/* Catches libbpf's messages; see bpf_log.h. */
#include "bpf/bpf_log.h"

#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "libbpf: "

static void (*listener)(const char *line);
static char complaint[256];

/* A message may hold many lines: the verifier's log is one. */
static void tell_lines(char *message)
{
	for (char *line = message, *end; line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		if (*line)
			listener(line);
	}
}

static void keep(const char *message)
{
	if (!strncmp(message, PREFIX, strlen(PREFIX)))
		message += strlen(PREFIX);
	snprintf(complaint, sizeof(complaint), "%.*s", (int)strcspn(message, "\n"), message);
}

static int on_message(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char *message;
	int length = vasprintf(&message, format, arguments);
	if (length < 0)
		return 0;
	if (level == LIBBPF_WARN && !complaint[0])
		keep(message);
	if (listener)
		tell_lines(message);
	free(message);
	return length;
}

void hl_bpf_log_start(void (*say)(const char *line))
{
	listener = say;
	complaint[0] = '\0';
	libbpf_set_print(on_message);
}

const char *hl_bpf_log_complaint(void)
{
	return complaint;
}

void hl_bpf_log_forget(void)
{
	complaint[0] = '\0';
}
