/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Has a Java virtual machine write the names of its code, by HotSpot's way to attach: see "Attach API" of the JDK's tools,
 * and java.h. The words of a request end with zero bytes: version, command, and three arguments.
 */
#include "guests/java/java.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_MAX_BYTES 48
#define LISTEN_NS      (2 * HL_NS_PER_SECOND)
#define ANSWER_MS      2000

static const char request[] = "1\0jcmd\0Compiler.perfmap\0\0";

/* Whether a thread that handles SIGQUIT runs: without one the signal would end the process. */
static bool catches_quit(pid_t pid)
{
	char path[64], text[4096];
	HL_CLOSED int fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	const char *line = strstr(text, "\nSigCgt:");
	return line && strtoull(line + 8, NULL, 16) & UINT64_C(1) << (SIGQUIT - 1);
}

/* Whether its command or the options of its environment say that it does not listen: then the signal would have it print all stacks. */
static bool is_forbidden(pid_t pid)
{
	static const char *const files[] = {"cmdline", "environ"};
	static const char *const options[] = {"-XX:+DisableAttachMechanism", "-Xrs",
					      "-XX:+ReduceSignalUsage"};
	bool found = false;

	for (size_t i = 0; i < HL_COUNT_OF(files) && !found; i++) {
		char path[64];
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
		FILE *file = fopen(path, "re");
		char *word = NULL;
		size_t capacity = 0;
		while (file && !found && getdelim(&word, &capacity, '\0', file) > 0)
			for (size_t k = 0; k < HL_COUNT_OF(options); k++)
				found |= strstr(word, options[k]) != NULL;
		free(word);
		if (file)
			fclose(file);
	}
	return found;
}

/* A connection to the machine itself, and not to whoever has made a socket of that name. A descriptor or a negative errno. */
static int connect_to(const struct hl_code_writer *writer)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t length = sizeof(peer);
	HL_CLOSED int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/.java_pid%u",
		 writer->directory_fd, writer->pid_inside);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.pid != writer->pid)
		return -EPERM;
	int connected = fd;
	fd = -1;
	return connected;
}

/* Has the machine begin to listen. A descriptor or a negative errno. */
static int wake(const struct hl_code_writer *writer)
{
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + LISTEN_NS;
	const struct timespec pause = {.tv_nsec = 20000000};
	char name[NAME_MAX_BYTES];
	int fd;

	snprintf(name, sizeof(name), ".attach_pid%u", writer->pid_inside);
	HL_CLOSED int mark = openat(writer->directory_fd, name,
				    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (mark < 0)
		return -errno;
	/* A machine in a namespace of users does not know ours. */
	(void)!fchown(mark, writer->uid, (gid_t)-1);
	int r = syscall(SYS_pidfd_send_signal, writer->pidfd, SIGQUIT, NULL, 0) < 0 ? -errno : 0;
	while ((fd = r < 0 ? r : connect_to(writer)) < 0 && r == 0 &&
	       hl_clock_ns(CLOCK_MONOTONIC) < end_ns)
		nanosleep(&pause, NULL);
	unlinkat(writer->directory_fd, name, 0);
	return fd == -ENOENT || fd == -ECONNREFUSED ? -ETIMEDOUT : fd;
}

/* Sends the request and reads the answer up to its end. Its first line is a status. */
static int ask(int fd, struct hl_error *err)
{
	char answer[256];
	size_t got = 0;
	ssize_t n = send(fd, request, sizeof(request), MSG_NOSIGNAL);

	while (n > 0 && got < sizeof(answer) - 1) {
		struct pollfd poller = {fd, POLLIN, 0};
		if (poll(&poller, 1, ANSWER_MS) <= 0)
			return hl_error_set(err, -ETIMEDOUT, "it has not answered");
		n = recv(fd, answer + got, sizeof(answer) - 1 - got, 0);
		got += n > 0 ? (size_t)n : 0;
	}
	answer[got] = '\0';
	if (strtol(answer, NULL, 10) == 0 && answer[0] == '0')
		return 0;
	const char *why = strchr(answer, '\n');
	answer[strcspn(answer, "\n") + 1 + (why ? strcspn(why + 1, "\n") : 0)] = '\0';
	return hl_error_set(err, -ENOTSUP, "it answered: %s", why ? why + 1 : "nothing");
}

int hl_java_write_names(const struct hl_code_writer *writer, struct hl_error *err)
{
	HL_CLOSED int fd = connect_to(writer);

	if (fd < 0 && !catches_quit(writer->pid))
		return hl_error_set(err, -ENOTSUP, "it does not catch SIGQUIT");
	if (fd < 0 && is_forbidden(writer->pid))
		return hl_error_set(err, -ENOTSUP, "it was started so that nobody can ask it");
	if (fd < 0)
		fd = wake(writer);
	if (fd < 0)
		return hl_error_set(err, fd, "it cannot be asked: %s", strerror(-fd));
	return ask(fd, err);
}
