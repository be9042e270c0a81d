/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of `heapline mcp`: what is quoted, how long ones are cut and paged, and that no lack of memory breaks it. */
#include "mcp/mcp.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER_BYTES 300

static atomic_int left; /* allocations of jansson until one fails; 0: none does */

static void *allocate(size_t size)
{
	return left > 0 && atomic_fetch_sub(&left, 1) == 1 ? NULL : malloc(size);
}

static json_t *rows(size_t count)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(array,
				      json_pack("{sssi}", "name", "function", "bytes", (int)i));
	return json_pack("{sssosi}", "schema", "x/1", "rows", array, "total", (int)count);
}

static void test_what_could_be_obeyed_is_shown_instead(void **state)
{
	json_t *value = json_pack("{s[s]ss}", "a", "\x1b[1m\n\u202e\u200b", "b", "<b>&\u00e9");
	json_t *quoted = hl_mcp_quote(value);
	char *line = hl_mcp_format(quoted);

	(void)state;
	assert_string_equal(json_string_value(json_array_get(json_object_get(quoted, "a"), 0)),
			    "\\u{1b}[1m\\u{a}\\u{202e}\\u{200b}");
	assert_string_equal(json_string_value(json_object_get(quoted, "b")), "<b>&\u00e9");
	assert_non_null(strstr(line, "\\u003cb\\u003e\\u0026\u00e9"));
	free(line);
	json_decref(quoted);
	json_decref(value);
}

static void test_bytes_that_are_no_letter_are_replaced(void **state)
{
	json_t *quoted = hl_mcp_quote_text("'caf\xe9\n' \u20ac, cut in \xe2\x82");

	(void)state;
	assert_string_equal(json_string_value(quoted),
			    "'caf\ufffd\\u{a}' \u20ac, cut in \ufffd\ufffd");
	json_decref(quoted);
}

static void test_short_answers_stay_as_they_are(void **state)
{
	struct hl_mcp_kept kept = {0};
	json_t *answer = hl_mcp_shorten(&kept, rows(3), ANSWER_BYTES);

	(void)state;
	assert_null(json_object_get(answer, "more"));
	assert_int_equal(kept.count, 0);
	json_decref(answer);
	hl_mcp_kept_release(&kept);
}

static void test_pages_have_what_was_cut(void **state)
{
	struct hl_mcp_kept kept = {0};
	json_t *answer = hl_mcp_shorten(&kept, rows(100), ANSWER_BYTES);
	json_t *cut = json_array_get(json_object_get(json_object_get(answer, "more"), "cut"), 0);
	size_t shown = json_array_size(json_object_get(answer, "rows"));

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(cut, "from")), shown);
	assert_int_equal(json_integer_value(json_object_get(cut, "of")), 100);
	while (shown < 100) {
		json_t *asked = json_pack("{sssssi}", "handle", "answer-0", "pointer", "/rows",
					  "from", (int)shown);
		json_t *page = hl_mcp_more(&kept, asked, ANSWER_BYTES, NULL);
		json_t *items = json_object_get(page, "items");
		assert_true(json_array_size(items) > 0);
		assert_int_equal(
			json_integer_value(json_object_get(json_array_get(items, 0), "bytes")),
			shown);
		shown += json_array_size(items);
		assert_int_equal(json_object_get(page, "cut") != NULL, shown < 100);
		json_decref(page);
		json_decref(asked);
	}
	json_decref(answer);
	hl_mcp_kept_release(&kept);
}

static void test_one_element_that_is_too_long_is_cut_inside(void **state)
{
	json_t *answer = json_pack("{s[o]}", "rows", rows(100)), *cuts = json_array();

	(void)state;
	assert_int_equal(hl_mcp_cut(answer, ANSWER_BYTES, "", cuts), 0);
	assert_int_equal(json_array_size(cuts), 1);
	assert_string_equal(json_string_value(json_object_get(json_array_get(cuts, 0), "pointer")),
			    "/rows/0/rows");
	json_decref(answer);
	json_decref(cuts);
}

static void test_handles_that_are_gone_are_refused(void **state)
{
	static const char *const asked[] = {"{}",
					    "{\"handle\": \"answer-0\", \"pointer\": \"/rows\"}",
					    "{\"handle\": \"x\", \"pointer\": \"/rows\"}",
					    "{\"handle\": 1, \"pointer\": \"\"}"};
	struct hl_mcp_kept kept = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct hl_error err = {0};
		json_t *arguments = json_loads(asked[i], 0, NULL);
		assert_null(hl_mcp_more(&kept, arguments, ANSWER_BYTES, &err));
		assert_true(err.text[0]);
		json_decref(arguments);
	}
}

static json_t *echo(const struct hl_mcp_server *server, const char *tool, json_t *arguments,
		    int stop_fd, struct hl_error *err)
{
	(void)server, (void)tool, (void)stop_fd, (void)err;
	return json_deep_copy(arguments);
}

/* Serves a session in which the ${fails}th allocation fails; how many there were. */
static int serve(int fails)
{
	static const char lines[] =
		"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\n"
		"{\"jsonrpc\": \"2.0\", \"id\": 2, \"method\": \"tools/list\"}\n"
		"{\"jsonrpc\": \"2.0\", \"id\": 3, \"method\": \"no\"}\n"
		"{\"jsonrpc\": \"2.0\", \"id\": 4, \"method\": \"tools/call\", \"params\": "
		"{\"name\": "
		"\"echo\", \"arguments\": {\"a\": [\"0123456789\", \"0123456789\"]}}}\n";
	json_t *tools = json_pack("[{ss}]", "name", "echo");
	const struct hl_mcp_server server = {
		.tools = tools, .instructions = "", .answer_bytes = 20, .call = echo};
	int in = memfd_create("in", 0), out = memfd_create("out", 0);

	assert_int_equal(write(in, lines, sizeof(lines) - 1), sizeof(lines) - 1);
	lseek(in, 0, SEEK_SET);
	left = fails;
	int r = hl_mcp_serve(&server, in, out, -1, NULL);
	int rest = left;
	left = 0;
	if (fails > 0 && rest > 0)
		assert_int_equal(r, 0);
	close(in);
	close(out);
	json_decref(tools);
	return fails - rest;
}

static void test_no_lack_of_memory_breaks_a_session(void **state)
{
	(void)state;
	json_set_alloc_funcs(allocate, free);
	for (int fails = 1; serve(fails) == fails; fails++)
		;
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_could_be_obeyed_is_shown_instead),
		cmocka_unit_test(test_bytes_that_are_no_letter_are_replaced),
		cmocka_unit_test(test_short_answers_stay_as_they_are),
		cmocka_unit_test(test_pages_have_what_was_cut),
		cmocka_unit_test(test_one_element_that_is_too_long_is_cut_inside),
		cmocka_unit_test(test_handles_that_are_gone_are_refused),
		cmocka_unit_test(test_no_lack_of_memory_breaks_a_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
