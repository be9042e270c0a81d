/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads files of /proc/PID; see process.h. */
#include "process/process.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The least that one read of a long file is asked for; the kernel itself gives a page at a time. */
#define READ_BYTES 65536u

/* How long it is known whether the first thread has ended: whoever asks one thing of a process asks more. */
#define THREAD_KNOWN_NS (HL_NS_PER_SECOND / 1000)

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
	static _Thread_local struct {
		pid_t pid, thread;
		uint64_t until_ns;
	} last;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	if (last.pid == pid && now_ns < last.until_ns)
		return last.thread;
	last.pid = pid;
	last.thread = hl_process_state(pid) == 'Z' ? find_living(pid) : pid;
	last.until_ns = now_ns + THREAD_KNOWN_NS;
	return last.thread;
}

static bool is_one_of(const char *file, const char *const *files, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(file, files[i]) == 0)
			return true;
	return false;
}

/* Whether a thread that has ended has it no more. */
static bool is_of_memory(const char *file)
{
	static const char *const files[] = {"auxv",	    "cmdline",	 "environ",
					    "maps",	    "mountinfo", "smaps",
					    "smaps_rollup", "statm",	 "status"};

	return is_one_of(file, files, HL_COUNT_OF(files));
}

/* Whether the kernel gives as much of it as there is room for: less is all. Of others, such as maps, it gives a page at a time. */
static bool is_given_at_once(const char *file)
{
	static const char *const files[] = {"auxv", "cmdline", "comm", "stat", "status"};

	return is_one_of(file, files, HL_COUNT_OF(files));
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

int hl_proc_open_memory(pid_t pid, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/mem", hl_proc_thread(pid));
	int fd = open(path, flags | O_CLOEXEC);
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
	for (size_t asked = 0; length < capacity - 1;) {
		asked = capacity - 1 - length;
		got = read(fd, text + length, asked);
		if (got <= 0)
			break;
		length += (size_t)got;
		text[length] = '\0';
		if (drops_groups)
			length = drop_groups(text, length);
		if ((size_t)got < asked && is_given_at_once(file))
			break;
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

const char *hl_proc_access_remedy(bool enters)
{
	if (geteuid() != 0)
		return enters ? "run as root, or with the capabilities CAP_SYS_PTRACE and "
				"CAP_DAC_OVERRIDE"
			      : "run as root, or with the capabilities CAP_SYS_PTRACE and "
				"CAP_DAC_READ_SEARCH";
	return enters ? "even root may not do this here: a security policy forbids it, or this "
			"container lacks CAP_SYS_PTRACE or CAP_DAC_OVERRIDE"
		      : "even root may not do this here: a security policy forbids it, or this "
			"container lacks CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH";
}

int hl_proc_error(pid_t pid, int code, const char *what, struct hl_error *err)
{
	switch (code) {
	case -ESRCH:
		return hl_error_set(err, code, "there is no process '%d'; it may have ended", pid);
	case -EACCES:
	case -EPERM:
		return hl_error_set(err, -EACCES, "cannot read %s of process '%d': %s; %s", what,
				    pid, strerror(-code), hl_proc_access_remedy(false));
	case -ENOMEM:
		return hl_error_set(err, code, "cannot read %s of process '%d': out of memory",
				    what, pid);
	default:
		return hl_error_set(err, code, "cannot read %s of process '%d': %s", what, pid,
				    strerror(-code));
	}
}

/* ---- mountinfo ---- */

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* Undoes in place "\\040" and the like, as mountinfo writes blanks. */
static void unescape(char *text)
{
	char *to = strchrnul(text, '\\');

	for (const char *from = to; *from; to++)
		if (from[0] == '\\' && is_octal(from[1]) && is_octal(from[2]) &&
		    is_octal(from[3])) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	*to = '\0';
}

/* Copies the word at ${at} of a line, behind a blank, cut off if need be, and undoes "\\040" and the like in it. What follows it. */
static const char *take_word(const char *at, const char *end, char *word, size_t capacity)
{
	const char *first = at < end ? at + 1 : end;
	const char *behind = memchr(first, ' ', (size_t)(end - first));

	behind = behind ? behind : end;
	snprintf(word, capacity, "%.*s", (int)(behind - first), first);
	unescape(word);
	return behind;
}

/* "36 35 0:27 ROOT POINT OPTIONS [...] - TYPE SOURCE OPTIONS" */
static bool parse_mount(const char *line, const char *end, struct hl_mount *mount)
{
	char *at;

	mount->id = strtoull(line, &at, 10);
	strtoull(at, &at, 10); /* the parent's */
	mount->dev_major = (uint32_t)strtoul(at, &at, 10);
	if (*at != ':')
		return false;
	mount->dev_minor = (uint32_t)strtoul(at + 1, &at, 10);
	const char *rest = take_word(at, end, mount->root, sizeof(mount->root));
	rest = take_word(rest, end, mount->point, sizeof(mount->point));
	const char *separator = memmem(rest, (size_t)(end - rest), " - ", 3);
	if (!separator)
		return false;
	take_word(separator + 2, end, mount->type, sizeof(mount->type));
	mount->options = (const char *)memrchr(separator, ' ', (size_t)(end - separator)) + 1;
	return true;
}

bool hl_mount_next(const char **text, struct hl_mount *ret_mount)
{
	bool is_found = false;

	while (!is_found && *text && **text) {
		const char *line = *text, *end = strchrnul(line, '\n');
		is_found = parse_mount(line, end, ret_mount);
		*text = *end ? end + 1 : end;
	}
	return is_found;
}
