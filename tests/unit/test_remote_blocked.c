/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls that wait go on after stops and remote calls, and give their usual results. */
#include "hook/remote.h"

#include "base/compiler.h"
#include "remote_target.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cmocka.h>

#define LIMIT_S	   60	/* of calls that something ends */
#define SLEEP_MS   3000 /* of calls that end by themselves */
#define STOPPED_MS 1500 /* for so long, they are stopped again and again */

/* What a target has in its page of words. */
enum { READY, GO, WAITS, RESULT, ERROR, ELAPSED_MS, SIGNALS, FUTEX };

struct wait {
	const char *name;
	long (*wait)(struct wait *wait); /* in the target; -1 with errno */
	void (*end)(struct wait *wait);	 /* in the test; NULL: it ends by itself */
	long result;
	int error;

	_Atomic long *words;
	pid_t pid;
	int pipe[2], sockets[2], listener, epoll, queue, semaphore;
	struct sockaddr_un address;
};

/* ---- what targets wait for ---- */

static long wait_read(struct wait *wait)
{
	char byte;

	return read(wait->pipe[0], &byte, 1);
}

static void end_pipe(struct wait *wait)
{
	assert_int_equal(write(wait->pipe[1], "x", 1), 1);
}

static long wait_write(struct wait *wait)
{
	static char bytes[65536];

	for (int i = 0; i < 2; i++)
		if (write(wait->pipe[1], bytes, sizeof(bytes)) != sizeof(bytes))
			return -1;
	return 0;
}

static void end_write(struct wait *wait)
{
	char bytes[4096];

	for (size_t got = 0; got < 65536 * 2;) {
		ssize_t r = read(wait->pipe[0], bytes, sizeof(bytes));
		assert_true(r > 0);
		got += (size_t)r;
	}
}

static long wait_epoll(struct wait *wait)
{
	struct epoll_event event;

	return epoll_wait(wait->epoll, &event, 1, -1);
}

static long wait_epoll_limited(struct wait *wait)
{
	struct epoll_event event;

	return epoll_wait(wait->epoll, &event, 1, LIMIT_S * 1000);
}

static long wait_epoll_in_vain(struct wait *wait)
{
	struct epoll_event event;

	return epoll_wait(wait->epoll, &event, 1, SLEEP_MS);
}

/* The mask lets a signal in for the time of the call. */
static long wait_epoll_signal(struct wait *wait)
{
	struct epoll_event event;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(wait->epoll, &event, 1, -1, &none);
}

static void end_signal(struct wait *wait)
{
	kill(wait->pid, SIGUSR1);
}

static long wait_poll(struct wait *wait)
{
	struct pollfd file = {.fd = wait->pipe[0], .events = POLLIN};

	return poll(&file, 1, -1);
}

static long wait_poll_in_vain(struct wait *wait)
{
	struct pollfd file = {.fd = wait->pipe[0], .events = POLLIN};

	return poll(&file, 1, SLEEP_MS);
}

static long wait_ppoll_signal(struct wait *wait)
{
	struct pollfd file = {.fd = wait->pipe[0], .events = POLLIN};
	sigset_t none;

	sigemptyset(&none);
	return ppoll(&file, 1, NULL, &none);
}

static long wait_select(struct wait *wait)
{
	fd_set files;
	struct timeval limit = {.tv_sec = LIMIT_S};

	FD_ZERO(&files);
	FD_SET(wait->pipe[0], &files);
	return select(wait->pipe[0] + 1, &files, NULL, NULL, &limit);
}

static long wait_select_in_vain(struct wait *wait)
{
	struct timeval limit = {.tv_sec = SLEEP_MS / 1000};

	(void)wait;
	return select(0, NULL, NULL, NULL, &limit);
}

static long wait_nanosleep(struct wait *wait)
{
	(void)wait;
	return nanosleep(&(struct timespec){.tv_sec = SLEEP_MS / 1000}, NULL);
}

static long wait_clock_nanosleep(struct wait *wait)
{
	struct timespec until;

	(void)wait;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += SLEEP_MS / 1000;
	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	return errno ? -1 : 0;
}

static long wait_futex(struct wait *wait)
{
	return syscall(SYS_futex, &wait->words[FUTEX], FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void end_futex(struct wait *wait)
{
	syscall(SYS_futex, &wait->words[FUTEX], FUTEX_WAKE, 1, NULL, NULL, 0);
}

static long wait_futex_in_vain(struct wait *wait)
{
	const struct timespec limit = {.tv_sec = SLEEP_MS / 1000};

	return syscall(SYS_futex, &wait->words[FUTEX], FUTEX_WAIT, 0, &limit, NULL, 0);
}

static long wait_recv(struct wait *wait)
{
	const struct timeval limit = {.tv_sec = LIMIT_S};
	char byte;

	setsockopt(wait->sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return recv(wait->sockets[0], &byte, 1, 0);
}

static void end_recv(struct wait *wait)
{
	assert_int_equal(send(wait->sockets[1], "x", 1, 0), 1);
}

static long wait_accept(struct wait *wait)
{
	const struct timeval limit = {.tv_sec = LIMIT_S};

	setsockopt(wait->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return accept(wait->listener, NULL, NULL) < 0 ? -1 : 0;
}

static void end_accept(struct wait *wait)
{
	int file = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_int_equal(connect(file, (struct sockaddr *)&wait->address, sizeof(sa_family_t) + 20),
			 0);
	close(file);
}

static long wait_pause(struct wait *wait)
{
	sigset_t none;

	(void)wait;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return pause();
}

static long wait_sigsuspend(struct wait *wait)
{
	sigset_t none;

	(void)wait;
	sigemptyset(&none);
	return sigsuspend(&none);
}

static long wait_sigtimedwait(struct wait *wait)
{
	const struct timespec limit = {.tv_sec = LIMIT_S};
	sigset_t set;

	(void)wait;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigtimedwait(&set, NULL, &limit) == SIGUSR1 ? 0 : -1;
}

static long wait_child(struct wait *wait)
{
	char byte;
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(read(wait->pipe[0], &byte, 1) == 1 ? 7 : 1);
	}
	int status;
	return wait4(child, &status, 0, NULL) == child ? WEXITSTATUS(status) : -1;
}

struct message {
	long type;
	char text[4];
};

static long wait_msgrcv(struct wait *wait)
{
	struct message message;

	return msgrcv(wait->queue, &message, sizeof(message.text), 1, 0);
}

static void end_msgrcv(struct wait *wait)
{
	const struct message message = {.type = 1, .text = "xyz"};

	assert_int_equal(msgsnd(wait->queue, &message, sizeof(message.text), 0), 0);
}

static long wait_semop(struct wait *wait)
{
	struct sembuf operation = {.sem_num = 0, .sem_op = -1};

	return semop(wait->semaphore, &operation, 1);
}

static void end_semop(struct wait *wait)
{
	struct sembuf operation = {.sem_num = 0, .sem_op = 1};

	assert_int_equal(semop(wait->semaphore, &operation, 1), 0);
}

static struct wait waits[] = {
	{.name = "read", .wait = wait_read, .end = end_pipe, .result = 1},
	{.name = "write", .wait = wait_write, .end = end_write},
	{.name = "epoll_wait", .wait = wait_epoll, .end = end_pipe, .result = 1},
	{.name = "epoll_wait, limited", .wait = wait_epoll_limited, .end = end_pipe, .result = 1},
	{.name = "epoll_wait in vain", .wait = wait_epoll_in_vain},
	{.name = "epoll_pwait, signal",
	 .wait = wait_epoll_signal,
	 .end = end_signal,
	 .result = -1,
	 .error = EINTR},
	{.name = "poll", .wait = wait_poll, .end = end_pipe, .result = 1},
	{.name = "poll in vain", .wait = wait_poll_in_vain},
	{.name = "ppoll, signal",
	 .wait = wait_ppoll_signal,
	 .end = end_signal,
	 .result = -1,
	 .error = EINTR},
	{.name = "select", .wait = wait_select, .end = end_pipe, .result = 1},
	{.name = "select in vain", .wait = wait_select_in_vain},
	{.name = "nanosleep", .wait = wait_nanosleep},
	{.name = "clock_nanosleep", .wait = wait_clock_nanosleep},
	{.name = "futex", .wait = wait_futex, .end = end_futex},
	{.name = "futex in vain", .wait = wait_futex_in_vain, .result = -1, .error = ETIMEDOUT},
	{.name = "recv", .wait = wait_recv, .end = end_recv, .result = 1},
	{.name = "accept", .wait = wait_accept, .end = end_accept},
	{.name = "pause", .wait = wait_pause, .end = end_signal, .result = -1, .error = EINTR},
	{.name = "sigsuspend",
	 .wait = wait_sigsuspend,
	 .end = end_signal,
	 .result = -1,
	 .error = EINTR},
	{.name = "sigtimedwait", .wait = wait_sigtimedwait, .end = end_signal},
	{.name = "wait4", .wait = wait_child, .end = end_pipe, .result = 7},
	{.name = "msgrcv", .wait = wait_msgrcv, .end = end_msgrcv, .result = 4},
	{.name = "semop", .wait = wait_semop, .end = end_semop},
};

/* ---- the test ---- */

static _Atomic long *own_words;

static void count_signal(int number)
{
	(void)number;
	++own_words[SIGNALS];
}

static struct wait *current;

static int live(_Atomic long *words)
{
	sigset_t set;

	own_words = words;
	signal(SIGUSR1, count_signal);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	words[READY] = 1;
	target_await(&words[GO], 1);
	uint64_t start = hl_clock_ns(CLOCK_MONOTONIC);
	words[WAITS] = 1;
	words[RESULT] = current->wait(current);
	words[ERROR] = words[RESULT] < 0 ? errno : 0;
	words[ELAPSED_MS] = (long)((hl_clock_ns(CLOCK_MONOTONIC) - start) / 1000000);
	return 0;
}

static void start(struct wait *wait)
{
	struct epoll_event event = {.events = EPOLLIN};

	wait->words = target_words();
	assert_int_equal(pipe(wait->pipe), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wait->sockets), 0);
	wait->epoll = epoll_create1(0);
	assert_int_equal(epoll_ctl(wait->epoll, EPOLL_CTL_ADD, wait->pipe[0], &event), 0);
	wait->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	wait->address.sun_family = AF_UNIX;
	snprintf(wait->address.sun_path + 1, 20, "heapline-%d-%p", getpid() % 100000,
		 (void *)(wait - waits));
	assert_int_equal(
		bind(wait->listener, (struct sockaddr *)&wait->address, sizeof(sa_family_t) + 20),
		0);
	assert_int_equal(listen(wait->listener, 1), 0);
	wait->queue = msgget(IPC_PRIVATE, 0600);
	wait->semaphore = semget(IPC_PRIVATE, 1, 0600);
	assert_true(wait->queue >= 0 && wait->semaphore >= 0);
	current = wait;
	wait->pid = target_start(live, wait->words);
}

static void finish(struct wait *wait)
{
	msgctl(wait->queue, IPC_RMID, NULL);
	semctl(wait->semaphore, 0, IPC_RMID);
	close(wait->epoll);
	close(wait->listener);
	for (int i = 0; i < 2; i++) {
		close(wait->pipe[i]);
		close(wait->sockets[i]);
	}
	munmap((void *)wait->words, SHARED_WORDS * sizeof(long));
}

static void stop_and_call(struct wait *wait, struct hl_remote *remote, int round)
{
	struct hl_error err = {0};
	int r = round % 2 ? hl_remote_stop_one(remote, &err) : hl_remote_stop_all(remote, &err);

	if (r < 0)
		fail_msg("%s: %s", wait->name, err.text);
	/* Every second time of each kind, the thread goes on without having made a call. */
	if (round % 4 < 2)
		assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0),
				 wait->pid);
	hl_remote_continue(remote);
}

static void check(const struct wait *wait)
{
	const _Atomic long *words = wait->words;

	if (words[RESULT] != wait->result || words[ERROR] != wait->error)
		fail_msg("%s: returned %ld (%s), not %ld (%s)", wait->name, words[RESULT],
			 strerror((int)words[ERROR]), wait->result, strerror(wait->error));
	bool is_received = wait->end == end_signal && wait->result < 0;
	if (words[SIGNALS] != is_received)
		fail_msg("%s: %ld signals were received", wait->name, words[SIGNALS]);
	/* It was not cut short. Nor did the last stop begin it again with its whole time, which is
	 * long after the first; only for epoll_wait(2) the kernel does not know what is left. */
	if (!wait->end && words[ELAPSED_MS] < SLEEP_MS - 10)
		fail_msg("%s: ended after %ld ms", wait->name, words[ELAPSED_MS]);
	if (!wait->end && wait->wait != wait_epoll_in_vain &&
	    words[ELAPSED_MS] >= STOPPED_MS + SLEEP_MS - 100)
		fail_msg("%s: lasted %ld ms", wait->name, words[ELAPSED_MS]);
	print_message("%s: %ld ms\n", wait->name, words[ELAPSED_MS]);
}

static void calls_that_wait_go_on(void **state)
{
	struct hl_remote *remotes[HL_COUNT_OF(waits)];
	struct hl_error err = {0};

	(void)state;

	for (size_t i = 0; i < HL_COUNT_OF(waits); i++)
		start(&waits[i]);
	for (size_t i = 0; i < HL_COUNT_OF(waits); i++) {
		target_await(&waits[i].words[READY], 1);
		if (hl_remote_open(waits[i].pid, &remotes[i], &err) < 0)
			fail_msg("%s", err.text);
	}
	/* Nobody's time runs out before SLEEP_MS from here on. */
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + STOPPED_MS * UINT64_C(1000000);
	for (size_t i = 0; i < HL_COUNT_OF(waits); i++)
		waits[i].words[GO] = 1;
	for (size_t i = 0; i < HL_COUNT_OF(waits); i++) {
		target_await(&waits[i].words[WAITS], 1);
		target_await_state(waits[i].pid, 'S');
	}
	size_t stops = 0;
	for (; hl_clock_ns(CLOCK_MONOTONIC) < end_ns; stops++) {
		size_t i = stops % HL_COUNT_OF(waits);
		stop_and_call(&waits[i], remotes[i], (int)(stops / HL_COUNT_OF(waits)));
	}
	assert_true(stops >= 4 * HL_COUNT_OF(waits));
	for (size_t i = 0; i < HL_COUNT_OF(waits); i++) {
		hl_remote_free(remotes[i]);
		if (waits[i].end && waits[i].words[ELAPSED_MS] == 0)
			waits[i].end(&waits[i]);
	}
	for (size_t i = 0; i < HL_COUNT_OF(waits); i++) {
		assert_int_equal(target_end(waits[i].pid), 0);
		check(&waits[i]);
		finish(&waits[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_that_wait_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
