/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For each line on standard input, forks ten children that allocate, and runs itself ten times;
 * then prints how many milliseconds that took.
 */
#include "program.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMES 10

static SITE void child_site(void)
{
	KEEP(malloc(127));
}

static void run_child(char *program, int executes)
{
	int status;
	pid_t child = fork();

	REQUIRE(child >= 0);
	if (child == 0) {
		if (executes)
			execl(program, program, "leaf", NULL);
		child_site();
		_exit(executes);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	struct timespec begin, end;
	char line[8];

	child_site();
	if (argc > 1)
		return strcmp(argv[1], "leaf") != 0;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		for (int i = 0; i < 2 * TIMES; i++)
			run_child(argv[0], i % 2);
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("%ld\n", (end.tv_sec - begin.tv_sec) * 1000 +
					(end.tv_nsec - begin.tv_nsec) / 1000000);
		fflush(stdout);
	}
	return 0;
}
