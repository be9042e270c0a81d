/* SPDX-License-Identifier: BSD-2-Clause */
/* A process' file that is saved again and again is what it would be when saved whole. */
#include "collector/region_read.h"

#include "fail_allocations.h"
#include "fake_region.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MODULE_1 (UINT64_C(1) << 48)
#define ROUNDS	 80

static const struct hl_region_times times = {.start_ns = 1000, .now_ns = UINT64_C(10000000000)};

struct saves {
	struct fake_region fake;
	struct hl_region_known known;
	struct hl_recording_kept kept;
	char directory[32];
	int fd;
	unsigned random;
};

static int setup(void **state)
{
	struct saves *saves = calloc(1, sizeof(*saves));

	saves->fake = fake_region_new();
	fake_add_module(&saves->fake, "/bin/program");
	fake_add_thread(&saves->fake, "main");
	fake_add_thread(&saves->fake, "other");
	strcpy(saves->directory, "/tmp/heapline-test-XXXXXX");
	assert_non_null(mkdtemp(saves->directory));
	saves->fd = open(saves->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	saves->random = 1;
	*state = saves;
	return 0;
}

static int teardown(void **state)
{
	struct saves *saves = *state;

	hl_region_known_release(&saves->known);
	hl_recording_kept_release(&saves->kept);
	unlinkat(saves->fd, "process-0-0.hlp", 0);
	close(saves->fd);
	rmdir(saves->directory);
	fake_region_free(&saves->fake);
	free(saves);
	return 0;
}

/* ---- saving ---- */

static int save_again(struct saves *saves, struct hl_error *err)
{
	struct hl_region_view view = fake_view(&saves->fake);
	struct hl_recording_process process = {0};

	view.known = &saves->known;
	int r = hl_region_read(&view, &times, &process, err);
	if (r == 0)
		r = hl_recording_write_process_again(saves->fd, &process, saves->known.first_node,
						     &saves->kept, err);
	if (r < 0) {
		hl_region_known_release(&saves->known);
		hl_recording_kept_release(&saves->kept);
	}
	hl_recording_process_release(&process);
	return r;
}

static struct hl_recording_process read_file(const struct saves *saves)
{
	struct hl_recording_process process = {0};
	struct hl_error err = {0};

	int file = openat(saves->fd, "process-0-0.hlp", O_RDONLY | O_CLOEXEC);
	if (hl_recording_read_process(file, "FILE", &process, &err) < 0)
		fail_msg("%s", err.text);
	close(file);
	return process;
}

/* Saves again, and compares the file with all that the region has now. */
static void assert_saved(struct saves *saves)
{
	struct hl_region_view view = fake_view(&saves->fake);
	struct hl_recording_process whole = {0};
	struct hl_error err = {0};

	if (save_again(saves, &err) < 0)
		fail_msg("%s", err.text);
	struct hl_recording_process saved = read_file(saves);
	assert_int_equal(hl_region_read(&view, &times, &whole, NULL), 0);
	assert_int_equal(saved.node_count, whole.node_count);
	for (uint32_t i = 0; i < whole.node_count; i++) {
		assert_int_equal(saved.nodes[i].frame, whole.nodes[i].frame);
		assert_int_equal(saved.nodes[i].parent, whole.nodes[i].parent);
	}
	assert_int_equal(saved.value_count, whole.value_count);
	if (whole.value_count)
		assert_memory_equal(saved.values, whole.values,
				    whole.value_count * sizeof(*whole.values));
	assert_int_equal(saved.lost.damaged, whole.lost.damaged);
	hl_recording_process_release(&saved);
	hl_recording_process_release(&whole);
}

/* ---- a program that goes on ---- */

static uint32_t random_below(struct saves *saves, uint32_t count)
{
	return (uint32_t)rand_r(&saves->random) % count;
}

static void add_nodes(struct saves *saves, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		fake_add_node(&saves->fake, random_below(saves, saves->fake.header->node_count + 1),
			      MODULE_1 + 1 + (uint32_t)rand_r(&saves->random));
}

/* Gives cells of the last chunk out, and of a new one when that is full. */
static void add_cells(struct saves *saves, uint32_t count)
{
	struct hl_region_header *header = saves->fake.header;
	struct hl_cell_chunk *chunks = fake_area(&saves->fake, HL_AREA_CELLS);

	for (uint32_t i = 0; i < count; i++) {
		struct hl_cell_chunk *chunk =
			header->chunk_count ? &chunks[header->chunk_count - 1] : NULL;
		if (!chunk || chunk->used == HL_CHUNK_CELLS) {
			chunk = &chunks[header->chunk_count++];
			chunk->thread = header->chunk_count % 2;
		}
		chunk->cells[chunk->used++].node = 1 + random_below(saves, header->node_count);
	}
}

static void count_at_some_cells(struct saves *saves, uint32_t events)
{
	struct hl_cell_chunk *chunks = fake_area(&saves->fake, HL_AREA_CELLS);

	for (uint32_t i = 0; i < events; i++) {
		struct hl_cell_chunk *chunk =
			&chunks[random_below(saves, saves->fake.header->chunk_count)];
		struct hl_cell *cell = &chunk->cells[random_below(saves, chunk->used)];
		fake_allocate(cell, 1 + random_below(saves, 1000));
		if (random_below(saves, 3) == 0) {
			cell->free_bytes = cell->alloc_bytes;
			cell->free_objects = cell->alloc_objects;
		}
	}
}

static void saves_of_a_program_that_goes_on_are_whole(void **state)
{
	struct saves *saves = *state;

	assert_saved(saves);
	for (int round = 0; round < ROUNDS; round++) {
		add_nodes(saves, 1 + random_below(saves, 200));
		add_cells(saves, random_below(saves, 100) + 1);
		count_at_some_cells(saves, random_below(saves, 50));
		assert_saved(saves);
	}
	/* It was not read again each time. */
	assert_true(saves->known.first_node + HL_REGION_PIECE_NODES >
		    saves->fake.header->node_count - 200);
	assert_saved(saves);
}

static void nodes_that_come_late_or_are_used_again_are_seen(void **state)
{
	struct saves *saves = *state;
	struct hl_region_node *nodes = fake_area(&saves->fake, HL_AREA_NODES);

	add_nodes(saves, 2000);
	for (int round = 0; round < ROUNDS; round++) {
		add_nodes(saves, 1 + random_below(saves, 50));
		add_cells(saves, random_below(saves, 20) + 1);
		count_at_some_cells(saves, 20);
		assert_saved(saves);
		assert_true(saves->known.piece_count >= 3);
		struct hl_region_node *node = &nodes[1 + random_below(saves, 2000)];
		struct hl_region_node before = *node;
		/* Taken back, used for another one, hung below a node that was made later */
		if (round % 3 == 0)
			node->frame = 0;
		else if (round % 3 == 1)
			node->frame = MODULE_1 + 7;
		else
			node->parent = saves->fake.header->node_count;
		assert_saved(saves);
		*node = before;
		assert_saved(saves);
	}
}

static void a_program_that_writes_over_the_region_does_not_break_the_file(void **state)
{
	struct saves *saves = *state;
	struct hl_region_header *header = saves->fake.header;

	add_nodes(saves, 2000);
	add_cells(saves, 100);
	count_at_some_cells(saves, 100);
	assert_saved(saves);
	assert_true(saves->known.piece_count);
	header->module_count = 0;
	assert_saved(saves);
	header->module_count = 1;
	assert_saved(saves);
	header->node_count = 700;
	assert_saved(saves);
	header->node_count = 2000;
	memset((char *)fake_area(&saves->fake, HL_AREA_NODES) + 4096, 0xa5, 4096);
	assert_saved(saves);
	header->node_count = UINT32_MAX;
	header->areas[HL_AREA_NODES].committed = 8192;
	assert_saved(saves);
}

static void each_failing_allocation_is_an_error_and_the_next_save_is_whole(void **state)
{
	struct saves *saves = *state;

	add_nodes(saves, 1500);
	add_cells(saves, 600);
	count_at_some_cells(saves, 100);
	FOR_EACH_FAILING_ALLOCATION(r, save_again(saves, NULL))
	assert_int_equal(r, -ENOMEM);
	assert_saved(saves);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(saves_of_a_program_that_goes_on_are_whole),
		TEST(nodes_that_come_late_or_are_used_again_are_seen),
		TEST(a_program_that_writes_over_the_region_does_not_break_the_file),
		TEST(each_failing_allocation_is_an_error_and_the_next_save_is_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
