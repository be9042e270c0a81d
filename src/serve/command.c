/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes commands of requests and runs verbs; see command.h. */
#include "serve/command.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/self.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* ---- running verbs ---- */

#define RUN_SECONDS_MAX 60
#define RUN_BYTES_MAX	(UINT64_C(256) << 20) /* of output */
#define RUN_AT_ONCE	4
#define ARGUMENTS_MAX	32
#define TURN_WAIT_S	10
#define EXIT_USAGE	2

static sem_t turns;

static __attribute__((constructor)) void init_turns(void)
{
	sem_init(&turns, 0, RUN_AT_ONCE);
}

static bool take_turn(void)
{
	struct timespec until;
	int r;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += TURN_WAIT_S;
	do
		r = sem_timedwait(&turns, &until);
	while (r < 0 && errno == EINTR);
	return r == 0;
}

static int spawn(const struct hl_run *run, int out, int complaints, pid_t *ret_pid)
{
	HL_FREED char *user = run->user ? hl_user_format(run->user) : NULL;
	char *line[ARGUMENTS_MAX] = {"heapline"};
	size_t count = 1;

	if (run->user && !user)
		return -ENOMEM;
	if (user) {
		line[count++] = HL_SELF_AS_USER;
		line[count++] = user;
	}
	line[count++] = (char *)run->verb;
	for (size_t i = 0; run->arguments[i]; i++) {
		if (count + 1 >= ARGUMENTS_MAX)
			return -E2BIG;
		line[count++] = run->arguments[i];
	}
	return hl_self_spawn(line, out, complaints, ret_pid);
}

static void limit(pid_t pid)
{
	const struct rlimit bytes = {RUN_BYTES_MAX, RUN_BYTES_MAX}, no_core = {0, 0};

	prlimit(pid, RLIMIT_FSIZE, &bytes, NULL);
	prlimit(pid, RLIMIT_CORE, &no_core, NULL);
}

/*
 * Waits until ${fd} can be read (-1: for nothing but what follows) or ${deadline_ns} of CLOCK_MONOTONIC. 0; -ETIMEDOUT, -ECANCELED, or
 * another negative errno.
 */
static int run_wait(const struct hl_run *run, int fd, uint64_t deadline_ns)
{
	struct pollfd watched[] = {{.fd = fd, .events = POLLIN},
				   {.fd = run->stop_fd, .events = POLLIN},
				   {.fd = run->client_fd, .events = POLLRDHUP}};

	return hl_self_wait(watched, HL_COUNT_OF(watched), deadline_ns);
}

/* Waits for ${pid}, and ends it when it takes too long or nobody wants it. Its status as wait() gives it, or a negative
 * errno. */
static int wait_for(const struct hl_run *run, pid_t pid)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + RUN_SECONDS_MAX * HL_NS_PER_SECOND;
	HL_CLOSED int pidfd = pidfd_open(pid, 0);
	int status, r = pidfd < 0 ? -errno : run_wait(run, pidfd, deadline_ns);

	if (r < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return r < 0 ? r : status;
}

static int run_once(const struct hl_run *run, int out, struct hl_error *err)
{
	HL_CLOSED int complaints = memfd_create("complaints", MFD_CLOEXEC);
	char text[HL_SELF_SENTENCE_MAX];
	const char *verb = run->verb;
	pid_t pid;

	int r = complaints < 0 ? -errno : spawn(run, out, complaints, &pid);
	if (r < 0)
		return hl_error_set(err, r, "cannot start 'heapline %s': %s", verb, strerror(-r));
	limit(pid);
	int status = wait_for(run, pid);
	if (status == -ECANCELED)
		return hl_error_set(err, status, "nobody waits for the answer any more");
	if (status == -ETIMEDOUT)
		return hl_error_set(err, status,
				    "'heapline %s' took longer than %d s; ask for less, or run it "
				    "by hand",
				    verb, RUN_SECONDS_MAX);
	if (status < 0)
		return hl_error_set(err, status, "cannot wait for 'heapline %s': %s", verb,
				    strerror(-status));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
		return hl_error_set(err, -EFBIG,
				    "the answer of 'heapline %s' is larger than %d MiB; ask for "
				    "less, or run it by hand",
				    verb, (int)(RUN_BYTES_MAX >> 20));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	bool is_usage = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_USAGE;
	const char *sentence = hl_self_sentence(complaints, text);
	int code = is_usage ? -EINVAL : -EIO;
	return sentence ? hl_error_set(err, code, "%s", sentence)
			: hl_error_set(err, code, "'heapline %s' failed and did not say why", verb);
}

int hl_command_run(const struct hl_run *run, uint64_t *ret_bytes, struct hl_error *err)
{
	HL_CLOSED int out = memfd_create("answer", MFD_CLOEXEC);
	struct stat status;

	if (out < 0)
		return hl_error_set(err, -errno, "cannot make room for an answer: %s",
				    strerror(errno));
	if (!take_turn())
		return hl_error_set(err, -EBUSY,
				    "%d others are being answered already; ask again later",
				    RUN_AT_ONCE);
	int r = run_once(run, out, err);
	sem_post(&turns);
	if (r < 0)
		return r;
	if (fstat(out, &status) < 0)
		return hl_error_set(err, -errno, "cannot read an answer: %s", strerror(errno));
	*ret_bytes = (uint64_t)status.st_size;
	return hl_cleanup_take_fd(&out);
}

/* ---- commands of requests ---- */

#define WAITS_MAX 4 /* requests that wait for what a process does, at once */

static void add(struct hl_command *command, const char *argument)
{
	command->arguments[command->count++] = (char *)argument;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	return remove(path);
}

void hl_command_release(struct hl_command *command)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	/* As who owns it, who may have put anything there. */
	if (command->directory && hl_user_enter(command->run.user, &scope) == 0)
		nftw(command->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(command->directory);
	free(command->before);
	free(command->after);
}

/* Which process a request without a name means. */
static int choose_process(const struct hl_catalog *catalog, const struct hl_request *request,
			  const struct hl_catalog_process **ret_process, struct hl_error *err)
{
	pid_t pid = request->pid;

	if (!pid && catalog->process_count != 1)
		return hl_error_set(err, -EINVAL,
				    "%zu processes are being recorded; add pid=PID or "
				    "recording=NAME, / lists them",
				    catalog->process_count);
	*ret_process = pid ? hl_catalog_process(catalog, pid) : &catalog->processes[0];
	if (!*ret_process)
		return hl_error_set(err, -ESRCH,
				    "process %d is not being recorded; / lists those that are",
				    pid);
	return 0;
}

static int choose_recording(const struct hl_catalog *catalog, const char *name,
			    const struct hl_catalog_recording **ret_recording, struct hl_error *err)
{
	*ret_recording = hl_catalog_recording(catalog, name);
	if (!*ret_recording)
		return hl_error_set(err, -ENOENT,
				    "there is no recording '%.200s'; / lists those that there are",
				    name);
	return 0;
}

static int take_snapshot(const struct hl_command *command, pid_t pid, const char *name,
			 char **ret_path, struct hl_error *err)
{
	char number[16];
	uint64_t bytes;

	if (asprintf(ret_path, "%s/%s.hl", command->directory, name) < 0) {
		*ret_path = NULL;
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	snprintf(number, sizeof(number), "%d", pid);
	struct hl_run run = command->run;
	run.verb = "ctl";
	run.arguments = (char *const[]){"-p", number, "snapshot", *ret_path, NULL};
	int fd = hl_command_run(&run, &bytes, err);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Makes the directory for snapshots, which belongs to whose process it is. */
static int make_directory(struct hl_command *command, struct hl_error *err)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};
	const char *base = getenv("TMPDIR");
	HL_FREED char *directory = NULL;

	if (!base || !*base)
		base = "/tmp";
	if (asprintf(&directory, "%s/heapline-serve-XXXXXX", base) < 0) {
		directory = NULL;
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	int r = hl_user_enter(command->run.user, &scope);
	if (r == 0 && !mkdtemp(directory))
		r = -errno;
	if (r < 0)
		return hl_error_set(err, r,
				    "cannot make a directory for snapshots in '%s': %s; set TMPDIR "
				    "to one that all users may write to",
				    base, strerror(-r));
	command->directory = HL_TAKE(directory);
	return 0;
}

/* Has what comes within the next seconds be shown. */
static int wait_for_growth(struct hl_command *command, pid_t pid, uint32_t seconds,
			   struct hl_error *err)
{
	int r = make_directory(command, err);

	if (r == 0)
		r = take_snapshot(command, pid, "before", &command->before, err);
	if (r < 0)
		return r;
	r = run_wait(&command->run, -1, hl_clock_ns(CLOCK_MONOTONIC) + seconds * HL_NS_PER_SECOND);
	if (r != -ETIMEDOUT)
		return hl_error_set(err, r, "nobody waits for the answer any more");
	r = take_snapshot(command, pid, "after", &command->after, err);
	if (r == 0) {
		add(command, command->before);
		add(command, command->after);
	}
	return r;
}

/* As above, for a few at once: each holds a connection for minutes, and has its collector write. */
static int wait_in_turn(struct hl_command *command, pid_t pid, uint32_t seconds,
			struct hl_error *err)
{
	static atomic_uint waits;
	int r = atomic_fetch_add(&waits, 1) < WAITS_MAX
			? wait_for_growth(command, pid, seconds, err)
			: hl_error_set(err, -EBUSY,
				       "%d others wait for 'seconds' already; ask again later",
				       WAITS_MAX);

	atomic_fetch_sub(&waits, 1);
	return r;
}

static bool is_same_user(const struct hl_user *one, const struct hl_user *other)
{
	return one && other ? one->uid == other->uid : one == other;
}

/* The recordings that the request is about. */
static int add_operands(const struct hl_catalog *catalog, const struct hl_request *request,
			struct hl_command *command, struct hl_error *err)
{
	const struct hl_catalog_recording *recording, *before = NULL;
	const struct hl_catalog_process *process = NULL;
	int r;

	if (request->name) {
		r = choose_recording(catalog, request->name, &recording, err);
		if (request->pid)
			snprintf(command->process, sizeof(command->process), "--process=%d",
				 request->pid);
	} else {
		r = choose_process(catalog, request, &process, err);
		if (r < 0)
			return r;
		snprintf(command->process, sizeof(command->process), "--process=%d/%u",
			 process->pid, process->sequence);
		recording = &catalog->recordings[process->recording];
	}
	if (r < 0)
		return r;
	if (command->process[0])
		add(command, command->process);
	command->run.user = recording->owner;
	if (request->seconds && request->name)
		return hl_error_set(err, -EINVAL,
				    "'seconds' waits for what a process does; name it with pid=PID "
				    "instead of recording=NAME");
	if (request->seconds)
		return wait_in_turn(command, process->pid, request->seconds, err);
	r = request->before ? choose_recording(catalog, request->before, &before, err) : 0;
	if (r == 0 && before && !is_same_user(before->owner, recording->owner))
		r = hl_error_set(err, -EINVAL,
				 "cannot compare '%.200s' with '%.200s': they are recordings of "
				 "two users; run 'heapline diff' by hand",
				 before->name, recording->name);
	add(command, "--"); /* paths are what collectors of other users say, where root serves */
	if (r == 0 && before)
		add(command, before->path);
	if (r == 0)
		add(command, recording->path);
	return r;
}

int hl_command_make(const struct hl_catalog *catalog, const struct hl_request *request, int stop_fd,
		    int client_fd, struct hl_command *ret_command, struct hl_error *err)
{
	struct hl_command *command = ret_command;
	const struct hl_catalog_process *process;

	*command = (struct hl_command){0};
	command->run = (struct hl_run){.verb = request->verb,
				       .arguments = command->arguments,
				       .stop_fd = stop_fd,
				       .client_fd = client_fd};
	for (size_t i = 0; i < request->option_count; i++)
		add(command, request->options[i]);
	if (!request->is_text &&
	    (request->kind == HL_REQUEST_VIEW || request->kind == HL_REQUEST_HEAP))
		add(command, "--json");
	if (request->kind != HL_REQUEST_HEAP)
		return add_operands(catalog, request, command, err);
	int r = choose_process(catalog, request, &process, err);
	if (r == 0) {
		snprintf(command->process, sizeof(command->process), "--pid=%d", process->pid);
		add(command, command->process);
		command->run.user = catalog->recordings[process->recording].owner;
	}
	return r;
}
