/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starts a program as if heapline were not there, and stands between it and the world until it
 * ends: signals, job control, exit status.
 */
#pragma once

#include "base/error.h"
#include "collector/collector.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct hl_launch {
	pid_t pid;     /* of the program */
	int go_fd;     /* a byte into it lets the program begin */
	int result_fd; /* the errno of a failed exec comes out of it */
	int signal_fd;
	sigset_t mask; /* as it was, for the program */
	bool wait;     /* for its descendants, too */
};

/*
 * Gives descriptors 0, 1 and 2 a place when they are closed, so that nothing of ours, least of all
 * a file of the recording, takes their numbers. The program finds them closed all the same.
 */
void hl_launch_guard_standard_streams(void);

/*
 * Forks. The child waits for hl_launch_go; from here on heapline catches the signals that it will
 * forward. ${environment} is the program's. ${wait}: supervision goes on until all descendants have
 * ended, and those whose parents are gone become heapline's children.
 */
int hl_launch_init(struct hl_launch *launch, char **argv, char **environment, bool wait,
		   struct hl_error *err);

/* Lets the program begin. 0, or the negative errno of its exec; the child has then ended. */
int hl_launch_go(struct hl_launch *launch);

/*
 * Serves ${collector} until the program and those that are to be waited for have ended; SIGINT,
 * SIGTERM, SIGHUP or SIGQUIT end the wait for the latter.
 * Returns the program's exit status, or 128 plus the signal that ended it.
 */
int hl_launch_supervise(struct hl_launch *launch, struct hl_collector *collector);

/* For hl_launch_serve(), before the program runs, and hl_launch_attend(): SIGTERM and the like wait
 * until they are looked at, and a write to a closed pipe or past a file size limit is an error. */
void hl_launch_defer_signals(void);

/* Tells the recorder at the other end of socket ${fd}, which started us, how to reach ${collector}.
 * False when it waits no more. */
bool hl_launch_invite(int fd, const struct hl_collector *collector);

/*
 * Serves ${collector} for a program that another started, until descriptor ${pidfd} says that it has
 * ended, and with ${wait} until no recorded process runs. SIGTERM and the like are for the program,
 * which a service manager ends together with us; while only its descendants run, they end the wait.
 * 0 or a negative errno.
 */
int hl_launch_serve(struct hl_collector *collector, int pidfd, bool wait);

/*
 * Serves ${collector} for processes that ran before it, until none runs any more, a signal such as
 * SIGINT asks for the end, 'heapline ctl detach' does, or it is ${end_ns} (CLOCK_MONOTONIC,
 * UINT64_MAX: never). 0 or a negative errno. After hl_launch_defer_signals().
 */
int hl_launch_attend(struct hl_collector *collector, uint64_t end_ns);

/* Ends a child that still waits; closes what is open. */
void hl_launch_release(struct hl_launch *launch);

/* ---- the recorder and the environment ---- */

/* What heapline preloads. */
enum hl_preload_library {
	HL_PRELOAD_RECORDER, /* libheapline.so */
	HL_PRELOAD_TAGS,     /* libheapline-tags.so */
};

/*
 * Finds ${library}: what HEAPLINE_RECORDER or HEAPLINE_TAGS names, else beside this executable in
 * its build directory, else in the library directory that belongs to where this executable is
 * installed, else where it was configured to be installed. Writes an absolute path.
 */
int hl_preload_find(enum hl_preload_library library, char *ret_path, size_t capacity,
		    struct hl_error *err);

/*
 * This process' environment with ${library} in front of LD_PRELOAD and the way to the collector, if
 * there is one. To be freed with hl_preload_environment_free; NULL for want of memory.
 */
char **hl_preload_environment(const char *library, const char *socket, const char *token);

void hl_preload_environment_free(char **environment); /* NULL is fine */
