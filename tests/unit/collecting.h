/* SPDX-License-Identifier: BSD-2-Clause */
/* A collector that makes a recording, and forked children that play recorders: they speak their
 * protocol and do nothing else. */
#pragma once

#include "collector/collector.h"
#include "recording/recording.h"
#include "region/protocol.h"
#include "region/region.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"

/* ---- a recorder ---- */

struct recorder {
	const struct hl_collector *collector;
	struct hl_region_header *header;
	int error; /* of the welcome; -1: there was none */
	int ready; /* a byte into it says that the child has come so far */
	int go;	   /* a byte out of it lets the child go on */
};

static inline int connect_to(const struct hl_collector *collector)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *name = hl_collector_socket(collector);

	memcpy(address.sun_path + 1, name, strlen(name));
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return connect(fd, (struct sockaddr *)&address, size) < 0 ? -1 : fd;
}

static inline struct hl_hello make_hello(const struct hl_collector *collector)
{
	struct hl_hello hello = {
		.magic = HL_HELLO_MAGIC,
		.region_version = HL_REGION_VERSION,
		.address_space_limit = UINT64_MAX,
	};

	memcpy(hello.token, hl_collector_token(collector), sizeof(hello.token));
	return hello;
}

/* The region's descriptor out of a welcome; -1 with ${ret_error}. */
static inline int receive_welcome(int fd, struct hl_welcome *welcome, int *ret_error)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {welcome, sizeof(*welcome)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	*ret_error = -1;
	if (recvmsg(fd, &message, 0) != sizeof(*welcome))
		return -1;
	*ret_error = welcome->error;
	int region_fd = -1;
	if (message.msg_controllen >= sizeof(struct cmsghdr))
		memcpy(&region_fd, CMSG_DATA(&control.header), sizeof(int));
	return region_fd;
}

/* Says hello and maps what comes; recorder->header stays NULL when nothing does. */
static inline void say_hello(struct recorder *recorder, const struct hl_hello *hello)
{
	struct hl_welcome welcome;
	int fd = connect_to(recorder->collector);

	recorder->header = NULL;
	recorder->error = -1;
	if (fd < 0 || send(fd, hello, sizeof(*hello), MSG_NOSIGNAL) < 0)
		return;
	int region_fd = receive_welcome(fd, &welcome, &recorder->error);
	if (region_fd < 0)
		return;
	recorder->header =
		mmap(NULL, welcome.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
	atomic_store(&recorder->header->state, HL_REGION_RUNNING);
	close(region_fd);
	close(fd);
}

static inline void greet(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);

	say_hello(recorder, &hello);
}

/* Counts one allocation of ${bytes} at the one node that there is. */
static inline void allocate(struct recorder *recorder, uint64_t bytes)
{
	struct hl_region_header *header = recorder->header;
	struct hl_region_node *nodes =
		(void *)((char *)header + header->areas[HL_AREA_NODES].offset);
	struct hl_cell_chunk *chunk =
		(void *)((char *)header + header->areas[HL_AREA_CELLS].offset);

	header->areas[HL_AREA_NODES].committed = header->areas[HL_AREA_CELLS].committed = 4096;
	atomic_store(&nodes[1].frame, 0x1234);
	header->node_count = header->chunk_count = chunk->used = chunk->cells[0].node = 1;
	chunk->cells[0].alloc_bytes += bytes;
	chunk->cells[0].alloc_objects++;
}

/* Tells the test that it may look, and waits until it has. */
static inline void pause_child(struct recorder *recorder)
{
	char byte = 0;

	if (write(recorder->ready, &byte, 1) != 1 || read(recorder->go, &byte, 1) != 1)
		_exit(99);
}

typedef int child_fn(struct recorder *recorder);

/* ---- what recorders do ---- */

static inline int allocate_and_exit(struct recorder *recorder)
{
	greet(recorder);
	if (!recorder->header)
		return 98;
	allocate(recorder, 100);
	return 3;
}

static inline int allocate_and_pause(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	pause_child(recorder);
	return hl_mode_of(atomic_load(&recorder->header->mode)) == HL_MODE_CLOSED ? 4 : 5;
}

static inline int take_no_region(struct recorder *recorder)
{
	greet(recorder);
	atomic_store(&recorder->header->state, HL_REGION_EMPTY);
	return 0;
}

/* ---- a recording that is being made ---- */

struct fixture {
	char directory[64], path[96];
	struct hl_collector *collector;
	pid_t child;
	int ready, go;
	struct hl_collector_summary summary;
	struct hl_recording *recording;
};

static inline void begin_with(struct fixture *fixture, enum hl_mode mode, bool follow,
			      pid_t program)
{
	static char *command[] = {"program", "argument", NULL};
	struct hl_collector_settings settings = {
		.region = {.mode = mode, .follow = follow},
		.log = {.segment_bytes = 1 << 20, .segments_kept = 10},
		.command = command,
	};
	struct hl_error err = {0};

	assert_int_equal(hl_collector_new(&settings, &fixture->collector, &err), 0);
	assert_int_equal(
		hl_collector_begin(fixture->collector, fixture->path, false, program, &err), 0);
}

static inline void begin(struct fixture *fixture, enum hl_mode mode, bool follow)
{
	begin_with(fixture, mode, follow, getpid());
}

static inline void begin_again(struct fixture *fixture, enum hl_mode mode, bool follow)
{
	hl_collector_abandon(fixture->collector);
	hl_collector_free(fixture->collector);
	begin(fixture, mode, follow);
}

static inline int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	if (make_temporary(fixture->directory) < 0)
		return -1;
	snprintf(fixture->path, sizeof(fixture->path), "%s/test.hl", fixture->directory);
	*state = fixture;
	begin(fixture, HL_MODE_MEM_FAST, true);
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *fixture = *state;

	if (fixture->child > 0 &&
	    waitpid(fixture->child, NULL, WNOHANG) == 0) { /* the test has failed */
		kill(fixture->child, SIGKILL);
		waitpid(fixture->child, NULL, 0);
	}
	hl_collector_free(fixture->collector);
	hl_recording_free(fixture->recording);
	int r = remove_temporary(fixture->directory);
	free(fixture);
	return r;
}

static inline void start(struct fixture *fixture, child_fn *run)
{
	int ready[2], go[2];

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	fixture->child = fork();
	if (fixture->child == 0) {
		struct recorder recorder = {
			.collector = fixture->collector, .ready = ready[1], .go = go[0]};
		_exit(run(&recorder));
	}
	close(ready[1]);
	close(go[0]);
	fixture->ready = ready[0];
	fixture->go = go[1];
}

/* Serves the collector until ${fd} is readable. */
static inline void serve_until(struct fixture *fixture, int fd)
{
	struct pollfd pollers[] = {
		{.fd = fd, .events = POLLIN},
		{.fd = hl_collector_fd(fixture->collector), .events = POLLIN},
	};

	do {
		assert_true(poll(pollers, 2, 60000) > 0);
		hl_collector_dispatch(fixture->collector);
	} while (!pollers[0].revents);
}

/* Serves until the child pauses. */
static inline void await_pause(struct fixture *fixture)
{
	char byte;

	serve_until(fixture, fixture->ready);
	assert_int_equal(read(fixture->ready, &byte, 1), 1);
}

static inline void let_go(struct fixture *fixture)
{
	assert_int_equal(write(fixture->go, "", 1), 1);
}

/* Serves until the child has ended, and reaps it. Returns what waitpid says. */
static inline int await_end(struct fixture *fixture)
{
	int status;
	char byte;

	serve_until(fixture, fixture->ready); /* closed by its end */
	assert_int_equal(read(fixture->ready, &byte, 1), 0);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)fixture->child, &info, WEXITED | WNOWAIT), 0);
	hl_collector_check_ends(fixture->collector);
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	close(fixture->ready);
	close(fixture->go);
	return status;
}

/* Ends the recording and reads it. */
static inline const struct hl_recording *finish(struct fixture *fixture)
{
	struct hl_error err = {0};

	hl_collector_finish(fixture->collector, &fixture->summary);
	if (hl_recording_open(fixture->path, &fixture->recording, &err) < 0)
		fail_msg("%s", err.text);
	return fixture->recording;
}

static inline bool warns(const struct hl_recording *recording, const char *part)
{
	for (char **warning = recording->warnings; *warning; warning++)
		if (strstr(*warning, part))
			return true;
	return false;
}

/* At once, as a whole: files that are being written in it meanwhile go with it. */
static inline void remove_recording(const struct fixture *fixture)
{
	char gone[sizeof(fixture->path) + 8];

	snprintf(gone, sizeof(gone), "%s.gone", fixture->path);
	assert_int_equal(rename(fixture->path, gone), 0);
	(void)remove_temporary(gone); /* teardown removes what is written there later */
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
