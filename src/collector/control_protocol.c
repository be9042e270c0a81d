/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests as lines and back, sockets and their directory, and who asks there; see control_ask.h. */
#include "collector/control_ask.h"

#include "base/array.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define GREETING "heapline/1 "

/* The words of modes fit, and some more for the sentence about a wrong one. */
#define NAME_SHOWN_MAX 64

static int check_mode(struct hl_control_request *request, struct hl_error *err)
{
	for (int word = 0; hl_mode_names[word]; word++)
		if (strcmp(request->argument, hl_mode_names[word]) == 0) {
			request->mode = hl_mode_of_word(word);
			return 0;
		}
	return hl_error_set(
		err, -EINVAL,
		"there is no mode '%.*s'; choose closed (or off), mem-record, mem-fast, "
		"log-record or log-fast",
		NAME_SHOWN_MAX, request->argument);
}

static int check_mark(struct hl_control_request *request, struct hl_error *err)
{
	int length = hl_mark_length(request->argument);

	if (length == -ENAMETOOLONG)
		return hl_error_set(err, -EINVAL,
				    "the name of the mark is too long; use at most %d bytes",
				    HL_MARK_MAX);
	if (length < 0)
		return hl_error_set(err, -EINVAL,
				    "the name of the mark is empty or has control characters; use "
				    "one line of plain text");
	return 0;
}

static int check_path(struct hl_control_request *request, struct hl_error *err)
{
	if (request->argument[0] == '/')
		return 0;
	return hl_error_set(err, -EINVAL, "the path of a snapshot must be absolute in a request");
}

static int check_segments(struct hl_control_request *request, struct hl_error *err)
{
	const char *text = request->argument;

	size_t length = strlen(text);
	if (length && length < 10 && strspn(text, "0123456789") == length)
		request->segments = (uint32_t)strtoul(text, NULL, 10);
	if (request->segments && request->segments <= HL_LOG_SEGMENTS_MAX)
		return 0;
	return hl_error_set(err, -EINVAL, "cannot keep '%.*s' segments; give a number from 1 to %u",
			    NAME_SHOWN_MAX, text, HL_LOG_SEGMENTS_MAX);
}

static int check_number(struct hl_control_request *request, struct hl_error *err)
{
	const char *text = request->argument;

	if (strspn(text, "0123456789") == strlen(text) && strlen(text) < 16)
		return 0;
	return hl_error_set(err, -EINVAL, "'%.*s' is not a number; give one, or nothing",
			    NAME_SHOWN_MAX, text);
}

static const struct {
	const char *name;
	int (*check)(struct hl_control_request *request,
		     struct hl_error *err); /* NULL: it takes no argument */
} verbs[HL_CONTROL_VERBS] = {
	[HL_CONTROL_FIND] = {"find", NULL},
	[HL_CONTROL_STATUS] = {"status", NULL},
	[HL_CONTROL_MODE] = {"mode", check_mode},
	[HL_CONTROL_MARK] = {"mark", check_mark},
	[HL_CONTROL_SNAPSHOT] = {"snapshot", check_path},
	[HL_CONTROL_REPLACE] = {"replace-snapshot", check_path},
	[HL_CONTROL_SEGMENTS] = {"log-segments", check_segments},
	[HL_CONTROL_RESET] = {"reset", NULL},
	[HL_CONTROL_ALLOCATOR] = {"ask-allocator", NULL},
	[HL_CONTROL_DETACH] = {"detach", NULL},
	[HL_CONTROL_LINES] = {"lines", check_number},
	[HL_CONTROL_TIMES] = {"times", check_number},
	[HL_CONTROL_LEAKS] = {"leaks", NULL},
};

int hl_control_protocol_check(struct hl_control_request *request, struct hl_error *err)
{
	request->segments = 0;
	request->mode = HL_MODE_CLOSED;
	if (verbs[request->verb].check)
		return verbs[request->verb].check(request, err);
	if (request->argument[0] == '\0')
		return 0;
	return hl_error_set(err, -EINVAL, "'%s' takes no argument", verbs[request->verb].name);
}

/* ---- lines ---- */

/* The part of a line that has not been read. */
struct rest {
	const char *at, *end;
};

static bool skip(struct rest *rest, const char *text)
{
	size_t length = strlen(text);

	if ((size_t)(rest->end - rest->at) < length || memcmp(rest->at, text, length) != 0)
		return false;
	rest->at += length;
	return true;
}

/* The next word, up to a space or the end; the space is skipped. */
static struct rest next_word(struct rest *rest)
{
	struct rest word = *rest;
	const char *space = memchr(rest->at, ' ', (size_t)(rest->end - rest->at));

	word.end = space ? space : rest->end;
	rest->at = space ? space + 1 : rest->end;
	return word;
}

static bool read_verb(struct rest word, enum hl_control_verb *ret_verb)
{
	for (enum hl_control_verb verb = 0; verb < HL_CONTROL_VERBS; verb++) {
		struct rest left = word;
		if (skip(&left, verbs[verb].name) && left.at == left.end) {
			*ret_verb = verb;
			return true;
		}
	}
	return false;
}

static bool read_pid(struct rest word, pid_t *ret_pid)
{
	int64_t pid = 0;

	if (word.at == word.end)
		return false;
	for (; word.at < word.end; word.at++) {
		if (*word.at < '0' || *word.at > '9')
			return false;
		pid = pid * 10 + (*word.at - '0');
		if (pid > INT32_MAX)
			return false;
	}
	*ret_pid = (pid_t)pid;
	return true;
}

int hl_control_protocol_parse(const char *line, size_t size, struct hl_control_request *ret_request,
			      struct hl_error *err)
{
	struct rest rest = {line, line + size};

	if (memchr(line, '\0', size) || memchr(line, '\n', size) || !skip(&rest, GREETING))
		return hl_error_set(err, -EINVAL,
				    "the request is not one of this version of heapline; ask with "
				    "the heapline that records");
	if (!read_verb(next_word(&rest), &ret_request->verb))
		return hl_error_set(err, -EINVAL, "the request has a verb that is not known here");
	if (!read_pid(next_word(&rest), &ret_request->pid))
		return hl_error_set(err, -EINVAL, "the request names no process");
	size_t length = (size_t)(rest.end - rest.at);
	if (length >= sizeof(ret_request->argument))
		return hl_error_set(err, -EINVAL, "the request is too long");
	memcpy(ret_request->argument, rest.at, length);
	ret_request->argument[length] = '\0';
	return hl_control_protocol_check(ret_request, err);
}

size_t hl_control_protocol_format(const struct hl_control_request *request,
				  char line[HL_CONTROL_LINE_MAX])
{
	const char *space = request->argument[0] ? " " : "";

	return (size_t)snprintf(line, HL_CONTROL_LINE_MAX, GREETING "%s %d%s%s\n",
				verbs[request->verb].name, request->pid, space, request->argument);
}

const char *hl_control_protocol_change(const struct hl_control_request *request)
{
	static const uint32_t reads = 1u << HL_CONTROL_FIND | 1u << HL_CONTROL_STATUS |
				      1u << HL_CONTROL_SNAPSHOT | 1u << HL_CONTROL_REPLACE |
				      1u << HL_CONTROL_LINES | 1u << HL_CONTROL_TIMES |
				      1u << HL_CONTROL_LEAKS;

	return reads >> request->verb & 1 ? NULL : verbs[request->verb].name;
}

/* ---- the directory of sockets ---- */

#define NAME_BYTES 32
#define BACKLOG	   16

/* The directory ${name} within ${base_fd}, if it is private to ${uid}. */
static int open_private(int base_fd, const char *name, uid_t uid, bool make)
{
	bool made = make && mkdirat(base_fd, name, 0700) == 0;

	int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR ? -EPERM : -errno;
	/* A umask may have taken from our own permissions. */
	struct stat status;
	if ((made && fchmod(fd, 0700) < 0) || fstat(fd, &status) < 0 || status.st_uid != uid ||
	    (status.st_mode & 07777) != 0700) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* A user's own runtime directory. It is kept as it is: another user's (as sudo may leave it in the
 * environment) must not get a directory of ours. */
static int open_in_runtime_dir(const char *path, uid_t uid, bool make)
{
	struct stat status;

	int base_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base_fd < 0)
		return -errno;
	int r = -EPERM;
	if (fstat(base_fd, &status) == 0 && status.st_uid == uid)
		r = open_private(base_fd, "heapline", uid, make);
	close(base_fd);
	return r;
}

static int open_place(unsigned place, uid_t uid, bool make)
{
	char path[64];
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	switch (place) {
	case HL_CONTROL_IN_RUNTIME_DIR:
		if (!runtime || runtime[0] != '/' || uid != geteuid())
			return -ENOENT;
		return open_in_runtime_dir(runtime, uid, make);
	case HL_CONTROL_IN_RUN_USER:
		snprintf(path, sizeof(path), "/run/user/%u", uid);
		return open_in_runtime_dir(path, uid, make);
	default:
		snprintf(path, sizeof(path), "/tmp/heapline-%u", uid);
		return open_private(AT_FDCWD, path, uid, make);
	}
}

int hl_control_directory_open(unsigned place, uid_t uid)
{
	return open_place(place, uid, false);
}

int hl_control_directory_make(void)
{
	int fd = -ENOENT;

	for (unsigned place = 0; fd < 0 && place < HL_CONTROL_PLACES; place++)
		fd = open_place(place, geteuid(), true);
	return fd;
}

/* ---- sockets ---- */

/* The process that the socket ${name} belongs to; 0: it is not a socket's name. */
static pid_t pid_of_name(const char *name)
{
	char expected[NAME_BYTES];

	long pid = strtol(name, NULL, 10);
	if (pid <= 0 || pid > INT32_MAX)
		return 0;
	snprintf(expected, sizeof(expected), "%ld.sock", pid);
	return strcmp(name, expected) == 0 ? (pid_t)pid : 0;
}

int hl_control_directory_list(int directory_fd, pid_t **ret_pids, size_t *ret_count)
{
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	pid_t *pids = NULL;
	size_t count = 0, capacity = 0;
	int r = 0;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));) {
		pid_t pid = pid_of_name(entry->d_name);
		if (pid)
			r = HL_ARRAY_APPEND(pids, count, capacity, pid);
	}
	closedir(stream);
	if (r < 0) {
		free(pids);
		return r;
	}
	*ret_pids = pids;
	*ret_count = count;
	return 0;
}

static void remove_name(int directory_fd, pid_t pid)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%d.sock", pid);
	unlinkat(directory_fd, name, 0);
}

void hl_control_directory_remove(int directory_fd)
{
	remove_name(directory_fd, getpid());
}

void hl_control_directory_clean(int directory_fd)
{
	pid_t *pids;
	size_t count;

	if (hl_control_directory_list(directory_fd, &pids, &count) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		int fd = hl_control_directory_connect(directory_fd, pids[i]);
		if (fd >= 0)
			close(fd);
		else if (fd == -ECONNREFUSED)
			remove_name(directory_fd, pids[i]);
	}
	free(pids);
}

/* The path goes by way of the descriptor: it fits whatever the directory's name is, and nobody can
 * put another directory in its place. */
static struct sockaddr_un address_of(int directory_fd, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory_fd,
		 name);
	return address;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

int hl_control_directory_listen(int directory_fd)
{
	char before[NAME_BYTES], name[NAME_BYTES];

	snprintf(before, sizeof(before), ".%d.new", getpid());
	snprintf(name, sizeof(name), "%d.sock", getpid());
	int fd = new_socket();
	if (fd < 0)
		return fd;
	/* Under another name until it listens, so that under its own name a socket that refuses is
	 * one of the dead. */
	struct sockaddr_un address = address_of(directory_fd, before);
	unlinkat(directory_fd, before, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    fchmodat(directory_fd, before, 0600, 0) == 0 && listen(fd, BACKLOG) == 0 &&
	    renameat2(directory_fd, before, directory_fd, name, RENAME_NOREPLACE) == 0)
		return fd;
	int r = -errno;
	unlinkat(directory_fd, before, 0);
	close(fd);
	return r;
}

int hl_control_directory_connect(int directory_fd, pid_t pid)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%d.sock", pid);
	struct sockaddr_un address = address_of(directory_fd, name);
	int fd = new_socket();
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	int r = -errno;
	close(fd);
	return r;
}

/* ---- clients ---- */

/* A request is one line of a program that is on the same machine, an answer is read by one. */
#define PATIENCE_NS (5 * HL_NS_PER_SECOND)

static const char no_memory[] = "{\"error\":\"the collector is out of memory\"}\n";

static void be_patient(struct hl_control_client *client)
{
	client->deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
}

void hl_control_client_begin(struct hl_control_client *client, int fd, pid_t pid)
{
	client->state = HL_CLIENT_ASKING;
	client->fd = fd;
	client->pid = pid;
	client->size = client->sent = 0;
	client->answer = NULL;
	be_patient(client);
}

void hl_control_client_end(struct hl_control_client *client)
{
	if (client->state == HL_CLIENT_NONE)
		return;
	close(client->fd);
	free(client->answer);
	client->answer = NULL;
	client->state = HL_CLIENT_NONE;
}

int hl_control_client_read(struct hl_control_client *client, struct hl_control_request *ret_request,
			   struct hl_error *err)
{
	ssize_t size = recv(client->fd, client->line + client->size,
			    sizeof(client->line) - client->size, MSG_DONTWAIT);

	if (size < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
	if (size == 0)
		return -EPIPE;
	client->size += (size_t)size;
	const char *end = memchr(client->line, '\n', client->size);
	if (end == client->line + client->size - 1)
		return hl_control_protocol_parse(client->line, client->size - 1, ret_request, err);
	if (end)
		return hl_error_set(err, -EINVAL, "the request is more than one line");
	if (client->size == sizeof(client->line))
		return hl_error_set(err, -EINVAL, "the request is too long");
	return -EAGAIN;
}

void hl_control_client_answer(struct hl_control_client *client, char *answer)
{
	client->answer = answer;
	client->state = HL_CLIENT_ANSWERED;
	be_patient(client);
}

bool hl_control_client_send(struct hl_control_client *client)
{
	const char *answer = client->answer ? client->answer : no_memory;
	size_t left = strlen(answer + client->sent);

	ssize_t size = send(client->fd, answer + client->sent, left, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (size < 0)
		return errno != EAGAIN && errno != EINTR;
	client->sent += (size_t)size;
	return (size_t)size == left;
}
