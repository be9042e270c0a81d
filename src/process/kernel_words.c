/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads /proc/PID/fdinfo and /proc/PID/timers; see process.h. */
#include "process/process.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct words {
	uint64_t *words;
	size_t count, capacity;
};

/* Appends the hexadecimal number that ${text} begins with. */
static int append(struct words *words, const char *text)
{
	return HL_ARRAY_APPEND(words->words, words->count, words->capacity,
			       strtoull(text, NULL, 16));
}

/* A line for each descriptor that is waited for: "tfd: 7 events: 19 data: 55d0c2a0 pos:0 ..." */
static int read_epoll(pid_t pid, uint32_t fd, hl_kernel_visit *visit, void *context)
{
	HL_FREED char *text = NULL;
	struct words words = {0};
	char file[32];
	size_t length;

	snprintf(file, sizeof(file), "fdinfo/%u", fd);
	int r = hl_proc_read_all(pid, file, &text, &length);
	if (r < 0) /* it was closed meanwhile */
		return r == -ENOMEM ? r : 0;
	for (const char *at = text; r == 0 && (at = strstr(at, " data:"));)
		r = append(&words, at += strlen(" data:"));
	if (r == 0 && words.count)
		r = visit(context, HL_KERNEL_EPOLL, fd, words.words, words.count);
	free(words.words);
	return r;
}

/* Lines for each timer: "ID: 0", "signal: 34/0000558d18a87480", and others. */
static int read_timers(pid_t pid, hl_kernel_visit *visit, void *context)
{
	HL_FREED char *text = NULL;
	uint32_t number = 0;
	size_t length;
	int r = hl_proc_read_all(pid, "timers", &text, &length);

	if (r < 0) /* the kernel may lack CONFIG_CHECKPOINT_RESTORE */
		return r == -ENOMEM ? r : 0;
	for (const char *line = text; line && r == 0;
	     line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		unsigned long long word = 0;
		sscanf(line, "ID: %u", &number);
		if (sscanf(line, "signal: %*d/%llx", &word) == 1 && word)
			r = visit(context, HL_KERNEL_TIMER, number, &(uint64_t){word}, 1);
	}
	return r;
}

static int read_descriptor(pid_t pid, DIR *directory, const char *name, hl_kernel_visit *visit,
			   void *context, bool *ret_has_io_uring)
{
	char target[64];
	ssize_t length = readlinkat(dirfd(directory), name, target, sizeof(target) - 1);

	if (length < 0)
		return 0;
	target[length] = '\0';
	if (strcmp(target, "anon_inode:[io_uring]") == 0)
		*ret_has_io_uring = true;
	if (strcmp(target, "anon_inode:[eventpoll]") != 0)
		return 0;
	return read_epoll(pid, (uint32_t)strtoul(name, NULL, 10), visit, context);
}

int hl_kernel_words_read(pid_t pid, hl_kernel_visit *visit, void *context, bool *ret_has_io_uring)
{
	const struct dirent *entry;
	char path[32];
	int r = 0;

	*ret_has_io_uring = false;
	pid = hl_proc_thread(pid);
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *directory = opendir(path);
	while (directory && r == 0 && (entry = readdir(directory)))
		r = read_descriptor(pid, directory, entry->d_name, visit, context,
				    ret_has_io_uring);
	if (directory)
		closedir(directory);
	return r == 0 ? read_timers(pid, visit, context) : r;
}
