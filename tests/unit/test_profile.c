/* SPDX-License-Identifier: BSD-2-Clause */
/* The profile: what is loaded from recordings made by hand adds up, and merges where it should. */
#include "profile/builder.h"
#include "profile/calltree.h"
#include "profile/profile.h"
#include "recording/recording.h"

#include "fail_allocations.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FRAME(module, pc) ((uint64_t)(module) << 48 | (pc))

/* Modules that do not exist: functions are called after their addresses. */
#define APP_BASE   0x555500000000u
#define LIB_BASE   0x7f0000000000u
#define OTHER_BASE 0x7e0000000000u

static struct hl_recording_module modules[] = {
	{"/nowhere/app", APP_BASE, APP_BASE + 0x10000, APP_BASE, {1, 2}, 2, {0}},
	{"/nowhere/lib.so", LIB_BASE, LIB_BASE + 0x10000, LIB_BASE, {3, 4}, 2, {0}},
	{"/nowhere/lib.so", OTHER_BASE, OTHER_BASE + 0x10000, OTHER_BASE, {3, 4}, 2, {0}},
};

/*
 * main(1) -> item(2) ; main(1) -> parse(3) -> main(5) -> parse(4): parents with larger ids, and
 * functions that recur in turn.
 */
static struct hl_recording_node nodes[] = {
	{FRAME(1, APP_BASE + 0x10), 0}, /* 1 main */
	{FRAME(2, LIB_BASE + 0x20), 1}, /* 2 item */
	{FRAME(1, APP_BASE + 0x30), 1}, /* 3 parse */
	{FRAME(1, APP_BASE + 0x30), 5}, /* 4 parse */
	{FRAME(1, APP_BASE + 0x10), 3}, /* 5 main */
};

static struct hl_recording_value values[] = {
	{.node = 2,
	 .thread = 0,
	 .alloc_bytes = 1009,
	 .alloc_objects = 11,
	 .free_bytes = 9,
	 .free_objects = 1,
	 .slack_bytes = 5,
	 .peak_bytes = 1003,
	 .peak_objects = 7},
	{.node = 4,
	 .thread = 1,
	 .alloc_bytes = 503,
	 .alloc_objects = 5,
	 .temporary_objects = 3,
	 .peak_bytes = 211,
	 .peak_objects = 2},
	{.node = 3,
	 .thread = 0,
	 .alloc_bytes = 101,
	 .alloc_objects = 1,
	 .peak_bytes = 101,
	 .peak_objects = 1},
	{.node = 2, .thread = 1, .alloc_bytes = 7, .alloc_objects = 1},
};

static struct hl_recording_thread threads[] = {{.tid = 100, .name = "main"},
					       {.tid = 101, .name = "worker"}};
static char *command[] = {"app", "it's here", "\033[31m\nit's\\", NULL};

static struct hl_recording_process sample_process(void)
{
	return (struct hl_recording_process){
		.pid = 100,
		.executable = "/nowhere/app",
		.command = command,
		.complete = true,
		.end = HL_END_EXITED,
		.lost = {.events = 2, .unmatched_frees = 3},
		.module_count = 3,
		.node_count = 5,
		.value_count = 4,
		.thread_count = 2,
		.modules = modules,
		.nodes = nodes,
		.values = values,
		.threads = threads,
	};
}

static struct hl_recording recording_of(struct hl_recording_process *processes, uint32_t count)
{
	return (struct hl_recording){
		.name = "test.hl",
		.tool_version = "1",
		.command = command,
		.host = "h",
		.kernel = "k",
		.mode = "mem-fast",
		.complete = true,
		.process_count = count,
		.processes = processes,
	};
}

static struct hl_profile *load(const struct hl_recording *recording,
			       const struct hl_profile_selection *selection)
{
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(hl_profile_load(recording, selection, &profile, &err), 0);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

static struct hl_profile *load_sample(const struct hl_profile_selection *selection)
{
	struct hl_recording_process process = sample_process();
	struct hl_recording recording = recording_of(&process, 1);

	return load(&recording, selection);
}

static uint32_t function_named(const struct hl_profile *profile, const char *name)
{
	for (uint32_t i = 1; i < profile->function_count; i++)
		if (!strcmp(hl_profile_text(profile, profile->functions[i].name), name))
			return i;
	fail_msg("no function '%s'", name);
	return 0;
}

/* ---- sums ---- */

static void flat_sums_to_the_total_for_every_value(void **state)
{
	struct hl_profile *profile = load_sample(NULL);

	(void)state;
	for (int value = 0; hl_value_names[value]; value++) {
		struct hl_aggregate_figures sum = {0};
		struct hl_aggregate sums;
		assert_int_equal(hl_aggregate_init(&sums, profile, (enum hl_value)value, NULL, 0),
				 0);
		for (size_t i = 0; i < sums.key_count; i++) {
			sum.bytes += sums.flat[i].bytes;
			sum.objects += sums.flat[i].objects;
		}
		assert_int_equal(sum.bytes, sums.total.bytes);
		assert_int_equal(sum.objects, sums.total.objects);
		assert_int_equal(sum.bytes, hl_profile_figure(&profile->total, (enum hl_value)value,
							      HL_UNIT_BYTES));
		hl_aggregate_release(&sums);
	}
	hl_profile_free(profile);
}

static void the_outermost_function_has_all_and_recursion_counts_once(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_aggregate sums;

	(void)state;
	assert_int_equal(hl_aggregate_init(&sums, profile, HL_VALUE_ALLOC, NULL, 0), 0);
	uint32_t main_function = function_named(profile, "app+0x10");
	uint32_t parse = function_named(profile, "app+0x30");
	uint32_t item = function_named(profile, "lib.so+0x20");
	assert_int_equal(sums.total.bytes, 1009 + 7 + 503 + 101);
	assert_int_equal(sums.cum[main_function].bytes, sums.total.bytes);
	assert_int_equal(sums.flat[main_function].bytes, 0);
	assert_int_equal(sums.cum[parse].bytes, 503 + 101);
	assert_int_equal(sums.flat[parse].bytes, 503 + 101);
	assert_int_equal(sums.cum[item].objects, 12);
	hl_aggregate_release(&sums);
	hl_profile_free(profile);
}

static void sums_by_any_key_of_frames_are_possible(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	uint32_t *by_module = calloc(profile->frame_count, sizeof(*by_module));
	struct hl_aggregate sums;

	(void)state;
	for (size_t i = 0; i < profile->frame_count; i++)
		by_module[i] = profile->functions[profile->frames[i].function].module;
	assert_int_equal(
		hl_aggregate_init(&sums, profile, HL_VALUE_PEAK, by_module, profile->module_count),
		0);
	assert_int_equal(sums.flat[1].bytes, 211 + 101); /* app */
	assert_int_equal(sums.cum[1].bytes, 1003 + 211 + 101);
	assert_int_equal(sums.flat[2].bytes, 1003); /* lib.so */
	hl_aggregate_release(&sums);
	free(by_module);
	hl_profile_free(profile);
}

/* ---- merging ---- */

static void equal_stacks_of_two_processes_become_one(void **state)
{
	struct hl_recording_process processes[2] = {sample_process(), sample_process()};
	struct hl_recording_module moved[3];

	(void)state;
	memcpy(moved, modules, sizeof(moved));
	/* The second process has the library elsewhere, under the same module number. */
	moved[1].load_bias = 0x7a0000000000u;
	struct hl_recording_node moved_nodes[5];
	memcpy(moved_nodes, nodes, sizeof(moved_nodes));
	moved_nodes[1].frame = FRAME(2, 0x7a0000000020u);
	processes[1].pid = 200;
	processes[1].sequence = 1;
	processes[1].modules = moved;
	processes[1].nodes = moved_nodes;

	struct hl_recording recording = recording_of(processes, 2);
	struct hl_profile *both = load(&recording, NULL), *one = load_sample(NULL);
	assert_int_equal(both->node_count, one->node_count);
	assert_int_equal(both->frame_count, one->frame_count);
	assert_int_equal(both->total.alloc_bytes, 2 * one->total.alloc_bytes);
	assert_int_equal(both->lost.events, 4);
	assert_int_equal(both->process_count, 2);
	hl_profile_free(both);
	hl_profile_free(one);
}

static void a_library_mapped_twice_is_one_module(void **state)
{
	struct hl_recording_process process = sample_process();
	struct hl_recording_node twice[] = {
		{FRAME(2, LIB_BASE + 0x20), 0},
		{FRAME(3, OTHER_BASE + 0x20), 0},
	};
	struct hl_recording_value two[] = {
		{.node = 1, .alloc_bytes = 3, .alloc_objects = 1},
		{.node = 2, .alloc_bytes = 5, .alloc_objects = 1},
	};

	(void)state;
	process.nodes = twice;
	process.node_count = 2;
	process.values = two;
	process.value_count = 2;
	struct hl_recording recording = recording_of(&process, 1);
	struct hl_profile *profile = load(&recording, NULL);
	assert_int_equal(profile->module_count, 3); /* none, app, lib.so */
	assert_int_equal(profile->node_count, 2);
	assert_int_equal(profile->counters[1].alloc_bytes, 8);
	hl_profile_free(profile);
}

static void a_node_that_occurs_twice_is_one_stack(void **state)
{
	struct hl_recording_process process = sample_process();
	struct hl_recording_node twice[] = {
		{FRAME(2, LIB_BASE + 0x20), 0},
		{FRAME(2, LIB_BASE + 0x20), 0},
		{FRAME(2, LIB_BASE + 0x40), 1},
		{FRAME(2, LIB_BASE + 0x40), 2},
	};
	struct hl_recording_value two[] = {
		{.node = 3, .alloc_bytes = 3, .alloc_objects = 1},
		{.node = 4, .alloc_bytes = 5, .alloc_objects = 1},
	};

	(void)state;
	process.nodes = twice;
	process.node_count = 4;
	process.values = two;
	process.value_count = 2;
	struct hl_recording recording = recording_of(&process, 1);
	struct hl_profile *profile = load(&recording, NULL);
	assert_int_equal(profile->node_count, 3);
	assert_int_equal(profile->counters[2].alloc_bytes, 8);
	hl_profile_free(profile);
}

static void equal_paths_with_different_build_ids_stay_apart(void **state)
{
	struct hl_recording_module two[3];
	struct hl_recording_process process = sample_process();

	(void)state;
	memcpy(two, modules, sizeof(two));
	two[2].build_id[0] = 99;
	process.modules = two;
	struct hl_recording recording = recording_of(&process, 1);
	struct hl_profile *profile = load(&recording, NULL);
	assert_int_equal(profile->module_count, 4);
	hl_profile_free(profile);
}

/* A hash that many ids share makes every look-up a walk over all of them. */
static void chunks_of_scripts_with_one_name_have_hashes_of_their_own(void **state)
{
	struct hl_builder builder;
	uint32_t runtime, frame, entry, at, id, found;
	char file[32];

	(void)state;
	assert_int_equal(hl_builder_init(&builder), 0);
	assert_int_equal(hl_builder_runtime(&builder, "lua", &runtime), 0);
	for (int i = 0; i < 1000; i++) {
		const struct hl_symbols_frame symbol = {
			.function = "main chunk", .function_file = file, .file = file, .line = 1};
		snprintf(file, sizeof(file), "request %d", i);
		assert_int_equal(hl_builder_site(&builder, &symbol, runtime, &frame, &entry), 0);
	}
	assert_int_equal(builder.function_index.used, 1000);
	for (size_t i = 0; i < builder.function_index.capacity; i++) {
		uint32_t hash = builder.function_index.slots[i].hash;
		if (!builder.function_index.slots[i].id)
			continue;
		at = hash;
		for (found = 0; (id = hl_index_next(&builder.function_index, hash, &at)); found++)
			;
		assert_in_range(found, 1, 2);
	}
	hl_builder_release(&builder);
}

static void functions_of_scripts_that_share_a_name_are_told_apart_by_source(void **state)
{
	static const struct {
		const char *name, *source, *label;
	} functions[] = {
		{"main chunk", "lib/shop.lua", "main chunk (shop.lua)"},
		{"main chunk", "[string \"a/b\"]", "main chunk ([string \"a/b\"])"},
		{"new", "./ai/init.lua", "new (ai/init.lua)"},
		{"new", "./bi/init.lua", "new (bi/init.lua)"},
		{"new", "init.lua", "new (init.lua)"},
		{"once", "lib/shop.lua", "once"},
	};
	struct hl_builder builder;
	uint32_t runtime, frame, entry, node;
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};
	HL_FREED uint32_t *final_ids = NULL;
	struct hl_profile *profile;

	(void)state;
	assert_int_equal(hl_builder_init(&builder), 0);
	assert_int_equal(hl_builder_runtime(&builder, "lua", &runtime), 0);
	for (size_t i = 0; i < HL_COUNT_OF(functions); i++) {
		const struct hl_symbols_frame symbol = {.function = functions[i].name,
							.function_file = functions[i].source,
							.file = functions[i].source};
		assert_int_equal(hl_builder_site(&builder, &symbol, runtime, &frame, &entry), 0);
		assert_int_equal(hl_builder_child(&builder, 0, frame, &node), 0);
	}
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	assert_int_equal(hl_calltree_init(&tree, profile, HL_VALUE_INUSE, HL_UNIT_BYTES), 0);
	assert_int_equal(tree.count, 1 + HL_COUNT_OF(functions));
	for (size_t i = 0; i < HL_COUNT_OF(functions); i++) {
		const struct hl_profile_function *function = &profile->functions[i + 1];
		assert_string_equal(hl_profile_text(profile, function->name), functions[i].name);
		assert_string_equal(hl_profile_text(profile, function->label), functions[i].label);
	}
	hl_profile_free(profile);
	hl_builder_release(&builder);
}

static void the_call_tree_by_name_is_sorted_and_complete(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_calltree tree;

	(void)state;
	assert_int_equal(hl_calltree_init(&tree, profile, HL_VALUE_ALLOC, HL_UNIT_BYTES), 0);
	assert_int_equal(tree.nodes[0].sum, profile->total.alloc_bytes);
	assert_int_equal(tree.depth_max, 4);
	for (uint32_t i = 1; i < tree.count; i++) {
		const struct hl_calltree_node *node = &tree.nodes[i];
		assert_true(node->parent < i && node->end > i);
		assert_true(node->end <= tree.nodes[node->parent].end);
		assert_int_equal(node->depth, tree.nodes[node->parent].depth + 1);
		if (node->end < tree.nodes[node->parent].end)
			assert_true(strcmp(hl_profile_text(profile, node->name),
					   hl_profile_text(profile, tree.nodes[node->end].name)) <
				    0);
	}
	hl_calltree_release(&tree);
	hl_profile_free(profile);
}

static void every_node_of_the_profile_is_in_the_call_tree(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_calltree tree;

	(void)state;
	assert_int_equal(hl_calltree_init(&tree, profile, HL_VALUE_ALLOC, HL_UNIT_BYTES), 0);
	assert_int_equal(tree.node_of[0], 0);
	for (uint32_t i = 1; i < profile->node_count; i++) {
		const struct hl_calltree_node *node = &tree.nodes[tree.node_of[i]];
		uint32_t function = profile->frames[profile->nodes[i].frame].function;
		assert_int_equal(node->parent, tree.node_of[profile->nodes[i].parent]);
		assert_int_equal(node->name, profile->functions[function].name);
	}
	hl_calltree_release(&tree);
	hl_profile_free(profile);
}

static void nodes_of_the_call_tree_have_a_frame_and_both_units(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_calltree bytes, objects;

	(void)state;
	assert_int_equal(hl_calltree_init(&bytes, profile, HL_VALUE_ALLOC, HL_UNIT_BYTES), 0);
	assert_int_equal(hl_calltree_init(&objects, profile, HL_VALUE_ALLOC, HL_UNIT_OBJECTS), 0);
	assert_int_equal(bytes.count, objects.count);
	for (uint32_t i = 0; i < bytes.count; i++) {
		uint32_t function = profile->frames[bytes.nodes[i].frame].function;
		assert_int_equal(bytes.nodes[i].name, profile->functions[function].name);
		assert_int_equal(bytes.nodes[i].other, objects.nodes[i].sum);
		assert_int_equal(bytes.nodes[i].sum, objects.nodes[i].other);
		assert_int_equal(bytes.nodes[i].base, 0);
	}
	hl_calltree_release(&bytes);
	hl_calltree_release(&objects);
	hl_profile_free(profile);
}

static void the_call_tree_sums_the_earlier_profile_too(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_calltree tree;

	(void)state;
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	assert_non_null(profile->base);
	for (uint32_t i = 0; i < profile->node_count; i++)
		profile->base[i].alloc_bytes = 3 * profile->counters[i].alloc_bytes;
	assert_int_equal(hl_calltree_init(&tree, profile, HL_VALUE_ALLOC, HL_UNIT_BYTES), 0);
	for (uint32_t i = 0; i < tree.count; i++)
		assert_int_equal(tree.nodes[i].base, 3 * tree.nodes[i].sum);
	hl_calltree_release(&tree);
	hl_profile_free(profile);
}

static int64_t flat_of(const struct hl_calltree *tree, uint32_t name)
{
	int64_t flat = 0;

	for (uint32_t i = 1; i < tree->count; i++)
		if (tree->nodes[i].name == name)
			flat += tree->nodes[i].self;
	return flat;
}

static void the_reversed_call_tree_begins_with_what_allocated(void **state)
{
	struct hl_profile *profile = load_sample(NULL);
	struct hl_calltree upright, reversed;

	(void)state;
	assert_int_equal(hl_calltree_init(&upright, profile, HL_VALUE_PEAK, HL_UNIT_BYTES), 0);
	assert_int_equal(
		hl_calltree_init_reversed(&reversed, profile, HL_VALUE_PEAK, HL_UNIT_BYTES), 0);
	assert_null(reversed.node_of);
	assert_true(reversed.count > 1);
	assert_int_equal(reversed.nodes[0].sum, upright.nodes[0].sum);
	for (uint32_t i = 1; i < reversed.count; i++) {
		const struct hl_calltree_node *node = &reversed.nodes[i];
		assert_int_not_equal(node->sum, 0); /* what has nothing is left out */
		if (node->depth == 1)
			assert_int_equal(node->sum, flat_of(&upright, node->name));
	}
	hl_calltree_release(&upright);
	hl_calltree_release(&reversed);
	hl_profile_free(profile);
}

/* ---- selection ---- */

static void a_reset_is_said_of_the_process_that_was_reset(void **state)
{
	struct hl_recording_process processes[] = {sample_process(), sample_process()};
	struct hl_recording recording = recording_of(processes, 2);

	(void)state;
	recording.start_realtime_ns = processes[0].start_realtime_ns = 1000;
	processes[1].start_realtime_ns = 1500;
	processes[1].pid = 101;
	processes[1].sequence = 1;
	processes[1].reset_ns = 70;
	for (uint32_t pid = 0; pid <= 101; pid = pid ? pid + 1 : 100) {
		struct hl_profile *profile =
			load(&recording, &(struct hl_profile_selection){.pid = pid});
		assert_int_equal(profile->reset_ns, pid == 100 ? 0 : 570);
		hl_profile_free(profile);
	}
}

static void one_thread_can_be_selected(void **state)
{
	struct hl_profile *profile = load_sample(&(struct hl_profile_selection){.tid = 101});

	(void)state;
	assert_int_equal(profile->total.alloc_bytes, 503 + 7);
	assert_int_equal(profile->processes[0].thread_count, 1);
	hl_profile_free(profile);
}

static void one_process_can_be_selected_by_pid_and_sequence(void **state)
{
	struct hl_recording_process processes[2] = {sample_process(), sample_process()};
	struct hl_recording recording = recording_of(processes, 2);
	struct hl_profile *profile;
	struct hl_error err = {0};

	(void)state;
	processes[1].sequence = 1; /* the same pid: after exec */
	profile = load(&recording, &(struct hl_profile_selection){.pid = 100});
	assert_int_equal(profile->process_count, 2);
	hl_profile_free(profile);
	profile = load(&recording, &(struct hl_profile_selection){
					   .pid = 100, .by_sequence = true, .sequence = 1});
	assert_int_equal(profile->process_count, 1);
	assert_int_equal(profile->processes[0].sequence, 1);
	hl_profile_free(profile);
	assert_int_equal(hl_profile_load(&recording, &(struct hl_profile_selection){.pid = 3},
					 &profile, &err),
			 -ESRCH);
	assert_non_null(strstr(err.text, "test.hl"));
}

/* ---- what is not as it should be ---- */

static void an_empty_recording_is_an_empty_profile(void **state)
{
	struct hl_recording recording = recording_of(NULL, 0);
	struct hl_profile *profile = load(&recording, NULL);

	(void)state;
	assert_int_equal(profile->node_count, 1);
	assert_int_equal(profile->total.alloc_bytes, 0);
	assert_string_equal(hl_profile_text(profile, profile->command),
			    "app 'it'\\''s here' $'\\033[31m\\nit\\'s\\\\'");
	hl_profile_free(profile);
}

static void assert_contradiction(struct hl_recording_process *process)
{
	struct hl_recording recording = recording_of(process, 1);
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(hl_profile_load(&recording, NULL, &profile, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "damaged"));
}

static void a_tree_that_contradicts_itself_is_refused(void **state)
{
	struct hl_recording_process process = sample_process();
	struct hl_recording_node bad[5];
	struct hl_recording_value bad_value = {.node = 6};

	(void)state;
	process.nodes = bad;
	memcpy(bad, nodes, sizeof(bad));
	bad[2].parent = 4; /* 3 -> 4 -> 5 -> 3 */
	assert_contradiction(&process);
	memcpy(bad, nodes, sizeof(bad));
	bad[4].parent = 6;
	assert_contradiction(&process);
	memcpy(bad, nodes, sizeof(bad));
	bad[4].frame = FRAME(4, 0x10);
	assert_contradiction(&process);
	process.nodes = nodes;
	process.values = &bad_value;
	process.value_count = 1;
	assert_contradiction(&process);
}

/* ---- every allocation of ours made to fail in turn ---- */

static int load_and_sum(void)
{
	struct hl_recording_process process = sample_process();
	struct hl_recording recording = recording_of(&process, 1);
	struct hl_profile *profile;
	struct hl_aggregate sums = {0};
	struct hl_calltree tree = {0};

	int r = hl_profile_load(&recording, NULL, &profile, NULL);
	if (r < 0)
		return r;
	r = hl_aggregate_init(&sums, profile, HL_VALUE_PEAK, NULL, 0);
	if (r == 0)
		r = hl_calltree_init(&tree, profile, HL_VALUE_PEAK, HL_UNIT_BYTES);
	hl_calltree_release(&tree);
	if (r == 0)
		r = hl_calltree_init_reversed(&tree, profile, HL_VALUE_PEAK, HL_UNIT_BYTES);
	hl_aggregate_release(&sums);
	hl_calltree_release(&tree);
	hl_profile_free(profile);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	int failures = 0;

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, load_and_sum())
	{
		assert_int_equal(r, -ENOMEM);
		failures++;
	}
	assert_true(failures > 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reset_is_said_of_the_process_that_was_reset),
		cmocka_unit_test(flat_sums_to_the_total_for_every_value),
		cmocka_unit_test(the_outermost_function_has_all_and_recursion_counts_once),
		cmocka_unit_test(sums_by_any_key_of_frames_are_possible),
		cmocka_unit_test(equal_stacks_of_two_processes_become_one),
		cmocka_unit_test(a_library_mapped_twice_is_one_module),
		cmocka_unit_test(a_node_that_occurs_twice_is_one_stack),
		cmocka_unit_test(equal_paths_with_different_build_ids_stay_apart),
		cmocka_unit_test(chunks_of_scripts_with_one_name_have_hashes_of_their_own),
		cmocka_unit_test(functions_of_scripts_that_share_a_name_are_told_apart_by_source),
		cmocka_unit_test(the_call_tree_by_name_is_sorted_and_complete),
		cmocka_unit_test(every_node_of_the_profile_is_in_the_call_tree),
		cmocka_unit_test(nodes_of_the_call_tree_have_a_frame_and_both_units),
		cmocka_unit_test(the_call_tree_sums_the_earlier_profile_too),
		cmocka_unit_test(the_reversed_call_tree_begins_with_what_allocated),
		cmocka_unit_test(one_thread_can_be_selected),
		cmocka_unit_test(one_process_can_be_selected_by_pid_and_sequence),
		cmocka_unit_test(an_empty_recording_is_an_empty_profile),
		cmocka_unit_test(a_tree_that_contradicts_itself_is_refused),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
