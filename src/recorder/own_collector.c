/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts a collector, by raw system calls; see start.h. */
#include "recorder/start.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "recorder/libc.h"
#include "recorder/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPTIONS_MAX	  48   /* words in HEAPLINE_RECORD */
#define OPTIONS_BYTES_MAX 4096 /* their text */
#define ENTRIES_MAX	  4096 /* variables that the collector inherits */

/* On a machine under load a program takes long to start. The end of a collector that cannot start
 * is seen at once. */
#define START_WAIT_S 10

/* Where the collector finds its end of the socket pair. */
#define COLLECTOR_FD 3

/* Closed one by one where there is no close_range(). */
#define DESCRIPTORS 1024

/* Beside the installed library, and in the build directory. */
static const char *const places[] = {HL_BIN_FROM_LIBDIR "/heapline", "../../heapline"};

/* What the collector is made of; in a mapping, since the stack may be small. */
struct plan {
	char *const *environment; /* the program's */
	char options[OPTIONS_BYTES_MAX];
	char *arguments[OPTIONS_MAX + 5];
	char *entries[ENTRIES_MAX + 1];
};

static void say(const char *text)
{
	HL_SYS(SYS_write, STDERR_FILENO, text, strlen(text));
}

static const char no_means[] =
	"heapline: no process or descriptor is left to start a collector for "
	"this program, which goes on unrecorded\n";

static bool split_options(struct plan *plan, const char *options)
{
	size_t count = 0;

	if (strlen(options) >= sizeof(plan->options))
		return false;
	strcpy(plan->options, options);
	plan->arguments[count++] = "heapline";
	plan->arguments[count++] = "record";
	plan->arguments[count++] = "--preloaded";
	plan->arguments[count++] = "3";
	for (char *at = plan->options; *at;) {
		if (*at == ' ') {
			*at++ = '\0';
			continue;
		}
		if (count == OPTIONS_MAX + 4)
			return false;
		plan->arguments[count++] = at;
		at += strcspn(at, " ");
	}
	return true;
}

/* What is meant for the loader of the program must not reach that of the collector. A collector that
 * the system preloads the recorder into must not start one itself. */
static void choose_entries(struct plan *plan)
{
	size_t count = 0;

	for (char *const *at = plan->environment; *at && count < ENTRIES_MAX; at++)
		if (strncmp(*at, "LD_", strlen("LD_")) != 0 &&
		    strncmp(*at, HL_ENV_RECORD "=", strlen(HL_ENV_RECORD "=")) != 0)
			plan->entries[count++] = *at;
}

/* Returns only where this fails. */
static void execute(const struct plan *plan)
{
	const char *named = hl_environment_value(plan->environment, HL_ENV_PROGRAM);
	char path[PATH_MAX + 64];

	if (named && named[0]) {
		HL_SYS(SYS_execve, named, plan->arguments, plan->entries);
		say("heapline: cannot run the program that HEAPLINE_PROGRAM names; this program "
		    "goes on unrecorded\n");
		return;
	}
	const char *own = hl_libc_own_path(), *slash = strrchr(own, '/');
	size_t directory = slash ? (size_t)(slash + 1 - own) : 0;
	for (size_t i = 0; i < HL_COUNT_OF(places) && directory < PATH_MAX; i++) {
		memcpy(path, own, directory);
		strcpy(path + directory, places[i]);
		HL_SYS(SYS_execve, path, plan->arguments, plan->entries);
	}
	say("heapline: cannot start a collector for this program, which goes on unrecorded: the "
	    "program 'heapline' is not beside the recorder; name it in HEAPLINE_PROGRAM\n");
}

/* In the grandchild: of the program's descriptors it keeps the standard error stream. */
static _Noreturn void become_collector(struct plan *plan, int fd)
{
	HL_SYS(SYS_setsid, 0, 0, 0);
	if (fd == COLLECTOR_FD)
		HL_SYS(SYS_fcntl, fd, F_SETFD, 0);
	else
		HL_SYS(SYS_dup3, fd, COLLECTOR_FD, 0);
	/* In a program without a standard error stream this may be its number. */
	if (fd < COLLECTOR_FD)
		hl_sys_close(fd);
	if (HL_SYS(SYS_close_range, COLLECTOR_FD + 1, ~0U, 0) < 0)
		for (int other = COLLECTOR_FD + 1; other < DESCRIPTORS; other++)
			hl_sys_close(other);
	hl_sys_close(STDIN_FILENO);
	hl_sys_close(STDOUT_FILENO); /* heapline puts /dev/null there */
	if (split_options(plan, hl_environment_value(plan->environment, HL_ENV_RECORD))) {
		choose_entries(plan);
		execute(plan);
	} else {
		say("heapline: HEAPLINE_RECORD has more than 48 words or 4,095 bytes; this program "
		    "goes on unrecorded\n");
	}
	HL_SYS(SYS_exit_group, 1, 0, 0);
	__builtin_unreachable();
}

/* Returns when the child between the program and the collector has ended. */
static bool fork_twice(struct plan *plan, int own_fd, int collector_fd)
{
	long child = HL_SYS(SYS_clone, SIGCHLD, 0, 0);

	if (child == 0) {
		hl_sys_close(own_fd);
		long grandchild = HL_SYS(SYS_clone, SIGCHLD, 0, 0);
		if (grandchild == 0)
			become_collector(plan, collector_fd);
		if (grandchild < 0)
			say(no_means);
		HL_SYS(SYS_exit_group, 0, 0, 0);
	}
	if (child < 0) {
		say(no_means);
		return false;
	}
	/* Where the program was started with SIGCHLD ignored, it waits all the same. */
	while (hl_sys6(SYS_wait4, child, 0, 0, 0, 0, 0) == -EINTR)
		;
	return true;
}

static bool receive(int fd, struct hl_invitation *ret_invitation)
{
	const struct timeval wait = {START_WAIT_S, 0};
	uint64_t deadline_ns = hl_clock_ns(HL_SYS_CLOCK) + START_WAIT_S * HL_NS_PER_SECOND;
	struct hl_invitation invitation;
	long size;

	hl_sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&wait, sizeof(wait), 0);
	do {
		size = HL_SYS(SYS_read, fd, &invitation, sizeof(invitation));
	} while (size == -EINTR && hl_clock_ns(HL_SYS_CLOCK) < deadline_ns);
	if (size != sizeof(invitation))
		return false;
	invitation.socket[sizeof(invitation.socket) - 1] = '\0';
	invitation.token[sizeof(invitation.token) - 1] = '\0';
	*ret_invitation = invitation;
	return true;
}

bool hl_own_collector_start(char *const *environment, struct hl_invitation *ret_invitation)
{
	struct plan *plan;
	int pair[2];

	/* With more rights than its caller, a program must not run what the caller names. */
	if (!hl_environment_value(environment, HL_ENV_RECORD) || getauxval(AT_SECURE))
		return false;
	plan = hl_sys_mmap(sizeof(*plan), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (!plan)
		return false;
	bool received = false;
	plan->environment = environment;
	if (hl_sys6(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, (long)pair, 0, 0) <
	    0) {
		say(no_means);
	} else {
		bool forked = fork_twice(plan, pair[0], pair[1]);
		hl_sys_close(pair[1]);
		received = forked && receive(pair[0], ret_invitation);
		hl_sys_close(pair[0]);
	}
	hl_sys_munmap(plan, sizeof(*plan));
	return received;
}
