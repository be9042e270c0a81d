/* SPDX-License-Identifier: BSD-2-Clause */
/* Verbs that are asked: this program plays them, as it is what /proc/self/exe names. */
#include "process/ask.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- the verbs ---- */

static void leave(int signal_number)
{
	static const char document[] = "{\"left\": true}";

	_exit(signal_number == SIGTERM && write(STDOUT_FILENO, document, strlen(document)) > 0 ? 0
											       : 1);
}

static int play(int argc, char **argv)
{
	const char *verb = argv[3];

	if (!strcmp(verb, "good")) {
		printf("{\"json\": %s, \"last\": \"%s\"}\n",
		       !strcmp(argv[4], "--json") ? "true" : "false", argv[argc - 1]);
		return 0;
	}
	if (!strcmp(verb, "crossed")) {
		printf("{}");
		return 3;
	}
	if (!strcmp(verb, "text")) {
		printf("%d", argc);
		return 0;
	}
	if (!strcmp(verb, "fails")) {
		fprintf(stderr, "heapline: cannot read '4711': no such process\n");
		return 1;
	}
	if (!strcmp(verb, "usage"))
		return 2;
	if (!strcmp(verb, "half")) {
		printf("{\"a\":");
		return 0;
	}
	if (!strcmp(verb, "large"))
		for (;;)
			printf("%4096d", 0);
	if (!strcmp(verb, "leaves"))
		signal(SIGTERM, leave);
	if (!strcmp(verb, "busy") || !strcmp(verb, "leaves"))
		for (;;)
			;
	for (;;)
		pause();
}

/* ---- tests ---- */

static int ask(const char *verb, struct hl_ask settings, struct hl_answer *answer,
	       struct hl_error *err)
{
	const char *const arguments[] = {verb, "-p", "4711", NULL};

	settings.arguments = arguments;
	/* Sanitizers reserve terabytes. */
	settings.bounds.memory_bytes = UINT64_MAX;
	return hl_ask_verb(&settings, answer, err);
}

static int ask_simply(const char *verb, struct hl_answer *answer, struct hl_error *err)
{
	return ask(verb, (struct hl_ask){.stop_fd = -1}, answer, err);
}

static void an_answer_is_parsed(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(ask_simply("good", &answer, &err), 0);
	assert_int_equal(answer.status, 0);
	assert_true(json_is_true(json_object_get(answer.document, "json")));
	assert_string_equal(json_string_value(json_object_get(answer.document, "last")), "4711");
	assert_true(answer.wall_ns > 0 && answer.cpu_ns > 0);
}

static void a_document_with_status_three_is_an_answer(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(ask_simply("crossed", &answer, &err), 0);
	assert_int_equal(answer.status, 3);
}

static void text_is_not_parsed(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(
		ask("text", (struct hl_ask){.stop_fd = -1, .is_text = true}, &answer, &err), 0);
	assert_string_equal(answer.text, "6"); /* heapline --with-parent FORM text -p 4711 */
	assert_null(answer.document);
}

static void a_failure_is_its_own_sentence(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(ask_simply("fails", &answer, &err), -EIO);
	assert_string_equal(err.text, "cannot read '4711': no such process");
	assert_int_equal(answer.status, 1);
}

static void a_usage_error_and_half_a_document_are_failures(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer usage, half;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(ask_simply("usage", &usage, &err), -EINVAL);
	assert_string_equal(err.text, "'heapline usage' failed and did not say why");
	assert_int_equal(ask_simply("half", &half, &err), -EIO);
	assert_string_equal(half.text, "{\"a\":");
}

static void bounds_end_the_child(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer large, busy, late;
	struct hl_error err = {0}, err_busy = {0}, err_late = {0};

	(void)state;
	assert_int_equal(ask("large", (struct hl_ask){.stop_fd = -1, .bounds.output_bytes = 8192},
			     &large, &err),
			 -EFBIG);
	assert_int_equal(ask("busy", (struct hl_ask){.stop_fd = -1, .bounds.cpu_seconds = 1}, &busy,
			     &err_busy),
			 -ETIMEDOUT);
	assert_non_null(strstr(err_busy.text, "processor time"));
	assert_int_equal(
		ask("waits", (struct hl_ask){.stop_fd = -1, .seconds = 1}, &late, &err_late),
		-ETIMEDOUT);
	assert_string_equal(err_late.text, "'heapline waits' took longer than 1 s");
	assert_int_equal(late.status, -1);
}

/* Whatever it was begun with: SIGTERM may have been ignored. */
static void a_child_leaves_when_its_processor_time_is_over(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};

	(void)state;
	signal(SIGTERM, SIG_IGN);
	int r = ask("leaves", (struct hl_ask){.stop_fd = -1, .bounds.cpu_seconds = 1}, &answer,
		    &err);
	signal(SIGTERM, SIG_DFL);
	assert_int_equal(r, 0);
	assert_true(json_is_true(json_object_get(answer.document, "left")));
}

static void a_readable_descriptor_ends_the_child(void **state)
{
	HL_CLEANUP(hl_answer_release) struct hl_answer answer;
	struct hl_error err = {0};
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(ask("waits", (struct hl_ask){.stop_fd = ends[0]}, &answer, &err),
			 -ECANCELED);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_parsed),
		cmocka_unit_test(a_document_with_status_three_is_an_answer),
		cmocka_unit_test(text_is_not_parsed),
		cmocka_unit_test(a_failure_is_its_own_sentence),
		cmocka_unit_test(a_usage_error_and_half_a_document_are_failures),
		cmocka_unit_test(bounds_end_the_child),
		cmocka_unit_test(a_child_leaves_when_its_processor_time_is_over),
		cmocka_unit_test(a_readable_descriptor_ends_the_child),
	};

	if (argc > 3 && !strcmp(argv[1], HL_SELF_WITH_PARENT) && hl_self_keep_to_parent(argv[2]))
		return play(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
