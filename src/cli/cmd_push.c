/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline push: sends what recorded processes have in use and allocate, again and again, to where many hosts are looked at. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/families.h"
#include "collector/control_ask.h"
#include "fleet/store.h"
#include "fleet/web.h"
#include "push/push.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * ---- the folder with the recording of `heapline push -- COMMAND` ----
 * It is locked while that push lives, so that the next push to the same place finds what one that was killed left there.
 */

#define HL_PUSH_RECORDING "push.hl" /* its name in the folder */

/* To whom a recording goes, and what it is called there. */
struct push_folder {
	char path[PATH_MAX];
	char spool[PATH_MAX];	/* of the place */
	char service[PATH_MAX]; /* as given; "": not */
	char version[PATH_MAX];
	int fd; /* holds the lock; to be closed */
};

static int link_text(const struct push_folder *folder, const char *name, const char *text)
{
	return *text && symlinkat(text, folder->fd, name) < 0 ? -errno : 0;
}

static void read_text(int folder, const char *name, char text[PATH_MAX])
{
	ssize_t length = readlinkat(folder, name, text, PATH_MAX - 1);

	text[length < 0 ? 0 : length] = '\0';
}

/* Makes the folder for what ${folder} says of place and labels, and sets its path and fd. 0 or a negative errno with a sentence. */
static int push_folder_make(struct push_folder *folder, struct hl_error *err)
{
	int r = hl_record_child_folder(folder->path, sizeof(folder->path), &folder->fd, err);

	if (r < 0)
		return r;
	r = link_text(folder, "service", folder->service);
	if (r == 0)
		r = link_text(folder, "version", folder->version);
	/* Last: without it the folder is nobody's. */
	if (r == 0)
		r = link_text(folder, HL_RECORD_LEFT_FOR, folder->spool);
	return r == 0 ? 0
		      : hl_error_set(err, r, "cannot prepare the folder '%s': %s", folder->path,
				     strerror(-r));
}

#define EVERY_S	      15.0
#define EVERY_LEAST_S 0.1
#define SPOOL_BYTES   (UINT64_C(64) << 20)
#define SPOOL_LEAST   (UINT64_C(64) << 10)
#define NS_PER_MS     UINT64_C(1000000)

/* Five seconds from a signal to the end: 'docker stop' and Kubernetes kill after 10 and 30. */
#define ABANDON_MS    1000 /* what is being sent */
#define LAST_ANSWER_S 5	   /* for each answer once the command has ended */
#define LAST_MS	      4000 /* for what the last look sends; the rest waits in the spool */

struct request {
	const char *to, *service, *version, *spool, *password_file;
	double every_s;
	uint64_t spool_bytes, pid, sample_bytes;
	bool all, once, experimental;
};

static const struct request defaults = {.every_s = EVERY_S, .spool_bytes = SPOOL_BYTES};

static const struct hl_option options[] = {
	{"to", 0, "URL",
	 "FILE.db (SQLite), clickhouse://HOST/DATABASE, http://HOST (Pyroscope), or "
	 "otlp+http://HOST (OpenTelemetry)",
	 HL_OPTION_TEXT, HL_AT(to), NULL},
	HL_STORE_PASSWORD_OPTION(HL_AT(password_file)),
	{"every", 0, "SECONDS", "look every SECONDS (default: 15)", HL_OPTION_SECONDS,
	 HL_AT(every_s), NULL},
	{"all", 'a', NULL, "push all processes that are being recorded on this host",
	 HL_OPTION_FLAG, HL_AT(all), NULL},
	{"pid", 'p', "PID", "push the process with this pid", HL_OPTION_PID, HL_AT(pid), NULL},
	{"comm", 0, "NAME", "push the one running process of that name", HL_OPTION_COMM, HL_AT(pid),
	 NULL},
	{"service", 0, "NAME", "the label 'service' (default: the program's name)", HL_OPTION_TEXT,
	 HL_AT(service), NULL},
	{"version", 0, "TEXT", "the label 'version', such as a release", HL_OPTION_TEXT,
	 HL_AT(version), NULL},
	{"sample", 0, "BYTES", "record COMMAND by samples, as 'record --sample' does",
	 HL_OPTION_BYTES, HL_AT(sample_bytes), HL_BOUNDS(1, UINT64_C(1) << 40)},
	{"once", 0, NULL, "look once, and end", HL_OPTION_FLAG, HL_AT(once), NULL},
	{"experimental", 0, NULL, "allow otlp+http://, whose profiles are in development",
	 HL_OPTION_FLAG, HL_AT(experimental), NULL},
	{"spool", 0, "DIR", "keep in DIR what cannot be sent (default: in ~/.local/state/heapline)",
	 HL_OPTION_TEXT, HL_AT(spool), NULL},
	{"spool-max", 0, "BYTES", "keep at most BYTES there, the newest (default: 64M)",
	 HL_OPTION_BYTES, HL_AT(spool_bytes), HL_BOUNDS(SPOOL_LEAST, UINT64_C(1) << 40)},
	{0},
};

/* ---- signals ---- */

static int wake_fd[2] = {-1, -1};      /* a byte for each signal */
static volatile sig_atomic_t ended_by; /* SIGINT or SIGTERM; 0: none */

static void wake(int signal_number)
{
	int saved = errno;

	if (signal_number != SIGCHLD) {
		if (!ended_by)
			hl_web_end_by(hl_clock_ns(CLOCK_MONOTONIC) + ABANDON_MS * NS_PER_MS);
		ended_by = signal_number;
	}
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

static int run_rounds(const struct request *request, struct hl_push *push, struct program *program,
		      bool is_command, struct hl_error *err)
{
	uint64_t next_ns = hl_clock_ns(CLOCK_MONOTONIC);

	for (;;) {
		bool runs = look_after(program), goes_on;
		bool last = request->once || (!runs && (is_command || ended_by));
		if (last && is_command)
			hl_web_answer_within(LAST_ANSWER_S);
		if (last && ended_by)
			hl_web_end_by(hl_clock_ns(CLOCK_MONOTONIC) + LAST_MS * NS_PER_MS);
		int r = hl_push_look_around(push, last, &goes_on, err);
		if (r < 0 || last || (!request->all && !runs && !goes_on))
			return r;
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		next_ns += (uint64_t)(request->every_s * (double)HL_NS_PER_SECOND);
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
			"the last figures of %zu process%s were not pushed; push %s again when the "
			"store answers",
			unknown, unknown == 1 ? "" : "es", unknown == 1 ? "it" : "them");
	if (sent.dropped)
		hl_cli_note("%llu window%s dropped", (unsigned long long)sent.dropped,
			    sent.dropped == 1 ? " was" : "s were");
}

/* ---- what pushes that were killed left ---- */

struct leftovers {
	const struct hl_push_settings *settings;
	size_t sent;
};

/* Sends the recording that a push left, under the labels that it had. */
static bool send_leftover(void *context, const char *left, int fd)
{
	struct leftovers *leftovers = context;
	struct hl_push_settings settings = *leftovers->settings;
	char path[PATH_MAX + 16], spool[PATH_MAX], service[PATH_MAX], version[PATH_MAX];
	struct hl_push *push = NULL;
	struct hl_error err = {0};
	bool goes_on;

	read_text(fd, HL_RECORD_LEFT_FOR, spool);
	read_text(fd, "service", service);
	read_text(fd, "version", version);
	if (strcmp(spool, settings.spool) != 0)
		return false;
	snprintf(path, sizeof(path), "%s/" HL_PUSH_RECORDING, left);
	if (access(path, F_OK) < 0)
		return true; /* it was killed before it recorded */
	settings.recording = path;
	settings.is_new = false;
	settings.pid = 0;
	settings.labels = (struct hl_push_labels){
		.service = *service ? service : NULL,
		.version = *version ? version : NULL,
	};
	int r = hl_push_new(&settings, &push, &err);
	if (r == 0)
		r = hl_push_look_around(push, true, &goes_on, &err);
	bool is_sent = r == 0 && !hl_push_unknown(push) && !hl_push_sent(push).dropped;
	leftovers->sent += is_sent;
	hl_push_free(push);
	return is_sent;
}

static void send_leftovers(const struct hl_push_settings *settings)
{
	struct leftovers leftovers = {.settings = settings};

	hl_record_child_each_left(send_leftover, &leftovers);
	if (leftovers.sent)
		hl_cli_note("sent %zu recording%s that a 'heapline push' left which was killed",
			    leftovers.sent, leftovers.sent == 1 ? "" : "s");
}

/* ---- all ---- */

/* Whether somebody records the process of -p. */
static int check_process(pid_t pid, struct hl_error *err)
{
	struct hl_control_peers peers;

	int r = hl_control_ask_search(pid, &peers);
	if (r < 0)
		hl_error_set(err, r, "out of memory");
	else if (!peers.count)
		r = hl_ctl_explain(pid, peers.silent, "push", err);
	hl_control_ask_release(&peers);
	return r;
}

static int check_operands(const struct request *request, int argc, char **argv, bool is_command)
{
	int ways = (argc > 0) + (request->pid != 0) + request->all;

	if (!request->to)
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
	if (request->sample_bytes && !is_command)
		return hl_cli_usage_error(&hl_verb_push,
					  "--sample is for a command; recordings that go on "
					  "are as they were started");
	if (request->service && !*request->service)
		return hl_cli_usage_error(&hl_verb_push, "--service takes a name");
	if (request->every_s < EVERY_LEAST_S)
		return hl_cli_usage_error(&hl_verb_push, "--every takes 0.1 or more");
	return HL_EXIT_DONE;
}

/* Records ${argv}, pushes what is to be pushed until it ends, and says what became of it. 0 or a negative errno with a sentence. */
static int push_all(const struct request *request, struct hl_push *push, int argc, char **argv,
		    const char *path, struct program *program, struct hl_error *err)
{
	char number[24];
	const char *const sampled[] = {request->sample_bytes ? "--sample" : NULL, number, NULL};
	bool is_command = path != NULL;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)request->sample_bytes);
	int r = is_command ? hl_record_child_start(argv, argc, path, sampled, &program->recorder)
			   : 0;
	if (r < 0)
		return hl_error_set(err, r, "cannot run 'heapline record': %s", strerror(-r));
	r = run_rounds(request, push, program, is_command, err);
	say_result(push);
	const struct hl_push_figures_sent sent = hl_push_sent(push);
	bool is_nothing =
		!sent.windows && !sent.dropped && !hl_push_unknown(push) && !hl_push_waiting(push);
	if (r == 0 && request->once && is_nothing)
		r = hl_error_set(
			err, -ENODATA,
			"nothing was pushed: nobody is recorded, or nothing is saved yet, which "
			"takes a second");
	return r;
}

/* ${path} below the working directory, unless it is absolute. To be freed; NULL without memory. */
static char *make_absolute(const char *path)
{
	HL_FREED char *folder = *path == '/' ? NULL : getcwd(NULL, 0);
	char *absolute;

	return asprintf(&absolute, "%s%s%s", folder ? folder : "", folder ? "/" : "", path) < 0
		       ? NULL
		       : absolute;
}

/* The path of the spool: the same for each push to one place, and for no other place. NULL with a sentence. */
static char *choose_spool(const char *spool, const char *url, struct hl_error *err)
{
	HL_FREED char *file = hl_fleet_file(url) ? make_absolute(hl_fleet_file(url)) : NULL;
	char *path = spool ? make_absolute(spool) : hl_push_spool_path(file ? file : url);

	if (!path)
		hl_error_set(err, -EINVAL,
			     "cannot spool what cannot be sent: there is no HOME; name a directory "
			     "with --spool");
	return path;
}

/* Opens the sink, and makes the folder for the recording of a command. 0 or a negative errno with a sentence. */
static int prepare(const struct hl_push_settings *settings, struct push_folder *folder,
		   struct hl_push **ret_push, struct hl_error *err)
{
	int r = settings->pid ? check_process(settings->pid, err) : 0;

	if (r == 0)
		r = hl_push_new(settings, ret_push, err);
	unsetenv(HL_WEB_PASSWORD); /* nothing for the program that is recorded */
	if (r == 0)
		r = catch_signals(err);
	if (r == 0 && settings->is_new)
		r = push_folder_make(folder, err);
	return r;
}

static int run_push(void *parsed, int argc, char **argv)
{
	const struct request *request = parsed;
	const char *service = request->service, *version = request->version;
	bool is_command = argc > 0 && !strcmp(argv[-1], "--");
	struct push_folder folder = {.fd = -1};
	char path[PATH_MAX + 16];
	struct program program = {.status = -1};
	struct hl_push *push = NULL;
	struct hl_error err = {0};
	struct stat status;

	int r = check_operands(request, argc, argv, is_command);
	if (r != HL_EXIT_DONE)
		return r;
	HL_FREED char *url = hl_fleet_url(request->to);
	HL_FREED char *place = url ? choose_spool(request->spool, url, &err) : NULL;
	struct hl_push_settings settings = {.url = url,
					    .experimental = request->experimental,
					    .spool = place,
					    .spool_bytes = request->spool_bytes,
					    .every_ms = (int64_t)llround(request->every_s * 1000),
					    .labels = {service, version},
					    .recording = is_command ? path
							 : argc	    ? argv[0]
								    : NULL,
					    .is_new = is_command,
					    .pid = (pid_t)request->pid,
					    .say = say};
	if (!place)
		return hl_cli_error("%s", url ? err.text : "out of memory");
	if (hl_store_password_read(request->password_file, (char *)request->to, &err) < 0)
		return hl_cli_error("%s", err.text);
	if (argc && !is_command && stat(argv[0], &status) < 0)
		return hl_cli_error("cannot read '%s': %s", argv[0], strerror(errno));
	snprintf(folder.spool, sizeof(folder.spool), "%s", place);
	snprintf(folder.service, sizeof(folder.service), "%s", service ? service : "");
	snprintf(folder.version, sizeof(folder.version), "%s", version ? version : "");
	send_leftovers(&settings);
	r = prepare(&settings, &folder, &push, &err);
	snprintf(path, sizeof(path), "%s/" HL_PUSH_RECORDING, folder.path);
	if (r == 0)
		r = push_all(request, push, argc, argv, is_command ? path : NULL, &program, &err);
	bool is_lost = push && (hl_push_sent(push).dropped || hl_push_unknown(push));
	hl_push_free(push);
	if (*folder.path)
		hl_record_child_remove(folder.path);
	hl_cleanup_close(&folder.fd);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	if (is_command && program.status >= 0)
		return program.status;
	return is_lost ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_push = {
	.name = "push",
	.group = HL_GROUP_LIVE,
	.arguments = "--to URL NAME.hl | -p PID | --all | -- COMMAND...",
	.summary = "send what processes allocate to where many hosts are looked at",
	.options = options,
	.stops_at_operand = true,
	HL_REQUEST(defaults),
	.run = run_push,
	.effect = HL_VERB_STAYS,
};
