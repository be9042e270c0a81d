/* SPDX-License-Identifier: BSD-2-Clause */
/* What threads write into their rings is what the log of the process says, whatever the process
 * does to its region. */
#include "collector/drain.h"

#include "../log_directory.h"
#include "base/clock.h"
#include "base/frame_key.h"
#include "collector/region_read.h"
#include "recorder/cells.h"
#include "recorder/region_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "temporary.h"
#include "test_region.h"

#define PROCESS	   5
#define EXECUTABLE "/usr/bin/target"
#define NODES	   100
#define SLOTS	   3

/* ---- a target and its log ---- */

struct lab {
	struct hl_region_map region;
	struct hl_region_header layout;
	struct hl_ring_writer *writers; /* by slot */
	struct hl_cells cells[SLOTS];
	char directory[32];
	struct hl_drain_settings settings;
	struct hl_drain *drain;
	struct hl_log_losses losses;
	struct hl_log *log;
};

static void make_tables(struct lab *lab)
{
	struct hl_region_header *header = lab->region.header;

	header->areas[HL_AREA_NODES].committed = (NODES + 1) * sizeof(struct hl_region_node);
	header->areas[HL_AREA_MODULES].committed = 2 * sizeof(struct hl_region_module);
	header->areas[HL_AREA_STRINGS].committed = 64;
	header->module_count = 2;
	lab->region.modules[0] = (struct hl_region_module){.start = 0x1000, .end = 0x2000};
	lab->region.modules[1] = (struct hl_region_module){.start = 0x3000,
							   .end = 0x4000,
							   .path_bytes = 8,
							   .build_id_bytes = 1,
							   .build_id = {7}};
	memcpy(lab->region.strings, "/lib.so!", 8);
	header->node_count = NODES;
	for (uint32_t i = 1; i <= NODES; i++)
		lab->region.nodes[i] = (struct hl_region_node){
			.frame = UINT64_C(1) << HL_MODULE_SHIFT | (0x100 + i), .parent = i / 2};
}

static void begin_thread(struct lab *lab, uint32_t slot)
{
	if (lab->region.header->thread_count <= slot)
		lab->region.header->thread_count = slot + 1;
	hl_ring_writer_init(&lab->writers[slot], &lab->region, slot);
	assert_non_null(lab->writers[slot].ring);
	if (slot < SLOTS)
		lab->cells[slot].thread = slot;
}

static int setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->region = test_region_new(0);
	lab->layout = *lab->region.header;
	lab->writers = calloc(SLOTS, sizeof(*lab->writers));
	atomic_store(&lab->region.header->state, HL_REGION_RUNNING);
	make_tables(lab);
	for (uint32_t i = 0; i < SLOTS; i++)
		begin_thread(lab, i);
	assert_int_equal(make_temporary(lab->directory), 0);
	lab->settings = (struct hl_drain_settings){
		.view = {.base = lab->region.header,
			 .bytes = lab->layout.region_bytes,
			 .layout = &lab->layout},
		.executable = EXECUTABLE,
		.pid = getpid(),
		.sequence = PROCESS,
		.start_realtime_ns = hl_clock_ns(CLOCK_REALTIME),
		.directory_fd = open(lab->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.segment_bytes = 1 << 20,
		.segments_kept = 2,
	};
	assert_int_equal(hl_drain_new(&lab->settings, &lab->drain), 0);
	*state = lab;
	return 0;
}

static int teardown(void **state)
{
	struct lab *lab = *state;

	if (lab->drain)
		hl_drain_finish(lab->drain, 0, &lab->losses);
	hl_log_free(lab->log);
	close(lab->settings.directory_fd);
	for (uint32_t i = 0; i < SLOTS; i++)
		hl_cells_release(&lab->cells[i]);
	test_region_free(&lab->region);
	int r = remove_temporary(lab->directory);
	free(lab->writers);
	free(lab);
	return r;
}

/* An event of thread ${slot}; ${bytes} negative: a free. */
static void write_event(struct lab *lab, uint32_t slot, uint32_t node, int64_t bytes)
{
	assert_true(hl_ring_writer_put(&lab->writers[slot], &lab->region, node,
				       (uint64_t)llabs(bytes), 1, bytes < 0));
}

/* In the counters of thread ${slot} alone, as an event that the log loses. */
static void count_event(struct lab *lab, uint32_t slot, uint32_t node, int64_t bytes)
{
	struct hl_cell *cell = hl_cells_get(&lab->cells[slot], &lab->region, node);

	assert_non_null(cell);
	*(bytes < 0 ? &cell->free_bytes : &cell->alloc_bytes) += (uint64_t)llabs(bytes);
	*(bytes < 0 ? &cell->free_objects : &cell->alloc_objects) += 1;
}

static void lose_event(struct lab *lab, uint32_t slot, uint32_t node, int64_t bytes)
{
	count_event(lab, slot, node, bytes);
	lab->region.threads[slot].lost_log_events++;
}

static void count_and_write(struct lab *lab, uint32_t slot, uint32_t node, int64_t bytes)
{
	hl_ring_writer_begin(&lab->writers[slot]);
	count_event(lab, slot, node, bytes);
	write_event(lab, slot, node, bytes);
	hl_ring_writer_end(&lab->writers[slot]);
}

static void finish(struct lab *lab, uint64_t tick)
{
	struct hl_error err = {0};

	hl_drain_finish(lab->drain, tick, &lab->losses);
	lab->drain = NULL;
	if (open_log_in(lab->directory, PROCESS, &(struct hl_log_options){0}, &lab->log, &err) < 0)
		fail_msg("%s", err.text);
}

static struct hl_log_state *state_at(struct lab *lab, uint64_t number, enum hl_log_moment moment)
{
	struct hl_log_state *state;
	struct hl_error err = {0};

	if (hl_log_state_at(lab->log, number, moment, &state, &err) < 0)
		fail_msg("%s", err.text);
	return state;
}

static struct hl_log_state *state_at_end(struct lab *lab)
{
	return state_at(lab, lab->log->points[lab->log->point_count - 1].number, HL_LOG_AT_END);
}

static bool is_empty(const struct lab *lab, uint32_t slot)
{
	return lab->writers[slot].ring->tail == lab->writers[slot].ring->head;
}

static void assert_whole(const struct lab *lab)
{
	assert_int_equal(lab->losses.lost_events + lab->losses.refused_events +
				 lab->losses.missing_intervals + lab->losses.bad_rings,
			 0);
}

/* ---- events ---- */

static void the_log_ends_with_what_all_threads_have_in_use(void **state)
{
	struct lab *lab = *state;
	int64_t bytes[NODES + 1] = {0}, objects[NODES + 1] = {0};
	uint64_t tick = 0;

	srand(3);
	for (int i = 0; i < 100000; i++) {
		uint32_t node = 1 + (uint32_t)rand() % NODES;
		int64_t size = rand() % 5000;
		bool is_free = objects[node] && rand() % 2;
		bytes[node] += is_free ? -size : size;
		objects[node] += is_free ? -1 : 1;
		assert_true(hl_ring_writer_put(&lab->writers[rand() % SLOTS], &lab->region, node,
					       (uint64_t)size, 1, is_free));
		if (i % 100 == 0)
			hl_drain_run(lab->drain, ++tick);
	}
	finish(lab, tick);
	assert_whole(lab);
	struct hl_log_state *end = state_at_end(lab);
	for (uint32_t i = 1; i <= NODES; i++) {
		assert_int_equal(end->bytes[i], bytes[i]);
		assert_int_equal(end->objects[i], objects[i]);
	}
	hl_log_state_free(end);
}

static void events_are_read_when_their_tick_is_two_behind(void **state)
{
	struct lab *lab = *state;

	hl_drain_run(lab->drain, 7);
	write_event(lab, 0, 1, 10);
	assert_true(hl_drain_run(lab->drain, 8));
	assert_false(is_empty(lab, 0));
	assert_true(hl_drain_run(lab->drain, 9));
	assert_true(is_empty(lab, 0));
	assert_false(hl_drain_run(lab->drain, 10));
}

static void rings_are_merged_by_tick(void **state)
{
	struct lab *lab = *state;

	/* Thread by thread the maximum would be 300. */
	for (uint64_t tick = 3; tick < 9; tick += 2) {
		atomic_store(&lab->region.header->tick, tick);
		write_event(lab, 0, 1, 100);
		atomic_store(&lab->region.header->tick, tick + 1);
		write_event(lab, 1, 1, -100);
	}
	finish(lab, 20);
	assert_int_equal(lab->log->point_count, 1);
	assert_int_equal(lab->log->points[0].max_bytes, 100);
	assert_int_equal(lab->log->points[0].end_bytes, 0);
}

/* From here on the region has stamps, as if it had had them from the beginning. */
static void use_stamps(struct lab *lab)
{
	atomic_fetch_or(&lab->region.header->flags, HL_REGION_STAMPS);
	for (uint32_t i = 0; i < SLOTS; i++)
		lab->writers[i].stamps = true;
}

/* Within one tick, from one thread to the other. */
static void hand_blocks_over(struct lab *lab)
{
	hl_drain_run(lab->drain, 5);
	for (int i = 0; i < 500; i++) {
		write_event(lab, 0, 1, 100);
		write_event(lab, 1, 1, -100);
	}
	write_event(lab, 0, 1, 30);
	finish(lab, 20);
	assert_int_equal(lab->log->points[0].end_bytes, 30);
}

static void blocks_that_are_handed_over_within_a_tick_count_once(void **state)
{
	struct lab *lab = *state;

	use_stamps(lab);
	hand_blocks_over(lab);
	assert_int_equal(lab->log->points[0].max_bytes, 100);
	struct hl_log_state *peak = state_at(lab, 0, HL_LOG_AT_MAX);
	assert_int_equal(peak->total_objects, 1);
	hl_log_state_free(peak);
}

static void without_stamps_the_end_of_the_tick_is_all_that_can_be_a_maximum(void **state)
{
	struct lab *lab = *state;

	hand_blocks_over(lab);
	assert_int_equal(lab->log->points[0].max_bytes, 30);
}

static void a_spike_while_other_threads_work_is_the_maximum_of_its_interval(void **state)
{
	struct lab *lab = *state;

	use_stamps(lab);
	hl_drain_run(lab->drain, 5);
	for (int i = 0; i < 300; i++) {
		write_event(lab, 0, 1, 100);
		if (i == 100)
			write_event(lab, 2, 2, 1 << 26);
		write_event(lab, 1, 3, 10);
		if (i == 100)
			write_event(lab, 2, 2, -(1 << 26));
		write_event(lab, 0, 1, -100);
	}
	finish(lab, 20);
	assert_int_equal(lab->log->points[0].max_bytes, (1 << 26) + 100 + 101 * 10);
	assert_int_equal(lab->log->points[0].end_bytes, 3000);
}

static void a_spike_within_one_tick_is_the_maximum_of_its_interval(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 250);
	write_event(lab, 0, 2, 1 << 26);
	write_event(lab, 0, 2, -(1 << 26));
	hl_drain_run(lab->drain, 300);
	hl_drain_run(lab->drain, 302);
	finish(lab, 302);
	const struct hl_log_point *point = &lab->log->points[2];
	assert_int_equal(point->number, 2);
	assert_int_equal(point->max_bytes, (1 << 26) + 10);
	assert_int_equal(point->end_bytes, 10);
	assert_true(point->rss_bytes > 0);
	struct hl_log_state *peak = state_at(lab, 2, HL_LOG_AT_MAX);
	assert_int_equal(peak->bytes[2], 1 << 26);
	assert_int_equal(peak->tick, 250);
	hl_log_state_free(peak);
}

static void an_interval_is_written_as_soon_as_it_has_ended(void **state)
{
	struct lab *lab = *state;
	struct hl_error err = {0};
	struct hl_log_options options = {0};

	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 99 + HL_DRAIN_LAG_TICKS - 1);
	assert_int_equal(open_log_in(lab->directory, PROCESS, &options, &lab->log, &err), -ENOENT);
	hl_drain_run(lab->drain, 99 + HL_DRAIN_LAG_TICKS);
	assert_int_equal(open_log_in(lab->directory, PROCESS, &options, &lab->log, &err), 0);
	assert_true(lab->log->cut_off);
	assert_int_equal(lab->log->points[0].end_bytes, 10);
}

static void what_a_dead_process_had_in_memory_is_what_it_had_at_last(void **state)
{
	struct lab *lab = *state;
	int status;

	hl_drain_finish(lab->drain, 0, &lab->losses);
	lab->settings.pid = fork();
	if (lab->settings.pid == 0)
		pause();
	assert_int_equal(hl_drain_new(&lab->settings, &lab->drain), 0);
	hl_drain_run(lab->drain, 150);
	kill(lab->settings.pid, SIGKILL);
	assert_int_equal(waitpid(lab->settings.pid, &status, 0), lab->settings.pid);
	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 250);
	finish(lab, 260);
	assert_true(lab->log->points[0].rss_bytes > 0);
	for (size_t i = 1; i < lab->log->point_count; i++)
		assert_int_equal(lab->log->points[i].rss_bytes, lab->log->points[0].rss_bytes);
}

static void threads_are_found_as_they_come(void **state)
{
	struct lab *lab = *state;
	const char *unused = atomic_load(&lab->region.rings) + 9 * HL_RING_SMALL;
	unsigned char resident;

	lab->region.header->thread_count = 20;
	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 5);
	/* To look into the ring of a thread that has none would make memory for it. */
	assert_int_equal(mincore((void *)(uintptr_t)unused, 1, &resident), 0);
	assert_false(resident & 1);
	lab->writers = reallocarray(lab->writers, 10, sizeof(*lab->writers));
	memset(&lab->writers[9], 0, sizeof(*lab->writers));
	begin_thread(lab, 9);
	write_event(lab, 9, 1, 30);
	finish(lab, 9);
	assert_int_equal(lab->log->points[0].end_bytes, 40);
}

static void nothing_is_written_before_the_recorder_has_begun(void **state)
{
	struct lab *lab = *state;
	struct hl_error err = {0};

	atomic_store(&lab->region.header->state, HL_REGION_EMPTY);
	hl_drain_run(lab->drain, 1000);
	hl_drain_finish(lab->drain, 1001, &lab->losses);
	lab->drain = NULL;
	assert_whole(lab);
	assert_int_equal(
		open_log_in(lab->directory, PROCESS, &(struct hl_log_options){0}, &lab->log, &err),
		-ENOENT);
}

/* ---- names ---- */

static void nodes_and_modules_have_the_names_of_the_region(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 3, 10);
	finish(lab, 5);
	struct hl_log_state *end = state_at_end(lab);
	assert_int_equal(end->nodes[3].frame, UINT64_C(1) << HL_MODULE_SHIFT | 0x103);
	assert_int_equal(end->nodes[3].parent, 1);
	assert_true(end->nodes[1].defined);
	assert_false(end->nodes[2].defined);
	assert_int_equal(end->module_count, 2);
	assert_string_equal(end->modules[0].path, EXECUTABLE);
	assert_string_equal(end->modules[1].path, "/lib.so!");
	assert_int_equal(end->modules[1].build_id[0], 7);
	hl_log_state_free(end);
}

static void damaged_nodes_have_what_can_be_saved(void **state)
{
	struct lab *lab = *state;

	lab->region.nodes[10].frame = UINT64_C(77) << HL_MODULE_SHIFT | 0x999;
	lab->region.nodes[11].parent = NODES + 1;
	lab->region.nodes[12].parent = 12;
	lab->region.nodes[13].frame = 0;
	for (uint32_t i = 10; i <= 13; i++)
		write_event(lab, 0, i, 10);
	finish(lab, 5);
	struct hl_log_state *end = state_at_end(lab);
	assert_int_equal(end->nodes[10].frame, 0x999);
	assert_int_equal(end->nodes[11].parent, 0);
	assert_true(end->nodes[12].defined);
	assert_false(end->nodes[13].defined);
	assert_int_equal(end->bytes[13], 10);
	hl_log_state_free(end);
}

/* ---- losses ---- */

static void events_at_no_node_are_refused_and_counted(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 0, 10);
	write_event(lab, 0, NODES + 1, 10);
	write_event(lab, 0, HL_NODE_MAX, 10);
	hl_ring_writer_put(&lab->writers[0], &lab->region, UINT32_MAX, 10, 2, false);
	count_and_write(lab, 0, NODES, 10);
	finish(lab, 5);
	assert_int_equal(lab->losses.refused_events, 4);
	assert_int_equal(lab->log->points[0].end_bytes, 10);
	assert_int_equal(lab->log->lost_events, 4);
}

/* More than the ring holds could otherwise never be written: its thread would wait for ever. */
static void a_damaged_ring_is_given_up_and_stays_empty(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 1, 10);
	write_event(lab, 1, 1, 30);
	atomic_store(&lab->writers[0].ring->capacity, 12345);
	for (uint64_t tick = 1; tick < 5; tick++) {
		hl_drain_run(lab->drain, tick);
		write_event(lab, 0, 1, 10);
	}
	hl_drain_run(lab->drain, 6);
	assert_true(is_empty(lab, 0));
	finish(lab, 10);
	assert_int_equal(lab->losses.bad_rings, 1);
	assert_int_equal(lab->log->points[0].end_bytes, 30);
}

static void a_ring_of_times_to_come_is_given_up(void **state)
{
	struct lab *lab = *state;

	atomic_store(&lab->region.header->tick, UINT64_MAX >> 2);
	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 5);
	assert_true(is_empty(lab, 0));
	write_event(lab, 1, 1, 30);
	finish(lab, 9);
	assert_int_equal(lab->losses.bad_rings, 1);
	assert_int_equal(lab->log->point_count, 1);
	assert_int_equal(lab->log->points[0].end_bytes, 30);
}

/* The tick of rings that hold nothing is only a little later. */
static void a_ring_of_the_last_time_there_is_is_given_up(void **state)
{
	struct lab *lab = *state;

	atomic_store(&lab->region.header->tick, UINT64_MAX >> 2);
	write_event(lab, 0, 1, 10);
	*(uint64_t *)(void *)lab->writers[0].bytes = hl_ring_word(HL_RING_TICK, UINT64_MAX);
	hl_drain_run(lab->drain, 5);
	assert_true(is_empty(lab, 0));
	finish(lab, 9);
	assert_int_equal(lab->losses.bad_rings, 1);
}

static void what_the_recorder_lost_is_in_the_log(void **state)
{
	struct lab *lab = *state;

	lab->region.threads[0].lost_log_events = 3;
	lab->region.threads[2].lost_log_events = 4;
	write_event(lab, 0, 1, 10);
	finish(lab, 9);
	assert_int_equal(lab->losses.lost_events, 7);
	assert_int_equal(lab->log->lost_events, 7);
}

static void a_number_of_threads_that_cannot_be_does_no_harm(void **state)
{
	struct lab *lab = *state;

	lab->region.header->thread_count = UINT32_MAX;
	write_event(lab, 0, 1, 10);
	hl_drain_run(lab->drain, 5);
	finish(lab, 9);
	assert_int_equal(lab->log->points[0].end_bytes, 10);
}

/* Where no file can be made, as on a full disk. */
static void intervals_that_cannot_be_written_are_counted(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 1, 10);
	assert_int_equal(rmdir(lab->directory), 0);
	hl_drain_run(lab->drain, 150);
	hl_drain_run(lab->drain, 250);
	assert_int_equal(mkdir(lab->directory, 0700), 0);
	hl_drain_finish(lab->drain, 250, &lab->losses);
	lab->drain = NULL;
	assert_true(lab->losses.missing_intervals >= 2);
	assert_int_equal(lab->losses.error, -ENOENT);
}

static void each_loss_has_its_sentence(void **state)
{
	struct hl_warnings warnings = {0};
	struct hl_log_losses none = {0};
	struct hl_log_losses all = {.lost_events = 1,
				    .refused_events = 2,
				    .missing_intervals = 3,
				    .bad_rings = 4,
				    .waiting_threads = 2,
				    .waited_ns = 9 * HL_NS_PER_SECOND,
				    .error = -ENOSPC};

	(void)state;
	assert_false(hl_log_losses_tell(&none, 9, &warnings));
	assert_true(hl_log_losses_tell(&all, 9, &warnings));
	assert_int_equal(warnings.count, 5);
	assert_string_equal(warnings.texts[4], "2 threads of process 9 waited for up to 9.0 s, "
					       "because the collector did not read events");
	assert_string_equal(warnings.texts[0], "the log of process 9 lacks 1 event: there was no "
					       "room for them in its rings");
	assert_string_equal(
		warnings.texts[3],
		"3 intervals of the log of process 9 could not be written: No space left on "
		"device; make room, record to another disk (-o), or keep less of the log "
		"(--log-segments, --log-segment-size)");
	hl_warnings_release(&warnings);
}

/* ---- re-basing ---- */

static int64_t end_bytes(const struct lab *lab, uint64_t number)
{
	return lab->log->points[number].end_bytes;
}

static void after_a_loss_the_log_goes_on_from_the_counters(void **state)
{
	struct lab *lab = *state;

	count_and_write(lab, 0, 1, 1000);
	hl_drain_run(lab->drain, 110);
	lose_event(lab, 0, 2, 500);
	lose_event(lab, 1, 1, -1000);
	count_and_write(lab, 1, 3, 7);
	hl_drain_run(lab->drain, 210);
	count_and_write(lab, 2, 3, 40);
	hl_drain_run(lab->drain, 310);
	finish(lab, 320);
	assert_int_equal(end_bytes(lab, 0), 1000);
	assert_int_equal(end_bytes(lab, 1), 507);
	assert_int_equal(lab->log->points[1].max_bytes, 1007);
	assert_int_equal(end_bytes(lab, 2), 547);
	assert_int_equal(lab->log->points[2].max_bytes, 547);
	struct hl_log_state *end = state_at(lab, 1, HL_LOG_AT_END);
	assert_int_equal(end->bytes[1] | end->objects[1], 0);
	assert_int_equal(end->bytes[2], 500);
	assert_int_equal(end->objects[2], 1);
	hl_log_state_free(end);
	assert_int_equal(lab->losses.lost_events, 2);
	assert_true(lab->losses.is_rebased);
	assert_int_equal(lab->losses.unsettled, 0);
	assert_int_equal(lab->log->mark_count, 1);
	assert_string_equal(lab->log->marks[0].text, "log re-based after 2 lost events");
}

/* They are in the counters, and yet to be read. */
static void events_that_are_still_in_rings_do_not_count_twice(void **state)
{
	struct lab *lab = *state;

	lose_event(lab, 0, 2, 500);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		count_and_write(lab, slot, 1, 100);
	hl_drain_run(lab->drain, 105);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		for (int i = 0; i < 50; i++)
			count_and_write(lab, slot, 1 + (uint32_t)i % 3, i % 4 ? 30 : -20);
	/* Those at tick 105 wait while interval 0 ends. */
	hl_drain_run(lab->drain, 106);
	hl_drain_run(lab->drain, 250);
	finish(lab, 260);
	assert_int_equal(end_bytes(lab, 0), 800);
	assert_int_equal(end_bytes(lab, 1), 800 + 3 * (37 * 30 - 13 * 20));
	assert_true(lab->losses.is_rebased);
}

static void a_log_is_rebased_once_a_second_and_at_its_end(void **state)
{
	struct lab *lab = *state;

	for (uint64_t tick = 50; tick < 2500; tick += 100) {
		hl_drain_run(lab->drain, tick);
		lose_event(lab, 0, 1, 10);
		count_and_write(lab, 0, 2, 1);
	}
	hl_drain_run(lab->drain, 2550);
	finish(lab, 2560);
	for (uint64_t i = 1; i < 25; i++)
		assert_int_equal(end_bytes(lab, i) != end_bytes(lab, i - 1) + 1, i % 10 == 0);
	assert_int_equal(end_bytes(lab, 25), 25 * 11);
	assert_true(lab->losses.is_rebased);
}

/* It counts, and has not written yet, or was killed there. */
static void a_thread_in_the_middle_of_an_event_is_told_and_looked_at_again(void **state)
{
	struct lab *lab = *state;

	lose_event(lab, 1, 5, 10);
	hl_ring_writer_begin(&lab->writers[0]);
	count_event(lab, 0, 1, 1000);
	hl_drain_run(lab->drain, 150);
	write_event(lab, 0, 1, 1000);
	hl_ring_writer_end(&lab->writers[0]);
	hl_drain_run(lab->drain, 350);
	hl_drain_run(lab->drain, 1550);
	finish(lab, 1600);
	assert_int_equal(end_bytes(lab, 0), 1010);
	assert_int_equal(end_bytes(lab, 1), 2010); /* by the event twice */
	assert_int_equal(end_bytes(lab, 15), 1010);
	assert_true(lab->losses.is_rebased);
}

/* Both switches between two runs of the log, to a mode of a smaller number than that of before. */
static void what_was_counted_between_two_modes_with_a_log_is_in_the_log(void **state)
{
	struct lab *lab = *state;
	_Atomic uint32_t *mode = &lab->region.header->mode;

	hl_mode_switch(mode, HL_MODE_LOG_FAST);
	for (uint64_t tick = 50; tick < 4000; tick += 100) /* until no re-basing is due */
		hl_drain_run(lab->drain, tick);
	hl_mode_switch(mode, HL_MODE_MEM_FAST);
	count_event(lab, 0, 1, 100);
	hl_mode_switch(mode, HL_MODE_LOG_RECORD);
	count_and_write(lab, 0, 2, 10);
	hl_drain_run(lab->drain, 4050);
	hl_drain_run(lab->drain, 4150);
	finish(lab, 4250);
	assert_int_equal(end_bytes(lab, 40), 110);
}

struct busy_thread {
	struct lab *lab;
	uint32_t slot;
	pthread_t thread;
	atomic_bool over;
};

static void *lose_and_write(void *argument)
{
	struct busy_thread *busy = argument;
	uint64_t random = 1 + busy->slot;

	while (!atomic_load(&busy->over)) {
		struct hl_ring_writer *writer = &busy->lab->writers[busy->slot];
		uint32_t node = 1 + (uint32_t)((random = random * 6364136223846793005 + 1) >> 60);
		hl_ring_writer_begin(writer);
		count_event(busy->lab, busy->slot, node, (int64_t)(random >> 50));
		if (!hl_ring_writer_put(writer, &busy->lab->region, node, random >> 50, 1, false))
			__atomic_fetch_add(&busy->lab->region.threads[busy->slot].lost_log_events,
					   1, __ATOMIC_RELAXED);
		hl_ring_writer_end(writer);
	}
	return NULL;
}

/* One thread of the log and two of the program: the log is put right while these go on. */
static void a_log_of_busy_threads_is_rebased_to_the_byte(void **state)
{
	struct lab *lab = *state;
	struct busy_thread busy[2];
	uint64_t tick = 0, bytes = 0;

	atomic_fetch_or(&lab->region.header->flags, HL_REGION_LOSSY);
	for (uint32_t i = 0; i < 2; i++) {
		busy[i] = (struct busy_thread){.lab = lab, .slot = i};
		pthread_create(&busy[i].thread, NULL, lose_and_write, &busy[i]);
	}
	while (tick < 2500 ||
	       !__atomic_load_n(&lab->region.threads[0].lost_log_events, __ATOMIC_RELAXED))
		hl_drain_run(lab->drain, tick += 50);
	/* No loss from here on, so that the last re-base was while the threads went on. */
	for (uint32_t i = 0; i < 2; i++) {
		atomic_store(&busy[i].over, true);
		pthread_join(busy[i].thread, NULL);
	}
	finish(lab, tick + 10);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t node = 1; node <= 16; node++)
			bytes += hl_cells_get(&lab->cells[i], &lab->region, node)->alloc_bytes;
	struct hl_log_state *end = state_at_end(lab);
	assert_int_equal(end->total_bytes, bytes);
	hl_log_state_free(end);
}

/* ---- stamps ---- */

static bool is_clock(struct lab *lab, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/clock", lab->directory);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	return hl_time_stamps_are_clock(path);
}

static void stamps_are_used_where_the_kernel_relies_on_them(void **state)
{
	struct lab *lab = *state;

	assert_true(is_clock(lab, "tsc\n"));
	assert_true(is_clock(lab, "kvm-clock\n"));
	assert_false(is_clock(lab, "hpet\n"));
	assert_false(is_clock(lab, "tsc-early\n"));
	assert_false(is_clock(lab, ""));
	assert_false(hl_time_stamps_are_clock("/nowhere"));
}

/* ---- memory ---- */

static int new_and_finish(struct lab *lab)
{
	int r = hl_drain_new(&lab->settings, &lab->drain);

	if (r == 0)
		hl_drain_finish(lab->drain, 0, &lab->losses);
	lab->drain = NULL;
	return r;
}

static void each_failing_allocation_is_an_error_or_a_loss(void **state)
{
	struct lab *lab = *state;

	write_event(lab, 0, 1, 10);
	write_event(lab, 0, 2, 10);
	WITH_ALLOCATIONS(0, (hl_drain_run(lab->drain, 9), 0));
	assert_true(is_empty(lab, 0));
	hl_drain_finish(lab->drain, 9, &lab->losses);
	lab->drain = NULL;
	assert_int_equal(lab->losses.refused_events, 2);
	FOR_EACH_FAILING_ALLOCATION(r, new_and_finish(lab))
	assert_true(r == -ENOMEM || r == 0); /* at its end, a drain loses instead of failing */
}

/* ---- dozing ---- */

static struct timespec after_ms(uint64_t ms)
{
	uint64_t ns = hl_clock_ns(CLOCK_MONOTONIC) + ms * 1000000;

	return (struct timespec){(time_t)(ns / HL_NS_PER_SECOND), (long)(ns % HL_NS_PER_SECOND)};
}

static void *write_one(void *argument)
{
	struct lab *lab = argument;

	while (!(atomic_load(&lab->region.header->tick) & HL_TICK_DOZING))
		usleep(100);
	usleep(1000);
	write_event(lab, 0, 1, 10);
	return NULL;
}

static void an_event_ends_a_doze_and_has_the_tick_of_its_end(void **state)
{
	struct lab *lab = *state;
	struct timespec deadline = after_ms(60000);
	pthread_t thread;

	hl_drain_run(lab->drain, 100);
	assert_int_equal(pthread_create(&thread, NULL, write_one, lab), 0);
	hl_drain_doze(lab->drain, 100, &deadline);
	assert_true(hl_clock_ns(CLOCK_MONOTONIC) / HL_NS_PER_SECOND < (uint64_t)deadline.tv_sec);
	pthread_join(thread, NULL);
	assert_int_equal(lab->region.header->tick, 100);
	hl_drain_run(lab->drain, 350);
	finish(lab, 360);
	struct hl_log_state *end = state_at(lab, 3, HL_LOG_AT_MAX);
	assert_int_equal(lab->log->points[1].end_bytes, 0);
	assert_int_equal(end->total_bytes, 10);
	assert_int_equal(end->tick, 350);
	hl_log_state_free(end);
}

static void who_has_unread_events_or_was_woken_does_not_doze(void **state)
{
	struct lab *lab = *state;
	struct timespec deadline = after_ms(60000);

	hl_drain_run(lab->drain, 100);
	write_event(lab, 0, 1, 10);
	hl_drain_doze(lab->drain, 100, &deadline);
	hl_drain_run(lab->drain, 103);
	hl_drain_wake(lab->drain);
	hl_drain_doze(lab->drain, 103, &deadline);
	assert_true(hl_clock_ns(CLOCK_MONOTONIC) / HL_NS_PER_SECOND < (uint64_t)deadline.tv_sec);
}

/* The log is re-based when the doze ends, before any ring is read. */
static void threads_that_begin_and_lose_events_during_a_doze_do_not_count_twice(void **state)
{
	struct lab *lab = *state;
	struct timespec past = {0};

	lab->region.header->thread_count = 0;
	hl_drain_run(lab->drain, 100);
	hl_drain_doze(lab->drain, 100, &past);
	lab->region.header->thread_count = SLOTS;
	lose_event(lab, 0, 2, 500);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		count_and_write(lab, slot, 1, 100);
	hl_drain_run(lab->drain, 250);
	hl_drain_run(lab->drain, 350);
	finish(lab, 360);
	assert_int_equal(end_bytes(lab, lab->log->point_count - 1), 800);
	assert_int_equal(lab->losses.refused_events | lab->losses.unsettled, 0);
	assert_true(lab->losses.is_rebased);
}

/* ---- the thread ---- */

/* Waits in between, as a full ring has to be emptied many times. */
static void a_thread_drains_rings_until_it_is_stopped(void **state)
{
	struct lab *lab = *state;
	struct hl_drain_thread *thread;
	struct hl_error err = {0};

	assert_int_equal(
		hl_drain_thread_start(&lab->settings, hl_clock_ns(CLOCK_MONOTONIC), &thread), 0);
	for (uint32_t i = 0; i < 2000000; i++)
		write_event(lab, 0, 1 + i % NODES, i % 4096);
	usleep(50000);
	write_event(lab, 0, 1, 1);
	hl_drain_thread_stop(thread, &lab->losses);
	assert_whole(lab);
	assert_int_equal(
		open_log_in(lab->directory, PROCESS, &(struct hl_log_options){0}, &lab->log, &err),
		0);
	struct hl_log_state *end = state_at_end(lab);
	assert_int_equal(end->total_objects, 2000001);
	hl_log_state_free(end);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_log_ends_with_what_all_threads_have_in_use),
		TEST(events_are_read_when_their_tick_is_two_behind),
		TEST(rings_are_merged_by_tick),
		TEST(blocks_that_are_handed_over_within_a_tick_count_once),
		TEST(without_stamps_the_end_of_the_tick_is_all_that_can_be_a_maximum),
		TEST(a_spike_while_other_threads_work_is_the_maximum_of_its_interval),
		TEST(a_spike_within_one_tick_is_the_maximum_of_its_interval),
		TEST(an_interval_is_written_as_soon_as_it_has_ended),
		TEST(what_a_dead_process_had_in_memory_is_what_it_had_at_last),
		TEST(threads_are_found_as_they_come),
		TEST(nothing_is_written_before_the_recorder_has_begun),
		TEST(nodes_and_modules_have_the_names_of_the_region),
		TEST(damaged_nodes_have_what_can_be_saved),
		TEST(events_at_no_node_are_refused_and_counted),
		TEST(a_damaged_ring_is_given_up_and_stays_empty),
		TEST(a_ring_of_times_to_come_is_given_up),
		TEST(a_ring_of_the_last_time_there_is_is_given_up),
		TEST(what_the_recorder_lost_is_in_the_log),
		TEST(a_number_of_threads_that_cannot_be_does_no_harm),
		TEST(intervals_that_cannot_be_written_are_counted),
		cmocka_unit_test(each_loss_has_its_sentence),
		TEST(after_a_loss_the_log_goes_on_from_the_counters),
		TEST(events_that_are_still_in_rings_do_not_count_twice),
		TEST(a_log_is_rebased_once_a_second_and_at_its_end),
		TEST(a_thread_in_the_middle_of_an_event_is_told_and_looked_at_again),
		TEST(what_was_counted_between_two_modes_with_a_log_is_in_the_log),
		TEST(a_log_of_busy_threads_is_rebased_to_the_byte),
		TEST(stamps_are_used_where_the_kernel_relies_on_them),
		TEST(each_failing_allocation_is_an_error_or_a_loss),
		TEST(an_event_ends_a_doze_and_has_the_tick_of_its_end),
		TEST(who_has_unread_events_or_was_woken_does_not_doze),
		TEST(threads_that_begin_and_lose_events_during_a_doze_do_not_count_twice),
		TEST(a_thread_drains_rings_until_it_is_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
