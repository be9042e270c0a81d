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

/* Ends a child that still waits; closes what is open. */
void hl_launch_release(struct hl_launch *launch);
