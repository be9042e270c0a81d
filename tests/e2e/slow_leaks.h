/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that grow at one line, for whoever hunts it: "PROGRAM KIND" writes "ready" and grows by about 200 KB a second until its input ends, beside
 * other work: a table that stays, and blocks that are freed again, larger than those that are kept. Without KIND it lists kinds. The
 * comment "LEAK KIND" marks the line.
 */
#pragma once

#include "program.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct leak {
	const char *name;
	void (*grow)(void);
};

/* In a .c file that defines leaks[]. */
#define LEAKS_MAIN                                               \
	int main(int argc, char **argv)                          \
	{                                                        \
		size_t count = sizeof(leaks) / sizeof(leaks[0]); \
		for (size_t i = 0; argc == 1 && i < count; i++)  \
			puts(leaks[i].name);                     \
		for (size_t i = 0; argc > 1 && i < count; i++)   \
			if (!strcmp(leaks[i].name, argv[1]))     \
				run(&leaks[i]);                  \
		return 0;                                        \
	}

static SITE void stay(void)
{
	static char *table[400];

	for (size_t i = 0; i < 400; i++) {
		table[i] = (char *)malloc(20000);
		KEEP(table[i]);
		memset(table[i], 1, 20000);
	}
}

static SITE void churn(void)
{
	static char *blocks[50];
	static unsigned next;

	for (int i = 0; i < 20; i++) {
		free(blocks[next % 50]);
		blocks[next % 50] = (char *)malloc(4000 + next % 7 * 1000);
		KEEP(blocks[next % 50]);
		next++;
	}
}

static SITE void run(const struct leak *leak)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};

	stay();
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 5) == 0) {
		churn();
		leak->grow();
	}
}
