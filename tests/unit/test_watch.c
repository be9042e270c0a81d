/* SPDX-License-Identifier: BSD-2-Clause */
/* When groups are worth a snapshot, and how the directory of snapshots stays bounded. */
#include "watch/kill.h"
#include "watch/store.h"
#include "watch/trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
#define LIMIT  (UINT64_C(1000) << 20)
#define MIB    (UINT64_C(1) << 20)

/* ---- triggers ---- */

static enum hl_watch_cause feed(struct hl_watch_trigger *trigger, uint64_t second, uint64_t mib)
{
	uint64_t now_ns = second * SECOND;
	enum hl_watch_cause cause = hl_watch_trigger_feed(trigger, now_ns, mib * MIB, LIMIT, 0.9);

	if (cause)
		hl_watch_trigger_fire(trigger, cause, now_ns);
	return cause;
}

static void test_the_share_fires_once(void **state)
{
	struct hl_watch_trigger trigger = {0};

	(void)state;
	assert_int_equal(feed(&trigger, 1, 899), HL_WATCH_CAUSE_NONE);
	assert_int_equal(feed(&trigger, 2, 900), HL_WATCH_CAUSE_SHARE);
	assert_int_equal(feed(&trigger, 3, 910), HL_WATCH_CAUSE_NONE);
	assert_int_equal(feed(&trigger, 4, 950), HL_WATCH_CAUSE_NEAR);
	assert_int_equal(feed(&trigger, 5, 999), HL_WATCH_CAUSE_NONE);
}

static void test_it_fires_again_well_below_and_later_alone(void **state)
{
	struct hl_watch_trigger trigger = {0};

	(void)state;
	assert_int_equal(feed(&trigger, 1, 960), HL_WATCH_CAUSE_NEAR);
	assert_int_equal(feed(&trigger, 10, 100), HL_WATCH_CAUSE_NONE);
	assert_int_equal(feed(&trigger, 20, 960), HL_WATCH_CAUSE_NONE); /* too soon */
	assert_int_equal(feed(&trigger, 400, 840), HL_WATCH_CAUSE_NONE);
	assert_int_equal(feed(&trigger, 401, 920), HL_WATCH_CAUSE_NONE); /* not far enough below */
	assert_int_equal(feed(&trigger, 402, 790), HL_WATCH_CAUSE_NONE);
	assert_int_equal(feed(&trigger, 403, 920), HL_WATCH_CAUSE_SHARE);
}

static void test_a_low_share_fires_again_too(void **state)
{
	struct hl_watch_trigger trigger = {0};

	(void)state;
	hl_watch_trigger_fire(&trigger, HL_WATCH_CAUSE_SHARE, SECOND);
	for (unsigned step = 0; step < 2; step++) {
		uint64_t used = step ? 100 * MIB : 20 * MIB;
		assert_int_equal(
			hl_watch_trigger_feed(&trigger, (400 + step) * SECOND, used, LIMIT, 0.05),
			step ? HL_WATCH_CAUSE_SHARE : HL_WATCH_CAUSE_NONE);
	}
}

static enum hl_watch_cause grow(uint64_t first, uint64_t step, unsigned count, uint64_t dip)
{
	struct hl_watch_trigger trigger = {0};
	enum hl_watch_cause found = HL_WATCH_CAUSE_NONE;

	for (unsigned i = 0; i < count && !found; i++)
		found = feed(&trigger, 2 * (i + 1), first + i * step - (i == 3 ? dip : 0));
	return found;
}

static void test_steady_growth_fires(void **state)
{
	(void)state;
	assert_int_equal(grow(600, 3, 6, 0), HL_WATCH_CAUSE_GROWTH);
	assert_int_equal(grow(600, 3, 5, 0), HL_WATCH_CAUSE_NONE);
	assert_int_equal(grow(600, 3, 6, 4), HL_WATCH_CAUSE_NONE); /* not steady */
	assert_int_equal(grow(600, 1, 6, 0), HL_WATCH_CAUSE_NONE); /* too slow */
	assert_int_equal(grow(400, 3, 6, 0), HL_WATCH_CAUSE_NONE); /* it only starts */
}

static enum hl_watch_cause rush(struct hl_watch_trigger *trigger, uint64_t ms, uint64_t mib)
{
	return hl_watch_trigger_feed(trigger, SECOND + ms * (SECOND / 1000), mib * MIB, LIMIT, 0.9);
}

static void test_what_fills_between_two_looks_fires(void **state)
{
	struct hl_watch_trigger trigger = {0}, slow = {0};

	(void)state;
	assert_int_equal(rush(&trigger, 0, 490), HL_WATCH_CAUSE_NONE); /* as it was found */
	assert_false(trigger.rushes);
	assert_int_equal(rush(&trigger, 1, 491), HL_WATCH_CAUSE_NONE); /* too soon to tell */
	assert_int_equal(rush(&trigger, 20, 495), HL_WATCH_CAUSE_NONE);
	assert_int_equal(rush(&trigger, 40, 540), HL_WATCH_CAUSE_GROWTH);
	assert_true(trigger.rushes);
	assert_int_equal(rush(&trigger, 40, 500),
			 HL_WATCH_CAUSE_NONE); /* the rest was page cache */
	assert_int_equal(rush(&trigger, 60, 400), HL_WATCH_CAUSE_NONE);
	assert_int_equal(rush(&trigger, 80, 450), HL_WATCH_CAUSE_NONE); /* it only starts */
	assert_true(trigger.rushes);
	assert_int_equal(rush(&slow, 0, 600), HL_WATCH_CAUSE_NONE);
	assert_int_equal(rush(&slow, 250, 620), HL_WATCH_CAUSE_NONE); /* 4.75 s are left */
}

static void test_looks_come_closer_near_the_limit(void **state)
{
	(void)state;
	assert_int_equal(hl_watch_trigger_wait_ns(0, LIMIT, 0.9), 2 * SECOND);
	assert_int_equal(hl_watch_trigger_wait_ns(500 * MIB, LIMIT, 0.9), SECOND);
	assert_int_equal(hl_watch_trigger_wait_ns(800 * MIB, LIMIT, 0.9), SECOND / 4);
	assert_int_equal(hl_watch_trigger_wait_ns(1, 0, 0.9), SECOND / 4);
}

/* ---- names ---- */

static void test_names_say_when_what_and_who(void **state)
{
	char name[HL_WATCH_NAME_MAX], partial[HL_WATCH_NAME_MAX + 16];
	struct hl_watch_entry entry;

	(void)state;
	hl_watch_name_make(UINT64_C(1769862896789) * 1000000, HL_WATCH_KILL, "/kube/a b\n\xff",
			   name);
	assert_string_equal(name, "20260131T123456.789Z-kill-a_b__");
	assert_true(hl_watch_name_parse(name, &entry));
	assert_int_equal(entry.kind, HL_WATCH_KILL);
	assert_false(entry.is_partial);
	snprintf(partial, sizeof(partial), "%s" HL_WATCH_PARTIAL, name);
	assert_true(hl_watch_name_parse(partial, &entry));
	assert_true(entry.is_partial);
}

static void test_a_long_name_is_cut(void **state)
{
	char group[1000], name[HL_WATCH_NAME_MAX];
	struct hl_watch_entry entry;

	(void)state;
	memset(group, 'x', sizeof(group) - 1);
	group[sizeof(group) - 1] = '\0';
	hl_watch_name_make(0, HL_WATCH_RECORDING, group, name);
	assert_true(hl_watch_name_parse(name, &entry));
	assert_string_equal(entry.name, name);
}

static void test_no_group_makes_an_entry_partial(void **state)
{
	char name[HL_WATCH_NAME_MAX];
	struct hl_watch_entry entry;

	(void)state;
	hl_watch_name_make(0, HL_WATCH_KILL, "/kube/x" HL_WATCH_PARTIAL, name);
	assert_true(hl_watch_name_parse(name, &entry));
	assert_false(entry.is_partial);
}

static void test_other_files_are_no_entries(void **state)
{
	static const char *const names[] = {"",
					    "lock",
					    "20260131T123456.789Z",
					    "20260131T123456.789Z-kill",
					    "20260131T123456.789Z-other-x",
					    "20260131t123456.789Z-kill-x",
					    "2026013AT123456.789Z-kill-x"};
	struct hl_watch_entry entry;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_false(hl_watch_name_parse(names[i], &entry));
}

/* ---- the directory ---- */

struct place {
	char path[64];
	struct hl_watch_store store;
};

static void open_place(struct place *place, uint64_t keep, uint64_t bytes_max)
{
	struct hl_error err = {0};

	snprintf(place->path, sizeof(place->path), "/tmp/heapline-watch-XXXXXX");
	assert_non_null(mkdtemp(place->path));
	assert_int_equal(hl_watch_store_open(&place->store, place->path, keep, bytes_max, &err), 0);
}

static void close_place(struct place *place)
{
	char command[128];

	hl_watch_store_close(&place->store);
	snprintf(command, sizeof(command), "rm -r %s", place->path);
	assert_int_equal(system(command), 0);
}

static void add(struct place *place, uint64_t second, enum hl_watch_kind kind, size_t bytes,
		char name[HL_WATCH_NAME_MAX])
{
	char text[65536];
	int fd = -1;

	memset(text, 'x', sizeof(text));
	assert_in_range(bytes, 0, sizeof(text) - 1);
	text[bytes] = '\0';
	assert_int_equal(
		hl_watch_store_begin(&place->store, second * SECOND, kind, "/g", name, &fd), 0);
	json_t *document = json_pack("{s:s}", "x", text);
	assert_int_equal(hl_watch_store_write(&place->store, fd, "x.json", document), 0);
	json_decref(document);
	close(fd);
	if (kind != HL_WATCH_RECORDING)
		assert_int_equal(hl_watch_store_commit(&place->store, name), 0);
}

static size_t count(const struct place *place, char newest[HL_WATCH_NAME_MAX])
{
	struct hl_watch_entry *entries = NULL;
	size_t found = 0;

	assert_int_equal(hl_watch_store_list(&place->store, &entries, &found), 0);
	if (found)
		memcpy(newest, entries[0].name, HL_WATCH_NAME_MAX);
	free(entries);
	return found;
}

static void test_the_newest_of_each_kind_are_kept(void **state)
{
	char name[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	struct place place;

	(void)state;
	open_place(&place, 2, MIB);
	for (unsigned i = 0; i < 5; i++)
		add(&place, i, HL_WATCH_SNAPSHOT, 10, name);
	assert_int_equal(count(&place, newest), 2);
	assert_string_equal(newest, name);
	for (unsigned i = 5; i < 9; i++)
		add(&place, i, HL_WATCH_KILL, 10, name);
	assert_int_equal(count(&place, newest), 4);
	close_place(&place);
}

static void test_the_directory_is_bounded(void **state)
{
	char name[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	struct place place;

	(void)state;
	open_place(&place, 100, 100 << 10);
	for (unsigned i = 0; i < 6; i++)
		add(&place, i, HL_WATCH_SNAPSHOT, 30 << 10, name);
	assert_int_equal(count(&place, newest), 3);
	assert_string_equal(newest, name);
	close_place(&place);
}

static void test_what_is_in_use_stays(void **state)
{
	char name[HL_WATCH_NAME_MAX], used[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	struct place place;

	(void)state;
	open_place(&place, 1, MIB);
	add(&place, 1, HL_WATCH_RECORDING, 10, used);
	hl_watch_store_use(&place.store, used, true);
	add(&place, 2, HL_WATCH_RECORDING, 10, name);
	hl_watch_store_trim(&place.store);
	assert_int_equal(count(&place, newest), 2);
	while (hl_watch_store_drop_oldest(&place.store))
		;
	assert_int_equal(count(&place, newest), 1);
	assert_string_equal(newest, used);
	hl_watch_store_use(&place.store, used, false);
	assert_true(hl_watch_store_drop_oldest(&place.store));
	assert_int_equal(count(&place, newest), 0);
	close_place(&place);
}

static void test_what_cannot_be_removed_stays(void **state)
{
	char name[HL_WATCH_NAME_MAX], kept[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	char path[1024];
	struct place place;

	(void)state;
	open_place(&place, 1, MIB);
	snprintf(path, sizeof(path), "%s/20200101T000000.000Z-kill-file", place.path);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	add(&place, 1, HL_WATCH_SNAPSHOT, 10, kept);
	snprintf(path, sizeof(path), "%s/%s", place.path, kept);
	for (unsigned depth = 0; depth < 20; depth++) { /* deeper than entries are */
		strcat(path, "/d");
		assert_int_equal(mkdir(path, 0700), 0);
	}
	add(&place, 2, HL_WATCH_SNAPSHOT, 10, name);
	add(&place, 3, HL_WATCH_SNAPSHOT, 10, name);
	assert_int_equal(count(&place, newest), 2);
	assert_true(hl_watch_store_drop_oldest(&place.store));
	assert_false(hl_watch_store_drop_oldest(&place.store));
	assert_int_equal(count(&place, newest), 1);
	assert_string_equal(newest, kept);
	close_place(&place);
}

static void test_partial_entries_go_at_the_next_start(void **state)
{
	char name[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	struct hl_error err = {0};
	struct hl_watch_store again;
	struct place place;
	int fd;

	(void)state;
	open_place(&place, 10, MIB);
	add(&place, 1, HL_WATCH_SNAPSHOT, 10, name);
	assert_int_equal(
		hl_watch_store_begin(&place.store, SECOND, HL_WATCH_SNAPSHOT, "/g", newest, &fd),
		0);
	assert_string_not_equal(newest, name); /* whose time is taken */
	close(fd);
	assert_int_equal(count(&place, newest), 2);
	assert_int_equal(hl_watch_store_open(&again, place.path, 10, MIB, &err), -EBUSY);
	hl_watch_store_close(&again);
	hl_watch_store_close(&place.store);
	assert_int_equal(hl_watch_store_open(&place.store, place.path, 10, MIB, &err), 0);
	assert_int_equal(count(&place, newest), 1);
	assert_string_equal(newest, name);
	close_place(&place);
}

static void test_a_kill_that_has_figures_is_kept_at_the_next_start(void **state)
{
	char name[HL_WATCH_NAME_MAX], newest[HL_WATCH_NAME_MAX];
	struct hl_error err = {0};
	struct place place;
	int fd;

	(void)state;
	open_place(&place, 10, MIB);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(
			hl_watch_store_begin(&place.store, SECOND, HL_WATCH_KILL, "/g", name, &fd),
			0);
		json_t *document = json_object();
		if (i == 0)
			assert_int_equal(
				hl_watch_store_write(&place.store, fd, "kill.json", document), 0);
		json_decref(document);
		close(fd);
	}
	hl_watch_store_close(&place.store);
	assert_int_equal(hl_watch_store_open(&place.store, place.path, 10, MIB, &err), 0);
	assert_int_equal(count(&place, newest), 1);
	assert_string_equal(newest, "19700101T000001.000Z-kill-g");
	close_place(&place);
}

static void test_a_directory_that_cannot_be_made_is_named(void **state)
{
	struct hl_error err = {0};
	struct hl_watch_store store;

	(void)state;
	assert_int_equal(hl_watch_store_open(&store, "/proc/heapline/watch", 1, MIB, &err),
			 -ENOENT);
	assert_non_null(strstr(err.text, "'/proc/heapline/watch'"));
}

static int quota_error;

/* That of the C library is not asked: few machines have quotas. */
int posix_fallocate(int fd, off_t offset, off_t length)
{
	(void)fd;
	(void)offset;
	(void)length;
	return quota_error;
}

static void test_a_quota_that_is_used_up_is_a_full_disk(void **state)
{
	struct place place;

	(void)state;
	open_place(&place, 10, MIB);
	assert_false(hl_watch_store_is_full(&place.store));
	quota_error = EDQUOT;
	assert_true(hl_watch_store_is_full(&place.store));
	quota_error = 0;
	close_place(&place);
}

/* ---- kills ---- */

static void say_nothing(const char *sentence)
{
	(void)sentence;
}

static void add_level(struct hl_oom_record *record, unsigned which, const char *name,
		      uint64_t inode, uint64_t max_pages)
{
	struct hl_oom_level *level = &record->levels[which][record->level_counts[which]++];

	*level = (struct hl_oom_level){.inode = inode, .usage_pages = 5000, .max_pages = max_pages};
	snprintf((char *)level->name, sizeof(level->name), "%s", name);
}

static void test_a_kill_waits_for_the_death_and_names_a_limit_above_both(void **state)
{
	struct hl_oom_record *record = calloc(1, sizeof(*record));
	struct hl_oom_record *death = calloc(1, sizeof(*death));
	char newest[HL_WATCH_NAME_MAX], path[512];
	struct hl_watch_groups groups = {0};
	struct place place;

	(void)state;
	open_place(&place, 10, MIB);
	*record = (struct hl_oom_record){.kind = HL_OOM_KILL, .victim.pid = 1, .asked.pid = 1};
	*death = (struct hl_oom_record){.kind = HL_OOM_DEATH, .victim.pid = 1};
	add_level(record, 0, "full", 1, 5000);
	add_level(record, 0, "above", 2, 5000);
	add_level(record, 1, "asker", 3, 9000000);
	add_level(record, 1, "above", 2, 5000);
	struct hl_watch_kills *kills = hl_watch_kills_new(&place.store, &groups, say_nothing);
	hl_watch_kills_take(kills, record);
	assert_true(hl_watch_kills_continue(kills, 1)); /* of a moment before the kill */
	assert_int_equal(count(&place, newest), 0);
	hl_watch_kills_take(kills, death);
	while (hl_watch_kills_continue(kills, 1))
		usleep(1000);
	hl_watch_kills_free(kills);
	assert_int_equal(count(&place, newest), 1);
	snprintf(path, sizeof(path), "%s/%s/kill.json", place.path, newest);
	json_t *kill = json_load_file(path, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(kill, "group")), "/above");
	assert_string_equal(json_string_value(json_object_get(kill, "victim_group")),
			    "/above/full");
	json_decref(kill);
	free(record);
	free(death);
	close_place(&place);
}

static void test_a_kill_that_waits_when_the_service_ends_is_kept(void **state)
{
	struct hl_oom_record *record = calloc(1, sizeof(*record));
	char newest[HL_WATCH_NAME_MAX];
	struct hl_watch_groups groups = {0};
	struct place place;

	(void)state;
	open_place(&place, 10, MIB);
	*record = (struct hl_oom_record){.kind = HL_OOM_KILL, .victim.pid = 1, .asked.pid = 2};
	struct hl_watch_kills *kills = hl_watch_kills_new(&place.store, &groups, say_nothing);
	hl_watch_kills_take(kills, record);
	assert_true(hl_watch_kills_continue(kills, 1));
	hl_watch_kills_free(kills);
	assert_int_equal(count(&place, newest), 1);
	free(record);
	close_place(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_share_fires_once),
		cmocka_unit_test(test_it_fires_again_well_below_and_later_alone),
		cmocka_unit_test(test_a_low_share_fires_again_too),
		cmocka_unit_test(test_steady_growth_fires),
		cmocka_unit_test(test_what_fills_between_two_looks_fires),
		cmocka_unit_test(test_looks_come_closer_near_the_limit),
		cmocka_unit_test(test_names_say_when_what_and_who),
		cmocka_unit_test(test_a_long_name_is_cut),
		cmocka_unit_test(test_no_group_makes_an_entry_partial),
		cmocka_unit_test(test_other_files_are_no_entries),
		cmocka_unit_test(test_the_newest_of_each_kind_are_kept),
		cmocka_unit_test(test_the_directory_is_bounded),
		cmocka_unit_test(test_what_is_in_use_stays),
		cmocka_unit_test(test_what_cannot_be_removed_stays),
		cmocka_unit_test(test_a_kill_waits_for_the_death_and_names_a_limit_above_both),
		cmocka_unit_test(test_a_kill_that_waits_when_the_service_ends_is_kept),
		cmocka_unit_test(test_partial_entries_go_at_the_next_start),
		cmocka_unit_test(test_a_kill_that_has_figures_is_kept_at_the_next_start),
		cmocka_unit_test(test_a_quota_that_is_used_up_is_a_full_disk),
		cmocka_unit_test(test_a_directory_that_cannot_be_made_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
