/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts and ends the process of still.c, whose path is in STILL_PROGRAM. */
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define STILL_AREA_BYTES ((size_t)16 << 20)

/* Where the process mapped STILL_AREA_BYTES each. */
struct still_areas {
	char *own;    /* private; the first half was written to */
	char *shared; /* the first quarter was written to */
};

/* Returns the process, or -1. */
static inline pid_t still_start(struct still_areas *ret_areas)
{
	int output[2];

	if (pipe(output) != 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(output[1], STDOUT_FILENO);
		execl(getenv("STILL_PROGRAM"), "still", NULL);
		_exit(1);
	}
	close(output[1]);
	ssize_t bytes = read(output[0], ret_areas, sizeof(*ret_areas));
	close(output[0]);
	return bytes == sizeof(*ret_areas) ? pid : -1;
}

static inline void still_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
