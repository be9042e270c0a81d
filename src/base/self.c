/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and spawns the program that runs; see self.h. */
#include "base/self.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SENTENCE_BEGIN "heapline: "

extern char **environ;

/* Whether /proc/self/exe is the dynamic loader: it has then moved AT_ENTRY to what it has loaded. So has a program that needs no loader. */
static bool is_executed_loader(void)
{
	return !getauxval(AT_BASE);
}

/* The file that is mapped at ${address}; false: none. */
static bool find_mapped(unsigned long address, char ret_path[PATH_MAX])
{
	char line[PATH_MAX + 128];
	unsigned long start, end;
	bool is_found = false;
	int at = 0;

	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && !is_found && fgets(line, sizeof(line), maps))
		is_found = sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &at) == 2 &&
			   address >= start && address < end && line[at] == '/';
	if (maps)
		fclose(maps);
	line[strcspn(line, "\n")] = '\0';
	if (!is_found || strlen(line + at) >= PATH_MAX)
		return false;
	strcpy(ret_path, line + at);
	return true;
}

bool hl_self_path(char ret_path[PATH_MAX])
{
	if (is_executed_loader() && find_mapped(getauxval(AT_ENTRY), ret_path))
		return true;
	ssize_t size = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);
	if (size < 0)
		return false;
	ret_path[size] = '\0';
	return true;
}

/* Who begins it may hold signals back, and ignore some. */
static int set_signals(posix_spawnattr_t *attributes)
{
	sigset_t none, usual;

	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE);
	sigaddset(&usual, SIGXFSZ);
	sigaddset(&usual, SIGXCPU);
	sigaddset(&usual, SIGTERM); /* who begins it ends it so */
	int error = posix_spawnattr_setflags(attributes,
					     POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!error)
		error = posix_spawnattr_setsigdefault(attributes, &usual);
	return error ? error : posix_spawnattr_setsigmask(attributes, &none);
}

static int set_streams(posix_spawn_file_actions_t *files, int out, int complaints)
{
	int error = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (!error)
		error = posix_spawn_file_actions_adddup2(files, out, STDOUT_FILENO);
	return error ? error : posix_spawn_file_actions_adddup2(files, complaints, STDERR_FILENO);
}

int hl_self_spawn(char *const *arguments, int out, int complaints, pid_t *ret_pid)
{
	bool has_own = out >= 0;
	char loaded[PATH_MAX];
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;

	if (posix_spawn_file_actions_init(&files))
		return -ENOMEM;
	if (posix_spawnattr_init(&attributes)) {
		posix_spawn_file_actions_destroy(&files);
		return -ENOMEM;
	}
	int error = has_own ? set_streams(&files, out, complaints) : 0;
	if (!error && has_own)
		error = set_signals(&attributes);
	if (!error)
		error = posix_spawn(ret_pid,
				    is_executed_loader() && hl_self_path(loaded) ? loaded
										 : "/proc/self/exe",
				    &files, &attributes, arguments, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	return -error;
}

int hl_self_wait(struct pollfd *watched, size_t count, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		int ready = poll(watched, count, (int)((deadline_ns - now_ns) / 1000000 + 1));
		if (ready < 0 && errno != EINTR)
			return -errno;
		if (ready > 0)
			return watched[0].revents ? 0 : -ECANCELED;
	}
}

/* A limit of processor time ends it as its parent would: what it has entered is left. The hard limit comes later. */
static void end_in_time(int signal_number)
{
	signal(signal_number, SIG_IGN); /* it comes again each second */
	kill(getpid(), SIGTERM);
}

bool hl_self_keep_to_parent(const char *text)
{
	int death_signal = 0, parent = 0;

	sscanf(text, HL_SELF_PARENT_FORM, &death_signal, &parent);
	prctl(PR_SET_PDEATHSIG, death_signal);
	signal(SIGXCPU, end_in_time);
	return getppid() == parent;
}

const char *hl_self_sentence(int complaints, char text[HL_SELF_SENTENCE_MAX])
{
	ssize_t size = pread(complaints, text, HL_SELF_SENTENCE_MAX - 1, 0);

	text[size > 0 ? size : 0] = '\0';
	char *sentence = strstr(text, SENTENCE_BEGIN);
	if (!sentence)
		return NULL;
	sentence += strlen(SENTENCE_BEGIN);
	sentence[strcspn(sentence, "\n")] = '\0';
	return sentence;
}
