/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs are the same wherever they lie: in a recording, packed, or as segments that were copied. */
#include "log/log.h"
#include "open/history.h"
#include "open/open.h"
#include "pack/pack_sections.h"

#include "fail_allocations.h"
#include "made_up_log.h"
#include "temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTERVALS     120
#define SEGMENT_BYTES 1500

struct lab {
	char folder[32], recording[64], pack[64], alone[64];
};

/* ---- what is read ---- */

static void write_log(int fd, uint32_t process)
{
	struct hl_log_settings settings = {fd,	 process,	START_NS, SEGMENT_BYTES,
					   1000, &made_up_names};
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;
	struct hl_log_writer *writer;

	assert_int_equal(hl_log_writer_new(&settings, &writer), 0);
	for (uint64_t number = 0; number < INTERVALS; number++) {
		for (uint32_t i = 0; i < 5; i++) {
			hl_intervals_tick(&intervals, number * HL_INTERVAL_TICKS + i);
			assert_int_equal(
				hl_intervals_event(&intervals,
						   1 + (uint32_t)rand() % (MADE_UP_NODES - 1),
						   1 + rand() % 1000 + (int)process, 1),
				0);
		}
		assert_int_equal(hl_intervals_end(&intervals, number + 1, &interval), 0);
		assert_int_equal(hl_log_writer_interval(writer, &interval, 4096, 0), 0);
	}
	assert_int_equal(hl_log_writer_finish(writer), 0);
	hl_intervals_release(&intervals);
}

static int pack_to(const struct lab *lab, const char *path)
{
	struct hl_profile_selection selection = {.keep_rows = true};
	struct hl_log_source source = HL_LOG_SOURCE_NONE;
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	assert_true(fd >= 0);
	int r = hl_log_source_open(&source, lab->recording, &err);
	if (r == 0)
		r = hl_open_profile(lab->recording, &selection, &profile, &err);
	if (r == 0)
		r = hl_pack_write(profile, &source.log, fd, path, &err);
	assert_true(r == 0 || err.text[0]);
	close(fd);
	hl_profile_free(profile);
	hl_log_source_release(&source);
	return r;
}

static int set_up(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	srand(7);
	if (make_temporary(lab->folder) < 0)
		return -1;
	snprintf(lab->recording, sizeof(lab->recording), "%s/x.hl", lab->folder);
	snprintf(lab->pack, sizeof(lab->pack), "%s/x.hlpack", lab->folder);
	snprintf(lab->alone, sizeof(lab->alone), "%s/alone", lab->folder);
	if (mkdir(lab->recording, 0777) < 0 || mkdir(lab->alone, 0777) < 0)
		return -1;
	int fd = open(lab->recording, O_RDONLY | O_DIRECTORY);
	write_made_up_recording(fd, "x.hl", 12000000000);
	write_log(fd, 0);
	close(fd);
	*state = lab;
	return pack_to(lab, lab->pack);
}

static int tear_down(void **state)
{
	struct lab *lab = *state;

	int r = remove_temporary(lab->folder);
	free(lab);
	return r;
}

#define IN_LAB(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- reading ---- */

static int try_history(const char *path, struct hl_history **ret_history, struct hl_error *err)
{
	const struct hl_profile_selection selection = {.jobs = 1};

	return hl_history_open(path, &selection, &HL_HISTORY_ALL, NULL, ret_history, err);
}

static struct hl_history *open_history(const char *path)
{
	struct hl_history *history;
	struct hl_error err = {0};

	if (try_history(path, &history, &err) < 0)
		fail_msg("%s", err.text);
	return history;
}

/* The function of each node that was in use at the end of ${number}, and its bytes. */
static void assert_same_state(struct hl_history *a, struct hl_history *b, uint64_t number)
{
	struct hl_log_state *state, *other;

	assert_int_equal(hl_log_state_at(a->log, number, HL_LOG_AT_END, &state, NULL), 0);
	assert_int_equal(hl_log_state_at(b->log, number, HL_LOG_AT_END, &other, NULL), 0);
	assert_int_equal(state->node_count, other->node_count);
	assert_memory_equal(state->bytes, other->bytes, state->node_count * sizeof(int64_t));
	assert_int_equal(hl_history_name(a, state, NULL), 0);
	assert_int_equal(hl_history_name(b, other, NULL), 0);
	assert_int_equal(a->profile->node_count, b->profile->node_count);
	for (size_t i = 1; i < a->profile->node_count; i++) {
		uint32_t function = a->profile->frames[a->profile->nodes[i].frame].function;
		uint32_t same = b->profile->frames[b->profile->nodes[i].frame].function;
		assert_string_equal(
			hl_profile_text(a->profile, a->profile->functions[function].name),
			hl_profile_text(b->profile, b->profile->functions[same].name));
		assert_true(a->profile->counters[i].alloc_bytes ==
			    b->profile->counters[i].alloc_bytes);
	}
	hl_log_state_free(state);
	hl_log_state_free(other);
}

static void assert_same(const char *path, const char *other)
{
	struct hl_history *a = open_history(path), *b = open_history(other);

	assert_int_equal(a->point_count, b->point_count);
	assert_int_equal(a->log->segment_count, b->log->segment_count);
	for (size_t i = 0; i < a->point_count; i++) {
		assert_int_equal(a->points[i].max_bytes, b->points[i].max_bytes);
		assert_int_equal(a->points[i].end_bytes, b->points[i].end_bytes);
	}
	assert_same_state(a, b, INTERVALS / 2);
	assert_same_state(a, b, INTERVALS - 1);
	hl_history_free(a);
	hl_history_free(b);
}

/* Copies the first file of the recording that is called ${beginning}..., or all of them, to where
 * segments are alone. Returns its path there, static. */
static const char *copy(const struct lab *lab, const char *beginning, bool all)
{
	static char path[400];
	char command[900];
	DIR *directory = opendir(lab->recording);
	int count = 0;

	for (const struct dirent *entry; (entry = readdir(directory));) {
		if (strncmp(entry->d_name, beginning, strlen(beginning)) != 0 ||
		    (!all && !strstr(entry->d_name, "-000001.")))
			continue;
		snprintf(path, sizeof(path), "%s/%s", lab->alone, entry->d_name);
		snprintf(command, sizeof(command), "cp '%s/%s' '%s'", lab->recording, entry->d_name,
			 path);
		assert_int_equal(system(command), 0);
		count++;
	}
	closedir(directory);
	assert_true(all ? count > 2 : count == 1);
	return path;
}

/* ---- tests ---- */

static void a_packed_log_is_that_of_the_recording(void **state)
{
	const struct lab *lab = *state;

	assert_same(lab->recording, lab->pack);
	assert_int_equal(pack_to(lab, lab->pack), 0);
	assert_same(lab->recording, lab->pack);
}

static void a_pack_without_a_log_says_so(void **state)
{
	const struct lab *lab = *state;
	const struct hl_profile_selection selection = {.keep_rows = true};
	struct hl_history *history;
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(hl_open_profile(lab->recording, &selection, &profile, NULL), 0);
	int fd = open(lab->pack, O_RDWR | O_TRUNC | O_CLOEXEC);
	assert_int_equal(hl_pack_write(profile, NULL, fd, lab->pack, NULL), 0);
	close(fd);
	hl_profile_free(profile);
	assert_int_equal(try_history(lab->pack, &history, &err), -ENOENT);
	assert_non_null(strstr(err.text, "holds no log"));
}

static void copied_segments_are_a_log_without_a_recording(void **state)
{
	const struct lab *lab = *state;
	struct hl_history *history;

	copy(lab, "memlog-", true);
	assert_same(lab->recording, lab->alone);
	history = open_history(lab->alone);
	assert_int_equal(history->profile->warning_count, 1);
	assert_non_null(strstr(hl_profile_text(history->profile, history->profile->warnings[0]),
			       "recording.hlm"));
	hl_history_free(history);
}

static void one_segment_has_its_own_intervals(void **state)
{
	const struct lab *lab = *state;
	struct hl_history *whole = open_history(lab->recording);
	struct hl_history *history = open_history(copy(lab, "memlog-", false));

	assert_int_equal(history->log->segment_count, 1);
	assert_true(history->point_count > 2 && history->point_count < whole->point_count);
	for (size_t i = 0; i < history->point_count; i++)
		assert_int_equal(history->points[i].max_bytes, whole->points[i].max_bytes);
	assert_same_state(history, whole, history->points[1].number);
	hl_history_free(history);
	hl_history_free(whole);
}

static void a_recording_beside_a_segment_says_what_ran(void **state)
{
	const struct lab *lab = *state;
	char command[300];

	const char *path = copy(lab, "memlog-", false);
	snprintf(command, sizeof(command), "cp '%s/recording.hlm' '%s'", lab->recording,
		 lab->alone);
	assert_int_equal(system(command), 0);
	struct hl_history *history = open_history(path);
	assert_string_equal(hl_profile_text(history->profile, history->profile->mode), "log-fast");
	assert_string_equal(
		hl_profile_text(history->profile, history->profile->processes[0].command), "app");
	hl_history_free(history);
}

/* One of another time, in whose place the segment was put. */
static void a_foreign_recording_beside_a_segment_is_not_its_own(void **state)
{
	const struct lab *lab = *state;
	char path[400], command[900];

	strcpy(path, copy(lab, "memlog-", false));
	snprintf(command, sizeof(command), "cp '%s'/recording.hlm '%s'/process-* '%s'",
		 lab->recording, lab->recording, lab->alone);
	assert_int_equal(system(command), 0);
	struct hl_history *history = open_history(path);
	assert_int_equal(history->profile->processes[0].pid, 77);
	hl_history_free(history);

	uint64_t start = START_NS + 1;
	struct hl_segment_header header;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	header.start_realtime_ns = start;
	hl_log_files_seal_header(&hl_log_segments, &header);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	close(fd);
	history = open_history(path);
	assert_int_equal(history->profile->processes[0].pid, 0);
	assert_string_equal(hl_profile_text(history->profile, history->profile->mode), "");
	hl_history_free(history);
}

/* Wherever one byte is wrong: the file is refused, or only what was in use over time is less. */
static void damage_in_a_packed_log_leaves_the_profile(void **state)
{
	const struct lab *lab = *state;
	struct hl_container container;
	struct hl_error err = {0};
	uint64_t offset, bytes;
	unsigned readable = 0;

	int fd = open(lab->pack, O_RDWR | O_CLOEXEC);
	assert_int_equal(hl_container_open(&container, fd, "x", HL_KIND_PACK, &err), 0);
	assert_true(hl_container_locate(&container, HL_PACK_LOG_FILES, &offset, &bytes));
	for (uint64_t at = 0; at < bytes; at += 37) {
		struct hl_profile *profile = NULL;
		struct hl_history *history = NULL;
		uint8_t was, wrong;
		assert_int_equal(pread(fd, &was, 1, (off_t)(offset + at)), 1);
		wrong = was ^ 0x10;
		assert_int_equal(pwrite(fd, &wrong, 1, (off_t)(offset + at)), 1);
		assert_int_equal(hl_open_profile(lab->pack, NULL, &profile, &err), 0);
		err.text[0] = '\0';
		int r = try_history(lab->pack, &history, &err);
		assert_true(r == 0 || err.text[0]);
		if (r == 0)
			readable += history->point_count == INTERVALS;
		hl_history_free(history);
		hl_profile_free(profile);
		assert_int_equal(pwrite(fd, &was, 1, (off_t)(offset + at)), 1);
	}
	close(fd);
	assert_true(readable > 0); /* damage that no index shows is met when it is read */
}

/* As where the recorder was killed between a new stack and the next save of its process. */
static void names_of_a_log_are_in_the_profile_that_is_packed(void **state)
{
	extern const char __executable_start[];
	const uint64_t bias = (uint64_t)(uintptr_t)__executable_start;
	char program[300] = "";
	struct hl_log_module module = {.path = program, .load_bias = bias};
	struct hl_log_node nodes[] = {
		{0}, {UINT64_C(1) << 48 | (uint64_t)(uintptr_t)open_history, 0, true}};
	struct hl_log_state log = {
		.nodes = nodes, .node_count = 2, .modules = &module, .module_count = 1};
	struct hl_log_state *logs[] = {&log};
	const struct hl_profile_selection selection = {.logs = logs};
	const struct lab *lab = *state;
	const struct hl_profile_module nameless = {0};
	const struct hl_profile_module rebuilt = {.print = {.hash = 5}};
	struct hl_known_names names;
	struct hl_profile *profile;
	uint32_t first;

	assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
	assert_int_equal(hl_open_profile(lab->recording, &selection, &profile, NULL), 0);
	assert_true(hl_profile_is_valid(profile));
	assert_int_equal(hl_known_names_init(&names, profile), 0);
	assert_int_equal(hl_known_names_find(&names, &nameless, program,
					     (uint64_t)(uintptr_t)open_history - bias, &first),
			 1);
	assert_string_equal(
		hl_profile_text(profile, profile->functions[profile->frames[first].function].name),
		"open_history");
	assert_int_equal(hl_known_names_find(&names, &nameless, program, 1, &first), 0);
	assert_int_equal(hl_known_names_find(&names, &nameless, "/other",
					     (uint64_t)(uintptr_t)open_history - bias, &first),
			 0);
	assert_int_equal(hl_known_names_find(&names, &rebuilt, program,
					     (uint64_t)(uintptr_t)open_history - bias, &first),
			 0);
	hl_known_names_release(&names);
	hl_profile_free(profile);
}

static int open_and_free(const char *path)
{
	struct hl_history *history = NULL;
	struct hl_error err = {0};

	int r = try_history(path, &history, &err);
	assert_true(r == 0 || err.text[0]);
	hl_history_free(history);
	return r;
}

static int read_profile(const char *path)
{
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	int r = hl_open_profile(path, NULL, &profile, &err);
	assert_true(r == 0 || err.text[0]);
	hl_profile_free(r == 0 ? profile : NULL);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	const struct lab *lab = *state;

	FOR_EACH_FAILING_ALLOCATION(r, pack_to(lab, lab->pack))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, open_and_free(lab->pack))
	assert_int_equal(r, -ENOMEM);
	const char *path = copy(lab, "memlog-", false);
	FOR_EACH_FAILING_ALLOCATION(r, open_and_free(path))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, open_and_free(lab->alone))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_profile(lab->alone))
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_LAB(a_packed_log_is_that_of_the_recording),
		IN_LAB(a_pack_without_a_log_says_so),
		IN_LAB(copied_segments_are_a_log_without_a_recording),
		IN_LAB(one_segment_has_its_own_intervals),
		IN_LAB(a_recording_beside_a_segment_says_what_ran),
		IN_LAB(a_foreign_recording_beside_a_segment_is_not_its_own),
		IN_LAB(damage_in_a_packed_log_leaves_the_profile),
		IN_LAB(names_of_a_log_are_in_the_profile_that_is_packed),
		IN_LAB(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
