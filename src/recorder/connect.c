/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's end of the handshake, by raw system calls; see start.h. */
#include "recorder/start.h"

#include "base/clock.h"
#include "recorder/region_map.h"
#include "recorder/sys.h"
#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

/* A collector that has not answered in this time is looked at. */
#define LOOK_MS 100

/* Recorders that may learn of one silence; the system may allow fewer (net.core.somaxconn). */
#define SILENCE_BACKLOG 4096

/* A name in the abstract namespace: a leading NUL, none after. */
struct address {
	struct sockaddr_un name;
	socklen_t bytes; /* 0 = none */
};

static struct address collector, silence;
static char token[32];

static void set_address(struct address *address, const char *prefix, const char *text, size_t bytes)
{
	size_t prefix_bytes = strlen(prefix);

	address->name.sun_family = AF_UNIX;
	memcpy(address->name.sun_path + 1, prefix, prefix_bytes);
	memcpy(address->name.sun_path + 1 + prefix_bytes, text, bytes);
	address->bytes =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + prefix_bytes + bytes);
}

bool hl_connect_set_collector(const char *socket, const char *digits)
{
	if (!socket || !digits || strlen(digits) != sizeof(token) ||
	    strlen(socket) + 1 > sizeof(collector.name.sun_path))
		return false;
	memcpy(token, digits, sizeof(token));
	set_address(&collector, "", socket, strlen(socket));
	set_address(&silence, HL_SILENCE_PREFIX, digits, HL_SILENCE_DIGITS);
	return true;
}

/* Arguments where filters look at them. */
bool hl_connect_may_start(void)
{
	enum { RW = PROT_READ | PROT_WRITE };
	static const long calls[][5] = {
		{SYS_mmap, 0, 4096, PROT_NONE, MAP_SHARED},
		{SYS_mmap, 0, 4096, RW, MAP_SHARED | MAP_ANONYMOUS},
		{SYS_mmap, 0, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS},
		{SYS_mprotect, 0, 4096, RW},
		{SYS_madvise, 0, 4096, MADV_DONTFORK},
		{SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC},
		{SYS_openat, AT_FDCWD, 0, O_RDONLY | O_CLOEXEC},
		{SYS_fcntl, 0, F_DUPFD_CLOEXEC},
		{SYS_fcntl, 0, F_SETFL},
		{SYS_prctl, PR_GET_NAME},
		{SYS_prctl, PR_GET_TSC},
		{SYS_mremap},
		{SYS_munmap},
		{SYS_connect},
		{SYS_setsockopt},
		{SYS_getsockopt},
		{SYS_sendto},
		{SYS_recvmsg},
		{SYS_close},
		{SYS_getpid},
		{SYS_getppid},
		{SYS_gettid},
		{SYS_geteuid},
		{SYS_prlimit64},
		{SYS_futex},
		{SYS_nanosleep},
		{SYS_kill},
		{SYS_getcwd},
		{SYS_pread64},
		{SYS_fstat},
		{SYS_read},
		{SYS_readlinkat},
		{SYS_sched_yield},
		{SYS_rt_sigprocmask},
	};

	for (size_t i = 0; i < HL_COUNT_OF(calls); i++)
		if (!hl_seccomp_may_call(calls[i][0], calls[i][1], calls[i][2], calls[i][3],
					 calls[i][4], 0, 0))
			return false;
	return true;
}

static uint64_t now_ms(void)
{
	return hl_clock_ns(HL_SYS_CLOCK) / 1000000;
}

/* A signal cuts a wait short and the next begins again: with a timer in the target, for ever. */
static bool try_again(long result, uint64_t deadline_ms)
{
	return (result == -EINTR || result == -EAGAIN) && now_ms() < deadline_ms;
}

/*
 * Whether our own user or root listened, who may have ended since. The name of a collector that has
 * gone is free to anybody, and whoever makes the region can have us write anywhere.
 */
static bool is_trusted(int fd, int32_t *ret_pid)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	long result =
		hl_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&peer, (long)&bytes, 0);
	if (result < 0 || (peer.uid != 0 && peer.uid != (uint32_t)HL_SYS(SYS_geteuid, 0, 0, 0)))
		return false;
	*ret_pid = peer.pid;
	return true;
}

/*
 * Whether process ${pid} is stopped by a signal (proc_pid_stat(5)). To wait for such a collector
 * would stop each child of the program and each program that it runs for HL_HELLO_WAIT_MS, until
 * somebody continues it. 0: it is in another PID namespace, and nothing is known.
 */
static bool is_stopped(int32_t pid)
{
	char path[32] = "/proc/", text[64];

	if (pid <= 0)
		return false;
	strcpy(hl_sys_put_decimal(path + strlen(path), (uint32_t)pid), "/stat");
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long bytes = HL_SYS(SYS_read, fd, text, sizeof(text) - 1);
	hl_sys_close(fd);
	text[bytes > 0 ? bytes : 0] = '\0';
	/* The state follows the name, which may have any characters, and has 15 at most. */
	const char *name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

static int make_socket(void)
{
	return (int)HL_SYS(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/*
 * Whether the collector has not answered another recorder, and has not come to its hello since, and whether ${fd} is connected
 * then. Anybody may bind the name; once it has more connections than may wait, -EAGAIN, nobody is told.
 */
static bool is_silent(int fd, bool *ret_connected)
{
	int32_t pid;

	*ret_connected = HL_SYS(SYS_connect, fd, &silence.name, silence.bytes) == 0;
	return *ret_connected && is_trusted(fd, &pid);
}

static void set_wait(int fd, int option, int ms)
{
	const struct timeval wait = {ms / 1000, ms % 1000 * 1000};

	hl_sys6(SYS_setsockopt, fd, SOL_SOCKET, option, (long)&wait, sizeof(wait), 0);
}

/* Most often somebody listens who has room for one more. Then on ${fd} waits for what comes, in pieces of LOOK_MS. */
static int connect_to_collector(int fd, uint64_t deadline_ms, int32_t *ret_pid)
{
	long result = HL_SYS(SYS_connect, fd, &collector.name, collector.bytes);

	HL_SYS(SYS_fcntl, fd, F_SETFL, 0);
	if (try_again(result, deadline_ms))
		set_wait(fd, SO_SNDTIMEO, HL_HELLO_WAIT_MS);
	while (try_again(result, deadline_ms))
		result = HL_SYS(SYS_connect, fd, &collector.name, collector.bytes);
	set_wait(fd, SO_RCVTIMEO, LOOK_MS);
	return result == 0 && !is_trusted(fd, ret_pid) ? -EPERM : (int)result;
}

/* On ${fd}, a socket without a connection, which it closes if it fails. */
static int open_connection(int fd, uint64_t deadline_ms, int32_t *ret_pid)
{
	bool is_connected;

	if (fd < 0)
		return fd;
	int result = is_silent(fd, &is_connected) ? -EAGAIN : 0;
	if (result == 0 && is_connected) { /* to a stranger */
		hl_sys_close(fd);
		fd = make_socket();
		if (fd < 0)
			return fd;
	}
	if (result == 0)
		result = connect_to_collector(fd, deadline_ms, ret_pid);
	if (result < 0)
		hl_sys_close(fd);
	return result < 0 ? result : fd;
}

static bool send_hello(int fd, enum hl_hello_kind kind)
{
	struct hl_hello hello = {
		.magic = HL_HELLO_MAGIC,
		.region_version = HL_REGION_VERSION,
		.kind = kind,
		.pid = hl_sys_getpid(),
		.parent_pid = (uint32_t)HL_SYS(SYS_getppid, 0, 0, 0),
		.address_space_limit = hl_sys_address_space_limit(),
	};

	memcpy(hello.token, token, sizeof(token));
	return hl_sys6(SYS_sendto, fd, (long)&hello, sizeof(hello), MSG_NOSIGNAL, 0, 0) ==
	       sizeof(hello);
}

/* Room for one descriptor. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* Has the others not wait for a collector that did not answer on connection ${fd}. */
static void announce_silence(int fd)
{
	int bound = make_socket();

	if (bound < 0)
		return;
	if (HL_SYS(SYS_bind, bound, &silence.name, silence.bytes) == 0 &&
	    HL_SYS(SYS_listen, bound, SILENCE_BACKLOG, 0) == 0) {
		union control control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
		memcpy(CMSG_DATA(&control.header), &bound, sizeof(bound));
		char byte = 0;
		const struct msghdr message = {
			.msg_iov = &(struct iovec){&byte, sizeof(byte)},
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		HL_SYS(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	hl_sys_close(bound);
}

/* Receives the welcome. The memfd; -EAGAIN when the collector does not answer in time, or another
 * negative errno when there is no region. */
static int receive_region(int fd, int32_t collector_pid, uint64_t deadline_ms,
			  struct hl_welcome *ret_welcome)
{
	union control control;
	struct msghdr message = {
		.msg_iov = &(struct iovec){ret_welcome, sizeof(*ret_welcome)},
		.msg_iovlen = 1,
		.msg_control = &control,
	};
	long received;

	do {
		message.msg_controllen =
			sizeof(control); /* a message without a descriptor sets it to 0 */
		received = HL_SYS(SYS_recvmsg, fd, &message, MSG_CMSG_CLOEXEC);
		if (received == sizeof(*ret_welcome) && ret_welcome->error == HL_WELCOME_WAIT) {
			deadline_ms = now_ms() + HL_ENTER_WAIT_MS;
			received = -EAGAIN;
		}
	} while (try_again(received, deadline_ms) && !is_stopped(collector_pid));
	if (received == -EAGAIN || received == -EINTR)
		return -EAGAIN;
	if (received != sizeof(*ret_welcome) || ret_welcome->magic != HL_WELCOME_MAGIC ||
	    ret_welcome->error || message.msg_controllen < sizeof(struct cmsghdr) ||
	    control.header.cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	int region_fd;
	memcpy(&region_fd, CMSG_DATA(&control.header), sizeof(region_fd));
	return region_fd;
}

/* A hello and its welcome. */
struct request {
	enum hl_hello_kind kind;
	int fd;	      /* a socket */
	void *region; /* NULL if there is none */
	size_t bytes;
	int32_t collector_pid;
};

static bool is_entered;

bool hl_connect_is_entered(void)
{
	return is_entered;
}

static void ask(struct request *request)
{
	uint64_t deadline_ms = now_ms() + HL_HELLO_WAIT_MS;

	int fd = open_connection(request->fd, deadline_ms, &request->collector_pid);
	if (fd < 0)
		return;
	struct hl_welcome welcome = {0};
	int region_fd = send_hello(fd, request->kind)
				? receive_region(fd, request->collector_pid, deadline_ms, &welcome)
				: -EPIPE;
	if (region_fd == -EAGAIN)
		announce_silence(fd);
	hl_sys_close(fd);
	is_entered = region_fd == -EPROTO && welcome.error == HL_WELCOME_ENTERED;
	if (region_fd < 0)
		return;
	request->bytes = welcome.region_bytes;
	request->region = hl_region_map_open(region_fd, welcome.first_pages * HL_WELCOME_PAGE_BYTES,
					     &request->bytes);
	hl_sys_close(region_fd);
}

/* The connection takes one, ${fd}, the region another. Asked before the hello, which cannot be taken back. */
static bool has_another_descriptor(int fd)
{
	int other = (int)HL_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);

	if (other >= 0)
		hl_sys_close(other);
	return other >= 0;
}

/* ---- a thread with file descriptors of its own, where the program has used up all it may have
 * ---- */

#define STACK_BYTES (UINT64_C(64) << 10)

/* All of a thread but CLONE_FILES; CLONE_VFORK lets us wait for its end. */
#define CLONE_FLAGS \
	(CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_VFORK)

/*
 * Runs ${run} with ${argument} and waits for its end. It finds a copy of the program's descriptors,
 * of which it may close any, and shares all else: memory, process, and the caller's thread-local
 * storage, so that it may call nothing of libc. No signal comes meanwhile. 0 or a negative errno.
 */
static int run_with_own_descriptors(void (*run)(void *), void *argument)
{
	uint64_t before;

	uint8_t *stack = hl_sys_mmap(STACK_BYTES, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!stack)
		return -ENOMEM;
	hl_sys_block_signals(&before);
	long result = -EPERM;
	if (hl_seccomp_enter(SYS_clone, CLONE_FLAGS, (long)(stack + STACK_BYTES), 0, 0, 0, 0)) {
		if (hl_seccomp_may_call(SYS_exit, 0, 0, 0, 0, 0, 0))
			result = hl_machine_clone(CLONE_FLAGS, stack + STACK_BYTES, run, argument);
		hl_seccomp_leave();
	}
	hl_sys_restore_signals(&before);
	hl_sys_munmap(stack, STACK_BYTES);
	return result < 0 ? (int)result : 0;
}

/* Among descriptors of our own: the lowest are below any limit. */
static void ask_with_own_descriptors(void *argument)
{
	struct request *request = argument;

	hl_sys_close(0);
	hl_sys_close(1);
	request->fd = make_socket();
	ask(request);
}

void *hl_connect_get_region(enum hl_hello_kind kind, size_t *ret_bytes, int32_t *ret_collector_pid)
{
	struct request request = {.kind = kind};

	if (!collector.bytes)
		return NULL;
	request.fd = make_socket();
	if (request.fd >= 0 && has_another_descriptor(request.fd)) {
		ask(&request);
	} else if (request.fd >= 0 || request.fd == -EMFILE) {
		if (request.fd >= 0)
			hl_sys_close(request.fd);
		run_with_own_descriptors(ask_with_own_descriptors, &request);
	}
	if (request.region) {
		*ret_bytes = request.bytes;
		*ret_collector_pid = request.collector_pid;
	}
	return request.region;
}
