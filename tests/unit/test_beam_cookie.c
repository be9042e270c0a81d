/* SPDX-License-Identifier: BSD-2-Clause */
/* How a node is found: its name taken apart, and the cookie read from where Erlang reads it. */
#include "guests/beam/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- names ---- */

static void a_name_has_two_parts(void **state)
{
	struct hl_node_name name;

	(void)state;

	assert_int_equal(hl_node_name_parse("shop@db.example.org", &name, NULL), 0);
	assert_string_equal(name.alive, "shop");
	assert_string_equal(name.host, "db.example.org");
}

static void names_that_no_node_has_are_refused_with_a_remedy(void **state)
{
	static const char *const bad[] = {"shop", "shop@", "@host", "", "a@b@c"};
	struct hl_node_name name = {"unchanged", "unchanged"};
	char long_name[1000];

	(void)state;

	for (size_t i = 0; i < HL_COUNT_OF(bad); i++) {
		struct hl_error err = {0};
		assert_int_equal(hl_node_name_parse(bad[i], &name, &err), -EINVAL);
		assert_non_null(strstr(err.text, "node()"));
	}
	memset(long_name, 'a', sizeof(long_name));
	memcpy(long_name + 500, "@h", 3);
	assert_int_equal(hl_node_name_parse(long_name, &name, NULL), -EINVAL);
	assert_string_equal(name.alive, "unchanged");
}

static void names_of_this_machine_are_found_on_loopback(void **state)
{
	char host[HL_NODE_PART_MAX] = "";
	struct hl_node_name name = {"shop", "LocalHost"};
	struct in_addr address = {0};

	(void)state;

	assert_int_equal(hl_node_name_resolve(&name, &address, NULL), 0);
	assert_int_equal(ntohl(address.s_addr), INADDR_LOOPBACK);
	assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
	memcpy(name.host, host, sizeof(host));
	address.s_addr = 0;
	assert_int_equal(hl_node_name_resolve(&name, &address, NULL), 0);
	assert_int_equal(ntohl(address.s_addr), INADDR_LOOPBACK);
}

static void addresses_are_taken_as_they_are(void **state)
{
	const struct hl_node_name name = {"shop", "192.0.2.7"};
	struct in_addr address;

	(void)state;

	assert_int_equal(hl_node_name_resolve(&name, &address, NULL), 0);
	assert_string_equal(inet_ntoa(address), "192.0.2.7");
}

/* ---- cookies ---- */

/* A directory of its own for each test. */
static int make_directory(void **state)
{
	char *directory = strdup("/tmp/heapline-cookie-XXXXXX");

	*state = directory;
	return directory && mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r '%s'", (char *)*state);
	free(*state);
	return system(command);
}

static const char *write_file(const char *directory, const char *name, const char *text,
			      mode_t mode)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	unlink(path);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
	return path;
}

static void a_cookie_is_the_first_line(void **state)
{
	static const char *const texts[] = {"ABC", "ABC\n", "ABC\r\n", "ABC \t\nmore\n"};
	struct hl_cookie cookie;

	for (size_t i = 0; i < HL_COUNT_OF(texts); i++) {
		const char *path = write_file(*state, "cookie", texts[i], 0400);
		assert_int_equal(hl_cookie_read(path, &cookie, NULL), 0);
		assert_string_equal(cookie.text, "ABC");
		assert_string_equal(cookie.path, path);
		assert_false(cookie.is_exposed);
	}
}

static void a_cookie_that_others_can_read_is_noticed(void **state)
{
	struct hl_cookie cookie;

	assert_int_equal(hl_cookie_read(write_file(*state, "group", "A", 0440), &cookie, NULL), 0);
	assert_true(cookie.is_exposed);
	assert_int_equal(hl_cookie_read(write_file(*state, "all", "A", 0604), &cookie, NULL), 0);
	assert_true(cookie.is_exposed);
}

static void cookies_that_cannot_be_one_are_refused(void **state)
{
	char text[600];
	struct hl_cookie cookie;
	struct hl_error err = {0};

	memset(text, 'a', sizeof(text));
	text[513] = '\0';
	assert_int_equal(hl_cookie_read(write_file(*state, "c", text, 0400), &cookie, &err),
			 -EINVAL);
	assert_null(strstr(err.text, "aaaa")); /* a sentence never tells the cookie */
	text[512] = '\0';
	assert_int_equal(hl_cookie_read(write_file(*state, "c", text, 0400), &cookie, NULL), 0);
	assert_int_equal(strlen(cookie.text), 512);
	assert_int_equal(hl_cookie_read(write_file(*state, "c", "", 0400), &cookie, NULL), -EINVAL);
	assert_int_equal(hl_cookie_read(write_file(*state, "c", "\nA\n", 0400), &cookie, NULL),
			 -EINVAL);
	assert_int_equal(hl_cookie_read(*state, &cookie, NULL), -EISDIR);
}

static void cookies_are_looked_for_where_erlang_does(void **state)
{
	char path[256];
	struct hl_cookie cookie;
	struct hl_error err = {0};

	setenv("HOME", *state, 1);
	unsetenv("XDG_CONFIG_HOME");
	assert_int_equal(hl_cookie_read(NULL, &cookie, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--cookie-file"));
	snprintf(path, sizeof(path), "%s/.config", (char *)*state);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.config/erlang", (char *)*state);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file(*state, ".config/erlang/.erlang.cookie", "LATER", 0400);
	assert_int_equal(hl_cookie_read(NULL, &cookie, NULL), 0);
	assert_string_equal(cookie.text, "LATER");
	write_file(*state, ".erlang.cookie", "FIRST", 0400);
	assert_int_equal(hl_cookie_read(NULL, &cookie, NULL), 0);
	assert_string_equal(cookie.text, "FIRST");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_has_two_parts),
		cmocka_unit_test(names_that_no_node_has_are_refused_with_a_remedy),
		cmocka_unit_test(names_of_this_machine_are_found_on_loopback),
		cmocka_unit_test(addresses_are_taken_as_they_are),
		cmocka_unit_test_setup_teardown(a_cookie_is_the_first_line, make_directory,
						remove_directory),
		cmocka_unit_test_setup_teardown(a_cookie_that_others_can_read_is_noticed,
						make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(cookies_that_cannot_be_one_are_refused,
						make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(cookies_are_looked_for_where_erlang_does,
						make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
