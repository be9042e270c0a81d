/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeping events where there is no room for them: on the disk, or in the time that there is. */
#include "event_lab.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
}

static bool blocks_have_no_size;

/* Takes the place of libc's. */
int fstatvfs(int fd, struct statvfs *status)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int r = statvfs(path, status);
	if (blocks_have_no_size)
		status->f_frsize = 0;
	return r;
}

static void a_file_system_without_a_block_size_has_room(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);

	(void)test;
	blocks_have_no_size = true;
	fill_interval(lab, 0);
	finish(lab);
	blocks_have_no_size = false;
	assert_int_equal(lab->missing, 0);
	lab_free(lab);
}

/* Its thread has at most a few batches before it, so it reaches the later ones meanwhile. */
static void write_batches(struct lab *lab, uint64_t number, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		give(lab, number * HL_INTERVAL_TICKS, 0, &(struct hl_event){24, 1, 7, false});
		hl_event_writer_flush(lab->writer);
	}
}

static void a_full_disk_loses_events_and_says_how_many(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);

	(void)test;
	signal(SIGXFSZ, SIG_IGN);
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20);
	limit_files(1);
	write_batches(lab, 10, 20);
	limit_files(RLIM_INFINITY);
	struct hl_log_interval interval;
	assert_int_equal(hl_intervals_end(&lab->intervals, 11, &interval), 0);
	hl_event_writer_interval(lab->writer, 11);
	assert_int_equal(hl_log_writer_interval(lab->log, &interval, 1, 0), 0);
	for (uint64_t i = 11; i < 30; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, -EFBIG);
	assert_true(lab->missing >= 10);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->missing_events, lab->missing);
	assert_int_equal(compare(lab, log, 2) + lab->missing, lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static void events_for_which_no_file_can_be_made_are_counted(void **test)
{
	struct lab *lab = lab_new(1, 100); /* each interval begins a file */
	int nowhere = open("/dev/null", O_RDONLY);

	(void)test;
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20); /* more than there can be on their way: the files are there */
	assert_int_equal(dup2(nowhere, lab->fd), lab->fd);
	for (uint64_t i = 10; i < 20; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, -ENOTDIR);
	assert_true(lab->missing >= 9 * EVENTS);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->missing_events, lab->missing);
	assert_false(log->cut_off);
	assert_int_equal(compare(lab, log, 1) + lab->missing, lab->entry_count);
	hl_event_log_free(log);
	close(nowhere);
	lab_free(lab);
}

static void events_go_on_in_another_file_when_theirs_is_deleted(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	char command[128];

	(void)test;
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20); /* more than there can be on their way: the file is there */
	snprintf(command, sizeof(command), "rm %s/events-*", lab->directory);
	assert_int_equal(system(command), 0);
	fill_interval(lab, 10);
	size_t before = lab->entry_count;
	for (uint64_t i = 11; i < 20; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, 1);
	assert_int_equal(compare(lab, log, 1), lab->entry_count - before);
	hl_event_log_free(log);
	lab_free(lab);
}

/* A thread that is busy with the first node until somebody has waited for it. */
struct busy {
	struct hl_log_names base;
	sem_t go_on;
	unsigned waits;
};

static bool name_node_slowly(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
			     uint32_t *ret_parent)
{
	struct busy *busy = (struct busy *)(uintptr_t)base;

	sem_wait(&busy->go_on);
	sem_post(&busy->go_on);
	return name_node(base, node, ret_frame, ret_parent);
}

static void let_go_on(void *context)
{
	struct busy *busy = context;

	if (++busy->waits == 3)
		sem_post(&busy->go_on);
}

static void who_adds_events_waits_for_a_thread_that_does_not_keep_up(void **test)
{
	struct busy busy = {.base = {name_node_slowly, count_modules, name_module, NULL, NULL}};
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	uint64_t missing;

	(void)test;
	sem_init(&busy.go_on, 0, 0);
	hl_event_writer_finish(lab->writer, true, &missing);
	struct hl_log_settings settings = settings_of(lab, UINT64_C(1) << 30, 10);
	settings.names = &busy.base;
	assert_int_equal(hl_event_writer_new(&settings, 0, &lab->writer), 0);
	lab->writer->while_waiting = let_go_on;
	lab->writer->context = &busy;
	write_batches(lab, 0, 40);
	assert_true(busy.waits >= 3);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), 40);
	hl_event_log_free(log);
	sem_destroy(&busy.go_on);
	lab_free(lab);
}

static void count_wait(void *context)
{
	++*(unsigned *)context;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Else the drain, which counts ticks while it waits, would get ahead of time. */
static void no_more_waits_are_told_than_milliseconds_have_passed(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	unsigned waits = 0;

	(void)test;
	lab->writer->while_waiting = count_wait;
	lab->writer->context = &waits;
	uint64_t begin_ms = now_ms();
	write_batches(lab, 0, 2000);
	assert_true(waits <= now_ms() - begin_ms + 1);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_disk_loses_events_and_says_how_many),
		cmocka_unit_test(a_file_system_without_a_block_size_has_room),
		cmocka_unit_test(events_for_which_no_file_can_be_made_are_counted),
		cmocka_unit_test(events_go_on_in_another_file_when_theirs_is_deleted),
		cmocka_unit_test(who_adds_events_waits_for_a_thread_that_does_not_keep_up),
		cmocka_unit_test(no_more_waits_are_told_than_milliseconds_have_passed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
