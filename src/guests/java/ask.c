/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Has a Java virtual machine write the names of its code, by HotSpot's way to attach: see "Attach API" of the JDK's tools,
 * and java.h. The words of a request end with zero bytes: version, command, and three arguments.
 */
#include "guests/java/java.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "recording/recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_MAX_BYTES 48
#define LIMIT_NS       (4 * HL_NS_PER_SECOND)

static const char request[] = "1\0jcmd\0Compiler.perfmap\0\0";
static const struct timespec pause_between = {.tv_nsec = 20000000};

/* Whether ${matches} holds for a line of the file ${name} of the process, or for a word that ends with ${delimiter}. */
static bool has_line(pid_t pid, const char *name, int delimiter,
		     bool (*matches)(const char *line, const char *with), const char *with)
{
	char path[96], *line = NULL;
	size_t capacity = 0;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	FILE *file = fopen(path, "re");
	for (ssize_t n; file && !found && (n = getdelim(&line, &capacity, delimiter, file)) > 0;) {
		line[n - 1] = line[n - 1] == delimiter ? '\0' : line[n - 1];
		found = matches(line, with);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

static bool begins_with(const char *line, const char *with)
{
	return !strncasecmp(line, with, strlen(with));
}

static bool is_same(const char *line, const char *with)
{
	return !strcmp(line, with);
}

static bool maps_file(const char *line, const char *with)
{
	const char *path = strchr(line, '/');

	return path && !strcmp(path, with);
}

static bool catches_quit(const char *line, const char *with)
{
	return begins_with(line, with) &&
	       strtoull(line + strlen(with), NULL, 16) & UINT64_C(1) << (SIGQUIT - 1);
}

/* Whether an option says that it does not listen, or may lie in a file: then the signal would have it print all stacks. */
static bool is_forbidding(const char *word, const char *variable)
{
	static const char *const options[] = {"-XX:+DisableAttachMechanism", "-Xrs",
					      "-XX:+ReduceSignalUsage",
					      "-XX:Flags=", "-XX:VMOptionsFile="};

	for (size_t i = 0; i < HL_COUNT_OF(options); i++)
		if (strstr(word, options[i]))
			return true;
	return word[0] == '@' || (begins_with(word, variable) && strchr(word, '@'));
}

/* Whether the JDK's own launcher runs its own machine now. Any other program may have made SIGQUIT its own since. */
static bool is_launcher(pid_t pid)
{
	static const char *const machines[] = {"/lib/server/libjvm.so", "/lib/libjvm.so"};
	static const char program[] = "/bin/java";
	char link[64], path[PATH_MAX];
	bool is_mapped = false;

	/* As in maps, this is the real path in the process' root. */
	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	ssize_t n = readlink(link, path, sizeof(path));
	size_t home = n < 0 ? 0 : (size_t)n;
	if (home < sizeof(program) ||
	    memcmp(path + home - (sizeof(program) - 1), program, sizeof(program) - 1))
		return false;
	home -= sizeof(program) - 1;
	for (size_t i = 0; i < HL_COUNT_OF(machines) && !is_mapped; i++) {
		int length = snprintf(path + home, sizeof(path) - home, "%s", machines[i]);
		is_mapped = length < (int)(sizeof(path) - home) &&
			    has_line(pid, "maps", '\n', maps_file, path);
	}
	return is_mapped;
}

/* Whether the thread of HotSpot that SIGQUIT is for runs. */
static bool has_dispatcher(pid_t pid)
{
	char path[64];
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *tasks = opendir(path);
	for (struct dirent *entry; tasks && !found && (entry = readdir(tasks));) {
		snprintf(path, sizeof(path), "task/%.20s/comm", entry->d_name);
		found = has_line(pid, path, '\n', is_same, "Signal Dispatch");
	}
	if (tasks)
		closedir(tasks);
	return found;
}

/* A connection to the machine itself, and not to whoever has made a socket of that name. A descriptor or a negative errno. */
static int connect_to(const struct hl_code_writer *writer, uint64_t end_ns)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t length = sizeof(peer);
	HL_CLOSED int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/.java_pid%u",
		 writer->directory_fd, writer->pid_inside);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		/* EAGAIN: others wait to be accepted. */
		if (errno != EAGAIN || hl_clock_ns(CLOCK_MONOTONIC) >= end_ns)
			return -errno;
		nanosleep(&pause_between, NULL);
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.pid != writer->pid)
		return -EPERM;
	int connected = fd;
	fd = -1;
	return connected;
}

/* The file that tells the machine what SIGQUIT is for. One that an ended heapline or jcmd has left is replaced. */
static int make_mark(const struct hl_code_writer *writer, const char *name)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	struct stat status;
	int mark = openat(writer->directory_fd, name, flags, 0600);

	if (mark < 0 && errno == EEXIST) {
		if (fstatat(writer->directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(status.st_mode) &&
		    (status.st_uid == writer->uid || status.st_uid == geteuid()))
			unlinkat(writer->directory_fd, name, 0);
		mark = openat(writer->directory_fd, name, flags, 0600);
	}
	return mark < 0 ? -errno : mark;
}

static bool does_not_listen(int fd)
{
	return fd == -ENOENT || fd == -ECONNREFUSED;
}

/* Has the machine begin to listen. A descriptor or a negative errno. */
static int wake(const struct hl_code_writer *writer, uint64_t end_ns)
{
	char name[NAME_MAX_BYTES];
	int fd;

	snprintf(name, sizeof(name), ".attach_pid%u", writer->pid_inside);
	HL_CLOSED int mark = make_mark(writer, name);
	if (mark < 0)
		return mark;
	/* A machine in a namespace of users does not know ours. */
	(void)!fchown(mark, writer->uid, (gid_t)-1);
	int r = syscall(SYS_pidfd_send_signal, writer->pidfd, SIGQUIT, NULL, 0) < 0 ? -errno : 0;
	while (does_not_listen(fd = r < 0 ? r : connect_to(writer, end_ns)) &&
	       hl_clock_ns(CLOCK_MONOTONIC) < end_ns)
		nanosleep(&pause_between, NULL);
	unlinkat(writer->directory_fd, name, 0);
	return does_not_listen(fd) ? -ETIMEDOUT : fd;
}

/* Sends the request and reads the answer up to its end. Its first line is a status. */
static int ask(int fd, uint64_t end_ns, struct hl_error *err)
{
	char answer[256];
	size_t got = 0;
	ssize_t n = send(fd, request, sizeof(request), MSG_NOSIGNAL);

	while (n > 0 && got < sizeof(answer) - 1) {
		struct pollfd poller = {fd, POLLIN, 0};
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		if (now_ns >= end_ns || poll(&poller, 1, (int)((end_ns - now_ns) / 1000000)) <= 0)
			return hl_error_set(err, -ETIMEDOUT, "it has not answered");
		n = recv(fd, answer + got, sizeof(answer) - 1 - got, 0);
		got += n > 0 ? (size_t)n : 0;
	}
	answer[got] = '\0';
	if (strtol(answer, NULL, 10) == 0 && answer[0] == '0')
		return 0;
	char *why = strchr(answer, '\n');
	if (why)
		why[1 + strcspn(why + 1, "\n")] = '\0';
	return hl_error_set(err, -ENOTSUP, "it answered: %s", why ? why + 1 : "nothing");
}

int hl_java_write_names(const struct hl_code_writer *writer, struct hl_error *err)
{
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + LIMIT_NS;
	pid_t pid = writer->pid;

	/* It would do as asked when it goes on: nobody then waits for that. */
	if (has_line(pid, "status", '\n', begins_with, "State:\tT"))
		return hl_error_set(err, -ENOTSUP, "it is stopped");
	HL_CLOSED int fd = connect_to(writer, end_ns);
	if (does_not_listen(fd)) {
		if (!is_launcher(pid) || !has_dispatcher(pid) ||
		    !has_line(pid, "status", '\n', catches_quit, "SigCgt:"))
			return hl_error_set(err, -ENOTSUP, "SIGQUIT may mean something else to it");
		if (has_line(pid, "cmdline", '\0', is_forbidding, "JDK_JAVA_OPTIONS=") ||
		    has_line(pid, "environ", '\0', is_forbidding, "JDK_JAVA_OPTIONS="))
			return hl_error_set(err, -ENOTSUP,
					    "it may have been started so that nobody can ask it");
		fd = wake(writer, end_ns);
	}
	if (fd < 0)
		return hl_error_set(err, fd, "it cannot be asked: %s", strerror(-fd));
	return ask(fd, end_ns, err);
}
