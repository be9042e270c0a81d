/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs verbs; see run.h. */
#include "serve/run.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/self.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define ARGUMENTS_MAX 32
#define TURN_WAIT_S   10
#define EXIT_USAGE    2

/* ---- turns ---- */

static sem_t turns;

static __attribute__((constructor)) void init_turns(void)
{
	sem_init(&turns, 0, HL_RUN_AT_ONCE);
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

/* ---- one child ---- */

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
	const struct rlimit bytes = {HL_RUN_BYTES_MAX, HL_RUN_BYTES_MAX}, no_core = {0, 0};

	prlimit(pid, RLIMIT_FSIZE, &bytes, NULL);
	prlimit(pid, RLIMIT_CORE, &no_core, NULL);
}

int hl_run_wait(const struct hl_run *run, int fd, uint64_t deadline_ns)
{
	struct pollfd watched[] = {{.fd = fd, .events = POLLIN},
				   {.fd = run->stop_fd, .events = POLLIN},
				   {.fd = run->client_fd, .events = POLLRDHUP}};

	for (;;) {
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		int ready = poll(watched, HL_COUNT_OF(watched),
				 (int)((deadline_ns - now_ns) / 1000000 + 1));
		if (ready < 0 && errno != EINTR)
			return -errno;
		if (ready > 0)
			return watched[0].revents ? 0 : -ECANCELED;
	}
}

/* Waits for ${pid}, and ends it when it takes too long or nobody wants it. Its status as wait() gives it, or a negative
 * errno. */
static int wait_for(const struct hl_run *run, pid_t pid)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + HL_RUN_SECONDS_MAX * HL_NS_PER_SECOND;
	HL_CLOSED int pidfd = pidfd_open(pid, 0);
	int status, r = pidfd < 0 ? -errno : hl_run_wait(run, pidfd, deadline_ns);

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
				    verb, HL_RUN_SECONDS_MAX);
	if (status < 0)
		return hl_error_set(err, status, "cannot wait for 'heapline %s': %s", verb,
				    strerror(-status));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
		return hl_error_set(err, -EFBIG,
				    "the answer of 'heapline %s' is larger than %d MiB; ask for "
				    "less, or run it by hand",
				    verb, (int)(HL_RUN_BYTES_MAX >> 20));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	bool is_usage = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_USAGE;
	const char *sentence = hl_self_sentence(complaints, text);
	int code = is_usage ? -EINVAL : -EIO;
	return sentence ? hl_error_set(err, code, "%s", sentence)
			: hl_error_set(err, code, "'heapline %s' failed and did not say why", verb);
}

int hl_run_verb(const struct hl_run *run, uint64_t *ret_bytes, struct hl_error *err)
{
	HL_CLOSED int out = memfd_create("answer", MFD_CLOEXEC);
	struct stat status;

	if (out < 0)
		return hl_error_set(err, -errno, "cannot make room for an answer: %s",
				    strerror(errno));
	if (!take_turn())
		return hl_error_set(err, -EBUSY,
				    "%d others are being answered already; ask again later",
				    HL_RUN_AT_ONCE);
	int r = run_once(run, out, err);
	sem_post(&turns);
	if (r < 0)
		return r;
	if (fstat(out, &status) < 0)
		return hl_error_set(err, -errno, "cannot read an answer: %s", strerror(errno));
	*ret_bytes = (uint64_t)status.st_size;
	return hl_cleanup_take_fd(&out);
}
