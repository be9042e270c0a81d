/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal handler forks, wherever it interrupts malloc and free; the children return from it and
 * go on for a while. Prints how many of them were killed by a signal, and exits with 1 if any were.
 *
 *   fork_in_handler                the handler runs every millisecond
 *   fork_in_handler STEPS STRIDE   once in each of many programs: after 0, STRIDE ... instructions, up to STEPS
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
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

/* For main() of another: the handler runs where the tracer says. */
static int be_stepped(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	step();
	for (int i = 0; getpid() != parent && i < CHILD_STEPS; i++)
		step();
	return killed;
}

/* How many children were killed of a program that is interrupted after ${steps} instructions. */
static int interrupt_after(long steps)
{
	int status;
	pid_t program = fork();

	if (program == 0) {
		execl("/proc/self/exe", "fork_in_handler", "stepped", NULL);
		_exit(127);
	}
	waitpid(program, &status, 0);
	for (long i = 0; i < steps && WIFSTOPPED(status); i++) {
		ptrace(PTRACE_SINGLESTEP, program, NULL, NULL);
		waitpid(program, &status, 0);
	}
	for (long signal_number = SIGALRM; WIFSTOPPED(status); signal_number = WSTOPSIG(status)) {
		ptrace(PTRACE_CONT, program, NULL, signal_number);
		waitpid(program, &status, 0);
	}
	return status != 0;
}

int main(int argc, char **argv)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}};
	int child_steps = 0;

	parent = getpid();
	signal(SIGALRM, fork_here);
	if (argc == 2)
		return be_stepped();
	if (argc == 3) {
		for (long steps = 0; steps < atol(argv[1]); steps += atol(argv[2]))
			killed += interrupt_after(steps);
		printf("%d\n", killed);
		return killed != 0;
	}
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
