/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake, collector's side, and children without one; see tracked.h and region/protocol.h. */
#include "collector/tracked.h"

#include "base/encode.h"
#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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

int hl_reception_answer(const struct hl_caller *caller, int error, const struct hl_region *region)
{
	struct hl_welcome welcome = {.magic = HL_WELCOME_MAGIC, .error = error};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {&welcome, sizeof(welcome)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (region) {
		const struct hl_region_header *layout = &region->layout;
		if (!hl_mode_logs(hl_mode_of(atomic_load(&layout->mode))))
			welcome.first_pages =
				(uint32_t)(hl_region_first_bytes(layout) / HL_WELCOME_PAGE_BYTES);
		welcome.region_bytes = region->bytes;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &region->fd, sizeof(int));
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

/* ---- unrecorded children ---- */

/* The most processes that Linux can have at once (PID_MAX_LIMIT). A program that wrote more into
 * its region overwrote it. */
#define CHILDREN_MAX (UINT32_C(1) << 22)

/* Whether a region is mapped in it, even if only its parent's. True if its maps cannot be read. */
static bool has_region(pid_t pid)
{
	char path[32], *line = NULL;
	size_t capacity = 0;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return true;
	while (!found && getline(&line, &capacity, maps) > 0)
		found = strstr(line, "/memfd:heapline ");
	free(line);
	fclose(maps);
	return found;
}

bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked, bool is_orphan)
{
	/* A recorder that was brought in counts no children. */
	if (tracked)
		return !tracked->attached && !tracked->is_another &&
		       !atomic_load(&tracked->region.header->kin.replacing);
	return is_orphan || has_region(parent);
}

/* "2 processes (4711, 4712) were not recorded: REASON". */
static void describe_refused(const struct hl_unrecorded *unrecorded, size_t place,
			     char sentence[256])
{
	const pid_t *pids = unrecorded->reasons[place].pids;
	uint32_t count = unrecorded->reasons[place].count;
	char list[64] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < count && i < HL_UNRECORDED_PIDS; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "",
					 pids[i]);
	if (count == 1)
		snprintf(sentence, 256, "process %d was not recorded: %s", pids[0],
			 unrecorded->reasons[place].reason);
	else
		snprintf(sentence, 256, "%u processes (%s%s) were not recorded: %s", count, list,
			 count > HL_UNRECORDED_PIDS ? " ..." : "",
			 unrecorded->reasons[place].reason);
}

void hl_unrecorded_refuse(struct hl_unrecorded *unrecorded, struct hl_archive *archive, pid_t pid,
			  const char *reason)
{
	char before[256] = "", sentence[256];
	size_t i = 0;

	while (i < HL_UNRECORDED_REASONS && unrecorded->reasons[i].count &&
	       strcmp(unrecorded->reasons[i].reason, reason) != 0)
		i++;
	if (i == HL_UNRECORDED_REASONS) {
		hl_archive_warn(archive, "process %d was not recorded: %s", pid, reason);
		return;
	}
	if (unrecorded->reasons[i].count)
		describe_refused(unrecorded, i, before);
	snprintf(unrecorded->reasons[i].reason, sizeof(unrecorded->reasons[i].reason), "%s",
		 reason);
	if (unrecorded->reasons[i].count < HL_UNRECORDED_PIDS)
		unrecorded->reasons[i].pids[unrecorded->reasons[i].count] = pid;
	unrecorded->reasons[i].count++;
	describe_refused(unrecorded, i, sentence);
	hl_archive_warn_instead(archive, before, sentence);
}

static uint32_t plausible(const _Atomic uint32_t *count)
{
	uint32_t value = atomic_load(count);

	return value <= CHILDREN_MAX ? value : 0;
}

void hl_unrecorded_keep(struct hl_unrecorded *unrecorded, const struct hl_tracked *tracked)
{
	const struct hl_region_kin *kin = &tracked->region.header->kin;

	unrecorded->started += plausible(&kin->started);
	unrecorded->forked += plausible(&kin->unrecorded) +
			      plausible(&tracked->region.header->children.unrecorded);
	unrecorded->awaited += plausible(&kin->awaited);
}

static struct hl_unrecorded sum_up(const struct hl_unrecorded *unrecorded,
				   const struct hl_tracked *running)
{
	struct hl_unrecorded sum = *unrecorded;

	for (; running; running = running->next)
		hl_unrecorded_keep(&sum, running);
	return sum;
}

bool hl_unrecorded_are_awaited(const struct hl_unrecorded *unrecorded,
			       const struct hl_tracked *running)
{
	struct hl_unrecorded sum = sum_up(unrecorded, running);

	/* Together: a child whose parent had ended is told of as forked, and arrives as a program. */
	return sum.started + sum.awaited > sum.arrived + sum.fork_hellos;
}

uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running)
{
	struct hl_unrecorded sum = sum_up(unrecorded, running);

	uint64_t missing = sum.started > sum.arrived ? sum.started - sum.arrived : 0;
	return (uint32_t)(missing + sum.forked);
}

uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running)
{
	uint32_t before = unrecorded->just_now;

	unrecorded->just_now = hl_unrecorded_count(unrecorded, running);
	return before < unrecorded->just_now ? before : unrecorded->just_now;
}
