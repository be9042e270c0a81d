/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Test cases with known figures, "case <N>|`&\"": cases NUMBER [leak N | pool N | kill N | thread N | fork N | nested N | skip N]...
 *
 * Each allocates N % 7 + 3 blocks of 100, 101, 102 ... bytes, frees all, then one of 5000 that grows to 9000 and is freed; and one
 * block of before.  leak: keeps 77 bytes. pool: keeps 5000, and a piece of 60 that begins where they do. kill: the process kills itself in it. thread: another thread allocates 10 blocks of
 * 1000 in it, and keeps one. fork: a child allocates and keeps 333 in it. nested: another case cannot begin. skip: it is dropped.
 */
#include <heapline/heapline.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma weak hl_case_begin
#pragma weak hl_case_end
#pragma weak hl_case_drop

#define BLOCKS_MAX 16

static void *volatile kept;

static __attribute__((noinline)) void leak(void)
{
	kept = malloc(77);
}

static void *work(void *unused)
{
	for (int i = 0; i < 9; i++) {
		void *volatile block = malloc(1000);
		free(block);
	}
	kept = malloc(1000);
	return unused;
}

static void run(int number)
{
	void *volatile blocks[BLOCKS_MAX];
	int count = number % 7 + 3;

	for (int i = 0; i < count; i++)
		blocks[i] = malloc((size_t)(100 + i));
	for (int i = 0; i < count; i++)
		free(blocks[i]);
	void *volatile grown = malloc(5000);
	grown = realloc(grown, 9000);
	free(grown);
}

static void run_specially(const char *how)
{
	pthread_t thread;

	if (!strcmp(how, "leak"))
		leak();
	else if (!strcmp(how, "pool"))
		hl_pool_alloc("pool", kept = malloc(5000), 60);
	else if (!strcmp(how, "kill"))
		raise(SIGKILL);
	else if (!strcmp(how, "thread") && pthread_create(&thread, NULL, work, NULL) == 0)
		pthread_join(thread, NULL);
	else if (!strcmp(how, "nested") && (!hl_case_begin || hl_case_begin("inner") != -EBUSY))
		abort();
	else if (!strcmp(how, "fork")) {
		pid_t pid = fork();
		if (pid == 0) {
			kept = malloc(333);
			_exit(hl_case_end && hl_case_end(NULL) == 0);
		}
		waitpid(pid, NULL, 0);
	}
}

int main(int count, char **words)
{
	int number = count > 1 ? atoi(words[1]) : 0;
	void **before = calloc((size_t)number + 1, sizeof(*before));
	char name[64];

	for (int i = 0; i < number; i++)
		before[i] = malloc(500);
	for (int i = 0; i < number; i++) {
		const char *how = "";
		for (int word = 2; word + 1 < count; word += 2)
			if (atoi(words[word + 1]) == i)
				how = words[word];
		snprintf(name, sizeof(name), "case <%d>|`&\"", i);
		if (hl_case_begin && hl_case_begin(name) != 0)
			return 1;
		run(i);
		free(before[i]);
		run_specially(how);
		if (hl_case_end && (!strcmp(how, "skip") ? hl_case_drop() : hl_case_end(NULL)) != 0)
			return 2;
	}
	free(before);
	puts("done");
	return 0;
}
