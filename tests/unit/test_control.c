/* SPDX-License-Identifier: BSD-2-Clause */
/* How a recording is asked while it goes on: requests, connections, sockets. */
#include "collector/control.h"
#include "collector/control_ask.h"
#include "collector/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"

/* ---- requests ---- */

static int parse(const char *line, struct hl_control_request *request, struct hl_error *err)
{
	return hl_control_protocol_parse(line, strlen(line), request, err);
}

static void requests_come_back_as_they_were_written(void **state)
{
	static const char *const arguments[HL_CONTROL_VERBS] = {
		[HL_CONTROL_FIND] = "",		[HL_CONTROL_STATUS] = "",
		[HL_CONTROL_MODE] = "log-fast", [HL_CONTROL_MARK] = "a name with spaces ",
		[HL_CONTROL_SNAPSHOT] = "/x y", [HL_CONTROL_REPLACE] = "/\xff",
		[HL_CONTROL_SEGMENTS] = "12",	[HL_CONTROL_ALLOCATOR] = "",
		[HL_CONTROL_RESET] = "",	[HL_CONTROL_DETACH] = "",
		[HL_CONTROL_LINES] = "1300",	[HL_CONTROL_TIMES] = "",
		[HL_CONTROL_LEAKS] = "",
	};

	(void)state;
	for (enum hl_control_verb verb = 0; verb < HL_CONTROL_VERBS; verb++) {
		struct hl_control_request request = {.verb = verb, .pid = 4711}, found;
		char line[HL_CONTROL_LINE_MAX];
		strcpy(request.argument, arguments[verb]);
		assert_int_equal(hl_control_protocol_check(&request, NULL), 0);
		size_t size = hl_control_protocol_format(&request, line);
		assert_int_equal(line[size - 1], '\n');
		assert_int_equal(hl_control_protocol_parse(line, size - 1, &found, NULL), 0);
		assert_int_equal(found.verb, verb);
		assert_int_equal(found.pid, 4711);
		assert_string_equal(found.argument, arguments[verb]);
		assert_int_equal(found.mode, verb == HL_CONTROL_MODE ? HL_MODE_LOG_FAST : 0);
		assert_int_equal(found.segments, verb == HL_CONTROL_SEGMENTS ? 12 : 0);
	}
}

static void requests_that_make_no_sense_are_refused_with_a_sentence(void **state)
{
	static const char *const lines[] = {
		"",
		"status 0",
		"heapline/1",
		"heapline/1 ",
		"heapline/1 status",
		"heapline/1 status ",
		"heapline/1 stat 0",
		"heapline/1 statuses 0",
		"heapline/1 status -1",
		"heapline/1 status 2147483648",
		"heapline/1 status 0x10",
		"heapline/1 status 0 x",
		"heapline/1  status 0",
		"heapline/2 status 0",
		"heapline/1 mode 0",
		"heapline/1 mode 0 mem",
		"heapline/1 mark 0",
		"heapline/1 mark 0 \x1b[31m",
		"heapline/1 mark 0 \xc2\x9b",
		"heapline/1 mark 0 a\nb",
		"heapline/1 snapshot 0",
		"heapline/1 snapshot 0 here",
		"heapline/1 log-segments 0",
		"heapline/1 log-segments 0 0",
		"heapline/1 log-segments 0 +1",
		"heapline/1 log-segments 0 1000001",
		"heapline/1 log-segments 0 4294967297",
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(lines); i++) {
		struct hl_control_request request;
		struct hl_error err = {0};
		assert_int_equal(parse(lines[i], &request, &err), -EINVAL);
		assert_true(strlen(err.text) > 10);
	}
	struct hl_control_request request;
	assert_int_equal(hl_control_protocol_parse("heapline/1 status 0\0", 20, &request, NULL),
			 -EINVAL);
}

static void the_longest_argument_fits_a_line(void **state)
{
	(void)state;
	struct hl_control_request request = {.verb = HL_CONTROL_REPLACE, .pid = INT32_MAX}, found;
	char line[HL_CONTROL_LINE_MAX + 1];
	memset(request.argument, 'x', sizeof(request.argument) - 1);
	request.argument[0] = '/';
	size_t size = hl_control_protocol_format(&request, line);
	assert_true(size <= HL_CONTROL_LINE_MAX);
	assert_int_equal(line[size - 1], '\n');
	assert_int_equal(hl_control_protocol_parse(line, size - 1, &found, NULL), 0);
	assert_string_equal(found.argument, request.argument);
	line[size - 1] = 'x';
	assert_int_equal(hl_control_protocol_parse(line, size, &found, NULL), -EINVAL);
}

/* ---- clients ---- */

struct conversation {
	struct hl_control_client client;
	int other; /* the client's own end */
};

static void begin(struct conversation *conversation)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	hl_control_client_begin(&conversation->client, fds[0], getpid());
	conversation->other = fds[1];
}

static void end(struct conversation *conversation)
{
	hl_control_client_end(&conversation->client);
	assert_int_equal(conversation->client.state, HL_CLIENT_NONE);
	close(conversation->other);
}

static void say(struct conversation *conversation, const char *bytes, size_t size)
{
	assert_int_equal(write(conversation->other, bytes, size), size);
}

static void a_request_may_come_in_pieces(void **state)
{
	static const char line[] = "heapline/1 status 0\n";
	struct conversation conversation;
	struct hl_control_request request;

	(void)state;
	begin(&conversation);
	assert_int_equal(hl_control_client_read(&conversation.client, &request, NULL), -EAGAIN);
	for (size_t i = 0; i + 1 < strlen(line); i++) {
		say(&conversation, line + i, 1);
		assert_int_equal(hl_control_client_read(&conversation.client, &request, NULL),
				 -EAGAIN);
	}
	say(&conversation, "\n", 1);
	assert_int_equal(hl_control_client_read(&conversation.client, &request, NULL), 0);
	assert_int_equal(request.verb, HL_CONTROL_STATUS);
	end(&conversation);
}

static void more_or_less_than_one_line_is_refused(void **state)
{
	struct conversation conversation;
	struct hl_control_request request;
	struct hl_error err = {0};
	char much[HL_CONTROL_LINE_MAX];

	(void)state;
	begin(&conversation);
	say(&conversation, "heapline/1 status 0\nx", 21);
	assert_int_equal(hl_control_client_read(&conversation.client, &request, &err), -EINVAL);
	end(&conversation);
	memset(much, 'x', sizeof(much));
	begin(&conversation);
	say(&conversation, much, sizeof(much));
	assert_int_equal(hl_control_client_read(&conversation.client, &request, &err), -EINVAL);
	end(&conversation);
	begin(&conversation);
	say(&conversation, "heapline/1 status 0", 19);
	close(conversation.other);
	assert_int_equal(hl_control_client_read(&conversation.client, &request, &err), -EAGAIN);
	assert_int_equal(hl_control_client_read(&conversation.client, &request, &err), -EPIPE);
	conversation.other = -1;
	end(&conversation);
}

#define LONG_ANSWER ((size_t)4 << 20)

static void a_long_answer_waits_for_its_reader(void **state)
{
	struct conversation conversation;
	char *answer = malloc(LONG_ANSWER + 1), part[4096];
	size_t received = 0;

	(void)state;
	memset(answer, 'a', LONG_ANSWER);
	answer[LONG_ANSWER] = '\0';
	begin(&conversation);
	hl_control_client_answer(&conversation.client, answer);
	while (!hl_control_client_send(&conversation.client)) {
		ssize_t size;
		while ((size = read(conversation.other, part, sizeof(part))) > 0)
			received += (size_t)size;
	}
	end(&conversation);
	assert_true(received > 0 && received <= LONG_ANSWER);
}

static void who_has_gone_is_not_answered(void **state)
{
	struct conversation conversation;

	(void)state;
	begin(&conversation);
	close(conversation.other);
	conversation.other = -1;
	hl_control_client_answer(&conversation.client, NULL);
	assert_true(hl_control_client_send(&conversation.client));
	end(&conversation);
}

static void want_of_memory_is_answered(void **state)
{
	struct conversation conversation;
	char answer[128] = "";

	(void)state;
	begin(&conversation);
	hl_control_client_answer(&conversation.client, NULL);
	assert_true(hl_control_client_send(&conversation.client));
	assert_true(read(conversation.other, answer, sizeof(answer) - 1) > 0);
	assert_non_null(strstr(answer, "\"error\""));
	end(&conversation);
}

/* ---- reports that programs ask for ---- */

static void a_program_may_name_relative_paths(void **state)
{
	char path[PATH_MAX], here[PATH_MAX], expected[PATH_MAX + 8];

	(void)state;
	assert_int_equal(hl_program_report_path(getpid(), "/x.hl", path, NULL), 0);
	assert_string_equal(path, "/x.hl");
	assert_int_equal(hl_program_report_path(getpid(), "x.hl", path, NULL), 0);
	assert_non_null(getcwd(here, sizeof(here)));
	snprintf(expected, sizeof(expected), "%s/x.hl", here);
	assert_string_equal(path, expected);
}

static void a_program_that_is_not_there_gets_none(void **state)
{
	char path[PATH_MAX];
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_program_report_path(INT32_MAX, "/x.hl", path, &err), -EPERM);
	assert_non_null(strstr(err.text, "'/x.hl'"));
}

/* ---- sockets, in a directory of their own ---- */

static char runtime[64];

static void path_in(const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", runtime, name);
}

static int setup(void **state)
{
	(void)state;
	return make_temporary(runtime) < 0 ? -1 : setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static int teardown(void **state)
{
	(void)state;
	return remove_temporary(runtime);
}

static size_t count_sockets(int directory_fd)
{
	pid_t *pids;
	size_t count;

	assert_int_equal(hl_control_directory_list(directory_fd, &pids, &count), 0);
	free(pids);
	return count;
}

static void sockets_of_the_dead_are_cleaned(void **state)
{
	(void)state;
	int directory_fd = hl_control_directory_make();
	assert_true(directory_fd >= 0);
	int fd = hl_control_directory_listen(directory_fd);
	assert_true(fd >= 0);
	assert_int_equal(count_sockets(directory_fd), 1);
	hl_control_directory_clean(directory_fd);
	assert_int_equal(count_sockets(directory_fd), 1);
	close(fd);
	assert_int_equal(hl_control_directory_connect(directory_fd, getpid()), -ECONNREFUSED);
	hl_control_directory_clean(directory_fd);
	assert_int_equal(count_sockets(directory_fd), 0);
	assert_int_equal(hl_control_directory_connect(directory_fd, getpid()), -ENOENT);
	close(directory_fd);
}

static void a_name_is_not_taken_from_the_living(void **state)
{
	(void)state;
	int directory_fd = hl_control_directory_make();
	int fd = hl_control_directory_listen(directory_fd);
	assert_int_equal(hl_control_directory_listen(directory_fd), -EEXIST);
	int client = hl_control_directory_connect(directory_fd, getpid());
	assert_true(client >= 0);
	close(client);
	hl_control_directory_remove(directory_fd);
	assert_int_equal(count_sockets(directory_fd), 0);
	close(fd);
	close(directory_fd);
}

static void other_files_are_no_sockets(void **state)
{
	static const char *const names[] = {"0.sock", "-1.sock", "01.sock", "1.socks",
					    ".sock",  "x",	 "1",	    "99999999999.sock"};

	(void)state;
	int directory_fd = hl_control_directory_make();
	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		close(openat(directory_fd, names[i], O_CREAT | O_WRONLY, 0600));
	assert_int_equal(count_sockets(directory_fd), 0);
	close(directory_fd);
}

static void only_private_directories_are_opened(void **state)
{
	char path[256], target[256];

	(void)state;
	path_in("heapline", path);
	path_in("target", target);
	assert_int_equal(hl_control_directory_open(HL_CONTROL_IN_RUNTIME_DIR, geteuid()), -ENOENT);
	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(hl_control_directory_open(HL_CONTROL_IN_RUNTIME_DIR, geteuid()), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0710), 0);
	assert_int_equal(hl_control_directory_open(HL_CONTROL_IN_RUNTIME_DIR, geteuid()), -EPERM);
	assert_int_equal(chmod(path, 0700), 0);
	int fd = hl_control_directory_open(HL_CONTROL_IN_RUNTIME_DIR, geteuid());
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(hl_control_directory_open(HL_CONTROL_IN_RUNTIME_DIR, geteuid() + 1),
			 -ENOENT);
}

static void a_directory_is_private_whatever_the_umask(void **state)
{
	struct stat status;

	(void)state;
	mode_t before = umask(0777);
	int fd = hl_control_directory_make();
	umask(before);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_come_back_as_they_were_written),
		cmocka_unit_test(requests_that_make_no_sense_are_refused_with_a_sentence),
		cmocka_unit_test(the_longest_argument_fits_a_line),
		cmocka_unit_test(a_request_may_come_in_pieces),
		cmocka_unit_test(more_or_less_than_one_line_is_refused),
		cmocka_unit_test(a_long_answer_waits_for_its_reader),
		cmocka_unit_test(who_has_gone_is_not_answered),
		cmocka_unit_test(want_of_memory_is_answered),
		cmocka_unit_test(a_program_may_name_relative_paths),
		cmocka_unit_test(a_program_that_is_not_there_gets_none),
#define TEST_WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
		TEST_WITH_DIRECTORY(sockets_of_the_dead_are_cleaned),
		TEST_WITH_DIRECTORY(a_name_is_not_taken_from_the_living),
		TEST_WITH_DIRECTORY(other_files_are_no_sockets),
		TEST_WITH_DIRECTORY(only_private_directories_are_opened),
		TEST_WITH_DIRECTORY(a_directory_is_private_whatever_the_umask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
