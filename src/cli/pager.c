/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the pager behind a pipe; see pager.h. */
#include "cli/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The user's choice; NULL: none is wanted. */
static const char *chosen_pager(void)
{
	const char *pager = getenv("HEAPLINE_PAGER");

	if (!pager)
		pager = getenv("PAGER");
	if (!pager)
		pager = "less";
	return pager[0] && strcmp(pager, "cat") != 0 ? pager : NULL;
}

/* Quits when all fits on the screen, keeps colours, leaves the text there; as git sets them. */
static void set_defaults(void)
{
	setenv("LESS", "FRX", 0);
	setenv("LV", "-c", 0);
}

/* Starts sh -c ${command}, which reads from ${input}. 0 or an errno. */
static int start(const char *command, int input, pid_t *ret_pid)
{
	char *words[] = {"sh", "-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;

	int r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return r;
	r = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn(ret_pid, "/bin/sh", &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

void hl_pager_init(struct hl_pager *pager)
{
	const char *command = chosen_pager();
	int ends[2];

	*pager = (struct hl_pager){.out = stdout};
	if (!command || !isatty(STDOUT_FILENO) || pipe2(ends, O_CLOEXEC) < 0)
		return;
	set_defaults();
	FILE *out = fdopen(ends[1], "w");
	if (!out) {
		close(ends[0]);
		close(ends[1]);
		return;
	}
	if (start(command, ends[0], &pager->pid) == 0) {
		pager->out = out;
		signal(SIGPIPE, SIG_IGN); /* who leaves the pager early has seen enough */
		signal(SIGINT, SIG_IGN);  /* is the pager's, which shares the terminal */
	} else {
		pager->pid = 0;
		fclose(out);
	}
	close(ends[0]);
}

void hl_pager_release(struct hl_pager *pager)
{
	int status;

	if (!pager->pid)
		return;
	fclose(pager->out);
	while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	pager->pid = 0;
}
