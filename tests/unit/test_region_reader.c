/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions become recordings, whatever a target may have written into them. */
#include "collector/region_read.h"

#include "base/frame_key.h"
#include "base/machine.h"

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

static const struct hl_region_times times = {.start_ns = 1000, .now_ns = 5000};

static int setup(void **state)
{
	struct fake_region *fake = malloc(sizeof(*fake));

	*fake = fake_region_new();
	*state = fake;
	return 0;
}

static int teardown(void **state)
{
	fake_region_free(*state);
	free(*state);
	return 0;
}

static struct hl_recording_process read_region(const struct fake_region *fake)
{
	struct hl_region_view view = fake_view(fake);
	struct hl_recording_process process = {0};
	struct hl_error err = {0};

	assert_int_equal(hl_region_read(&view, &times, &process, &err), 0);
	return process;
}

/* The same after a reset. */
static struct hl_recording_process read_since(const struct fake_region *fake,
					      const struct hl_region_base *base)
{
	struct hl_region_view view = fake_view(fake);
	struct hl_recording_process process = {0};

	view.reset = base;
	assert_int_equal(hl_region_read(&view, &times, &process, NULL), 0);
	return process;
}

/* ---- what a sound region says ---- */

static void cells_become_values_of_their_nodes(void **state)
{
	struct fake_region *fake = *state;

	fake_add_module(fake, "/bin/program");
	fake_add_thread(fake, "first");
	fake_add_thread(fake, "second");
	uint32_t outer = fake_add_node(fake, 0, MODULE_1 | 0x10);
	uint32_t inner = fake_add_node(fake, outer, MODULE_1 | 0x20);
	struct hl_cell *cell = fake_add_cell(fake, inner, 1);
	*cell = (struct hl_cell){.node = inner,
				 .alloc_bytes = 100,
				 .alloc_objects = 3,
				 .free_bytes = 40,
				 .free_objects = 1,
				 .temporary_objects = 1,
				 .slack_bytes = -7};

	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.node_count, 2);
	assert_true(process.nodes[0].frame == (MODULE_1 | 0x10));
	assert_int_equal(process.nodes[1].parent, 1);
	assert_int_equal(process.value_count, 1);
	struct hl_recording_value expected = {.node = 2,
					      .thread = 1,
					      .alloc_bytes = 100,
					      .alloc_objects = 3,
					      .free_bytes = 40,
					      .free_objects = 1,
					      .temporary_objects = 1,
					      .slack_bytes = -7,
					      .peak_bytes = 60,
					      .peak_objects = 2};
	assert_memory_equal(&process.values[0], &expected, sizeof(expected));
	assert_int_equal(process.module_count, 1);
	assert_string_equal(process.modules[0].path, "/bin/program");
	assert_int_equal(process.thread_count, 2);
	assert_string_equal(process.threads[1].name, "second");
	hl_recording_process_release(&process);
}

static void an_untouched_region_is_an_empty_process(void **state)
{
	struct hl_recording_process process = read_region(*state);

	assert_int_equal(process.node_count, 0);
	assert_int_equal(process.value_count, 0);
	assert_int_equal(process.module_count, 0);
	assert_int_equal(process.thread_count, 1);
	hl_recording_process_release(&process);
}

/* ---- resets ---- */

static void a_reset_counts_from_zero_and_keeps_what_is_in_use(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_region_base base = {0};
	struct hl_region_figures figures;

	fake_add_module(fake, "/bin/program");
	fake_add_thread(fake, "first");
	uint32_t node = fake_add_node(fake, 0, MODULE_1 | 0x10);
	struct hl_cell *cell = fake_add_cell(fake, node, 0);
	*cell = (struct hl_cell){.node = node,
				 .alloc_bytes = 1000,
				 .alloc_objects = 10,
				 .free_bytes = 400,
				 .free_objects = 4,
				 .temporary_objects = 3,
				 .at_peak_bytes = 900};
	*fake_at_peak_objects(cell) = 9;
	fake->header->peak_mark = 900;
	fake->header->inuse_bytes = 600;
	assert_int_equal(hl_region_base_take(&view, &base), 0);
	assert_int_equal(fake->header->peak_mark, 600);
	struct hl_recording_process process = read_since(fake, &base);
	struct hl_recording_value expected = {.node = 1,
					      .free_bytes = (uint64_t)-600,
					      .free_objects = (uint64_t)-6,
					      .peak_bytes = 600,
					      .peak_objects = 6};
	assert_int_equal(process.value_count, 1);
	assert_memory_equal(&process.values[0], &expected, sizeof(expected));
	hl_recording_process_release(&process);

	/* One older block goes, two new ones come, and one of a stack that was not there before. */
	cell->at_peak_bytes = 600;
	*fake_at_peak_objects(cell) = 6;
	cell->epoch = fake->header->peak_epoch;
	cell->free_bytes += 100;
	cell->free_objects++;
	cell->temporary_objects++;
	fake_allocate(cell, 30);
	fake_allocate(cell, 30);
	fake_allocate(fake_add_cell(fake, node, 0), 7);
	view.reset = &base;
	hl_region_figures_read(&view, &figures);
	assert_int_equal(figures.events, 4);
	assert_int_equal(figures.inuse_bytes, 567);
	assert_int_equal(figures.inuse_objects, 8);
	assert_int_equal(figures.peak_bytes, 600);
	process = read_since(fake, &base);
	assert_int_equal(process.value_count, 2);
	expected = (struct hl_recording_value){.node = 1,
					       .alloc_bytes = 60,
					       .alloc_objects = 2,
					       .free_bytes = (uint64_t)-500,
					       .free_objects = (uint64_t)-5,
					       .temporary_objects = 1,
					       .peak_bytes = 600,
					       .peak_objects = 6};
	assert_memory_equal(&process.values[0], &expected, sizeof(expected));
	assert_int_equal(process.values[1].alloc_bytes, 7);
	assert_int_equal(process.lost.damaged, 0);
	hl_recording_process_release(&process);

	/* A second reset counts from there. */
	assert_int_equal(hl_region_base_take(&view, &base), 0);
	process = read_since(fake, &base);
	for (uint32_t i = 0; i < process.value_count; i++)
		assert_int_equal(process.values[i].alloc_objects, 0);
	hl_recording_process_release(&process);
	hl_region_base_release(&base);
}

static void counters_below_those_of_the_reset_are_damaged(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_region_base base = {0};

	struct hl_cell *cell = fake_add_cell(fake, fake_add_node(fake, 0, 0x10), 0);
	fake_allocate(cell, 30);
	assert_int_equal(hl_region_base_take(&view, &base), 0);
	cell->alloc_bytes = 7;
	struct hl_recording_process process = read_since(fake, &base);
	assert_int_equal(process.value_count, 0);
	assert_int_equal(process.lost.damaged, 1);
	hl_recording_process_release(&process);
	hl_region_base_release(&base);
}

/* What threads hold back is a share of the mark that they saw last, be it one of before. */
static void a_reset_far_below_the_peak_is_no_damage(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_region_base base = {0};
	int64_t held = INT64_C(1) << 30;

	fake_add_thread(fake, "first");
	fake->header->peak_mark = UINT64_C(1) << 40;
	fake->header->inuse_bytes = 1000;
	assert_true(hl_region_check_total(&view, held));
	assert_int_equal(hl_region_base_take(&view, &base), 0);
	assert_false(hl_region_check_total(&view, held));
	view.reset = &base;
	assert_true(hl_region_check_total(&view, held));
	hl_region_base_release(&base);
}

static void a_reset_without_memory_leaves_the_last_one(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_region_base base = {0};

	fake_allocate(fake_add_cell(fake, fake_add_node(fake, 0, 0x10), 0), 30);
	assert_int_equal(hl_region_base_take(&view, &base), 0);
	const struct hl_cell_base *cells = base.cells;
	assert_int_equal(WITH_ALLOCATIONS(0, hl_region_base_take(&view, &base)), -ENOMEM);
	assert_ptr_equal(base.cells, cells);
	hl_region_base_release(&base);
}

#define STORM_BYTES 48

struct storm {
	struct hl_cell *cell;
	_Atomic bool is_over;
};

/* As the recorder counts: bytes first, then the block, and some work until the next. */
__attribute__((no_sanitize("thread"))) static void *count(void *argument)
{
	struct storm *storm = argument;
	volatile struct hl_cell *cell = storm->cell;

	while (!storm->is_over) {
		cell->alloc_bytes += STORM_BYTES;
		cell->alloc_objects++;
		for (int i = 0; i < 10; i++)
			hl_machine_pause();
	}
	return NULL;
}

/* But for one event, where the thread loses its processor between the two. */
static void bytes_and_blocks_are_reset_at_one_moment(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_region_base base = {0};
	pthread_t thread;

	struct storm storm = {fake_add_cell(fake, fake_add_node(fake, 0, 0x10), 0), false};
	assert_int_equal(pthread_create(&thread, NULL, count, &storm), 0);
	for (int i = 0; i < 10000; i++) {
		assert_int_equal(hl_region_base_take(&view, &base), 0);
		int64_t bytes = (int64_t)base.cells[0].alloc_bytes;
		int64_t blocks = (int64_t)base.cells[0].alloc_objects;
		assert_in_range(bytes - blocks * STORM_BYTES, 0, STORM_BYTES);
	}
	storm.is_over = true;
	pthread_join(thread, NULL);
	hl_region_base_release(&base);
}

static void losses_of_threads_and_process_are_added_up(void **state)
{
	struct fake_region *fake = *state;

	for (uint64_t i = 1; i <= 2; i++) {
		struct hl_region_thread *thread = fake_add_thread(fake, "t");
		thread->lost.unmatched_frees = 10 * i;
		thread->lost.truncated_stacks = 100 * i;
		thread->lost.incomplete_stacks = 1000 * i;
		thread->lost.events = 10000 * i;
		thread->lost.bytes = 100000 * i;
	}
	fake->header->lost.events = 1;
	fake->header->lost.bytes = 2;
	fake->header->lost.modules = 3;
	fake->header->flags = HL_REGION_OWN_MALLOC;
	struct hl_recording_process process = read_region(fake);
	struct hl_lost expected = {.events = 30001,
				   .bytes = 300002,
				   .truncated_stacks = 300,
				   .incomplete_stacks = 3000,
				   .unmatched_frees = 30,
				   .modules = 3};
	assert_memory_equal(&process.lost, &expected, sizeof(expected));
	assert_true(process.own_malloc);
	hl_recording_process_release(&process);
}

/* Two cells of one node: one untouched since the mark of epoch 2, one that went on after it. */
static void add_marked_cells(struct fake_region *fake, uint64_t now_bytes)
{
	uint32_t node = fake_add_node(fake, 0, 1);
	struct hl_cell *still = fake_add_cell(fake, node, 0);
	struct hl_cell *moved = fake_add_cell(fake, node, 0);

	*still = (struct hl_cell){.node = node,
				  .epoch = 1,
				  .alloc_bytes = 50,
				  .alloc_objects = 5,
				  .at_peak_bytes = 999};
	*fake_at_peak_objects(still) = 999;
	*moved = (struct hl_cell){.node = node,
				  .epoch = 2,
				  .alloc_bytes = 100 + now_bytes,
				  .alloc_objects = 2,
				  .free_bytes = 100,
				  .free_objects = 1,
				  .at_peak_bytes = 200};
	*fake_at_peak_objects(moved) = 4;
	fake->header->peak_epoch = 2;
	fake->header->peak_mark_ns = 3000;
}

static void the_peak_is_that_of_the_last_mark(void **state)
{
	struct fake_region *fake = *state;

	add_marked_cells(fake, 10);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.value_count, 2);
	assert_int_equal(process.values[0].peak_bytes, 50);
	assert_int_equal(process.values[0].peak_objects, 5);
	assert_int_equal(process.values[1].peak_bytes, 200);
	assert_int_equal(process.values[1].peak_objects, 4);
	assert_int_equal(process.peak_mark_ns, 2000);
	hl_recording_process_release(&process);
}

static void now_is_the_peak_when_more_is_in_use_than_at_the_mark(void **state)
{
	struct fake_region *fake = *state;

	add_marked_cells(fake, 201);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.values[1].peak_bytes, 201);
	assert_int_equal(process.values[1].peak_objects, 1);
	assert_int_equal(process.peak_mark_ns, 4000);
	hl_recording_process_release(&process);
}

static void a_node_that_occurs_twice_stays_so(void **state)
{
	struct fake_region *fake = *state;
	uint32_t one = fake_add_node(fake, 0, 0x10);
	uint32_t two = fake_add_node(fake, 0, 0x10);
	uint32_t below_one = fake_add_node(fake, one, 0x20);
	uint32_t below_two = fake_add_node(fake, two, 0x20);

	fake_allocate(fake_add_cell(fake, below_one, 0), 1);
	fake_allocate(fake_add_cell(fake, below_two, 0), 2);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.node_count, 4);
	assert_int_equal(process.values[0].node, below_one);
	assert_int_equal(process.values[1].node, below_two);
	assert_int_equal(process.nodes[below_two - 1].parent, two);
	hl_recording_process_release(&process);
}

static void a_parent_may_have_the_larger_id(void **state)
{
	struct fake_region *fake = *state;
	uint32_t child = fake_add_node(fake, 2, 0x20);

	fake_add_node(fake, 0, 0x10);
	fake_allocate(fake_add_cell(fake, child, 0), 1);
	struct hl_recording_process process = read_region(fake);
	uint32_t node = process.values[0].node;
	assert_true(process.nodes[node - 1].frame == 0x20);
	uint32_t parent = process.nodes[node - 1].parent;
	assert_true(process.nodes[parent - 1].frame == 0x10);
	assert_int_equal(process.nodes[parent - 1].parent, 0);
	hl_recording_process_release(&process);
}

/* ---- what an unsound one may not do ---- */

static void what_is_not_published_is_skipped(void **state)
{
	struct fake_region *fake = *state;
	uint32_t unpublished = fake_add_node(fake, 0, 0);
	uint32_t orphan = fake_add_node(fake, unpublished, 0x20);

	fake_allocate(fake_add_cell(fake, unpublished, 0), 1);
	fake_allocate(fake_add_cell(fake, orphan, 0), 2);
	fake_allocate(fake_add_cell(fake, 0, 0), 4);
	fake_allocate(fake_add_cell(fake, 1000, 0), 8);
	fake_add_cell(fake, orphan, 0); /* nothing counted yet */
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.node_count, 1);
	assert_int_equal(process.nodes[0].parent, 0);
	assert_int_equal(process.value_count, 1);
	assert_int_equal(process.values[0].alloc_bytes, 2);
	hl_recording_process_release(&process);
}

static void cycles_and_wild_parents_hang_on_the_root(void **state)
{
	struct fake_region *fake = *state;

	for (uint64_t frame = 1; frame <= 5; frame++)
		fake_add_node(fake, 0, frame);
	fake_set_parent(fake, 1, 2);
	fake_set_parent(fake, 2, 3);
	fake_set_parent(fake, 3, 1);
	fake_set_parent(fake, 4, 4);
	fake_set_parent(fake, 5, UINT32_MAX);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.node_count, 5);
	uint32_t on_root = 0;
	for (uint32_t i = 0; i < 5; i++)
		on_root += process.nodes[i].parent == 0;
	assert_int_equal(on_root, 3);
	uint32_t marks[5];
	assert_int_equal(hl_recording_repair_tree(process.nodes, 5, marks), 0);
	hl_recording_process_release(&process);
}

static void counts_are_bounded_by_what_is_committed(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_header *header = fake->header;

	header->node_count = header->chunk_count = header->thread_count = UINT32_MAX;
	header->module_count = header->string_bytes = UINT32_MAX;
	for (int id = 0; id < HL_AREA_COUNT; id++)
		header->areas[id].committed = 8192;
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.thread_count, 8192 / sizeof(struct hl_region_thread));
	assert_int_equal(process.module_count, 8192 / sizeof(struct hl_region_module));
	hl_recording_process_release(&process);

	for (int id = 0; id < HL_AREA_COUNT; id++)
		header->areas[id].committed = UINT64_MAX;
	process = read_region(fake);
	const struct hl_area *areas = fake->layout.areas;
	assert_int_equal(process.thread_count,
			 areas[HL_AREA_THREADS].capacity / sizeof(struct hl_region_thread));
	assert_int_equal(process.module_count,
			 areas[HL_AREA_MODULES].capacity / sizeof(struct hl_region_module));
	hl_recording_process_release(&process);
}

static void the_regions_own_idea_of_its_layout_is_not_believed(void **state)
{
	struct fake_region *fake = *state;

	fake_allocate(fake_add_cell(fake, fake_add_node(fake, 0, 1), 0), 1);
	for (int id = 0; id < HL_AREA_COUNT; id++)
		fake->header->areas[id].offset = fake->header->areas[id].capacity = UINT64_MAX / 2;
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.value_count, 1);
	hl_recording_process_release(&process);
}

static void a_layout_that_does_not_fit_is_refused(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_view view = fake_view(fake);
	struct hl_recording_process process = {0};
	struct hl_error err = {0};

	fake->layout.areas[HL_AREA_NODES].capacity = view.bytes;
	assert_int_equal(hl_region_read(&view, &times, &process, &err), -EINVAL);
	assert_non_null(strstr(err.text, "do not fit"));
	view.bytes = 16;
	assert_int_equal(hl_region_read(&view, &times, &process, NULL), -EINVAL);
}

static void a_cell_of_no_thread_counts_under_the_first(void **state)
{
	struct fake_region *fake = *state;

	fake_add_thread(fake, "only");
	uint32_t node = fake_add_node(fake, 0, 1);
	fake_allocate(fake_add_cell(fake, node, 1), 1);
	fake_allocate(fake_add_cell(fake, node, UINT32_MAX), 1);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.values[0].thread, 0);
	assert_int_equal(process.values[1].thread, 0);
	hl_recording_process_release(&process);
}

static void wild_modules_have_no_name(void **state)
{
	struct fake_region *fake = *state;
	struct hl_region_module *module = fake_add_module(fake, "/lib/one");

	module->path_offset = UINT32_MAX;
	module = fake_add_module(fake, "/lib/two");
	module->path_bytes = UINT32_MAX;
	module->build_id_bytes = 33;
	fake_add_node(fake, 0, UINT64_C(3) << 48 | 0x1234);
	struct hl_recording_process process = read_region(fake);
	assert_string_equal(process.modules[0].path, "");
	assert_string_equal(process.modules[1].path, "");
	assert_int_equal(process.modules[1].build_id_bytes, 0);
	assert_true(process.nodes[0].frame == 0x1234);
	hl_recording_process_release(&process);
}

static uint32_t add_name(struct fake_region *fake, const char *text)
{
	uint32_t at = fake->header->name_bytes, bytes = (uint32_t)strlen(text);
	struct hl_region_name *name =
		(struct hl_region_name *)((char *)fake_area(fake, HL_AREA_NAMES) + at);

	name->bytes = bytes;
	memcpy(name->text, text, bytes);
	fake->header->name_bytes = at + hl_region_name_bytes(bytes);
	return at;
}

static struct hl_region_site *add_site(struct fake_region *fake, uint32_t function, uint32_t source)
{
	struct hl_region_site *site = fake_area(fake, HL_AREA_SITES);

	site += fake->header->site_count++;
	*site = (struct hl_region_site){.function = function, .source = source, .line = 7};
	return site;
}

static void add_script(struct fake_region *fake)
{
	fake->header->provider_count = 1;
	strcpy(fake->header->providers[0].name, "lua");
	fake->header->providers[0].eval_start = 0x77;
	uint32_t source = add_name(fake, "main.lua");
	add_site(fake, add_name(fake, "handle"), source);
	fake_add_node(fake, 0, hl_site_frame_key(1, true));
}

static void sites_of_scripts_and_their_names_are_read(void **state)
{
	struct fake_region *fake = *state;

	add_script(fake);
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.provider_count, 1);
	assert_string_equal(process.providers[0].name, "lua");
	assert_int_equal(process.providers[0].eval_start, 0x77);
	assert_int_equal(process.site_count, 1);
	assert_string_equal(process.site_names[process.sites[0].function], "handle");
	assert_string_equal(process.site_names[process.sites[0].source], "main.lua");
	assert_int_equal(process.sites[0].line, 7);
	assert_true(process.nodes[0].frame == hl_site_frame_key(1, true));
	hl_recording_process_release(&process);
}

/* Ids change where a node before has not come. */
static void paths_keep_their_nodes(void **state)
{
	struct fake_region *fake = *state;

	add_script(fake);
	fake_add_node(fake, 0, 0);
	uint32_t path = fake_add_node(fake, 1, hl_site_frame_key(1, false));
	fake_add_node(fake, fake_add_node(fake, 0, 0x77), hl_path_frame_key(path));
	fake_add_node(fake, 0, hl_path_frame_key(2));
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.node_count, 5);
	assert_true(process.nodes[3].frame == hl_path_frame_key(2));
	assert_int_equal(process.nodes[3].parent, 3);
	assert_true(process.nodes[4].frame == hl_site_frame_key(0, false));
	hl_recording_process_release(&process);
}

static void wild_sites_have_no_name(void **state)
{
	struct fake_region *fake = *state;

	add_script(fake);
	add_site(fake, 2, UINT32_MAX);
	add_site(fake, 0, 0)->provider = 3;
	((struct hl_region_name *)fake_area(fake, HL_AREA_NAMES))->bytes = UINT32_MAX;
	fake_add_node(fake, 0, hl_site_frame_key(4, false));
	struct hl_recording_process process = read_region(fake);
	assert_int_equal(process.site_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(process.sites[i].provider, 0);
		assert_string_equal(process.site_names[process.sites[i].function], "");
	}
	assert_true(process.nodes[1].frame == hl_site_frame_key(0, false));
	assert_true(process.lost.damaged >= 3);
	hl_recording_process_release(&process);
}

/* Overwrites ${count} random words at the beginning of random areas and in the header. */
static void scribble(struct fake_region *fake, unsigned *seed, int count)
{
	for (int i = 0; i < count; i++) {
		int id = rand_r(seed) % (HL_AREA_COUNT + 1);
		bool in_area = id < HL_AREA_COUNT && fake->layout.areas[id].capacity;
		uint64_t offset = in_area ? fake->layout.areas[id].offset : 0;
		uint64_t *words = (uint64_t *)((char *)fake->header + offset);
		uint64_t value = (uint64_t)rand_r(seed) << 32 ^ (uint64_t)rand_r(seed);
		words[rand_r(seed) % 64] = value >> rand_r(seed) % 64;
	}
	/* The whole of an area need not be read a thousand times. */
	for (int id = 0; id < HL_AREA_COUNT; id++)
		fake->header->areas[id].committed %= 65536;
}

static void assert_can_be_written_and_read(struct hl_recording_process *process)
{
	char directory[] = "/tmp/heapline-test-XXXXXX";

	assert_non_null(mkdtemp(directory));
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct hl_error err = {0};
	if (hl_recording_write_process(fd, process, &err) < 0)
		fail_msg("%s", err.text);
	int file = openat(fd, "process-0-0.hlp", O_RDONLY | O_CLOEXEC);
	struct hl_recording_process again = {0};
	if (hl_recording_read_process(file, "FILE", &again, &err) < 0)
		fail_msg("%s", err.text);
	hl_recording_process_release(&again);
	close(file);
	unlinkat(fd, "process-0-0.hlp", 0);
	close(fd);
	rmdir(directory);
}

static void whatever_a_target_scribbles_the_recording_can_be_read(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 300; seed++) {
		unsigned random = seed;
		struct fake_region fake = fake_region_new();
		fake_add_module(&fake, "/bin/program");
		fake_add_thread(&fake, "main");
		for (uint32_t i = 0; i < 20; i++)
			fake_allocate(fake_add_cell(&fake, fake_add_node(&fake, i, i + 1), 0), i);
		add_script(&fake);
		scribble(&fake, &random, 40);
		struct hl_recording_process process = read_region(&fake);
		assert_can_be_written_and_read(&process);
		hl_recording_process_release(&process);
		fake_region_free(&fake);
	}
}

/* ---- want of memory ---- */

char *__real_strndup(const char *text, size_t size);
char *__wrap_strndup(const char *text, size_t size);

char *__wrap_strndup(const char *text, size_t size)
{
	return may_allocate() ? __real_strndup(text, size) : NULL;
}

static int read_again(const struct hl_region_view *view, struct hl_recording_process *process)
{
	hl_recording_process_release(process);
	*process = (struct hl_recording_process){0};
	return hl_region_read(view, &times, process, NULL);
}

static void each_failing_allocation_is_an_error_and_leaves_nothing(void **state)
{
	struct fake_region *fake = *state;
	struct hl_recording_process process = {0};

	fake_add_module(fake, "/bin/program");
	add_script(fake);
	fake_allocate(fake_add_cell(fake, fake_add_node(fake, 0, 1), 0), 1);
	struct hl_region_view view = fake_view(fake);
	FOR_EACH_FAILING_ALLOCATION(r, read_again(&view, &process))
	{
		assert_int_equal(r, -ENOMEM);
		assert_null(process.values);
		assert_int_equal(process.node_count, 0);
		assert_null(process.sites);
	}
	hl_recording_process_release(&process);
}

#define IN_REGION(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_REGION(cells_become_values_of_their_nodes),
		IN_REGION(an_untouched_region_is_an_empty_process),
		IN_REGION(a_reset_counts_from_zero_and_keeps_what_is_in_use),
		IN_REGION(counters_below_those_of_the_reset_are_damaged),
		IN_REGION(a_reset_far_below_the_peak_is_no_damage),
		IN_REGION(a_reset_without_memory_leaves_the_last_one),
		IN_REGION(bytes_and_blocks_are_reset_at_one_moment),
		IN_REGION(losses_of_threads_and_process_are_added_up),
		IN_REGION(the_peak_is_that_of_the_last_mark),
		IN_REGION(now_is_the_peak_when_more_is_in_use_than_at_the_mark),
		IN_REGION(a_node_that_occurs_twice_stays_so),
		IN_REGION(a_parent_may_have_the_larger_id),
		IN_REGION(what_is_not_published_is_skipped),
		IN_REGION(cycles_and_wild_parents_hang_on_the_root),
		IN_REGION(counts_are_bounded_by_what_is_committed),
		IN_REGION(the_regions_own_idea_of_its_layout_is_not_believed),
		IN_REGION(a_layout_that_does_not_fit_is_refused),
		IN_REGION(a_cell_of_no_thread_counts_under_the_first),
		IN_REGION(wild_modules_have_no_name),
		IN_REGION(sites_of_scripts_and_their_names_are_read),
		IN_REGION(paths_keep_their_nodes),
		IN_REGION(wild_sites_have_no_name),
		IN_REGION(whatever_a_target_scribbles_the_recording_can_be_read),
		IN_REGION(each_failing_allocation_is_an_error_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
