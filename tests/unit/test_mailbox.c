/* SPDX-License-Identifier: BSD-2-Clause */
/* The mailbox between a program and its collector, from both sides. */
#include "collector/drain.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

struct both {
	struct hl_mailbox mailbox;
	struct hl_mailbox_reader reader;
};

static int setup(void **state)
{
	struct both *both = aligned_alloc(64, sizeof(*both));

	memset(both, 0, sizeof(*both));
	hl_mailbox_reader_init(&both->reader, &both->mailbox, 0);
	*state = both;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void assert_mark(struct both *both, uint64_t time_ns, const char *text)
{
	char found[HL_MARK_MAX + 1];
	uint64_t found_ns;

	assert_true(hl_mailbox_reader_take_mark(&both->reader, false, &found_ns, found));
	assert_int_equal(found_ns, time_ns);
	assert_string_equal(found, text);
}

static void assert_no_mark(struct both *both, bool last)
{
	char found[HL_MARK_MAX + 1];
	uint64_t found_ns;

	assert_false(hl_mailbox_reader_take_mark(&both->reader, last, &found_ns, found));
}

/* ---- marks ---- */

static void marks_come_out_as_they_went_in_lap_after_lap(void **state)
{
	struct both *both = *state;

	for (unsigned i = 0; i < 5 * HL_MAILBOX_MARKS + 3; i++) {
		char name[16];
		snprintf(name, sizeof(name), "mark %u", i);
		assert_int_equal(hl_mailbox_mark(&both->mailbox, i, name), 0);
		assert_mark(both, i, name);
		assert_no_mark(both, i % 2);
	}
}

static void a_full_mailbox_refuses_marks_and_counts_them(void **state)
{
	struct both *both = *state;

	for (unsigned i = 0; i < HL_MAILBOX_MARKS; i++)
		assert_int_equal(hl_mailbox_mark(&both->mailbox, i, "mark"), 0);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 99, "mark"), -EAGAIN);
	assert_int_equal(both->mailbox.refused_marks, 1);
	assert_mark(both, 0, "mark");
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 100, "last"), 0);
	for (unsigned i = 1; i < HL_MAILBOX_MARKS; i++)
		assert_mark(both, i, "mark");
	assert_mark(both, 100, "last");
}

static void names_are_short_plain_lines(void **state)
{
	struct both *both = *state;
	char name[HL_MARK_MAX + 2];

	memset(name, 'x', sizeof(name));
	name[HL_MARK_MAX + 1] = '\0';
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, name), -ENAMETOOLONG);
	name[HL_MARK_MAX] = '\0';
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, name), 0);
	assert_mark(both, 1, name);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, ""), -EINVAL);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, "a\nb"), -EINVAL);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, "a\x7f"), -EINVAL);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, "\xc2\x9b[31m"), -EINVAL);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 2, "\xc3\x84\xc2\xa0"), 0);
	assert_mark(both, 2, "\xc3\x84\xc2\xa0");
}

/* What a handler posts between the claim of a slot and its filling. */
static void an_unfinished_mark_is_waited_for_and_passed_over_at_the_end(void **state)
{
	struct both *both = *state;
	char found[HL_MARK_MAX + 1];
	uint64_t found_ns;

	atomic_fetch_add(&both->mailbox.mark_count, 1);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 2, "second"), 0);
	assert_no_mark(both, false);
	assert_true(hl_mailbox_reader_take_mark(&both->reader, true, &found_ns, found));
	assert_string_equal(found, "second");
	assert_no_mark(both, true);
}

static void what_a_program_damages_is_read_without_harm(void **state)
{
	struct both *both = *state;

	srandom(4711);
	for (int round = 0; round < 20000; round++) {
		char found[HL_MARK_MAX + 1];
		uint64_t found_ns;
		struct hl_mark_slot *slot = &both->mailbox.marks[random() % HL_MAILBOX_MARKS];
		for (size_t i = 0; i < sizeof(slot->text); i++)
			slot->text[i] = (char)random();
		slot->turn = HL_MAILBOX_TURN(both->reader.next) + (uint64_t)(random() % 4);
		both->mailbox.mark_count =
			round % 3 ? (uint64_t)random() << 40 : both->reader.next + random() % 100;
		if (hl_mailbox_reader_take_mark(&both->reader, random() % 2, &found_ns, found))
			assert_true(hl_mark_length(found) > 0);
	}
}

#define WRITERS		4
#define MARKS_OF_WRITER 20000

struct writer {
	struct both *both;
	char letter;
	pthread_t id;
};

static void *write_marks(void *argument)
{
	struct writer *writer = argument;

	for (uint64_t i = 0; i < MARKS_OF_WRITER;) {
		const char name[] = {writer->letter, writer->letter, '\0'};
		if (hl_mailbox_mark(&writer->both->mailbox, i, name) == 0)
			i++;
		else
			sched_yield();
	}
	return NULL;
}

static void marks_of_several_threads_all_come_each_thread_in_order(void **state)
{
	struct both *both = *state;
	struct writer writers[WRITERS];
	uint64_t next[WRITERS] = {0};

	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.both = both, .letter = (char)('a' + i)};
		assert_int_equal(pthread_create(&writers[i].id, NULL, write_marks, &writers[i]), 0);
	}
	for (int left = WRITERS * MARKS_OF_WRITER; left > 0;) {
		char found[HL_MARK_MAX + 1];
		uint64_t found_ns;
		if (!hl_mailbox_reader_take_mark(&both->reader, false, &found_ns, found)) {
			sched_yield();
			continue;
		}
		left--;
		assert_int_equal(strlen(found), 2);
		assert_int_equal(found[0], found[1]);
		assert_int_equal(found_ns, next[found[0] - 'a']++);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i].id, NULL);
	assert_no_mark(both, true);
}

/* ---- reports ---- */

static void one_report_is_due_at_a_time(void **state)
{
	struct both *both = *state;
	char path[HL_REPORT_PATH_BYTES];

	assert_false(hl_mailbox_reader_take_report(&both->reader, path));
	assert_int_equal(hl_mailbox_report(&both->mailbox, "first"), 0);
	assert_int_equal(hl_mailbox_report(&both->mailbox, "second"), -EBUSY);
	assert_true(hl_mailbox_reader_take_report(&both->reader, path));
	assert_string_equal(path, "first");
	assert_false(hl_mailbox_reader_take_report(&both->reader, path));
	assert_int_equal(hl_mailbox_report(&both->mailbox, "second"), -EBUSY);
	hl_mailbox_reader_end_report(&both->reader, -EEXIST);
	assert_int_equal(both->mailbox.reports_done, 1);
	assert_int_equal(both->mailbox.report_error, -EEXIST);
	assert_int_equal(hl_mailbox_report(&both->mailbox, "third"), 0);
	assert_int_equal(both->mailbox.reports_asked, 2);
	assert_true(hl_mailbox_reader_take_report(&both->reader, path));
	assert_string_equal(path, "third");
}

static void paths_of_reports_have_a_bound(void **state)
{
	struct both *both = *state;
	char path[HL_REPORT_PATH_BYTES + 1], found[HL_REPORT_PATH_BYTES];

	memset(path, 'x', sizeof(path));
	path[HL_REPORT_PATH_BYTES] = '\0';
	assert_int_equal(hl_mailbox_report(&both->mailbox, path), -ENAMETOOLONG);
	assert_int_equal(hl_mailbox_report(&both->mailbox, ""), -EINVAL);
	path[HL_REPORT_PATH_BYTES - 1] = '\0';
	assert_int_equal(hl_mailbox_report(&both->mailbox, path), 0);
	/* The program's own bugs. */
	memset(both->mailbox.report_path, 'y', HL_REPORT_PATH_BYTES);
	assert_true(hl_mailbox_reader_take_report(&both->reader, found));
	assert_int_equal(strlen(found), HL_REPORT_PATH_BYTES - 1);
}

/* ---- segments ---- */

static void who_writes_the_number_of_segments_last_is_right(void **state)
{
	struct both *both = *state;
	uint32_t wanted;

	assert_int_equal(hl_mailbox_segments(&both->mailbox), -EOPNOTSUPP);
	assert_int_equal(hl_mailbox_set_segments(&both->mailbox, 3), -EOPNOTSUPP);
	hl_mailbox_reader_tell_segments(&both->reader, 10);
	assert_false(hl_mailbox_reader_take_segments(&both->reader, &wanted));
	assert_int_equal(hl_mailbox_segments(&both->mailbox), 10);
	assert_int_equal(hl_mailbox_set_segments(&both->mailbox, 0), -EINVAL);
	assert_int_equal(hl_mailbox_set_segments(&both->mailbox, HL_LOG_SEGMENTS_MAX + 1), -EINVAL);
	assert_int_equal(hl_mailbox_set_segments(&both->mailbox, 3), 0);
	assert_true(hl_mailbox_reader_take_segments(&both->reader, &wanted));
	assert_int_equal(wanted, 3);
	assert_false(hl_mailbox_reader_take_segments(&both->reader, &wanted));
	hl_mailbox_reader_tell_segments(&both->reader, 5);
	assert_int_equal(hl_mailbox_segments(&both->mailbox), 5);
}

static void numbers_of_segments_that_make_no_sense_are_put_right(void **state)
{
	static const uint32_t numbers[] = {0, HL_LOG_SEGMENTS_MAX + 1, UINT32_MAX};
	struct both *both = *state;
	uint32_t wanted;

	hl_mailbox_reader_tell_segments(&both->reader, 10);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		both->mailbox.log_segments = numbers[i];
		assert_false(hl_mailbox_reader_take_segments(&both->reader, &wanted));
		assert_int_equal(both->mailbox.log_segments, 10);
	}
}

static void a_collector_that_has_left_is_asked_nothing(void **state)
{
	struct both *both = *state;

	hl_mailbox_reader_tell_segments(&both->reader, 10);
	hl_mailbox_reader_close(&both->reader);
	assert_int_equal(hl_mailbox_mark(&both->mailbox, 1, "mark"), -ENOTCONN);
	assert_int_equal(hl_mailbox_report(&both->mailbox, "path"), -ENOTCONN);
	assert_int_equal(hl_mailbox_segments(&both->mailbox), -ENOTCONN);
	assert_int_equal(hl_mailbox_set_segments(&both->mailbox, 3), -ENOTCONN);
}

/* ---- the bell ---- */

static struct hl_bell *new_bell(struct hl_mailbox *const *mailboxes, size_t count)
{
	struct hl_bell *bell;

	int r = hl_bell_new(&bell);
	if (r == -ENOSYS) {
		print_message("skipped: this kernel has no futex_waitv (Linux 5.16)\n");
		skip();
	}
	assert_int_equal(r, 0);
	hl_bell_listen(bell, mailboxes, count);
	return bell;
}

static void wait_for_ring(struct hl_bell *bell)
{
	struct pollfd poller = {.fd = hl_bell_fd(bell), .events = POLLIN};

	assert_int_equal(poll(&poller, 1, -1), 1);
	hl_bell_answer(bell);
}

static void everything_that_is_posted_rings(void **state)
{
	struct both *both = *state;
	struct hl_mailbox *mailbox = &both->mailbox;
	uint32_t rings = 0;

	hl_mailbox_reader_tell_segments(&both->reader, 10);
	for (unsigned i = 0; i < HL_MAILBOX_MARKS; i++)
		assert_int_equal(hl_mailbox_mark(mailbox, i, "mark"), 0);
	assert_int_equal(atomic_load(&mailbox->bell), rings += HL_MAILBOX_MARKS);
	/* What is refused, too: there is something to fetch. */
	assert_int_equal(hl_mailbox_mark(mailbox, 1, "mark"), -EAGAIN);
	assert_int_equal(atomic_load(&mailbox->bell), ++rings);
	assert_int_equal(hl_mailbox_report(mailbox, "path"), 0);
	assert_int_equal(atomic_load(&mailbox->bell), ++rings);
	assert_int_equal(hl_mailbox_set_segments(mailbox, 3), 0);
	assert_int_equal(atomic_load(&mailbox->bell), ++rings);
}

static void a_ring_wakes_who_listens(void **state)
{
	struct both *both = *state;
	struct hl_mailbox *mailbox = &both->mailbox;
	struct hl_bell *bell = new_bell(&mailbox, 1);

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(hl_mailbox_mark(mailbox, i, "mark"), 0);
		wait_for_ring(bell);
	}
	hl_bell_free(bell);
}

static void what_was_posted_before_anybody_listened_rings(void **state)
{
	struct both *both = *state;
	struct hl_mailbox *mailbox = &both->mailbox;
	struct hl_bell *bell = new_bell(NULL, 0);

	assert_int_equal(hl_mailbox_mark(mailbox, 1, "mark"), 0);
	hl_bell_listen(bell, &mailbox, 1);
	wait_for_ring(bell);
	hl_bell_free(bell);
}

static void a_mailbox_may_go_once_it_is_not_listened_to(void **state)
{
	struct both *both = *state;
	struct hl_mailbox *mailboxes[] = {&both->mailbox, NULL};
	struct hl_bell *bell = new_bell(mailboxes, 1);

	for (unsigned i = 0; i < 100; i++) {
		mailboxes[1] = mmap(NULL, sizeof(*mailboxes[1]), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(mailboxes[1], MAP_FAILED);
		hl_bell_listen(bell, mailboxes, 2);
		assert_int_equal(hl_mailbox_mark(mailboxes[1], i, "mark"), 0);
		hl_bell_listen(bell, mailboxes, 1);
		munmap(mailboxes[1], sizeof(*mailboxes[1]));
	}
	hl_bell_answer(bell);
	assert_int_equal(hl_mailbox_mark(mailboxes[0], 1, "mark"), 0);
	wait_for_ring(bell);
	hl_bell_free(bell);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(marks_come_out_as_they_went_in_lap_after_lap),
		TEST(a_full_mailbox_refuses_marks_and_counts_them),
		TEST(names_are_short_plain_lines),
		TEST(an_unfinished_mark_is_waited_for_and_passed_over_at_the_end),
		TEST(what_a_program_damages_is_read_without_harm),
		TEST(marks_of_several_threads_all_come_each_thread_in_order),
		TEST(one_report_is_due_at_a_time),
		TEST(paths_of_reports_have_a_bound),
		TEST(who_writes_the_number_of_segments_last_is_right),
		TEST(numbers_of_segments_that_make_no_sense_are_put_right),
		TEST(a_collector_that_has_left_is_asked_nothing),
		TEST(everything_that_is_posted_rings),
		TEST(a_ring_wakes_who_listens),
		TEST(what_was_posted_before_anybody_listened_rings),
		TEST(a_mailbox_may_go_once_it_is_not_listened_to),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
