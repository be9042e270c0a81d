/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits in each system call that a stop may interrupt, a thread for each, until its standard input
 * ends. A call that returns before is named, and its status is 1.
 *
 *	waiting_calls [kill | fail [brief]]	under a seccomp filter that ends it for restart_syscall(2), or
 *						fails that, which nobody here calls; brief: in waits of 1 ms, one after
 *						the other, that the kernel would continue so
 *
 * Meanwhile its child sends SIGURG, which is ignored, to each thread: to one that is traced it comes all the same.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HOUR_S	 3600
#define HOUR_MS	 (HOUR_S * 1000)
#define BRIEF_MS 1

static struct timespec hour = {.tv_sec = HOUR_S};
static int hour_ms = HOUR_MS;
static bool is_brief; /* then an hour has a millisecond */
static int ends[2];   /* of a pipe that nobody writes to */

static int in_epoll_wait(void)
{
	struct epoll_event event;

	return epoll_wait(epoll_create1(0), &event, 1, HOUR_MS);
}

static int in_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(epoll_create1(0), &event, 1, -1, &none);
}

static int in_nanosleep(void)
{
	return nanosleep(&hour, NULL);
}

static int in_clock_nanosleep(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += HOUR_S;
	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	return errno ? -1 : 0;
}

static int in_clock_nanosleep_for_an_hour(void)
{
	errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL);
	return errno ? -1 : 0;
}

static int in_poll(void)
{
	struct pollfd one = {.fd = ends[0], .events = POLLIN};

	return poll(&one, 1, hour_ms);
}

static int in_ppoll(void)
{
	struct pollfd one = {.fd = ends[0], .events = POLLIN};

	return ppoll(&one, 1, &hour, NULL);
}

static int in_select(void)
{
	struct timeval left = {.tv_sec = HOUR_S};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	return select(ends[0] + 1, &set, NULL, NULL, &left);
}

static int in_read(void)
{
	char byte;

	return (int)read(ends[0], &byte, 1);
}

static int in_recv(void)
{
	const struct timeval limit = {.tv_sec = HOUR_S};
	int sockets[2];
	char byte;

	socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
	setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return (int)recv(sockets[0], &byte, 1, 0);
}

static int semaphores, messages;

static int in_semop(void)
{
	struct sembuf take = {.sem_op = -1};

	return semop(semaphores, &take, 1);
}

static int in_semtimedop(void)
{
	struct sembuf take = {.sem_op = -1};

	return semtimedop(semaphores, &take, 1, &hour);
}

static int in_msgrcv(void)
{
	struct {
		long type;
		char text[8];
	} message;

	return (int)msgrcv(messages, &message, sizeof(message.text), 0, 0);
}

static int in_sigtimedwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	return sigtimedwait(&set, NULL, &hour);
}

static aio_context_t requests;

static int in_io_getevents(void)
{
	struct io_event event;

	return (int)syscall(SYS_io_getevents, requests, 1, 1, &event, NULL);
}

static uint32_t word;

static int in_futex(void)
{
	return (int)syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static int in_futex_with_a_timeout(void)
{
	return (int)syscall(SYS_futex, &word, FUTEX_WAIT, 0, &hour, NULL, 0);
}

static struct timespec in_an_hour(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += hour.tv_sec;
	until.tv_nsec += hour.tv_nsec;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return until;
}

static int in_sem_timedwait(void)
{
	const struct timespec until = in_an_hour();
	sem_t semaphore;

	sem_init(&semaphore, 0, 0);
	return sem_timedwait(&semaphore, &until);
}

static int in_pthread_cond_timedwait(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
	const struct timespec until = in_an_hour();

	pthread_mutex_lock(&mutex);
	errno = pthread_cond_timedwait(&condition, &mutex, &until);
	return errno ? -1 : 0;
}

#define BRIEF_WAITS 6 /* the first ones, which the kernel continues by restart_syscall(2) */

static const struct wait {
	const char *name;
	int (*call)(void);
} waits[] = {
	{"nanosleep", in_nanosleep},
	{"clock_nanosleep for an hour", in_clock_nanosleep_for_an_hour},
	{"poll", in_poll},
	{"futex with a timeout", in_futex_with_a_timeout},
	{"sem_timedwait", in_sem_timedwait},
	{"pthread_cond_timedwait", in_pthread_cond_timedwait},
	{"epoll_wait", in_epoll_wait},
	{"epoll_pwait", in_epoll_pwait},
	{"clock_nanosleep", in_clock_nanosleep},
	{"ppoll", in_ppoll},
	{"select", in_select},
	{"read", in_read},
	{"recv", in_recv},
	{"semop", in_semop},
	{"semtimedop", in_semtimedop},
	{"msgrcv", in_msgrcv},
	{"sigtimedwait", in_sigtimedwait},
	{"io_getevents", in_io_getevents},
	{"futex", in_futex},
	{"pause", pause},
};

static _Atomic pid_t threads[sizeof(waits) / sizeof(waits[0])];

static void *stay(void *context)
{
	const struct wait *wait = context;
	int result;

	threads[wait - waits] = (pid_t)syscall(SYS_gettid);
	do
		result = wait->call();
	while (is_brief && (result == 0 || errno == ETIMEDOUT));
	/* Calls that this kernel or container does not have say nothing. */
	if (result < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == EIDRM))
		return NULL;
	printf("%s returned %d: %s\n", wait->name, result, strerror(errno));
	fflush(stdout);
	_exit(1);
}

/* ENOLINK is what none of the calls above fails with by itself. */
static int forbid_restarts(bool is_fatal)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
			 is_fatal ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | ENOLINK),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Until the parent is no more. */
static void send_what_is_ignored(pid_t parent, size_t count)
{
	const struct timespec pause_between = {.tv_nsec = 5 * BRIEF_MS * 1000000};

	while (getppid() == parent) {
		for (size_t i = 0; i < count; i++)
			syscall(SYS_tgkill, parent, threads[i], SIGURG);
		nanosleep(&pause_between, NULL);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	sigset_t set;
	char byte;

	if (argc > 2) {
		is_brief = true;
		hour = (struct timespec){.tv_nsec = BRIEF_MS * 1000000};
		hour_ms = BRIEF_MS;
	}
	if (argc > 1 && forbid_restarts(strcmp(argv[1], "kill") == 0))
		return 2;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	messages = msgget(IPC_PRIVATE, 0600);
	syscall(SYS_io_setup, 1, &requests);
	if (pipe(ends) < 0)
		return 2;
	const size_t count = is_brief ? BRIEF_WAITS : sizeof(waits) / sizeof(waits[0]);
	for (size_t i = 0; i < count; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, stay, (void *)(uintptr_t)&waits[i]))
			return 2;
	}
	for (size_t i = 0; i < count; i++)
		while (!threads[i])
			sched_yield();
	const pid_t parent = getpid();
	if (fork() == 0)
		send_what_is_ignored(parent, count);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	semctl(semaphores, 0, IPC_RMID);
	msgctl(messages, IPC_RMID, NULL);
	_exit(0);
}
