/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal handler forks, wherever it interrupts malloc and free; the children return from it and
 * go on for a while. Prints how many of them were killed by a signal, and exits with 1 if any were.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS	    100
#define CHILD_STEPS 1000

static volatile int forks, killed;
static pid_t parent;

static void fork_here(int signal_number)
{
	int status;

	(void)signal_number;
	if (getpid() != parent || forks == FORKS)
		return;
	forks++;
	pid_t child = fork();
	if (child <= 0)
		return;
	if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
		killed++;
}

static __attribute__((noinline)) void step(void)
{
	void *block = malloc(32);

	__asm__ volatile("" : : "r"(block) : "memory");
	free(block);
}

int main(void)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}};
	int child_steps = 0;

	parent = getpid();
	signal(SIGALRM, fork_here);
	setitimer(ITIMER_REAL, &often, NULL);
	while (forks < FORKS) {
		step();
		if (getpid() != parent && ++child_steps == CHILD_STEPS)
			_exit(0);
	}
	if (getpid() != parent)
		_exit(0);
	printf("%d\n", killed);
	return killed != 0;
}
