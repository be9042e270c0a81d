/* SPDX-License-Identifier: BSD-2-Clause */
/* Conversations with a node that is made up here: what it answers to which question, and what is made of it. */
#include "guests/beam/connection.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What the node answers when it is asked for carriers. */
static enum {
	TIMES_OUT,
	HAS_NO_FUNCTION,
	HAS_ANOTHER_FORM,
} carriers;

int hl_connection_open(const struct hl_beam_settings *settings, const struct hl_cookie *cookie,
		       struct hl_beam_connection *ret_connection, struct hl_error *err)
{
	(void)settings, (void)cookie, (void)ret_connection, (void)err;
	return 0;
}

void hl_connection_close(struct hl_beam_connection *connection)
{
	(void)connection;
}

/* {ok, {128, 0, #{system => #{binary => {1, 2, 3}}}}} */
static void put_allocations(ei_x_buff *out)
{
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "ok");
	ei_x_encode_tuple_header(out, 3);
	ei_x_encode_ulong(out, 128);
	ei_x_encode_ulong(out, 0);
	ei_x_encode_map_header(out, 1);
	ei_x_encode_atom(out, "system");
	ei_x_encode_map_header(out, 1);
	ei_x_encode_atom(out, "binary");
	ei_x_encode_tuple_header(out, 3);
	for (unsigned long count = 1; count <= 3; count++)
		ei_x_encode_ulong(out, count);
}

/* {badrpc, {'EXIT', {undef, []}}} */
static void put_undefined(ei_x_buff *out)
{
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "badrpc");
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "EXIT");
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "undef");
	ei_x_encode_empty_list(out);
}

int hl_connection_call(struct hl_beam_connection *connection, const char *module,
		       const char *function, const ei_x_buff *arguments, ei_x_buff *ret_reply,
		       struct hl_error *err)
{
	(void)connection, (void)module, (void)arguments;
	bool asks_carriers = strcmp(function, "carriers") == 0;

	if (asks_carriers && carriers == TIMES_OUT)
		return hl_error_set(err, -ETIMEDOUT, "it does not answer");
	ei_x_new_with_version(ret_reply);
	ei_x_encode_tuple_header(ret_reply, 2);
	ei_x_encode_atom(ret_reply, "rex");
	if (strcmp(function, "allocations") == 0)
		put_allocations(ret_reply);
	else if (asks_carriers && carriers == HAS_NO_FUNCTION)
		put_undefined(ret_reply);
	else if (asks_carriers)
		ei_x_encode_atom(ret_reply, "carriers");
	else if (ei_x_encode_string(ret_reply, "31") < 0) /* otp_release */
		return -ENOMEM;
	return 0;
}

static void allocations_of_an_unknown_release_need_no_carriers(void **state)
{
	char path[] = "/tmp/heapline-cookie-XXXXXX";
	const struct hl_beam_settings settings = {.node = "n@h", .cookie_path = path};

	(void)state;
	int fd = mkstemp(path);
	assert_int_equal(write(fd, "secret", 6), 6);
	close(fd);
	for (carriers = TIMES_OUT; carriers <= HAS_ANOTHER_FORM; carriers++) {
		struct hl_beam_report report = {0};
		struct hl_error err = {0};
		assert_int_equal(hl_beam_allocations(&settings, &report, &err), 0);
		assert_string_equal(err.text, "");
		assert_string_equal(report.otp_release, "31");
		assert_true(report.unproven_bounds);
		assert_false(report.lacks_instrument);
		assert_int_equal(report.allocations.count, 1);
		assert_int_equal(report.allocations.shape.bounds, HL_LOG2_HALVES);
		hl_beam_report_release(&report);
	}
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(allocations_of_an_unknown_release_need_no_carriers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
