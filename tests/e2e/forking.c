/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Forks on command: "fork" one child, "nest" a child with a child, "exec" a child that allocates and becomes
 * sleep(1), "storm N" N children of which eight run at once, while two threads allocate. It says the pid
 * of the last child when that has allocated, and of a storm how many did not exit as they should.
 *
 * A child allocates CHILD_BLOCKS of BLOCK_BYTES, frees half of them and a block of its parent's, and with
 * each SIGUSR1 allocates MORE_BLOCKS.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_BYTES  101
#define CHILD_BLOCKS 1009
#define NESTED	     211
#define STORM_BLOCKS 37
#define STORM_STATUS 9
#define AT_ONCE	     8

static void *kept[CHILD_BLOCKS];
static void *of_parent;
static _Atomic int *done; /* shared: the last child that has allocated */
static volatile sig_atomic_t asked;
static _Atomic bool storming;

static SITE void allocate(int blocks)
{
	for (int i = 0; i < blocks; i++)
		kept[i] = malloc(BLOCK_BYTES);
	BARRIER();
}

static void on_signal(int number)
{
	asked += number != 0;
}

static _Noreturn void serve(void)
{
	sigset_t usual, blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, &usual);
	signal(SIGUSR1, on_signal);
	*done = getpid();
	for (;;) {
		while (!asked)
			sigsuspend(&usual);
		asked = 0;
		allocate(NESTED);
	}
}

static _Noreturn void be_child(const char *command)
{
	free(of_parent);
	allocate(CHILD_BLOCKS);
	for (int i = 0; i < CHILD_BLOCKS / 2; i++)
		free(kept[i]);
	if (!strcmp(command, "exec")) {
		*done = getpid();
		execlp("sleep", "sleep", "1000", (char *)NULL);
	}
	if (!strcmp(command, "nest") && fork() == 0) {
		allocate(NESTED);
		serve();
	}
	if (!strcmp(command, "nest"))
		for (;;)
			pause();
	serve();
}

static void *churn(void *unused)
{
	(void)unused;
	while (storming) {
		void *block = malloc(BLOCK_BYTES);
		KEEP(block);
		free(block);
	}
	return NULL;
}

/* Waits for one child; whether it did something else than to exit. */
static int reap(void)
{
	int status = 0;

	REQUIRE(wait(&status) > 0);
	return !WIFEXITED(status) || WEXITSTATUS(status) != STORM_STATUS;
}

static int storm(int children)
{
	pthread_t threads[2];
	int wrong = 0, live = 0;

	storming = true;
	for (int i = 0; i < 2; i++)
		REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	for (int i = 0; i < children; i++) {
		if (fork() == 0) {
			allocate(STORM_BLOCKS);
			_exit(STORM_STATUS);
		}
		if (++live == AT_ONCE) {
			wrong += reap();
			live--;
		}
	}
	while (live-- > 0)
		wrong += reap();
	storming = false;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return wrong;
}

int main(void)
{
	static char line[64];

	done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(done != MAP_FAILED);
	of_parent = malloc(BLOCK_BYTES);
	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "storm ", 6)) {
			printf("%d\n", storm(atoi(line + 6)));
		} else {
			*done = 0;
			if (fork() == 0)
				be_child(line);
			while (!*done)
				usleep(1000);
			printf("%d\n", *done);
		}
		fflush(stdout);
	}
	return 0;
}
