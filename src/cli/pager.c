/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the pager behind a pipe; see output.h. */
#include "cli/output.h"

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

/* Without the shell's complaint where there is no less. */
#define DEFAULT_PAGER  "command -v less >/dev/null || exit 127; less"
#define COPY_BYTES     65536
#define SHELL_SIGNALED 128 /* above it is the number of the signal that ended the command */

/* The user's choice; NULL: none is wanted, or the terminal is too simple for any. */
static const char *chosen_pager(void)
{
	const char *terminal = getenv("TERM");
	const char *pager = getenv("HEAPLINE_PAGER");

	if (!terminal || !strcmp(terminal, "dumb"))
		return NULL;
	if (!pager)
		pager = getenv("PAGER");
	if (!pager)
		pager = DEFAULT_PAGER;
	return pager[strspn(pager, " \t")] && strcmp(pager, "cat") != 0 ? pager : NULL;
}

static void copy_rest(int from)
{
	char bytes[COPY_BYTES];
	ssize_t size;

	while ((size = read(from, bytes, sizeof(bytes))) > 0 || (size < 0 && errno == EINTR)) {
		ssize_t written;
		for (char *at = bytes; size > 0; at += written, size -= written) {
			written = write(STDOUT_FILENO, at, (size_t)size);
			if (written < 0 && errno != EINTR)
				return;
			if (written < 0)
				written = 0;
		}
	}
}

/* Waits for the pager to end. What one that failed did not read is written to the terminal. */
static void *mind(void *argument)
{
	struct hl_pager *pager = argument;
	int status = 0;

	while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFEXITED(status) && WEXITSTATUS(status) && WEXITSTATUS(status) < SHELL_SIGNALED)
		copy_rest(pager->input);
	close(pager->input); /* now whoever writes to it gets EPIPE */
	return NULL;
}

/* Starts sh -c ${command}, which reads from the pager's input. 0 or an errno. */
static int start(struct hl_pager *pager, const char *command)
{
	char *words[] = {"sh", "-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;

	int r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return r;
	r = posix_spawn_file_actions_adddup2(&actions, pager->input, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn(&pager->pid, "/bin/sh", &actions, NULL, words, environ);
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
	/* Quits when all fits on the screen, keeps colours, scrolls sideways, leaves the text there. */
	setenv("LESS", "FRSX", 0);
	setenv("LV", "-c", 0);
	pager->input = ends[0];
	FILE *out = fdopen(ends[1], "w");
	if (out && start(pager, command) == 0) {
		pager->out = out;
		signal(SIGPIPE, SIG_IGN); /* who leaves the pager early has seen enough */
		signal(SIGINT, SIG_IGN);  /* is the pager's, which shares the terminal */
		pager->minded = pthread_create(&pager->minder, NULL, mind, pager) == 0;
		if (!pager->minded)
			close(pager->input);
		return;
	}
	pager->pid = 0;
	close(ends[0]);
	if (out)
		fclose(out);
	else
		close(ends[1]);
}

void hl_pager_release(struct hl_pager *pager)
{
	int status;

	if (!pager->pid)
		return;
	fclose(pager->out);
	if (pager->minded)
		pthread_join(pager->minder, NULL);
	else
		while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
			continue;
	pager->pid = 0;
}
