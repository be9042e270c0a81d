/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake, collector's side; see reception.h and region/protocol.h. */
#include "collector/reception.h"

#include "base/encode.h"
#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define WANT_PAUSE_US 10000

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static int random_digits(char digits[33])
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	hl_hex_format(digits, bytes, sizeof(bytes));
	return 0;
}

int hl_reception_init(struct hl_reception *reception, struct hl_error *err)
{
	*reception = (struct hl_reception){.fd = -1};
	reception->reserve_fd = open("/", O_PATH | O_CLOEXEC);
	char digits[33];
	int r = random_digits(digits);
	if (r == 0)
		r = random_digits(reception->token);
	snprintf(reception->name, sizeof(reception->name), "heapline-%s", r < 0 ? "" : digits);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(reception->name);
	memcpy(address.sun_path + 1, reception->name, length);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	reception->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r == 0 &&
	    (reception->fd < 0 || bind(reception->fd, (struct sockaddr *)&address, size) < 0 ||
	     listen(reception->fd, SOMAXCONN) < 0))
		r = -errno;
	if (r == 0)
		return 0;
	hl_reception_release(reception);
	return hl_error_set(err, r, "cannot listen for recorders: %s", strerror(-r));
}

void hl_reception_release(struct hl_reception *reception)
{
	if (reception->fd >= 0)
		close(reception->fd);
	if (reception->reserve_fd >= 0)
		close(reception->reserve_fd);
	reception->fd = reception->reserve_fd = -1;
}

/*
 * Without this the caller would wait in vain and the socket would stay readable for ever. Where another thread has taken the descriptor that
 * was let go, the next one that is free becomes the reserve.
 */
static int refuse_for_want_of_descriptors(struct hl_reception *reception)
{
	if (reception->reserve_fd >= 0)
		close(reception->reserve_fd);
	int fd = accept4(reception->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	else
		usleep(WANT_PAUSE_US); /* the socket stays readable until somebody lets a descriptor go */
	reception->reserve_fd = open("/", O_PATH | O_CLOEXEC);
	return -EMFILE;
}

int hl_reception_accept(struct hl_reception *reception, struct hl_caller *ret_caller)
{
	int fd = accept4(reception->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return refuse_for_want_of_descriptors(reception);
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED ? -EPERM : -errno;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0) {
		close(fd);
		return -EPERM;
	}
	*ret_caller = (struct hl_caller){
		.pid = peer.pid,
		.fd = fd,
		.is_foreign = peer.uid != geteuid() && peer.uid != 0,
	};
	return 0;
}

int hl_reception_read_hello(const struct hl_reception *reception, const struct hl_caller *caller,
			    struct hl_hello *ret_hello)
{
	struct hl_hello hello;

	/* MSG_TRUNC: the true length, so that a longer message is not mistaken for a hello. */
	ssize_t size = recv(caller->fd, &hello, sizeof(hello), MSG_DONTWAIT | MSG_TRUNC);
	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (size != sizeof(hello) || hello.magic != HL_HELLO_MAGIC ||
	    hello.region_version != HL_REGION_VERSION || hello.kind > HL_HELLO_FORK ||
	    memcmp(hello.token, reception->token, sizeof(hello.token)) != 0)
		return -EPROTO;
	*ret_hello = hello;
	return 0;
}

int hl_reception_answer(const struct hl_caller *caller, int error, int region_fd,
			uint64_t region_bytes)
{
	struct hl_welcome welcome = {
		.magic = HL_WELCOME_MAGIC,
		.error = error,
		.region_bytes = region_bytes,
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {&welcome, sizeof(welcome)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (region_fd >= 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &region_fd, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	if (sendmsg(caller->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(welcome))
		return -EPIPE;
	return 0;
}

int hl_reception_pidfd(const struct hl_caller *caller)
{
	int fd;
	socklen_t size = sizeof(fd);

	if (getsockopt(caller->fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
		return fd; /* close-on-exec by itself */
	fd = (int)syscall(SYS_pidfd_open, caller->pid, 0);
	return fd < 0 ? -errno : fd;
}
