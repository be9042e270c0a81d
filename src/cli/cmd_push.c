/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline push: sends what recorded processes have in use and allocate, again and again, to where many hosts are looked at. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/record_child.h"
#include "collector/control_ask.h"
#include "fleet/store.h"
#include "push/push.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVERY_S	      15.0
#define EVERY_LEAST_S 0.1
#define SPOOL_BYTES   (UINT64_C(64) << 20)
#define SPOOL_LEAST   (UINT64_C(64) << 10)
#define NS_PER_MS     UINT64_C(1000000)

static const char *to, *service, *version, *spool;
static double every_s = EVERY_S;
static uint64_t spool_bytes = SPOOL_BYTES;
static uint64_t pid;
static uint64_t sample_bytes;
static bool all, once, experimental;

static const struct hl_option options[] = {
	{"to", 0, "URL",
	 "FILE.db (SQLite), clickhouse://HOST/DATABASE, http://HOST (Pyroscope), or "
	 "otlp+http://HOST (OpenTelemetry)",
	 HL_OPTION_TEXT, &to, NULL},
	{"every", 0, "SECONDS", "look every SECONDS (default: 15)", HL_OPTION_SECONDS, &every_s,
	 NULL},
	{"all", 'a', NULL, "push all processes that are being recorded on this host",
	 HL_OPTION_FLAG, &all, NULL},
	{"pid", 'p', "PID", "push the process with this pid", HL_OPTION_PID, &pid, NULL},
	{"comm", 0, "NAME", "push the one running process of that name", HL_OPTION_COMM, &pid,
	 NULL},
	{"service", 0, "NAME", "the label 'service' (default: the program's name)", HL_OPTION_TEXT,
	 &service, NULL},
	{"version", 0, "TEXT", "the label 'version', such as a release", HL_OPTION_TEXT, &version,
	 NULL},
	{"sample", 0, "BYTES", "record COMMAND by samples, as 'record --sample' does",
	 HL_OPTION_BYTES, &sample_bytes, HL_BOUNDS(1, UINT64_C(1) << 40)},
	{"once", 0, NULL, "look once, and end", HL_OPTION_FLAG, &once, NULL},
	{"experimental", 0, NULL, "allow otlp+http://, whose profiles are in development",
	 HL_OPTION_FLAG, &experimental, NULL},
	{"spool", 0, "DIR", "keep in DIR what cannot be sent (default: in ~/.local/state/heapline)",
	 HL_OPTION_TEXT, &spool, NULL},
	{"spool-max", 0, "BYTES", "keep at most BYTES there, the newest (default: 64M)",
	 HL_OPTION_BYTES, &spool_bytes, HL_BOUNDS(SPOOL_LEAST, UINT64_C(1) << 40)},
	{0},
};

/* ---- signals ---- */

static int wake_fd[2] = {-1, -1};      /* a byte for each signal */
static volatile sig_atomic_t ended_by; /* SIGINT or SIGTERM; 0: none */

static void wake(int signal_number)
{
	int saved = errno;

	if (signal_number != SIGCHLD)
		ended_by = signal_number;
	if (write(wake_fd[1], "", 1) < 0)
		errno = saved; /* the pipe is full, and wakes anyway */
	errno = saved;
}

static int catch_signals(struct hl_error *err)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
	const struct sigaction action = {.sa_handler = wake, .sa_flags = SA_RESTART};
	struct sigaction old;

	if (pipe2(wake_fd, O_CLOEXEC | O_NONBLOCK) < 0)
		return hl_error_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	for (size_t i = 0; i < HL_COUNT_OF(signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    (old.sa_handler == SIG_DFL || signals[i] == SIGCHLD))
			sigaction(signals[i], &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

/* Waits until ${until_ns}, CLOCK_MONOTONIC, or a signal. */
static void wait_until(uint64_t until_ns)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	struct pollfd woken = {.fd = wake_fd[0], .events = POLLIN};
	char bytes[64];

	if (now_ns < until_ns)
		poll(&woken, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
	while (read(wake_fd[0], bytes, sizeof(bytes)) > 0)
		;
}

/* ---- rounds ---- */

/* A program that is run under 'heapline record'. */
struct program {
	pid_t recorder; /* 0: none, or it has ended */
	bool is_killed; /* and the signal was passed on */
	int status;	/* that heapline leaves with */
};

/* Whether it goes on. A signal that ends heapline ends it first. */
static bool look_after(struct program *program)
{
	int status;

	if (program->recorder && ended_by && !program->is_killed) {
		kill(program->recorder, SIGTERM);
		program->is_killed = true;
	}
	if (program->recorder &&
	    waitpid(program->recorder, &status, WNOHANG) == program->recorder) {
		program->status = hl_record_child_status(status);
		program->recorder = 0;
	}
	return program->recorder != 0;
}

/* Until the next round, the end of the program, or a signal that ends heapline. */
static void wait_for_round(struct program *program, uint64_t next_ns)
{
	bool runs = program->recorder != 0;

	while (hl_clock_ns(CLOCK_MONOTONIC) < next_ns && look_after(program) == runs &&
	       !(ended_by && !runs))
		wait_until(next_ns);
}

static int run_rounds(struct hl_push *push, struct program *program, bool is_command,
		      struct hl_error *err)
{
	uint64_t next_ns = hl_clock_ns(CLOCK_MONOTONIC);

	for (;;) {
		bool runs = look_after(program), goes_on;
		bool last = once || (!runs && (is_command || ended_by));
		int r = hl_push_look_around(push, last, &goes_on, err);
		if (r < 0 || last || (!all && !runs && !goes_on))
			return r;
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		next_ns += (uint64_t)(every_s * (double)HL_NS_PER_SECOND);
		if (next_ns < now_ns)
			next_ns = now_ns; /* a look took longer */
		wait_for_round(program, next_ns);
	}
}

static void say(const char *sentence)
{
	hl_cli_note("%s", sentence);
}

static void say_result(const struct hl_push *push)
{
	const struct hl_push_figures_sent sent = hl_push_sent(push);
	size_t waiting = hl_push_waiting(push), unknown = hl_push_unknown(push);

	if (waiting)
		hl_cli_note(
			"%zu window%s wait%s in the spool for the next 'heapline push' to the same "
			"place",
			waiting, waiting == 1 ? "" : "s", waiting == 1 ? "s" : "");
	if (unknown)
		hl_cli_note(
			"of %zu process%s nothing was pushed; push %s again when the store answers",
			unknown, unknown == 1 ? "" : "es", unknown == 1 ? "it" : "them");
	if (sent.dropped)
		hl_cli_note("%llu window%s dropped", (unsigned long long)sent.dropped,
			    sent.dropped == 1 ? " was" : "s were");
}

/* ---- all ---- */

/* Whether somebody records the process of -p. */
static int check_process(struct hl_error *err)
{
	struct hl_control_peers peers;

	int r = hl_control_ask_search((pid_t)pid, &peers);
	if (r < 0)
		hl_error_set(err, r, "out of memory");
	else if (!peers.count)
		r = hl_ctl_explain((pid_t)pid, peers.silent, "push", HL_CTL_RECORD, err);
	hl_control_ask_release(&peers);
	return r;
}

static int check_operands(int argc, char **argv, bool is_command)
{
	int ways = (argc > 0) + (pid != 0) + all;

	if (!to)
		return hl_cli_usage_error(&hl_verb_push, "'push' needs --to");
	if (ways == 0)
		return hl_cli_usage_error(&hl_verb_push,
					  "nothing to push; name a recording, -p PID, --all, "
					  "or a command behind '--'");
	if (ways > 1)
		return hl_cli_usage_error(&hl_verb_push,
					  "a recording, -p, --all and a command exclude one "
					  "another");
	if (!is_command && argc > 1)
		return hl_cli_usage_error(&hl_verb_push, "unexpected argument '%s'", argv[1]);
	if (sample_bytes && !is_command)
		return hl_cli_usage_error(&hl_verb_push,
					  "--sample is for a command; recordings that go on "
					  "are as they were started");
	if (service && !*service)
		return hl_cli_usage_error(&hl_verb_push, "--service takes a name");
	if (every_s < EVERY_LEAST_S)
		return hl_cli_usage_error(&hl_verb_push, "--every takes 0.1 or more");
	return HL_EXIT_DONE;
}

static int run_push(int argc, char **argv)
{
	bool is_command = argc > 0 && !strcmp(argv[-1], "--");
	char folder[PATH_MAX] = "", path[PATH_MAX + 16], number[24];
	const char *const sampled[] = {sample_bytes ? "--sample" : NULL, number, NULL};
	struct program program = {.status = -1};
	struct hl_push *push = NULL;
	struct hl_error err = {0};
	struct stat status;

	int r = check_operands(argc, argv, is_command);
	if (r != HL_EXIT_DONE)
		return r;
	HL_FREED char *url = hl_fleet_url(to);
	HL_FREED char *place = spool ? strdup(spool) : hl_push_spool_path(to);
	struct hl_push_settings settings = {.url = url,
					    .experimental = experimental,
					    .spool = place,
					    .spool_bytes = spool_bytes,
					    .every_ms = (int64_t)llround(every_s * 1000),
					    .labels = {service, version},
					    .recording = is_command ? path
							 : argc	    ? argv[0]
								    : NULL,
					    .is_new = is_command,
					    .pid = (pid_t)pid,
					    .say = say};
	if (!place)
		return hl_cli_error(
			"cannot spool what cannot be sent: there is no HOME; name a directory "
			"with --spool");
	if (argc && !is_command && stat(argv[0], &status) < 0)
		return hl_cli_error("cannot read '%s': %s", argv[0], strerror(errno));
	r = pid ? check_process(&err) : 0;
	if (r == 0)
		r = url ? hl_push_new(&settings, &push, &err)
			: hl_error_set(&err, -ENOMEM, "out of memory");
	if (r == 0)
		r = catch_signals(&err);
	if (r == 0 && is_command)
		r = hl_record_child_folder(folder, sizeof(folder), &err);
	snprintf(path, sizeof(path), "%s/push.hl", folder);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)sample_bytes);
	if (r == 0 && is_command) {
		r = hl_record_child_start(argv, argc, path, sampled, &program.recorder);
		if (r < 0)
			hl_error_set(&err, r, "cannot run 'heapline record': %s", strerror(-r));
	}
	if (r == 0)
		r = run_rounds(push, &program, is_command, &err);
	if (push)
		say_result(push);
	const struct hl_push_figures_sent sent =
		push ? hl_push_sent(push) : (struct hl_push_figures_sent){0};
	size_t unknown = push ? hl_push_unknown(push) : 0;
	if (r == 0 && once && !sent.windows && !sent.dropped && !unknown && !hl_push_waiting(push))
		r = hl_error_set(
			&err, -ENODATA,
			"nothing was pushed: nobody is recorded, or nothing is saved yet, which "
			"takes a second");
	hl_push_free(push);
	if (*folder)
		hl_record_child_remove(folder);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	if (is_command && program.status >= 0)
		return program.status;
	return sent.dropped || unknown ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_push = {
	.name = "push",
	.group = HL_GROUP_LIVE,
	.arguments = "--to URL NAME.hl | -p PID | --all | -- COMMAND...",
	.summary = "send what processes allocate to where many hosts are looked at",
	.options = options,
	.stops_at_operand = true,
	.run = run_push,
};
