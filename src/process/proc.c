/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads files of /proc/PID; see process.h. */
#include "process/process.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The least that one read of a long file is asked for; the kernel itself gives a page at a time. */
#define READ_BYTES 65536u

static pid_t find_living(pid_t pid)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;

	hl_process_threads(pid, &tids, &count);
	for (size_t i = 0; i < count; i++)
		if (!hl_process_has_ended(tids[i]))
			return tids[i];
	return pid;
}

pid_t hl_proc_thread(pid_t pid)
{
	return hl_process_state(pid) == 'Z' ? find_living(pid) : pid;
}

/* Whether a thread that has ended has it no more. */
static bool is_of_memory(const char *file)
{
	static const char *const files[] = {"auxv",	 "cmdline", "environ",	    "maps",
					    "mountinfo", "smaps",   "smaps_rollup", "status"};

	for (size_t i = 0; i < HL_COUNT_OF(files); i++)
		if (strcmp(file, files[i]) == 0)
			return true;
	return false;
}

static int open_file(pid_t pid, const char *file)
{
	char path[64];

	if (is_of_memory(file))
		pid = hl_proc_thread(pid);
	int length = snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	if (length >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : -errno;
}

/* Empties the line of groups as far as it has been read; the new length. */
static size_t drop_groups(char *text, size_t length)
{
	char *line = strstr(text, "\nGroups:");

	if (!line)
		return length;
	char *groups = line + strlen("\nGroups:"), *end = strchrnul(groups, '\n');
	memmove(groups, end, strlen(end) + 1);
	return length - (size_t)(end - groups);
}

static ssize_t read_file(pid_t pid, const char *file, bool drops_groups, char *text,
			 size_t capacity)
{
	HL_CLOSED int fd = open_file(pid, file);

	if (fd < 0)
		return fd;
	size_t length = 0;
	ssize_t got = 0;
	text[0] = '\0';
	while (length < capacity - 1 &&
	       (got = read(fd, text + length, capacity - 1 - length)) > 0) {
		length += (size_t)got;
		text[length] = '\0';
		if (drops_groups)
			length = drop_groups(text, length);
	}
	return got < 0 ? -errno : (ssize_t)length;
}

ssize_t hl_proc_read(pid_t pid, const char *file, char *text, size_t capacity)
{
	return read_file(pid, file, false, text, capacity);
}

ssize_t hl_proc_read_status(pid_t pid, char *text, size_t capacity)
{
	return read_file(pid, "status", true, text, capacity);
}

int hl_proc_read_open(int fd, char **ret_text, size_t *ret_length)
{
	HL_FREED char *text = NULL;
	size_t capacity = 0, length = 0;
	ssize_t got = 1;

	while (got > 0) {
		if (HL_ARRAY_RESERVE(text, capacity, length + READ_BYTES) < 0)
			return -ENOMEM;
		got = read(fd, text + length, capacity - length - 1);
		if (got < 0)
			return -errno;
		length += (size_t)got;
	}
	text[length] = '\0';
	*ret_length = length;
	*ret_text = HL_TAKE(text);
	return 0;
}

int hl_proc_read_all(pid_t pid, const char *file, char **ret_text, size_t *ret_length)
{
	HL_CLOSED int fd = open_file(pid, file);

	return fd < 0 ? fd : hl_proc_read_open(fd, ret_text, ret_length);
}

const char *hl_proc_access_remedy(void)
{
	return geteuid() == 0 ? "even root may not do this here: a security policy forbids it, or "
				"this container lacks the capability CAP_SYS_PTRACE"
			      : "run as root, or with the capability CAP_SYS_PTRACE";
}

int hl_proc_error(pid_t pid, int code, const char *what, struct hl_error *err)
{
	switch (code) {
	case -ESRCH:
		return hl_error_set(err, code, "there is no process '%d'; it may have ended", pid);
	case -EACCES:
	case -EPERM:
		return hl_error_set(err, -EACCES, "cannot read %s of process '%d': %s; %s", what,
				    pid, strerror(-code), hl_proc_access_remedy());
	case -ENOMEM:
		return hl_error_set(err, code, "cannot read %s of process '%d': out of memory",
				    what, pid);
	default:
		return hl_error_set(err, code, "cannot read %s of process '%d': %s", what, pid,
				    strerror(-code));
	}
}

void hl_proc_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		unsigned byte;
		if (sscanf(from, "\\%3o", &byte) == 1) {
			*to = (char)byte;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}
