/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector, with recorders played by forked children that speak its protocol. */
#include "collector/collector.h"

#include "log/log_reader.h"
#include "recorder/protocol.h"
#include "recorder/region.h"
#include "recorder/ring_writer.h"
#include "recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a recorder ---- */

struct recorder {
	const struct hl_collector *collector;
	struct hl_region_header *header;
	int error; /* of the welcome; -1: there was none */
	int ready; /* a byte into it says that the child has come so far */
	int go;	   /* a byte out of it lets the child go on */
};

static int connect_to(const struct hl_collector *collector)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *name = hl_collector_socket(collector);
	memcpy(address.sun_path + 1, name, strlen(name));
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return connect(fd, (struct sockaddr *)&address, size) < 0 ? -1 : fd;
}

static struct hl_hello make_hello(const struct hl_collector *collector)
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
static int receive_welcome(int fd, struct hl_welcome *welcome, int *ret_error)
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
static void say_hello(struct recorder *recorder, const struct hl_hello *hello)
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

static void greet(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);
	say_hello(recorder, &hello);
}

/* Counts one allocation of ${bytes} at the one node that there is. */
static void allocate(struct recorder *recorder, uint64_t bytes)
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
static void pause_child(struct recorder *recorder)
{
	char byte = 0;
	if (write(recorder->ready, &byte, 1) != 1 || read(recorder->go, &byte, 1) != 1)
		_exit(99);
}

typedef int child_fn(struct recorder *recorder);

/* ---- a recording that is being made ---- */

struct fixture {
	char directory[64], path[96];
	struct hl_collector *collector;
	pid_t child;
	int ready, go;
	struct hl_collector_summary summary;
	struct hl_recording *recording;
};

static void begin(struct fixture *fixture, enum hl_mode mode, bool follow)
{
	static char *command[] = {"program", "argument", NULL};
	struct hl_collector_settings settings = {
		.region.mode = mode,
		.log = {.segment_bytes = 1 << 20, .segments_kept = 10},
		.follow = follow,
		.command = command,
	};
	struct hl_error err = {0};
	assert_int_equal(hl_collector_new(&settings, &fixture->collector, &err), 0);
	assert_int_equal(
		hl_collector_begin(fixture->collector, fixture->path, false, getpid(), &err), 0);
}

static void begin_again(struct fixture *fixture, enum hl_mode mode, bool follow)
{
	hl_collector_abandon(fixture->collector);
	hl_collector_free(fixture->collector);
	begin(fixture, mode, follow);
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	strcpy(fixture->directory, "/tmp/heapline-test-XXXXXX");
	if (!mkdtemp(fixture->directory))
		return -1;
	snprintf(fixture->path, sizeof(fixture->path), "%s/test.hl", fixture->directory);
	*state = fixture;
	begin(fixture, HL_MODE_MEM_FAST, true);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	char command[128];
	hl_collector_free(fixture->collector);
	hl_recording_free(fixture->recording);
	snprintf(command, sizeof(command), "rm -rf '%s'", fixture->directory);
	int r = system(command);
	free(fixture);
	return r;
}

static void start(struct fixture *fixture, child_fn *run)
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
static void serve_until(struct fixture *fixture, int fd)
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
static void await_pause(struct fixture *fixture)
{
	char byte;
	serve_until(fixture, fixture->ready);
	assert_int_equal(read(fixture->ready, &byte, 1), 1);
}

static void let_go(struct fixture *fixture)
{
	assert_int_equal(write(fixture->go, "", 1), 1);
}

/* Serves until the child has ended, and reaps it. Returns what waitpid says. */
static int await_end(struct fixture *fixture)
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
static const struct hl_recording *finish(struct fixture *fixture)
{
	struct hl_error err = {0};
	hl_collector_finish(fixture->collector, &fixture->summary);
	if (hl_recording_open(fixture->path, &fixture->recording, &err) < 0)
		fail_msg("%s", err.text);
	return fixture->recording;
}

static bool warns(const struct hl_recording *recording, const char *part)
{
	for (char **warning = recording->warnings; *warning; warning++)
		if (strstr(*warning, part))
			return true;
	return false;
}

/* ---- processes ---- */

static int allocate_and_exit(struct recorder *recorder)
{
	greet(recorder);
	if (!recorder->header)
		return 98;
	allocate(recorder, 100);
	return 3;
}

static void a_process_is_complete_when_it_has_exited(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_exit);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	const struct hl_recording *recording = finish(fixture);
	assert_true(recording->complete);
	assert_string_equal(recording->mode, "mem-fast");
	assert_string_equal(recording->command[1], "argument");
	assert_int_equal(recording->process_count, 1);
	const struct hl_recording_process *process = &recording->processes[0];
	assert_int_equal(process->pid, fixture->child);
	assert_int_equal(process->parent_pid, getpid());
	assert_non_null(strstr(process->executable, "test_collector"));
	assert_non_null(strstr(process->command[0], "test_collector"));
	assert_true(process->complete);
	assert_int_equal(process->end, HL_END_EXITED);
	assert_int_equal(process->end_status, 3);
	assert_int_equal(process->values[0].alloc_bytes, 100);
	assert_int_equal(process->values[0].peak_bytes, 100);
	assert_int_equal(fixture->summary.processes, 1);
	assert_int_equal(fixture->summary.allocations, 1);
	assert_int_equal(fixture->summary.peak_bytes, 100);
	assert_false(fixture->summary.incomplete);
}

static int allocate_and_pause(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	pause_child(recorder);
	return atomic_load(&recorder->header->mode) == HL_MODE_CLOSED ? 4 : 5;
}

static void a_killed_process_is_complete(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	kill(fixture->child, SIGKILL);
	await_end(fixture);
	const struct hl_recording_process *process = finish(fixture)->processes;
	assert_true(process->complete);
	assert_int_equal(process->end, HL_END_SIGNALED);
	assert_int_equal(process->end_status, SIGKILL);
	assert_int_equal(process->values[0].alloc_bytes, 100);
}

static void a_process_that_runs_on_is_closed_and_kept_as_it_stands(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	const struct hl_recording_process *process = finish(fixture)->processes;
	assert_int_equal(process->end, HL_END_RUNNING);
	assert_true(process->complete);
	assert_int_equal(process->values[0].alloc_bytes, 100);
	assert_int_equal(fixture->summary.running, 1);
	let_go(fixture);
	int status;
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	assert_int_equal(WEXITSTATUS(status), 4);
}

static int greet_twice(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	greet(recorder);
	allocate(recorder, 7);
	return 0;
}

static void a_second_hello_is_another_program_in_the_same_process(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, greet_twice);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 2);
	assert_int_equal(recording->processes[0].end, HL_END_EXEC);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_int_equal(recording->processes[1].end, HL_END_EXITED);
	assert_int_equal(recording->processes[1].values[0].alloc_bytes, 7);
}

static int take_no_region(struct recorder *recorder)
{
	greet(recorder);
	atomic_store(&recorder->header->state, HL_REGION_EMPTY);
	return 0;
}

static void a_region_that_was_never_taken_is_a_warning_and_no_entry(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, take_no_region);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 0);
	assert_int_equal(fixture->summary.processes, 0);
	assert_true(warns(recording, "no memory or address space"));
}

static int map_little(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);
	hello.address_space_limit = UINT64_C(512) << 20;
	say_hello(recorder, &hello);
	return recorder->header->region_bytes <= UINT64_C(64) << 20 ? 0 : 1;
}

static void a_region_takes_an_eighth_of_a_limited_address_space(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, map_little);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 0);
}

/* ---- callers ---- */

static int greet_with_wrong_token(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);
	hello.token[0] ^= 1;
	say_hello(recorder, &hello);
	return recorder->error == -1 && !recorder->header ? 0 : 1;
}

static int greet_in_another_version(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);
	hello.region_version++;
	say_hello(recorder, &hello);
	return recorder->error == -1 && !recorder->header ? 0 : 1;
}

static int send_nonsense(struct recorder *recorder)
{
	char bytes[4096] = {0};
	for (size_t size = 1; size <= sizeof(bytes); size *= 4) {
		int fd = connect_to(recorder->collector);
		send(fd, bytes, size, MSG_NOSIGNAL);
		if (recv(fd, bytes, sizeof(bytes), 0) != 0)
			return 1;
		close(fd);
	}
	return 0;
}

static void callers_without_a_proper_hello_are_turned_away(void **state)
{
	struct fixture *fixture = *state;
	static child_fn *const children[] = {greet_with_wrong_token, greet_in_another_version,
					     send_nonsense, allocate_and_exit};
	static const int expected[] = {0, 0, 0, 3};
	for (size_t i = 0; i < HL_COUNT_OF(children); i++) {
		start(fixture, children[i]);
		assert_int_equal(WEXITSTATUS(await_end(fixture)), expected[i]);
	}
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_true(warns(recording, "turned away 9 times"));
}

static int expect_refusal(struct recorder *recorder)
{
	greet(recorder);
	return recorder->header ? 0 : recorder->error;
}

static void without_follow_children_are_refused(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_MEM_FAST, false);
	start(fixture, expect_refusal);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), EPERM);
	assert_int_equal(finish(fixture)->process_count, 0);
}

/* More silent callers than may wait, then a recorder. */
static int crowd_and_greet(struct recorder *recorder)
{
	for (int i = 0; i < 100; i++)
		if (connect_to(recorder->collector) < 0)
			return 1;
	greet(recorder);
	return recorder->error;
}

static void a_crowd_of_silent_callers_is_kept_small(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, crowd_and_greet);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 255); /* hung up on */
	start(fixture, allocate_and_exit);			/* the crowd has gone */
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	assert_int_equal(finish(fixture)->process_count, 1);
}

static int greet_after_pause(struct recorder *recorder)
{
	pause_child(recorder);
	return expect_refusal(recorder);
}

static void a_collector_without_descriptors_refuses_and_goes_on(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, greet_after_pause);
	await_pause(fixture);
	struct rlimit limit, few;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	int lowest = dup(0);
	close(lowest);
	few.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	let_go(fixture);
	int status = await_end(fixture);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(WEXITSTATUS(status), 255); /* hung up on */
	start(fixture, allocate_and_exit);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_true(warns(recording, "file descriptors"));
}

/* ---- logs ---- */

/* Counts an allocation of ${bytes} and writes it into the ring of the one thread that there is. */
static void allocate_with_log(struct recorder *recorder, uint64_t bytes)
{
	static struct hl_shared shared;
	static struct hl_ring_writer writer;
	if (shared.header != recorder->header) {
		memset(&writer, 0, sizeof(writer));
		hl_shared_init(&shared, recorder->header);
		hl_ring_writer_init(&writer, &shared, 0);
		atomic_store(&recorder->header->thread_count, 1);
	}
	allocate(recorder, bytes);
	hl_ring_write(&writer, &shared, 1, bytes, 1, false);
}

static int log_and_exit(struct recorder *recorder)
{
	greet(recorder);
	for (int i = 0; i < 1000; i++)
		allocate_with_log(recorder, 100);
	return 3;
}

/* What the log of a process has in use in the end; -1 when there is none. */
static int64_t logged_bytes(const struct fixture *fixture, uint32_t sequence)
{
	struct hl_log *log;
	struct hl_error err = {0};
	if (hl_log_open(fixture->path, sequence, &(struct hl_log_options){0}, &log, &err) < 0)
		return -1;
	assert_false(log->cut_off);
	int64_t bytes = log->points[log->point_count - 1].end_bytes;
	hl_log_free(log);
	return bytes;
}

static void a_process_has_a_log_in_modes_with_one(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_and_exit);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_string_equal(recording->mode, "log-fast");
	assert_null(recording->warnings[0]);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100000);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
}

static int log_twice(struct recorder *recorder)
{
	log_and_exit(recorder);
	greet(recorder);
	allocate_with_log(recorder, 7);
	return 0;
}

static void each_program_of_a_process_has_a_log_of_its_own(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_RECORD, true);
	start(fixture, log_twice);
	await_end(fixture);
	assert_int_equal(finish(fixture)->process_count, 2);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
	assert_int_equal(logged_bytes(fixture, 1), 7);
}

static int log_and_outlive(struct recorder *recorder)
{
	log_and_exit(recorder);
	pause_child(recorder);
	uint32_t flags = atomic_load(&recorder->header->flags);
	return flags & HL_REGION_LOSSY ? 6 : 7;
}

static void who_outlives_the_recording_is_told_not_to_wait(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_and_outlive);
	await_pause(fixture);
	assert_int_equal(finish(fixture)->processes[0].end, HL_END_RUNNING);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
	let_go(fixture);
	int status;
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	assert_int_equal(WEXITSTATUS(status), 6);
}

static void a_region_that_was_never_taken_has_no_log(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, take_no_region);
	await_end(fixture);
	assert_int_equal(finish(fixture)->process_count, 0);
	assert_int_equal(logged_bytes(fixture, 0), -1);
}

static int damage_a_ring(struct recorder *recorder)
{
	log_and_exit(recorder);
	struct hl_region_header *header = recorder->header;
	struct hl_ring *ring = (void *)((char *)header + header->areas[HL_AREA_RINGS].offset);
	atomic_store(&ring->capacity, 12345);
	allocate_with_log(recorder, 100);
	return 0;
}

static void what_a_log_lacks_is_said(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, damage_a_ring);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_true(warns(recording, "lacks the events of 1 thread: the process has damaged"));
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100100);
}

/* ---- disks ---- */

static void remove_recording(const struct fixture *fixture)
{
	char command[160];
	snprintf(command, sizeof(command), "rm -rf '%s'", fixture->path);
	assert_int_equal(system(command), 0);
}

static void a_vanished_directory_is_made_again(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_exit);
	await_end(fixture);
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	remove_recording(fixture);
	let_go(fixture);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].sequence, 1);
	assert_true(warns(recording, "vanished while recording; 1 process"));
	assert_false(fixture->summary.incomplete);
}

static void another_directory_in_its_place_is_left_alone(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	remove_recording(fixture);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
	char file[128];
	snprintf(file, sizeof(file), "%s/letter", fixture->path);
	close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	let_go(fixture);
	await_end(fixture);
	hl_collector_finish(fixture->collector, &fixture->summary);
	assert_true(fixture->summary.incomplete);
	assert_non_null(strstr(fixture->summary.failure, "cannot write"));
	assert_int_equal(access(file, F_OK), 0);
}

static int log_before_and_after(struct recorder *recorder)
{
	log_and_exit(recorder);
	pause_child(recorder);
	allocate_with_log(recorder, 7);
	pause_child(recorder);
	return 0;
}

/* Serves until a file of that pattern is there. */
static void serve_until_there(struct fixture *fixture, const char *pattern)
{
	char path[160];
	glob_t found;
	snprintf(path, sizeof(path), "%s/%s", fixture->path, pattern);
	for (int i = 0; glob(path, 0, NULL, &found) != 0; i++) {
		struct pollfd poller = {hl_collector_fd(fixture->collector), POLLIN, 0};
		assert_true(poll(&poller, 1, 2000) >= 0 && i < 100);
		hl_collector_dispatch(fixture->collector);
	}
	globfree(&found);
}

static void a_log_goes_on_in_the_directory_that_is_made_again(void **state)
{
	struct fixture *fixture = *state;
	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_before_and_after);
	await_pause(fixture);
	serve_until_there(fixture, "memlog-0-*");
	remove_recording(fixture);
	let_go(fixture);
	await_pause(fixture);
	serve_until_there(fixture, "memlog-0-*");
	let_go(fixture);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_true(warns(recording, "vanished while recording"));
	assert_int_equal(logged_bytes(fixture, 0), 100007);
}

/* A directory where the temporary file should be: root cannot write there either. */
static void block_writes(const struct fixture *fixture, char blocker[160])
{
	snprintf(blocker, 160, "%s/.process-0-%d.hlp.tmp", fixture->path, fixture->child);
	assert_int_equal(mkdir(blocker, 0700), 0);
}

static void an_ended_process_is_saved_as_soon_as_the_disk_takes_it(void **state)
{
	struct fixture *fixture = *state;
	char blocker[160];
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	block_writes(fixture, blocker);
	kill(fixture->child, SIGKILL);
	await_end(fixture);
	assert_int_equal(rmdir(blocker), 0);
	const struct hl_recording *recording = finish(fixture);
	assert_false(fixture->summary.incomplete);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].end, HL_END_SIGNALED);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_true(warns(recording, "cannot write"));
}

static void a_disk_that_never_takes_it_is_told_in_the_end(void **state)
{
	struct fixture *fixture = *state;
	char blocker[160];
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	block_writes(fixture, blocker);
	let_go(fixture);
	await_end(fixture);
	hl_collector_finish(fixture->collector, &fixture->summary);
	assert_true(fixture->summary.incomplete);
	assert_non_null(strstr(fixture->summary.failure, "cannot write 'process-0-"));
}

static int pause_long_enough_to_be_saved(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	pause_child(recorder);
	return 0;
}

static void a_running_process_is_saved_every_second(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, pause_long_enough_to_be_saved);
	await_pause(fixture);
	char file[128];
	snprintf(file, sizeof(file), "%s/process-0-%d.hlp", fixture->path, fixture->child);
	for (int i = 0; access(file, F_OK) < 0; i++) {
		struct pollfd poller = {hl_collector_fd(fixture->collector), POLLIN, 0};
		assert_true(poll(&poller, 1, 60000) == 1 && i < 100);
		hl_collector_dispatch(fixture->collector);
	}
	struct hl_error err = {0};
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	const struct hl_recording *recording = fixture->recording;
	assert_false(recording->complete);
	assert_false(recording->processes[0].complete);
	assert_int_equal(recording->processes[0].end, HL_END_RUNNING);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	let_go(fixture);
	await_end(fixture);
}

/* ---- the directory ---- */

static int begin_at(const char *path, bool replace, struct hl_error *err)
{
	static char *command[] = {"program", NULL};
	struct hl_collector_settings settings = {.region.mode = HL_MODE_MEM_FAST,
						 .command = command};
	struct hl_collector *collector;
	assert_int_equal(hl_collector_new(&settings, &collector, err), 0);
	int r = hl_collector_begin(collector, path, replace, getpid(), err);
	hl_collector_free(collector);
	return r;
}

/* From here on the directory is nobody's. */
static void end(struct fixture *fixture)
{
	hl_collector_free(fixture->collector);
	fixture->collector = NULL;
}

static void an_existing_recording_is_replaced_only_when_asked_to(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};
	start(fixture, allocate_and_exit);
	await_end(fixture);
	finish(fixture);
	end(fixture);
	assert_int_equal(begin_at(fixture->path, false, &err), -EEXIST);
	assert_non_null(strstr(err.text, "use -f"));
	err.text[0] = '\0';
	assert_int_equal(begin_at(fixture->path, true, &err), 0);
	hl_recording_free(fixture->recording);
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	assert_int_equal(fixture->recording->process_count, 0);
}

/* Its files as they were before. */
static void assert_untouched(struct fixture *fixture)
{
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_false(fixture->summary.incomplete);
}

static void a_recording_that_goes_on_is_not_replaced(void **state)
{
	struct fixture *fixture = *state;
	start(fixture, allocate_and_exit);
	await_end(fixture);
	for (int replace = 0; replace < 2; replace++) {
		struct hl_error err = {0};
		assert_int_equal(begin_at(fixture->path, replace, &err), -EBUSY);
		assert_non_null(strstr(err.text, "is still being recorded"));
	}
	assert_untouched(fixture);
}

static void nothing_that_is_no_recording_is_ever_replaced(void **state)
{
	struct fixture *fixture = *state;
	end(fixture);
	struct hl_error err = {0};
	char file[160];
	snprintf(file, sizeof(file), "%s/letter", fixture->path);
	close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(begin_at(fixture->path, true, &err), -EEXIST);
	assert_non_null(strstr(err.text, "not a recording"));
	err.text[0] = '\0';
	assert_int_equal(begin_at(file, true, &err), -EEXIST);
	assert_non_null(strstr(err.text, "not a recording"));
	assert_int_equal(access(file, F_OK), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_is_complete_when_it_has_exited),
		TEST(a_killed_process_is_complete),
		TEST(a_process_that_runs_on_is_closed_and_kept_as_it_stands),
		TEST(a_second_hello_is_another_program_in_the_same_process),
		TEST(a_region_that_was_never_taken_is_a_warning_and_no_entry),
		TEST(a_region_takes_an_eighth_of_a_limited_address_space),
		TEST(callers_without_a_proper_hello_are_turned_away),
		TEST(without_follow_children_are_refused),
		TEST(a_crowd_of_silent_callers_is_kept_small),
		TEST(a_collector_without_descriptors_refuses_and_goes_on),
		TEST(a_process_has_a_log_in_modes_with_one),
		TEST(each_program_of_a_process_has_a_log_of_its_own),
		TEST(who_outlives_the_recording_is_told_not_to_wait),
		TEST(a_region_that_was_never_taken_has_no_log),
		TEST(what_a_log_lacks_is_said),
		TEST(a_vanished_directory_is_made_again),
		TEST(a_log_goes_on_in_the_directory_that_is_made_again),
		TEST(another_directory_in_its_place_is_left_alone),
		TEST(an_ended_process_is_saved_as_soon_as_the_disk_takes_it),
		TEST(a_disk_that_never_takes_it_is_told_in_the_end),
		TEST(a_running_process_is_saved_every_second),
		TEST(an_existing_recording_is_replaced_only_when_asked_to),
		TEST(a_recording_that_goes_on_is_not_replaced),
		TEST(nothing_that_is_no_recording_is_ever_replaced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
