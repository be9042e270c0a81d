/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's end of the handshake, with collectors that do not behave. */
#include "recorder/start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_US	   50000
#define GIVE_UP_MS (4 * HL_HELLO_WAIT_MS) /* a wait without an end would end the test here */

/* Any two users but root. */
enum { LISTENER = 65533, CALLER = 65532 };

static volatile sig_atomic_t ticks;

static void on_tick(int signal_number)
{
	(void)signal_number;
	if (++ticks > GIVE_UP_MS * 1000 / TICK_US)
		abort();
}

static void skip_unless_root(void)
{
	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		skip();
	}
}

static char token[33];

static int bind_name(int type, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s", name);
	socklen_t size =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	return fd;
}

/* Listens at an abstract name of this process' own and tells the recorder's part of it. */
static int listen_in_silence(void)
{
	char name[64];

	snprintf(name, sizeof(name), "heapline-test-connect-%d", getpid());
	snprintf(token, sizeof(token), "%016x%016x", getpid(), getpid());
	int fd = bind_name(SOCK_SEQPACKET, name);
	assert_int_equal(listen(fd, 1), 0);
	assert_true(hl_connect_set_collector(name, token));
	return fd;
}

static void tick_every(suseconds_t period_us)
{
	const struct itimerval timer = {{0, period_us}, {0, period_us}};

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Accepts a recorder that has said hello; negative when there is none. */
static int accept_hello(int fd)
{
	struct hl_hello hello;

	int caller = accept4(fd, NULL, NULL, 0);
	if (caller >= 0) /* it may have connected and said nothing yet */
		assert_int_equal(recv(caller, &hello, sizeof(hello), 0), sizeof(hello));
	return caller;
}

static void ask_in_vain(void)
{
	size_t bytes;
	int32_t pid;

	assert_null(hl_connect_get_region(HL_HELLO_FORK, &bytes, &pid));
}

static void a_silent_collector_is_given_up_however_many_signals_come(void **state)
{
	(void)state;
	const struct sigaction action = {.sa_handler = on_tick};
	sigaction(SIGALRM, &action, NULL);
	int fd = listen_in_silence();
	tick_every(TICK_US);
	ask_in_vain();
	tick_every(0);
	/* It got as far as waiting for an answer. */
	int caller = accept_hello(fd);
	assert_true(caller >= 0);
	close(caller);
	close(fd);
}

/* All users can read the names of sockets. */
static void assert_token_is_secret(void)
{
	char line[512];
	bool announced = false;
	FILE *sockets = fopen("/proc/net/unix", "re");

	assert_non_null(sockets);
	while (fgets(line, sizeof(line), sockets)) {
		announced |= strstr(line, HL_SILENCE_PREFIX) != NULL;
		assert_null(strstr(line, token));
	}
	fclose(sockets);
	assert_true(announced);
}

static void one_recorder_waits_for_a_silent_collector_and_the_others_do_not(void **state)
{
	(void)state;
	int fd = listen_in_silence();
	ask_in_vain();
	assert_token_is_secret();
	/* The collector has not come to that hello: nobody says another. */
	ask_in_vain();
	int caller = accept_hello(fd);
	assert_true(caller >= 0);
	assert_true(accept_hello(fd) < 0);
	/* Now it has. */
	close(caller);
	ask_in_vain();
	caller = accept_hello(fd);
	assert_true(caller >= 0);
	close(caller);
	close(fd);
}

/* A recorder says hello to the collector at ${fd}, which hangs up. */
static void assert_is_asked(int fd)
{
	pid_t collector = fork();

	if (collector == 0) {
		struct pollfd call = {.fd = fd, .events = POLLIN};
		poll(&call, 1, GIVE_UP_MS);
		_exit(accept_hello(fd) >= 0 ? 0 : 1);
	}
	ask_in_vain();
	int status;
	assert_int_equal(waitpid(collector, &status, 0), collector);
	assert_int_equal(status, 0);
}

static int bind_silence(int type)
{
	char name[sizeof(HL_SILENCE_PREFIX) + sizeof(token)];

	snprintf(name, sizeof(name), HL_SILENCE_PREFIX "%.*s", HL_SILENCE_DIGITS, token);
	return bind_name(type, name);
}

static void a_name_that_is_only_bound_does_not_silence(void **state)
{
	(void)state;
	int fd = listen_in_silence();
	const int types[] = {SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		int bound = bind_silence(types[i]);
		assert_is_asked(fd);
		close(bound);
	}
	close(fd);
}

static void a_listener_of_another_user_does_not_silence(void **state)
{
	(void)state;
	skip_unless_root();
	int fd = listen_in_silence();
	assert_int_equal(seteuid(LISTENER), 0);
	int bound = bind_silence(SOCK_SEQPACKET);
	assert_int_equal(listen(bound, 1), 0);
	assert_int_equal(seteuid(0), 0);
	assert_is_asked(fd);
	assert_int_equal(seteuid(CALLER), 0);
	assert_is_asked(fd);
	assert_int_equal(seteuid(0), 0);
	close(bound);
	close(fd);
}

static void the_region_of_another_user_is_not_taken(void **state)
{
	(void)state;
	skip_unless_root();
	assert_int_equal(seteuid(LISTENER), 0);
	int fd = listen_in_silence();
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(seteuid(CALLER), 0);
	ask_in_vain();
	assert_int_equal(seteuid(0), 0);
	/* It hung up without a word: not even the token was told. */
	int caller = accept(fd, NULL, NULL);
	char byte;
	assert_true(caller >= 0);
	assert_int_equal(recv(caller, &byte, 1, 0), 0);
	close(caller);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_collector_is_given_up_however_many_signals_come),
		cmocka_unit_test(one_recorder_waits_for_a_silent_collector_and_the_others_do_not),
		cmocka_unit_test(a_name_that_is_only_bound_does_not_silence),
		cmocka_unit_test(a_listener_of_another_user_does_not_silence),
		cmocka_unit_test(the_region_of_another_user_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
