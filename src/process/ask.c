/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts verbs, waits for them within bounds and parses their JSON; see ask.h. */
#include "process/ask.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SECONDS_DEFAULT	    60u
#define CPU_SECONDS_DEFAULT 30u
#define MEMORY_DEFAULT	    (UINT64_C(1) << 30)
#define OUTPUT_DEFAULT	    (UINT64_C(64) << 20)
#define GRACE_NS	    (60 * HL_NS_PER_SECOND) /* to leave a process that it has entered */
#define GRACE_CPU_SECONDS   10u			    /* the same, of processor time, after SIGXCPU */
#define ARGUMENTS_MAX	    64u
#define EXIT_USAGE	    2

/* linux/ioprio.h: the class "idle", of a process */
#define IOPRIO_IDLE	   (3 << 13)
#define IOPRIO_WHO_PROCESS 1
#define IDLE_NICENESS	   19

/* ---- starting ---- */

static void set_oom_score(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
	HL_CLOSED int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1000", 4) < 0)
		return; /* then it is as likely to be killed as others */
}

/* ${grace}: from the signal to the end. */
static void set_limit(pid_t pid, __rlimit_resource_t resource, uint64_t most, uint64_t grace)
{
	if (most)
		prlimit(pid, resource,
			&(struct rlimit){most, most > UINT64_MAX - grace ? most : most + grace},
			NULL);
}

int hl_ask_start(char *const *arguments, int out, int complaints, int death_signal,
		 const struct hl_ask_bounds *bounds, pid_t *ret_pid)
{
	char parent[32], *line[ARGUMENTS_MAX] = {"heapline", HL_SELF_WITH_PARENT, parent};
	pid_t pid;

	snprintf(parent, sizeof(parent), HL_SELF_PARENT_FORM, death_signal, getpid());
	for (size_t i = 1; arguments[i]; i++) {
		if (i + 3 >= ARGUMENTS_MAX)
			return -E2BIG;
		line[i + 2] = arguments[i];
	}
	int r = hl_self_spawn(line, out, complaints, &pid);
	if (r < 0)
		return r;
	set_oom_score(pid);
	if (bounds->is_idle) {
		setpriority(PRIO_PROCESS, (id_t)pid, IDLE_NICENESS);
		syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, pid, IOPRIO_IDLE);
	}
	set_limit(pid, RLIMIT_DATA, bounds->memory_bytes, 0);
	set_limit(pid, RLIMIT_FSIZE, bounds->output_bytes, 0);
	set_limit(pid, RLIMIT_CPU, bounds->cpu_seconds, GRACE_CPU_SECONDS);
	*ret_pid = pid;
	return 0;
}

/* ---- waiting ---- */

/* Until the child has ended, or may not go on: 0; -ETIMEDOUT, -ECANCELED or another negative errno. */
static int wait_until(int pidfd, int stop_fd, uint64_t deadline_ns)
{
	struct pollfd watched[] = {{.fd = pidfd, .events = POLLIN},
				   {.fd = stop_fd, .events = POLLIN}};

	return hl_self_wait(watched, HL_COUNT_OF(watched), deadline_ns);
}

static uint64_t cpu_ns_of(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * HL_NS_PER_SECOND +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000;
}

/* Its status as wait() gives it, or a negative errno. */
static int reap(pid_t pid, uint64_t *ret_cpu_ns)
{
	struct rusage usage = {0};
	int status = 0;

	while (wait4(pid, &status, 0, &usage) < 0)
		if (errno != EINTR)
			return -errno;
	*ret_cpu_ns = cpu_ns_of(&usage);
	return status;
}

int hl_ask_end(pid_t pid, int signal, uint64_t *ret_cpu_ns)
{
	HL_CLOSED int pidfd = pidfd_open(pid, 0);

	kill(pid, signal);
	if (pidfd < 0 || wait_until(pidfd, -1, hl_clock_ns(CLOCK_MONOTONIC) + GRACE_NS) < 0)
		kill(pid, SIGKILL);
	return reap(pid, ret_cpu_ns);
}

/* Its status as wait() gives it; a negative errno when it was ended. */
static int wait_for(const struct hl_ask *ask, pid_t pid, uint64_t *ret_cpu_ns)
{
	uint64_t seconds = ask->seconds ? ask->seconds : SECONDS_DEFAULT;
	HL_CLOSED int pidfd = pidfd_open(pid, 0);
	int r = pidfd < 0 ? -errno
			  : wait_until(pidfd, ask->stop_fd,
				       hl_clock_ns(CLOCK_MONOTONIC) + seconds * HL_NS_PER_SECOND);

	if (r == 0)
		return reap(pid, ret_cpu_ns);
	hl_ask_end(pid, SIGTERM, ret_cpu_ns);
	return r;
}

/* ---- answers ---- */

static int read_text(int out, struct hl_answer *answer)
{
	struct stat status;

	if (fstat(out, &status) < 0)
		return -errno;
	char *text = malloc((size_t)status.st_size + 1);
	ssize_t size = text ? pread(out, text, (size_t)status.st_size, 0) : -1;
	if (size < 0) {
		int r = text ? -errno : -ENOMEM;
		free(text);
		return r;
	}
	text[size] = '\0';
	answer->text = text;
	answer->length = (size_t)size;
	return 0;
}

static int judge(const struct hl_ask *ask, int status, int complaints,
		 const struct hl_answer *answer, struct hl_error *err)
{
	const char *verb = ask->arguments[0];
	char text[HL_SELF_SENTENCE_MAX];

	if (status == -ETIMEDOUT)
		return hl_error_set(err, status, "'heapline %s' took longer than %u s", verb,
				    ask->seconds ? ask->seconds : SECONDS_DEFAULT);
	if (status == -ECANCELED)
		return hl_error_set(err, status,
				    "'heapline %s' was ended: its answer is not "
				    "wanted any more",
				    verb);
	if (status < 0)
		return hl_error_set(err, status, "cannot wait for 'heapline %s': %s", verb,
				    strerror(-status));
	if (answer->document || (WIFEXITED(status) && WEXITSTATUS(status) == 0 && ask->is_text))
		return 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
		return hl_error_set(err, -EFBIG, "the answer of 'heapline %s' is too large", verb);
	if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL ||
				    WTERMSIG(status) == SIGTERM))
		return hl_error_set(err, -ETIMEDOUT,
				    "'heapline %s' was ended: it needed too much processor time, "
				    "memory ran out, or somebody ended it",
				    verb);
	const char *sentence = hl_self_sentence(complaints, text);
	int code = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_USAGE ? -EINVAL : -EIO;
	return sentence ? hl_error_set(err, code, "%s", sentence)
			: hl_error_set(err, code, "'heapline %s' failed and did not say why", verb);
}

static int run(const struct hl_ask *ask, char *const *line, int out, int complaints,
	       struct hl_answer *answer)
{
	const struct hl_ask_bounds *asked = &ask->bounds;
	const struct hl_ask_bounds bounds = {
		.cpu_seconds = asked->cpu_seconds ? asked->cpu_seconds : CPU_SECONDS_DEFAULT,
		.memory_bytes = asked->memory_bytes ? asked->memory_bytes : MEMORY_DEFAULT,
		.output_bytes = asked->output_bytes ? asked->output_bytes : OUTPUT_DEFAULT,
		.is_idle = asked->is_idle,
	};
	uint64_t begun_ns = hl_clock_ns(CLOCK_MONOTONIC);
	pid_t pid;

	int r = hl_ask_start(line, out, complaints, SIGTERM, &bounds, &pid);
	if (r < 0)
		return r;
	int status = wait_for(ask, pid, &answer->cpu_ns);
	answer->wall_ns = hl_clock_ns(CLOCK_MONOTONIC) - begun_ns;
	if (status >= 0 && WIFEXITED(status))
		answer->status = WEXITSTATUS(status);
	ssize_t said = pread(complaints, answer->said, sizeof(answer->said) - 1, 0);
	answer->said[said > 0 ? said : 0] = '\0';
	r = read_text(out, answer);
	if (r == 0 && status >= 0 && !ask->is_text)
		answer->document = json_loadb(answer->text, answer->length, 0, NULL);
	return r < 0 ? r : status;
}

int hl_ask_verb(const struct hl_ask *ask, struct hl_answer *ret_answer, struct hl_error *err)
{
	HL_CLOSED int out = memfd_create("answer", MFD_CLOEXEC);
	HL_CLOSED int complaints = memfd_create("complaints", MFD_CLOEXEC);
	char *line[ARGUMENTS_MAX] = {"heapline"};
	size_t count = 1;
	int r = out < 0 || complaints < 0 ? -errno : 0;

	*ret_answer = (struct hl_answer){.status = -1};
	for (size_t i = 0; ask->arguments[i] && r == 0; i++) {
		if (count + 2 >= ARGUMENTS_MAX)
			r = -E2BIG;
		else
			line[count++] = (char *)ask->arguments[i];
		/* Behind the verb: what follows may be operands, or a command. */
		if (i == 0 && !ask->is_text)
			line[count++] = "--json";
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot start 'heapline %s': %s", ask->arguments[0],
				    strerror(-r));
	return judge(ask, run(ask, line, out, complaints, ret_answer), complaints, ret_answer, err);
}

void hl_answer_release(struct hl_answer *answer)
{
	json_decref(answer->document);
	free(answer->text);
}
