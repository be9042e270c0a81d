/* SPDX-License-Identifier: BSD-2-Clause */
/* What is said of kept events is what a ledger says. */
#include "event_lab.h"
#include "fail_allocations.h"
#include "profile/event_reports.h"
#include "recording/recording.h"
#include "view/view.h"

#include <sys/stat.h>

/* ---- what is said of events ---- */

static void the_summary_adds_up_what_the_ledger_has(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);
	struct hl_event_range range = {1250, 7777};
	struct hl_event_figures total = {0}, threads[THREADS] = {0};

	(void)test;
	for (size_t i = 0; i < lab->entry_count; i++) {
		const struct entry *entry = &lab->entries[i];
		if (entry->tick < range.first || entry->tick >= range.end)
			continue;
		total.events++;
		total.alloc_bytes += entry->event.is_free ? 0 : entry->event.bytes;
		total.frees += entry->event.is_free;
		threads[entry->thread].events++;
	}
	for (unsigned jobs = 1; jobs < 5; jobs += 3) {
		struct hl_event_summary summary = {0};
		assert_int_equal(hl_event_summary_read(&summary, log, &range,
						       &(struct hl_log_options){.jobs = jobs},
						       NULL),
				 0);
		assert_int_equal(summary.total.events, total.events);
		assert_int_equal(summary.total.alloc_bytes, total.alloc_bytes);
		assert_int_equal(summary.total.frees, total.frees);
		assert_int_equal(summary.thread_count, THREADS);
		for (size_t i = 0; i < THREADS; i++)
			assert_int_equal(summary.threads[i].events, threads[i].events);
		assert_int_equal(summary.tick_count, HL_EVENT_TICKS_MAX);
		for (size_t i = 1; i < summary.tick_count; i++)
			assert_true(summary.ticks[i].figures.events <=
				    summary.ticks[i - 1].figures.events);
		hl_event_summary_release(&summary);
	}
	hl_event_log_free(log);
	lab_free(lab);
}

/* The sum of the lifetimes of each node's blocks within the range, block by block. */
static void sum_lifetimes(const struct lab *lab, const struct hl_event_range *range, int64_t *sums,
			  int64_t *seen)
{
	for (size_t i = 0; i < lab->block_count; i++) {
		const struct block *block = &lab->blocks[i];
		uint64_t from = block->born > range->first ? block->born : range->first;
		uint64_t to = block->died < range->end ? block->died : range->end;
		if (block->born >= range->end || block->died < range->first)
			continue;
		/* What dies at the range's first tick is counted there, with no lifetime. */
		sums[block->node] += (int64_t)(to - from);
		seen[block->node]++;
	}
}

static void lifetimes_are_the_sums_over_blocks_that_nobody_told_apart(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);
	static const struct hl_event_range ranges[] = {
		{0, INTERVALS * HL_INTERVAL_TICKS}, {1234, 9876}, {5000, 5001}, {3000, 3100}};

	(void)test;
	for (size_t at = 0; at < HL_COUNT_OF(ranges); at++) {
		struct hl_event_lifetimes lifetimes = {0};
		int64_t sums[NODES] = {0}, seen[NODES] = {0};
		sum_lifetimes(lab, &ranges[at], sums, seen);
		assert_int_equal(hl_event_lifetimes_read(&lifetimes, log, &ranges[at],
							 &(struct hl_log_options){.jobs = 3}, NULL),
				 0);
		for (size_t i = 1; i < NODES; i++) {
			const struct hl_event_lifetime none = {0};
			const struct hl_event_lifetime *node =
				i < lifetimes.node_count ? &lifetimes.nodes[i] : &none;
			assert_int_equal(node->area, sums[i]);
			assert_int_equal(hl_event_lifetime_seen(node), seen[i]);
		}
		hl_event_lifetimes_release(&lifetimes);
	}
	hl_event_log_free(log);
	lab_free(lab);
}

static void replay_range(const struct lab *lab, unsigned jobs, struct hl_event_range range,
			 struct hl_event_replay *ret_replay)
{
	const struct hl_log_options options = {.jobs = jobs};
	struct hl_event_log *events = open_log(lab);
	struct hl_log *log;
	struct hl_error err = {0};

	assert_int_equal(open_log_in(lab->directory, PROCESS, &options, &log, NULL), 0);
	if (hl_event_replay(events, log, &range, &options, ret_replay, &err) < 0)
		fail_msg("%s", err.text);
	hl_log_free(log);
	hl_event_log_free(events);
}

static void replay(const struct lab *lab, unsigned jobs, struct hl_event_replay *ret_replay)
{
	replay_range(lab, jobs, ALL, ret_replay);
}

static void replayed_events_tell_the_same_as_the_log(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_replay result;

	(void)test;
	for (unsigned jobs = 1; jobs < 5; jobs += 3) {
		replay(lab, jobs, &result);
		assert_int_equal(result.events, lab->entry_count);
		assert_int_equal(result.compared, INTERVALS);
		assert_int_equal(result.uncertain, 0);
		assert_int_equal(result.different, 0);
		assert_int_equal(result.different_stacks, 0);
		assert_true(result.states > 10);
	}
	lab_free(lab);
}

/* As a dump of the range lists them, though replaying begins before it. */
static void replay_counts_the_events_of_its_range(void **test)
{
	struct lab *lab = filled_lab(1 << 20, 1000);
	const struct hl_event_range range = {1234, 5678};
	struct hl_event_replay result;
	uint64_t count = 0;

	(void)test;
	for (size_t i = 0; i < lab->entry_count; i++)
		count += lab->entries[i].tick >= range.first && lab->entries[i].tick < range.end;
	replay_range(lab, 2, range, &result);
	assert_int_equal(result.events, count);
	lab_free(lab);
}

static void replay_says_where_events_and_log_differ(void **test)
{
	struct lab *lab = lab_new(4096, 1000);
	struct hl_event_replay result;

	(void)test;
	for (uint64_t i = 0; i < INTERVALS; i++) {
		if (i == 52) /* the log alone knows of it */
			hl_intervals_event(&lab->intervals, 17, 1000003, 1);
		if (i == 54)
			hl_intervals_event(&lab->intervals, 17, -1000003, -1);
		fill_interval(lab, i);
	}
	finish(lab);
	replay(lab, 2, &result);
	assert_in_range(result.different, 1, 3);
	assert_int_equal(result.first[0].number, 52);
	assert_int_equal(result.first[0].log.end_bytes - result.first[0].replayed.end_bytes,
			 1000003);
	lab_free(lab);
}

/* Events that are missing are not difference; what lies between is not compared. */
static void replay_leaves_out_what_is_not_known(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);
	struct hl_event_replay result;
	struct stat status;

	(void)test;
	assert_int_equal(fstatat(lab->fd, files[0].name, &status, 0), 0);
	int fd = openat(lab->fd, files[0].name, O_RDWR);
	assert_int_equal(ftruncate(fd, status.st_size / 2), 0);
	close(fd);
	replay(lab, 1, &result);
	assert_in_range(result.uncertain, 1, INTERVALS - 1);
	assert_int_equal(result.compared + result.uncertain, INTERVALS);
	assert_int_equal(result.different, 0);
	free(files);
	lab_free(lab);
}

/* ---- want of memory ---- */

static int start_and_stop(const struct lab *lab)
{
	struct hl_log_settings settings = settings_of(lab, 4096, 10);
	struct hl_event_writer *writer;
	uint64_t missing;

	int r = hl_event_writer_new(&settings, 0, &writer);
	return r < 0 ? r : hl_event_writer_finish(writer, true, &missing);
}

static int read_all(const struct lab *lab)
{
	const struct hl_log_options options = {.jobs = 1};
	struct hl_event_lifetimes lifetimes = {0};
	struct hl_event_summary *summary = calloc(1, sizeof(*summary));
	struct hl_event_range all = ALL;
	struct hl_event_log *log = NULL;

	int r = summary ? open_events_in(lab->directory, PROCESS, &options, &log, NULL) : -ENOMEM;
	if (r == 0)
		r = hl_event_summary_read(summary, log, &all, &options, NULL);
	if (r == 0)
		r = hl_event_lifetimes_read(&lifetimes, log, &all, &options, NULL);
	if (summary)
		hl_event_summary_release(summary);
	free(summary);
	hl_event_lifetimes_release(&lifetimes);
	hl_event_log_free(log);
	return r;
}

static void write_recording(struct lab *lab)
{
	static char *command[] = {"app", NULL};
	struct hl_recording_process process = {
		.pid = 77,
		.sequence = PROCESS,
		.executable = "/none/app",
		.command = command,
		.start_realtime_ns = START_NS,
		.complete = true,
		.end = HL_END_EXITED,
	};
	struct hl_recording recording = {
		.name = lab->directory,
		.format_version = 1,
		.tool_version = "0",
		.command = command,
		.host = "here",
		.kernel = "Linux",
		.mode = "log-fast",
		.start_realtime_ns = START_NS,
		.complete = true,
		.processes = &process,
		.process_count = 1,
	};
	struct hl_error err;

	assert_int_equal(hl_recording_write_meta(lab->fd, &recording, &err), 0);
	assert_int_equal(hl_recording_write_process(lab->fd, &process, &err), 0);
}

static int show(const struct lab *lab, enum hl_view_events report, bool json)
{
	struct hl_profile_selection selection = {.jobs = 1};
	struct hl_history_range range = HL_HISTORY_ALL;
	FILE *null = fopen("/dev/null", "w");
	struct hl_view_options options = {.out = null,
					  .notes = null,
					  .events.report = report,
					  .events.names = true,
					  .row_limit = 20,
					  .json = json};
	struct hl_history *history = NULL;
	struct hl_error err = {0};

	int r = hl_history_open(lab->directory, &selection, &range, NULL, &history, &err);
	if (r == 0)
		r = hl_events_view(history, &options, &err);
	hl_history_free(history);
	if (null)
		fclose(null);
	assert_true(r == 0 || err.text[0]);
	return r;
}

static void every_report_fails_for_want_of_memory_with_a_sentence(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	write_recording(lab);
	for (uint64_t i = 0; i < 5; i++)
		fill_interval(lab, i);
	finish(lab);
	for (int report = HL_VIEW_EVENTS_SUMMARY; report <= HL_VIEW_EVENTS_REPLAY; report++)
		for (int json = 0; json < 2; json++)
			FOR_EACH_FAILING_ALLOCATION(r, show(lab, (enum hl_view_events)report, json))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint64_t i = 0; i < 5; i++)
		fill_interval(lab, i);
	finish(lab);
	FOR_EACH_FAILING_ALLOCATION(r, start_and_stop(lab))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_all(lab))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
		cmocka_unit_test(every_report_fails_for_want_of_memory_with_a_sentence),
		cmocka_unit_test(the_summary_adds_up_what_the_ledger_has),
		cmocka_unit_test(lifetimes_are_the_sums_over_blocks_that_nobody_told_apart),
		cmocka_unit_test(replayed_events_tell_the_same_as_the_log),
		cmocka_unit_test(replay_counts_the_events_of_its_range),
		cmocka_unit_test(replay_says_where_events_and_log_differ),
		cmocka_unit_test(replay_leaves_out_what_is_not_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
