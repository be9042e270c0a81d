/* SPDX-License-Identifier: BSD-2-Clause */
/* Each counter of a process goes the whole way: region, recording, pack, JSON, sentence. */
#include "base/lost.h"
#include "fake_region.h"
#include "pack/pack.h"
#include "recording/recording.h"
#include "temporary.h"
#include "viewing.h"

#include <fcntl.h>
#include <unistd.h>

/* A counter alone; others are 0. */
static struct hl_lost some(size_t counter, uint64_t number)
{
	struct hl_lost lost = {0};

	((uint64_t *)&lost)[counter] = number;
	return lost;
}

static void assert_lost(const struct hl_lost *lost, size_t counter, uint64_t number)
{
	const struct hl_lost expected = some(counter, number);

	for (size_t i = 0; i < HL_LOST_COUNT; i++)
		if (hl_lost_value(lost, i) != hl_lost_value(&expected, i))
			fail_msg("%s is %llu where %s counts %llu", hl_lost_counters[i].key,
				 (unsigned long long)hl_lost_value(lost, i),
				 hl_lost_counters[counter].key, (unsigned long long)number);
}

/* ---- the way ---- */

static struct hl_recording_process through_region(size_t counter)
{
	struct fake_region fake = fake_region_new();
	struct hl_region_view view = fake_view(&fake);
	struct hl_recording_process process = {.pid = 1};

	fake_add_thread(&fake, "first")->lost = some(counter, 1);
	fake_add_thread(&fake, "second")->lost = some(counter, 4);
	((_Atomic uint64_t *)&fake.header->lost)[counter] = 2;
	assert_int_equal(
		hl_region_read(&view, &(struct hl_region_times){1000, 5000}, &process, NULL), 0);
	fake_region_free(&fake);
	return process;
}

static struct hl_recording *through_files(const char *path, size_t counter)
{
	struct hl_recording_process process = through_region(counter);
	struct hl_recording meta = {.mode = "mem-fast", .complete = true}, *recording;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(hl_recording_write_meta(fd, &meta, NULL), 0);
	assert_int_equal(hl_recording_write_process(fd, &process, NULL), 0);
	hl_recording_process_release(&process);
	close(fd);
	assert_int_equal(hl_recording_open(path, &recording, NULL), 0);
	assert_lost(&recording->processes[0].lost, counter, 7);
	return recording;
}

static struct hl_profile *through_pack(const char *path, size_t counter)
{
	const struct hl_profile_selection selection = {.keep_rows = true};
	struct hl_recording *recording = through_files(path, counter);
	struct hl_profile *profile, *packed;
	int fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	assert_int_equal(hl_profile_load(recording, &selection, &profile, NULL), 0);
	hl_recording_free(recording);
	assert_lost(&profile->lost, counter, 7);
	assert_int_equal(hl_pack_write(profile, NULL, fd, "x", NULL), 0);
	hl_profile_free(profile);
	assert_int_equal(hl_pack_read(fd, "x", &selection, &packed, NULL), 0);
	close(fd);
	assert_lost(&packed->processes[0].lost, counter, 7);
	assert_lost(&packed->lost, counter, 7);
	return packed;
}

static void each_counter_reaches_reports(void **state)
{
	char path[TEMPORARY_MAX];

	(void)state;
	assert_int_equal(make_temporary(path), 0);
	for (size_t i = 0; i < HL_LOST_COUNT; i++) {
		struct hl_profile *profile = through_pack(path, i);
		char *text = text_of(hl_top_view, profile, (struct hl_view_options){0});
		json_t *report = json_of(hl_top_view, profile, (struct hl_view_options){0});
		const json_t *lost = json_object_get(report, "lost");
		for (size_t other = 0; other < HL_LOST_COUNT; other++)
			assert_int_equal(json_integer_value(json_object_get(
						 lost, hl_lost_counters[other].key)),
					 other == i ? 7 : 0);
		if (!strstr(text, " 7 "))
			fail_msg("no sentence of %s in %s", hl_lost_counters[i].key, text);
		/* With FORTIFY and in musl, a format that numbers its arguments may leave none out. */
		const char *sentence = hl_lost_counters[i].sentence;
		assert_true(!sentence || !strchr(sentence, '$'));
		json_decref(report);
		free(text);
		hl_profile_free(profile);
	}
	assert_int_equal(remove_temporary(path), 0);
}

/* ---- figures ---- */

static void a_counter_that_became_smaller_counts_nothing_since(void **state)
{
	const struct hl_lost before = {.events = 5, .damaged = 9},
			     now = {.events = 7, .damaged = 1};
	const struct hl_lost since = hl_lost_since(&now, &before);

	(void)state;
	assert_lost(&since, 0, 2);
}

/* More things than events there can have been. */
static void numbers_that_cannot_be_are_damage(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_LOST_COUNT; i++) {
		struct fake_region fake = fake_region_new();
		struct hl_region_view view = fake_view(&fake);
		struct hl_recording_process process = {.pid = 1};
		fake_add_thread(&fake, "first")->lost = some(i, UINT64_MAX);
		assert_int_equal(hl_region_read(&view, &(struct hl_region_times){1000, 5000},
						&process, NULL),
				 0);
		assert_int_equal(process.lost.damaged, !hl_lost_counters[i].is_bytes);
		hl_recording_process_release(&process);
		fake_region_free(&fake);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_counter_reaches_reports),
		cmocka_unit_test(a_counter_that_became_smaller_counts_nothing_since),
		cmocka_unit_test(numbers_that_cannot_be_are_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
