/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds what is to be preloaded, and starts and supervises the recorded program; see collector.h. */
#include "collector/collector.h"

#include "base/clock.h"
#include "base/self.h"
#include "region/protocol.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what is preloaded ---- */

static const struct {
	const char *file, *built_in, *variable, *says;
} libraries[] = {
	[HL_PRELOAD_RECORDER] = {"libheapline.so.0", "src/recorder/", "HEAPLINE_RECORDER",
				 "the recorder"},
	[HL_PRELOAD_TAGS] = {"libheapline-tags.so.0", "src/tags/", "HEAPLINE_TAGS",
			     "the library for tags"},
};

/* ${below} is a directory below ${directory}, with a trailing slash, or "". */
static bool try_path(char *ret_path, size_t capacity, const char *directory, const char *below,
		     const char *file)
{
	char path[2 * PATH_MAX];

	if (snprintf(path, sizeof(path), "%s%s%s", directory, below, file) >= (int)sizeof(path))
		return false;
	char *resolved = realpath(path, NULL);
	bool good = resolved && strlen(resolved) < capacity && access(resolved, R_OK) == 0;
	if (good)
		strcpy(ret_path, resolved);
	free(resolved);
	return good;
}

static bool find(enum hl_preload_library library, char *ret_path, size_t capacity)
{
	char directory[PATH_MAX];
	const char *file = libraries[library].file;

	const char *named = getenv(libraries[library].variable);
	if (named && named[0])
		return try_path(ret_path, capacity, named, "", "");
	if (hl_self_path(directory)) {
		strrchr(directory, '/')[1] = '\0';
		if (try_path(ret_path, capacity, directory, libraries[library].built_in, file) ||
		    try_path(ret_path, capacity, directory, HL_LIBDIR_FROM_BIN "/", file))
			return true;
	}
	return try_path(ret_path, capacity, HL_LIBDIR "/", "", file);
}

int hl_preload_find(enum hl_preload_library library, char *ret_path, size_t capacity,
		    struct hl_error *err)
{
	if (!find(library, ret_path, capacity))
		return hl_error_set(err, -ENOENT,
				    "cannot find %s '%s'; install heapline, or name the file in %s",
				    libraries[library].says, libraries[library].file,
				    libraries[library].variable);
	/* What the loader separates the names in LD_PRELOAD by. */
	if (strpbrk(ret_path, ": "))
		return hl_error_set(err, -EINVAL,
				    "cannot preload '%s': the loader takes no path with a colon or "
				    "a space in it; put heapline elsewhere",
				    ret_path);
	return 0;
}

/*
 * The library's path as glibc alone understands it: with $LIB in it, which leads back to the root
 * by "..". Other loaders (musl) look for a directory of that name, find none, and start their
 * program without the library, where loading it would end the program. NULL where this does not
 * lead to our own libc, or for want of memory.
 */
static char *path_for_glibc(const char *path)
{
	static const char way_to_root[] = "/usr/$LIB/../../../../..";
	Dl_info libc;
	char *probe = NULL, *disguised = NULL;

	if (!dladdr((void *)(uintptr_t)getenv, &libc) || libc.dli_fname[0] != '/' ||
	    asprintf(&probe, "%s%s", way_to_root, libc.dli_fname) < 0)
		return NULL;
	void *handle = dlopen(probe, RTLD_LAZY | RTLD_NOLOAD);
	free(probe);
	if (!handle)
		return NULL;
	dlclose(handle);
	return asprintf(&disguised, "%s%s", way_to_root, path) < 0 ? NULL : disguised;
}

/* ---- the environment ---- */

static bool is_variable(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* "NAME=value", with ":more" after when there is more; NULL for want of memory. */
static char *make_variable(const char *name, const char *value, const char *more)
{
	char *entry;
	bool with_more = more && more[0];
	int size = asprintf(&entry, "%s=%s%s%s", name, value, with_more ? ":" : "",
			    with_more ? more : "");

	return size < 0 ? NULL : entry;
}

char **hl_preload_environment(const char *library, const char *socket, const char *token)
{
	size_t most = 4, count = 1;

	for (char **entry = environ; *entry; entry++)
		most++;
	char **environment = calloc(most, sizeof(*environment));
	if (!environment)
		return NULL;
	char *path = path_for_glibc(library);
	environment[0] = make_variable("LD_PRELOAD", path ? path : library, getenv("LD_PRELOAD"));
	free(path);
	bool good = environment[0];
	if (good && socket) {
		environment[1] = make_variable(HL_ENV_SOCKET, socket, NULL);
		environment[2] = environment[1] ? make_variable(HL_ENV_TOKEN, token, NULL) : NULL;
		good = environment[2];
		count = 3;
	}
	for (char **entry = environ; good && *entry; entry++) {
		if (is_variable(*entry, "LD_PRELOAD") || is_variable(*entry, HL_ENV_SOCKET) ||
		    is_variable(*entry, HL_ENV_TOKEN))
			continue;
		environment[count] = strdup(*entry);
		good = environment[count++];
	}
	if (good)
		return environment;
	hl_preload_environment_free(environment);
	return NULL;
}

void hl_preload_environment_free(char **environment)
{
	for (char **entry = environment; entry && *entry; entry++)
		free(*entry);
	free(environment);
}

/* Exit status of the child when it cannot become the program; nobody sees it. */
#define CHILD_FAILED 125

#define CHILD_STACK_BYTES (64 << 10) /* execvpe() has a path there */

/* No signal is lost, so poll() needs no time limit. */
#define NO_TIMEOUT (-1)

/* What is passed on when it was sent to heapline itself. */
static const int forwarded[] = {SIGHUP,	 SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1, SIGUSR2,
				SIGALRM, SIGCONT, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU};

/* What ends a wait for descendants of the program. */
static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

void hl_launch_guard_standard_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* ---- the child ---- */

/* Exits as supervision shows a program that the signal ends. */
static void end_by_signal(int signal_number)
{
	_exit(128 + signal_number);
}

/*
 * Before Linux 5.16 a process whose memory is dumped takes all with it that share it. So signals that others send, and that would do so
 * here, only end the child; the program that it becomes has what was set before.
 */
static void guard_against_dumps(void)
{
	static const int dumping[] = {SIGQUIT, SIGABRT};
	struct sigaction action;

	for (size_t i = 0; i < HL_COUNT_OF(dumping); i++)
		if (sigaction(dumping[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL)
			signal(dumping[i], end_by_signal);
}

static int become_program(void *context)
{
	const struct hl_launch *launch = context;
	const struct hl_launch_child *child = &launch->child;
	char byte;

	/* Our copy of the other end would keep the pipe open after heapline's death. */
	close(child->other_go_fd);
	guard_against_dumps();
	if (read(child->go_fd, &byte, 1) != 1)
		_exit(CHILD_FAILED);
	sigprocmask(SIG_SETMASK, &launch->mask, NULL);
	execvpe(child->argv[0], child->argv, child->environment);
	int error = errno;
	if (write(child->result_fd, &error, sizeof(error)) < 0)
		_exit(CHILD_FAILED);
	_exit(CHILD_FAILED);
}

/*
 * The child has our memory, and a stack in it, until it becomes the program: it would copy the tables of all pages, and both would
 * copy each page that they write to. It allocates nothing; errno is the same, too, and ours is not set while it is let go. An emulator may know
 * no such processes.
 */
static pid_t start_child(struct hl_launch *launch)
{
	size_t words = 0;

	while (launch->child.argv[words])
		words++;
	/* execvpe() copies the words to run a script without '#!'. */
	launch->stack_bytes = CHILD_STACK_BYTES + words * sizeof(char *);
	launch->stack = mmap(NULL, launch->stack_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (launch->stack == MAP_FAILED) {
		launch->stack = NULL;
		return -1;
	}
	uintptr_t end = ((uintptr_t)launch->stack + launch->stack_bytes) & ~(uintptr_t)15;
	pid_t pid = clone(become_program, (void *)end, CLONE_VM | SIGCHLD, launch);
	if (pid < 0 && errno == EINVAL && (pid = fork()) == 0)
		become_program(launch);
	return pid;
}

/* ---- starting ---- */

static int launch_error(struct hl_launch *launch, int error, struct hl_error *err)
{
	hl_launch_release(launch);
	return hl_error_set(err, -error, "cannot start a process: %s", strerror(error));
}

static int fork_child(struct hl_launch *launch, const int go[2], const int result[2], char **argv,
		      char **environment)
{
	launch->go_fd = go[1];
	launch->result_fd = result[0];
	launch->child = (struct hl_launch_child){go[0], go[1], result[1], argv, environment};
	pid_t pid = start_child(launch);
	int error = errno;
	close(go[0]);
	close(result[1]);
	launch->pid = pid;
	return pid < 0 ? -error : 0;
}

int hl_launch_init(struct hl_launch *launch, char **argv, char **environment, bool wait,
		   struct hl_error *err)
{
	int go[2], result[2];
	sigset_t caught;

	sigemptyset(&caught);
	sigaddset(&caught, SIGCHLD);
	for (size_t i = 0; i < HL_COUNT_OF(forwarded); i++)
		sigaddset(&caught, forwarded[i]);
	*launch = (struct hl_launch){.go_fd = -1, .result_fd = -1, .signal_fd = -1, .wait = wait};
	sigprocmask(SIG_BLOCK, &caught, &launch->mask);
	launch->signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
	if (launch->signal_fd < 0 || pipe2(go, O_CLOEXEC) < 0)
		return launch_error(launch, errno, err);
	if (pipe2(result, O_CLOEXEC) < 0) {
		int error = errno;
		close(go[0]);
		close(go[1]);
		return launch_error(launch, error, err);
	}
	int r = fork_child(launch, go, result, argv, environment);
	if (r < 0)
		return launch_error(launch, -r, err);
	/* A write to a closed pipe or past a file size limit shall be an error, not our end; and a
	 * SIGCHLD that the parent ignores would hide the program's status. After the fork: the
	 * program inherits neither. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	if (wait)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return 0;
}

int hl_launch_go(struct hl_launch *launch)
{
	int error = 0;
	ssize_t size;

	if (write(launch->go_fd, "", 1) != 1)
		return -EPIPE;
	close(launch->go_fd);
	launch->go_fd = -1;
	/* The end of the pipe, closed by a successful exec, reads as nothing. */
	do {
		size = read(launch->result_fd, &error, sizeof(error));
	} while (size < 0 && errno == EINTR);
	if (size != sizeof(error))
		return 0;
	waitpid(launch->pid, NULL, 0);
	launch->pid = 0;
	return -error;
}

void hl_launch_release(struct hl_launch *launch)
{
	if (launch->go_fd >= 0) {
		close(launch->go_fd);
		if (launch->pid > 0)
			waitpid(launch->pid, NULL, 0);
	}
	if (launch->stack)
		munmap(launch->stack, launch->stack_bytes);
	if (launch->result_fd >= 0)
		close(launch->result_fd);
	if (launch->signal_fd >= 0)
		close(launch->signal_fd);
	*launch = (struct hl_launch){.go_fd = -1, .result_fd = -1, .signal_fd = -1};
}

/* ---- signals ---- */

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/*
 * A shell takes the terminal back when its own child, heapline, stops, so heapline stops as the
 * program did. Returns when it is continued.
 */
static void stop_likewise(int signal_number)
{
	sigset_t stop, before;

	sigemptyset(&stop);
	sigaddset(&stop, signal_number);
	raise(signal_number);
	sigprocmask(SIG_UNBLOCK, &stop, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void follow_stop(const struct hl_launch *launch)
{
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)launch->pid, &info, WSTOPPED | WNOHANG) < 0 ||
	    info.si_pid != launch->pid)
		return;
	int stop = info.si_status;
	if ((stop == SIGTSTP || stop == SIGTTIN || stop == SIGTTOU) && has_terminal())
		stop_likewise(stop);
}

/* Reaps children that have ended: the program, and with PR_SET_CHILD_SUBREAPER its orphans. Before
 * that the collector can see how they ended. Returns whether there are any left. */
static bool reap(struct hl_launch *launch, struct hl_collector *collector, int *status)
{
	siginfo_t info = {0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
		if (info.si_pid == 0)
			return true;
		hl_collector_check_ends(collector);
		waitpid(info.si_pid, NULL, 0);
		if (info.si_pid == launch->pid) {
			*status =
				info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
			launch->pid = 0;
		}
		info.si_pid = 0;
	}
	return false;
}

/* Returns false when heapline, left alone by the program, has been asked to end. */
static bool handle_signals(struct hl_launch *launch)
{
	bool go_on = true;
	struct signalfd_siginfo info;

	while (read(launch->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		uint32_t number = info.ssi_signo;
		if (launch->pid <= 0) {
			for (size_t i = 0; i < HL_COUNT_OF(ending); i++)
				go_on &= number != (uint32_t)ending[i];
		} else if (number == SIGCHLD)
			follow_stop(launch);
		/* What the kernel sent (a key on the terminal, a hangup) and what the program sent
		 * to its group reached the program without us. */
		else if (info.ssi_code <= 0 && info.ssi_pid != (uint32_t)launch->pid)
			kill(launch->pid, (int)number);
	}
	return go_on;
}

/* ---- supervision ---- */

int hl_launch_supervise(struct hl_launch *launch, struct hl_collector *collector)
{
	struct pollfd pollers[] = {
		{.fd = launch->signal_fd, .events = POLLIN},
		{.fd = hl_collector_fd(collector), .events = POLLIN},
	};
	int status = 0;
	bool children = true;

	while (launch->pid > 0 || (launch->wait && children)) {
		poll(pollers, HL_COUNT_OF(pollers), NO_TIMEOUT);
		hl_collector_dispatch(collector);
		launch->wait &= handle_signals(launch);
		children = reap(launch, collector, &status);
	}
	return status;
}

bool hl_launch_invite(int fd, const struct hl_collector *collector)
{
	struct hl_invitation invitation = {0};

	snprintf(invitation.socket, sizeof(invitation.socket), "%s",
		 hl_collector_socket(collector));
	snprintf(invitation.token, sizeof(invitation.token), "%s", hl_collector_token(collector));
	return send(fd, &invitation, sizeof(invitation), MSG_NOSIGNAL) == sizeof(invitation);
}

/* What is ignored, as SIGHUP is below nohup, stays so. */
static sigset_t ending_signals(void)
{
	struct sigaction action;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < HL_COUNT_OF(ending); i++)
		if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&set, ending[i]);
	return set;
}

void hl_launch_defer_signals(void)
{
	const sigset_t caught = ending_signals();

	sigprocmask(SIG_BLOCK, &caught, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

int hl_launch_serve(struct hl_collector *collector, int pidfd, bool wait)
{
	const sigset_t caught = ending_signals();

	struct pollfd pollers[] = {
		{.fd = pidfd, .events = POLLIN},
		{.fd = hl_collector_fd(collector), .events = POLLIN},
		{.fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN},
	};
	if (pollers[2].fd < 0)
		return -errno;
	bool runs = true;
	while (runs || (wait && hl_collector_has_running(collector))) {
		struct signalfd_siginfo info;
		poll(pollers, HL_COUNT_OF(pollers), NO_TIMEOUT);
		hl_collector_dispatch(collector);
		while (read(pollers[2].fd, &info, sizeof(info)) == sizeof(info))
			wait &= runs;
		if (pollers[0].revents) {
			runs = false;
			pollers[0].fd = -1;
		}
	}
	close(pollers[2].fd);
	return 0;
}

int hl_launch_attend(struct hl_collector *collector, uint64_t end_ns)
{
	const sigset_t caught = ending_signals();
	struct pollfd pollers[] = {
		{.fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN},
		{.fd = hl_collector_fd(collector), .events = POLLIN},
	};

	if (pollers[0].fd < 0)
		return -errno;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	while (!pollers[0].revents && now_ns < end_ns && hl_collector_has_running(collector) &&
	       !hl_collector_is_to_detach(collector)) {
		uint64_t left_ms = (end_ns - now_ns) / 1000000 + 1;
		poll(pollers, HL_COUNT_OF(pollers), left_ms < INT_MAX ? (int)left_ms : INT_MAX);
		hl_collector_dispatch(collector);
		now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	}
	close(pollers[0].fd);
	return 0;
}
