/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows and selections as text: what was written is read again, and nothing else is mistaken for it. */
#include "fleet/query.h"

#include "fail_allocations.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char nasty[] = "a\tb\nc\\d'e\"f \\t";

static char *written(size_t *ret_size)
{
	struct hl_fleet_stack stacks[] = {{11, "main\tapp\ta.c\t3\t\t1\n"}, {-7, nasty}};
	struct hl_fleet_row rows[] = {
		{11, -5, 2, 7, INT64_MAX}, {-7, 0, 0, 1, 1}, {3, INT64_MIN, 0, 0, 0}};
	struct hl_fleet_window window = {.session = 42,
					 .began_ms = 1,
					 .base_ms = 1699999985000,
					 .ms = 1700000000000,
					 .until_ms = 1700000035000,
					 .stacks = stacks,
					 .stack_count = 2,
					 .rows = rows,
					 .row_count = 3};
	static char *text; /* gcc 12 warns of one on the stack, as if it were what is returned */
	FILE *out = open_memstream(&text, ret_size);

	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		window.labels[i] = i == HL_FLEET_SERVICE ? nasty : i == HL_FLEET_POD ? "" : "x";
	hl_fleet_window_write(&window, out);
	fclose(out);
	return text;
}

static void a_window_is_read_as_it_was_written(void **state)
{
	struct hl_fleet_window window;
	size_t size;
	char *text = written(&size);

	(void)state;
	assert_int_equal(hl_fleet_window_read(text, size, &window), 0);
	assert_int_equal(window.session, 42);
	assert_int_equal(window.base_ms, 1699999985000);
	assert_int_equal(window.ms, 1700000000000);
	assert_string_equal(window.labels[HL_FLEET_SERVICE], nasty);
	assert_string_equal(window.labels[HL_FLEET_POD], "");
	assert_int_equal(window.stack_count, 2);
	assert_int_equal(window.stacks[1].stack, -7);
	assert_string_equal(window.stacks[1].frames, nasty);
	assert_int_equal(window.row_count, 3);
	assert_int_equal(window.rows[0].inuse_bytes, -5);
	assert_int_equal(window.rows[0].alloc_objects, INT64_MAX);
	assert_int_equal(window.rows[2].inuse_bytes, INT64_MIN);
	hl_fleet_window_release(&window);
	free(text);
}

static void a_window_of_the_first_format_follows_whatever_is_older(void **state)
{
	char text[] = "heapline window 1\n7\t1\t500\t600\t0\t0\t0\ta\t\t\t\t\t\t\t\n";
	struct hl_fleet_window window;

	(void)state;
	assert_int_equal(hl_fleet_window_read(text, sizeof(text) - 1, &window), 0);
	assert_int_equal(window.base_ms, 499);
	assert_int_equal(window.ms, 500);
	hl_fleet_window_release(&window);
}

static void a_window_is_refused_where_the_store_has_later_figures(void **state)
{
	const struct hl_fleet_store store = {.name = (char[]){"s.db"}};
	const struct hl_fleet_window window = {
		.base_ms = 10, .ms = 20, .labels = {[HL_FLEET_PID] = "7"}};
	static const struct {
		int64_t last_ms;
		int result;
	} cases[] = {{0, 0},	    {9, 0},	   {10, 0},	 {11, -ESTALE},
		     {19, -ESTALE}, {20, -EEXIST}, {21, -EEXIST}};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_error err = {0};
		assert_int_equal(hl_fleet_check_base(&store, &window, cases[i].last_ms, &err),
				 cases[i].result);
	}
}

static int read_copy(const char *text, size_t size)
{
	struct hl_fleet_window window;
	char *copy = __real_malloc(size + 1);

	memcpy(copy, text, size);
	copy[size] = '\0';
	int r = hl_fleet_window_read(copy, size, &window);
	hl_fleet_window_release(&window);
	free(copy);
	return r;
}

static void a_window_that_was_cut_off_or_changed_is_refused(void **state)
{
	size_t size;
	char *text = written(&size);

	(void)state;
	for (size_t cut = 0; cut < size; cut++)
		assert_int_equal(read_copy(text, cut), -EBADMSG);
	for (size_t at = 0; at < size; at++) {
		char before = text[at];
		text[at] = '\0'; /* no byte of it may be missing */
		assert_int_equal(read_copy(text, size), -EBADMSG);
		text[at] = before;
	}
	FOR_EACH_FAILING_ALLOCATION(r, read_copy(text, size))
	assert_int_equal(r, -ENOMEM);
	free(text);
}

static void what_is_not_utf8_is_replaced_in_cells(void **state)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	hl_fleet_put_cell(out, "\xff"
			       "a\xe2\x82\xac\xc0\xaf\x01z\xf4\x90\x80\x80");
	fclose(out);
	assert_string_equal(text, "\xef\xbf\xbd"
				  "a\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd z"
				  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	free(text);
}

static int write_and_read(const struct hl_fleet_selection *selection,
			  struct hl_fleet_selection *ret_selection, char **ret_storage)
{
	struct hl_error err = {0};
	char *url = hl_fleet_selection_write(selection, "sqlite:x?host=a");
	int r = url ? hl_fleet_selection_read(url, ret_selection, ret_storage, &err) : -ENOMEM;

	free(url);
	return r;
}

static void a_selection_is_read_as_it_was_written(void **state)
{
	const struct hl_fleet_selection selection = {
		.labels = {[HL_FLEET_SERVICE] = "a&b=c?%41 +\xff", [HL_FLEET_VERSION] = ""},
		.at_ms = 1700000000001,
		.since_ms = 5,
		.mean = true};
	struct hl_fleet_selection got;
	char *storage;

	(void)state;
	assert_int_equal(write_and_read(&selection, &got, &storage), 0);
	assert_string_equal(got.labels[HL_FLEET_SERVICE], selection.labels[HL_FLEET_SERVICE]);
	assert_string_equal(got.labels[HL_FLEET_VERSION], "");
	assert_string_equal(got.labels[HL_FLEET_HOST], "a");
	assert_null(got.labels[HL_FLEET_POD]);
	assert_int_equal(got.at_ms, 1700000000001);
	assert_int_equal(got.since_ms, 5);
	assert_true(got.mean);
	free(storage);
}

static void what_no_store_can_be_asked_is_refused(void **state)
{
	static const char *const urls[] = {"sqlite:x?colour=red", "sqlite:x?at=", "sqlite:x?at=1e3",
					   "sqlite:x?since=-1", "sqlite:x?at=99999999999999999999"};
	struct hl_fleet_selection selection;
	char *storage;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(urls); i++) {
		struct hl_error err = {0};
		assert_int_equal(hl_fleet_selection_read(urls[i], &selection, &storage, &err),
				 -EINVAL);
		assert_true(err.text[0]);
	}
}

static void texts_are_quoted_as_each_dialect_does(void **state)
{
	static const struct {
		const struct hl_fleet_backend *backend;
		const char *quoted, *quotient;
	} dialects[] = {{&hl_fleet_sqlite, "'it''s \\ here'", "ms / 60000"},
			{&hl_fleet_clickhouse, "'it\\'s \\\\ here'", "intDiv(ms, 60000)"}};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(dialects); i++) {
		const struct hl_fleet_store store = {.backend = dialects[i].backend};
		char text[64] = "", quotient[64] = "";
		FILE *out = fmemopen(text, sizeof(text), "w");
		hl_fleet_put_text(&store, out, "it's \\ here");
		fclose(out);
		assert_string_equal(text, dialects[i].quoted);
		out = fmemopen(quotient, sizeof(quotient), "w");
		hl_fleet_put_quotient(&store, out, "ms", 60000);
		fclose(out);
		assert_string_equal(quotient, dialects[i].quotient);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_is_read_as_it_was_written),
		cmocka_unit_test(a_window_of_the_first_format_follows_whatever_is_older),
		cmocka_unit_test(a_window_is_refused_where_the_store_has_later_figures),
		cmocka_unit_test(a_window_that_was_cut_off_or_changed_is_refused),
		cmocka_unit_test(what_is_not_utf8_is_replaced_in_cells),
		cmocka_unit_test(a_selection_is_read_as_it_was_written),
		cmocka_unit_test(what_no_store_can_be_asked_is_refused),
		cmocka_unit_test(texts_are_quoted_as_each_dialect_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
