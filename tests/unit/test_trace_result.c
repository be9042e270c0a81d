/* SPDX-License-Identifier: BSD-2-Clause */
/* What traces find becomes recordings that add up. */
#include "bpf/trace.h"

#include "fail_allocations.h"
#include "profile/profile.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *command[] = {"target", "--of it", NULL};

static const struct hl_process_facts facts = {
	.pid = 4711,
	.parent_pid = 4700,
	.comm = "target",
	.executable = "/opt/target",
	.command = command,
};

static const struct hl_recording_module modules[] = {
	{.path = "/opt/target",
	 .start = 0x1000,
	 .end = 0x9000,
	 .build_id = {1},
	 .build_id_bytes = 1},
};

#define FRAME(pc) ((UINT64_C(1) << HL_MODULE_SHIFT) | (pc))

/* main -> read, main -> write */
static const struct hl_recording_node nodes[] = {
	{FRAME(0x1100), 0},
	{FRAME(0x1200), 1},
	{FRAME(0x1300), 1},
};

static struct hl_trace_result *new_result(void)
{
	struct hl_trace_result *result;

	assert_int_equal(hl_trace_result_new(&facts, "pgfault", &result), 0);
	return result;
}

static void add(struct hl_trace_result *result, uint32_t node, uint64_t alloc, uint64_t free)
{
	struct hl_trace_value value = {alloc * 4096, alloc, free * 4096, free};

	assert_int_equal(hl_trace_result_add(result, node, &value), 0);
}

static struct hl_recording *finish(struct hl_trace_result *result)
{
	struct hl_recording *recording;

	assert_int_equal(hl_trace_result_recording(result, HL_END_RUNNING, &recording), 0);
	hl_trace_result_free(result);
	return recording;
}

/* The value of the node with ${frame}, which has one at most. */
static const struct hl_recording_value *value_of(const struct hl_recording *recording,
						 uint64_t frame)
{
	const struct hl_recording_process *process = &recording->processes[0];

	for (uint32_t i = 0; i < process->value_count; i++)
		if (process->nodes[process->values[i].node - 1].frame == frame)
			return &process->values[i];
	return NULL;
}

static void a_recording_says_whose_it_is(void **state)
{
	struct hl_trace_result *result = new_result();

	(void)state;
	hl_trace_result_set_sample(result, 512);
	hl_trace_result_lost(result)->events = 3;
	assert_int_equal(hl_trace_result_warn(result, "%s went wrong", "something"), 0);
	assert_int_equal(hl_trace_result_warn(result, "and more"), 0);
	struct hl_recording *recording = finish(result);
	assert_string_equal(recording->name, "process 4711");
	assert_string_equal(recording->mode, "pgfault");
	assert_string_equal(recording->command[1], "--of it");
	assert_string_equal(recording->warnings[0], "something went wrong");
	assert_string_equal(recording->warnings[1], "and more");
	assert_null(recording->warnings[2]);
	assert_int_equal(recording->sample_bytes, 512);
	assert_true(recording->complete);
	assert_int_equal(recording->process_count, 1);
	const struct hl_recording_process *process = &recording->processes[0];
	assert_int_equal(process->pid, 4711);
	assert_int_equal(process->parent_pid, 4700);
	assert_string_equal(process->executable, "/opt/target");
	assert_int_equal(process->end, HL_END_RUNNING);
	assert_int_equal(process->lost.events, 3);
	assert_int_equal(process->thread_count, 1);
	assert_int_equal(process->threads[0].tid, 4711);
	assert_string_equal(process->threads[0].name, "target");
	hl_recording_free(recording);
}

static void values_of_a_stack_add_up(void **state)
{
	struct hl_trace_result *result = new_result();

	(void)state;
	add(result, 3, 5, 0);
	add(result, 2, 7, 1);
	add(result, 3, 4, 2);
	assert_int_equal(hl_trace_result_stacks(result, nodes, 3, modules, 1), 0);
	struct hl_recording *recording = finish(result);
	assert_int_equal(recording->processes[0].node_count, 3);
	assert_int_equal(recording->processes[0].value_count, 2);
	const struct hl_recording_value *value = value_of(recording, FRAME(0x1300));
	assert_int_equal(value->alloc_objects, 9);
	assert_int_equal(value->alloc_bytes, 9 * 4096);
	assert_int_equal(value->free_objects, 2);
	assert_int_equal(value_of(recording, FRAME(0x1200))->alloc_objects, 7);
	hl_recording_free(recording);
}

static void what_has_no_stack_has_a_frame_that_says_why(void **state)
{
	struct hl_trace_result *result = new_result();
	struct hl_trace_value gone = {.free_bytes = 8192, .free_objects = 2};

	(void)state;
	add(result, 0, 1, 0);
	add(result, 4, 10, 0); /* was not copied below */
	add(result, UINT32_MAX, 100, 0);
	assert_int_equal(hl_trace_result_add_pseudo(result, HL_PSEUDO_RELEASED, &gone), 0);
	assert_int_equal(hl_trace_result_stacks(result, nodes, 3, modules, 1), 0);
	struct hl_recording *recording = finish(result);
	assert_int_equal(recording->processes[0].node_count, 5);
	assert_int_equal(recording->processes[0].value_count, 2);
	assert_int_equal(
		value_of(recording, hl_pseudo_frame_key(HL_PSEUDO_STACK_LOST))->alloc_objects, 111);
	assert_int_equal(value_of(recording, hl_pseudo_frame_key(HL_PSEUDO_RELEASED))->free_objects,
			 2);
	assert_null(value_of(recording, hl_pseudo_frame_key(HL_PSEUDO_NO_FAULT)));
	hl_recording_free(recording);
}

static void figures_keep_their_order_and_their_names(void **state)
{
	struct hl_trace_result *result = new_result();

	(void)state;
	assert_int_equal(hl_trace_result_figure(result, "rss_growth_pages", -7), 0);
	assert_int_equal(hl_trace_result_figure(result, "faults", 9), 0);
	assert_int_equal(hl_trace_result_figure(result, "of no unit", 9), -EINVAL);
	struct hl_recording *recording = finish(result);
	assert_int_equal(recording->figure_count, 2);
	assert_string_equal(recording->figures[0].name, "rss_growth_pages");
	assert_int_equal(recording->figures[0].value, -7);
	assert_string_equal(recording->figures[1].name, "faults");
	hl_recording_free(recording);
}

static void who_knows_how_the_target_ended_says_so(void **state)
{
	struct hl_trace_result *result = new_result();
	struct hl_recording *recording;

	(void)state;
	hl_trace_result_set_end(result, HL_END_EXEC);
	assert_int_equal(hl_trace_result_recording(result, HL_END_UNKNOWN, &recording), 0);
	hl_trace_result_free(result);
	assert_int_equal(recording->processes[0].end, HL_END_EXEC);
	hl_recording_free(recording);
}

static struct hl_profile *load(struct hl_recording *recording)
{
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(hl_profile_load(recording, NULL, &profile, &err), 0);
	hl_recording_free(recording);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

static void a_profile_of_it_adds_up_and_names_its_frames(void **state)
{
	struct hl_trace_result *result = new_result();
	struct hl_trace_value gone = {.free_bytes = 8192, .free_objects = 2};
	bool is_named = false;

	(void)state;
	add(result, 2, 1, 0);
	assert_int_equal(hl_trace_result_add_pseudo(result, HL_PSEUDO_RELEASED, &gone), 0);
	assert_int_equal(hl_trace_result_stacks(result, nodes, 3, modules, 1), 0);
	assert_int_equal(hl_trace_result_figure(result, "pages", -1), 0);
	struct hl_profile *profile = load(finish(result));
	assert_int_equal(hl_profile_figure(&profile->total, HL_VALUE_INUSE, HL_UNIT_OBJECTS), -1);
	assert_int_equal(hl_profile_figure(&profile->total, HL_VALUE_INUSE, HL_UNIT_BYTES), -4096);
	assert_int_equal(profile->figure_count, 1);
	assert_string_equal(hl_profile_text(profile, profile->figures[0].name), "pages");
	for (size_t i = 0; i < profile->function_count; i++)
		is_named |= !strcmp(hl_profile_text(profile, profile->functions[i].name),
				    "[released before the trace]");
	assert_true(is_named);
	assert_true(hl_profile_knows(profile, HL_VALUE_INUSE, HL_UNIT_BYTES));
	assert_false(hl_profile_knows(profile, HL_VALUE_PEAK, HL_UNIT_BYTES));
	hl_profile_free(profile);
}

static int make_all_of_it(void)
{
	struct hl_trace_result *result = NULL;
	struct hl_recording *recording = NULL;
	struct hl_trace_value value = {1, 1, 0, 0};

	int r = hl_trace_result_new(&facts, "stacks", &result);
	if (r == 0)
		r = hl_trace_result_add(result, 3, &value);
	if (r == 0)
		r = hl_trace_result_figure(result, "pages", 1);
	if (r == 0)
		r = hl_trace_result_warn(result, "so");
	if (r == 0)
		r = hl_trace_result_stacks(result, nodes, 3, modules, 1);
	if (r == 0)
		r = hl_trace_result_recording(result, HL_END_RUNNING, &recording);
	hl_trace_result_free(result);
	hl_recording_free(recording);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, make_all_of_it())
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recording_says_whose_it_is),
		cmocka_unit_test(values_of_a_stack_add_up),
		cmocka_unit_test(what_has_no_stack_has_a_frame_that_says_why),
		cmocka_unit_test(figures_keep_their_order_and_their_names),
		cmocka_unit_test(who_knows_how_the_target_ended_says_so),
		cmocka_unit_test(a_profile_of_it_adds_up_and_names_its_frames),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
