/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that tests enter: children of the test, which share a page of words with it. */
#pragma once

#include "base/clock.h"
#include "hook/remote.h"
#include "process/process.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_WORDS 512

/* Starts a child that runs ${life} and exits with what it returns. */
static inline pid_t target_start(int (*life)(_Atomic long *words), _Atomic long *words)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == parent ? life(words) : 1);
	}
	return pid;
}

static inline _Atomic long *target_words(void)
{
	void *words = mmap(NULL, SHARED_WORDS * sizeof(long), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED)
		abort();
	return words;
}

static inline void target_rest_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* The state of a thread, 'S' ... */
static inline char target_state(pid_t tid)
{
	struct hl_process_condition condition;

	return hl_process_condition_read(tid, &condition, NULL) < 0 ? 'X' : condition.state;
}

/* Waits, for as long as it takes on a busy machine, until *${word} is at least ${value}. */
static inline void target_await(_Atomic long *word, long value)
{
	for (int i = 0; i < 60000 && *word < value; i++)
		target_rest_ms(1);
	if (*word < value) {
		fprintf(stderr, "waited in vain for %ld, it is %ld\n", value, *word);
		abort();
	}
}

static inline void target_await_state(pid_t pid, char state)
{
	char found = target_state(pid);

	for (int i = 0; i < 60000 && found != state; i++) {
		target_rest_ms(1);
		found = target_state(pid);
	}
	if (found != state) {
		fprintf(stderr, "state of %d is %c, not %c\n", pid, found, state);
		abort();
	}
}

/* Its exit status; -1 when a signal ended it. */
static inline int target_end(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void target_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
