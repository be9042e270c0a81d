/* SPDX-License-Identifier: BSD-2-Clause */
/* Where frames of scripts stand in stacks, whatever calls of interpreters there are. */
#include "profile/filter.h"

#include "base/frame_key.h"
#include "recording/recording.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "guests.h"
#include "stacks.h"

/*
 * A stack is a text: words that are names are native functions, E and F calls of the main functions
 * of two interpreters, I other code of the first one, A the part of it that calls the allocator; ".a" is the function a of a script of the
 * first, ":a" of the second, and with '>' before it native code has called it; "." is a call whose function has ended; "#a" is
 * the type a, "@a" the service a.
 */
#define NODES_MAX 64
#define EVAL	  0x1000u
#define INTERNAL  0x2000u
#define OTHER	  0x3000u
#define ALLOCATES 0x4000u

#define HOST 6 /* among the names, the script that runs services */

static char *names[] = {"", "s.script", "a", "b", "c", "d", "/app/lualib/skynet.lua"};

static struct hl_recording_provider runtimes[] = {
	{"one", EVAL, EVAL + 8, EVAL + 8, EVAL + 16, INTERNAL, INTERNAL + 16, ALLOCATES,
	 ALLOCATES + 16},
	{"two", OTHER, OTHER + 16, 0, 0, 0, 0, 0, 0},
	{.name = HL_TYPE_PROVIDER},
	{.name = HL_SERVICE_PROVIDER},
};

#define SITES 17 /* a to d of each of the runtimes, and of the first one none */

static struct hl_recording_site sites[SITES];
static struct hl_recording_node nodes[NODES_MAX];
static struct hl_recording_value values[NODES_MAX];
static struct hl_recording_thread threads[] = {{.tid = 1}};

static struct hl_recording_process process;

static uint64_t key_of(const char *word)
{
	bool is_entry = *word == '>';

	word += is_entry;
	if (!strcmp(word, "."))
		return hl_site_frame_key(SITES, is_entry);
	if (*word == '.' || *word == ':')
		return hl_site_frame_key((uint32_t)(word[1] - 'a' + (*word == ':' ? 4 : 0) + 1),
					 is_entry);
	if (*word == '#' || *word == '@')
		return hl_site_frame_key((uint32_t)(word[1] - 'a' + (*word == '#' ? 8 : 12) + 1),
					 is_entry);
	if (!strcmp(word, "mmap"))
		return hl_pseudo_frame_key(HL_PSEUDO_MMAP);
	if (!strcmp(word, "lost"))
		return hl_site_frame_key(0, false);
	if (*word == 'P')
		return UINT64_C(1) << HL_MODULE_SHIFT | 0x6000;
	return *word == 'E'   ? EVAL
	       : *word == 'F' ? OTHER
	       : *word == 'I' ? INTERNAL
	       : *word == 'A' ? ALLOCATES
			      : 0x100 + (uint64_t)*word;
}

static void begin(void)
{
	for (uint32_t i = 0; i < SITES - 1; i++)
		sites[i] = (struct hl_recording_site){
			.provider = i / 4, .function = 2 + i % 4, .source = 1, .line = 10 + i};
	sites[SITES - 1] = (struct hl_recording_site){0};
	process = (struct hl_recording_process){
		.pid = 1,
		.executable = "",
		.complete = true,
		.end = HL_END_EXITED,
		.thread_count = 1,
		.provider_count = 4,
		.site_count = SITES,
		.site_name_count = 7,
		.nodes = nodes,
		.values = values,
		.threads = threads,
		.providers = runtimes,
		.sites = sites,
		.site_names = names,
	};
}

static uint32_t put(uint64_t key, uint32_t parent)
{
	nodes[process.node_count++] = (struct hl_recording_node){key, parent};
	return process.node_count;
}

static bool by_path; /* frames of scripts in a row are one node, as the recorder has them */

/* One block of ${bytes}. */
static void add(const char *text, uint64_t bytes)
{
	char *copy = strdup(text), *rest = copy, *word;
	uint32_t parent = 0, path = 0, site;

	while ((word = strsep(&rest, " "))) {
		uint64_t key = key_of(word);
		if (by_path && hl_frame_key_is_site(key, &site)) {
			path = put(key, path);
			continue;
		}
		if (path)
			parent = put(hl_path_frame_key(path), parent);
		path = 0;
		parent = put(key, parent);
	}
	if (path)
		parent = put(hl_path_frame_key(path), parent);
	values[process.value_count++] = (struct hl_recording_value){
		.node = parent, .alloc_bytes = bytes, .alloc_objects = 1};
	free(copy);
}

static struct hl_profile *load(void)
{
	char *command[] = {NULL};
	struct hl_recording recording = {
		.name = "r",
		.tool_version = "",
		.command = command,
		.host = "",
		.kernel = "",
		.mode = "mem-fast",
		.complete = true,
		.process_count = 1,
		.processes = &process,
	};
	struct hl_profile *profile;
	struct hl_error err = {0};

	if (hl_profile_load(&recording, &(struct hl_profile_selection){.keep_rows = true}, &profile,
			    &err) < 0)
		fail_msg("%s", err.text);
	return profile;
}

static void assert_becomes_now(const char *text, enum hl_stack_kind kind, const char *expected,
			       uint64_t unmatched)
{
	char found[256] = "";

	begin();
	add(text, 100);
	struct hl_profile *profile = load();
	assert_int_equal(hl_splice(profile, kind, false, NULL), 0);
	for (uint32_t i = 0; i < profile->node_count; i++)
		if (profile->counters[i].alloc_bytes && i)
			path_of(profile, i, found, sizeof(found));
	assert_string_equal(found, expected);
	assert_int_equal(profile->script_unmatched, unmatched);
	assert_int_equal(profile->row_count, 1);
	hl_profile_free(profile);
}

/* What the only stack with figures is called: native functions by their addresses, 0x1000. */
static void assert_becomes(const char *text, enum hl_stack_kind kind, const char *expected,
			   uint64_t unmatched)
{
	for (int way = 0; way < 2; way++) {
		by_path = way;
		assert_becomes_now(text, kind, expected, unmatched);
	}
	by_path = false;
}

/* What only a damaged recording has. */
static void paths_that_are_none_are_places_that_could_not_be_told(void **state)
{
	const uint32_t wild[] = {0, 1, 2, 1000};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(wild); i++) {
		char found[256] = "";
		begin();
		uint32_t innermost = put(hl_path_frame_key(wild[i]), put(key_of("m"), 0));
		values[process.value_count++] = (struct hl_recording_value){
			.node = innermost, .alloc_bytes = 1, .alloc_objects = 1};
		struct hl_profile *profile = load();
		for (uint32_t node = 1; node < profile->node_count; node++)
			if (profile->counters[node].alloc_bytes)
				path_of(profile, node, found, sizeof(found));
		assert_int_equal(strncmp(found, "0x16d;[unknown]", 15), 0);
		hl_profile_free(profile);
	}
}

static void groups_stand_in_place_of_calls(void **state)
{
	(void)state;
	assert_becomes("m E x >.a .b", HL_STACK_MIXED, "0x16d;a;b;0x178", 0);
	assert_becomes("m E x E I y >.a .b >.c", HL_STACK_MIXED, "0x16d;a;b;0x178;c;0x179", 0);
	assert_becomes("m I E >.a", HL_STACK_MIXED, "0x16d;a", 0);
}

static void stacks_without_scripts_stay(void **state)
{
	(void)state;
	assert_becomes("m E I x", HL_STACK_MIXED, "0x16d;0x1000;0x2000;0x178", 0);
	assert_becomes("m x", HL_STACK_MIXED, "0x16d;0x178", 0);
}

static void one_kind_can_be_shown_alone(void **state)
{
	(void)state;
	assert_becomes("m E x >.a .b", HL_STACK_NATIVE, "0x16d;0x1000;0x178", 0);
	assert_becomes("m E x >.a .b", HL_STACK_SCRIPT, "a;b", 0);
	assert_becomes("m x", HL_STACK_SCRIPT, "[native]", 0);
}

static void what_says_how_memory_came_stays_innermost(void **state)
{
	(void)state;
	assert_becomes("m E x >.a mmap", HL_STACK_MIXED, "0x16d;a;0x178;[mmap]", 0);
	assert_becomes("m E x >.a mmap", HL_STACK_NATIVE, "0x16d;0x1000;0x178;[mmap]", 0);
	assert_becomes("m E x >.a mmap", HL_STACK_SCRIPT, "a;[mmap]", 0);
}

static void the_innermost_group_belongs_to_the_innermost_call(void **state)
{
	(void)state;
	assert_becomes("m E x E >.a", HL_STACK_MIXED, "0x16d;0x1000;0x178;a", 1);
	assert_becomes("m E x >.a >.b .c", HL_STACK_MIXED, "0x16d;a;b;c;0x178", 1);
	assert_becomes("m x >.a .b", HL_STACK_MIXED, "0x16d;0x178;a;b", 1);
	/* The outer frames of a script that is too deep were cut off. */
	assert_becomes("m E .a .b", HL_STACK_MIXED, "0x16d;a;b", 0);
}

static void calls_whose_functions_have_ended_stay(void **state)
{
	(void)state;
	assert_becomes("m E x E y >.a >.", HL_STACK_MIXED, "0x16d;a;0x178;0x1000;0x179", 0);
	assert_becomes("m E x E y E z >.a >. >.b", HL_STACK_MIXED,
		       "0x16d;a;0x178;0x1000;0x179;b;0x17a", 0);
	assert_becomes("m E x E y >. >.a", HL_STACK_MIXED, "0x16d;0x1000;0x178;a;0x179", 0);
	assert_becomes("m E x >.", HL_STACK_MIXED, "0x16d;0x1000;0x178", 0);
	assert_becomes("m E x >.a >.", HL_STACK_MIXED, "0x16d;a;0x178", 1);
	assert_becomes("m E x E y >.a >.", HL_STACK_SCRIPT, "a", 0);
	assert_becomes("m E y >.", HL_STACK_SCRIPT, "[native]", 0);
	assert_becomes("m E x E y >.a >.", HL_STACK_NATIVE, "0x16d;0x1000;0x178;0x1000;0x179", 0);
}

static void runtimes_are_told_apart(void **state)
{
	(void)state;
	assert_becomes("m E F x E >.a >.b >:c :d", HL_STACK_MIXED, "0x16d;a;c;d;0x178;b", 0);
	assert_becomes("m E F x >.a", HL_STACK_MIXED, "0x16d;a;0x3000;0x178", 0);
}

static void the_allocator_of_the_host_is_folded(void **state)
{
	(void)state;
	assert_becomes("m E I A x y >.a", HL_STACK_MIXED, "0x16d;a", 0);
	assert_becomes("m E A x E y >.a >.b", HL_STACK_MIXED, "0x16d;a;b;0x179", 0);
	assert_becomes("m A x", HL_STACK_MIXED, "0x16d;0x4000;0x178", 0);
}

static void places_that_are_not_known_are_kept(void **state)
{
	(void)state;
	assert_becomes("m E >.a lost", HL_STACK_MIXED, "0x16d;a;[unknown]", 0);
}

static int64_t bytes_at(const struct hl_profile *profile, const char *path)
{
	char found[128];
	int64_t bytes = 0;

	for (uint32_t i = 1; i < profile->node_count; i++) {
		path_of(profile, i, found, sizeof(found));
		bytes += strcmp(found, path) ? 0 : profile->counters[i].alloc_bytes;
	}
	return bytes;
}

static void stacks_that_look_alike_become_one(void **state)
{
	(void)state;
	begin();
	add("m E x >.a .b", 1);
	add("m E I x >.a .b", 2);
	add("m E x >.a >.b", 4); /* as unmatched as can be, but the same functions */
	struct hl_profile *profile = load();
	assert_int_equal(hl_splice(profile, HL_STACK_MIXED, false, NULL), 0);
	assert_int_equal(profile->node_count, 5);
	assert_int_equal(bytes_at(profile, "0x16d;a;b;0x178"), 7);
	/* Nothing happens again. */
	assert_int_equal(hl_splice(profile, HL_STACK_NATIVE, false, NULL), 0);
	assert_int_equal(bytes_at(profile, "0x16d;a;b;0x178"), 7);
	hl_profile_free(profile);
}

static void ids_that_are_kept_elsewhere_follow(void **state)
{
	(void)state;
	begin();
	add("m E x >.a", 0); /* nothing counts there */
	struct hl_profile *profile = load();
	uint32_t leaf = (uint32_t)profile->node_count - 1;
	uint32_t ids[] = {leaf, HL_NODE_LEFT_OUT, 0};
	assert_int_equal(hl_splice(profile, HL_STACK_SCRIPT, false, &(struct hl_node_ids){ids, 3}),
			 0);
	char found[64];
	path_of(profile, ids[0], found, sizeof(found));
	assert_string_equal(found, "a");
	assert_true(ids[1] == HL_NODE_LEFT_OUT);
	assert_int_equal(ids[2], 0);
	hl_profile_free(profile);
}

static void functions_of_scripts_are_told_apart_by_where_they_begin(void **state)
{
	(void)state;
	begin();
	sites[1].function = sites[0].function;
	sites[0].first_line = 1;
	sites[1].first_line = 2;
	add("m E >.a .b", 1);
	struct hl_profile *profile = load();
	assert_int_equal(hl_splice(profile, HL_STACK_SCRIPT, false, NULL), 0);
	const struct hl_profile_node *outer = &profile->nodes[1], *inner = &profile->nodes[2];
	assert_int_not_equal(profile->frames[outer->frame].function,
			     profile->frames[inner->frame].function);
	hl_profile_free(profile);
}

/* What is left of all stacks by ${filter}: "path bytes" for each, in the order of paths. */
static void assert_left(const struct hl_filter *filter, const char *expected)
{
	char found[256] = "", path[128];
	struct hl_error err = {0};

	begin();
	add("m E x >.a #a", 1);
	add("m E x >@c .a #b", 2);
	add("m E x >.a @c #a", 4);
	add("m x @d", 8);
	add("m x", 16);
	struct hl_profile *profile = load();
	assert_int_equal(hl_filter_apply(filter, profile, NULL, &err), 0);
	for (uint32_t i = 0; i < profile->node_count; i++) {
		if (!profile->counters[i].alloc_bytes)
			continue;
		path_of(profile, i, path, sizeof(path));
		size_t used = strlen(found);
		snprintf(found + used, sizeof(found) - used, "%s %d,", i ? path : "",
			 (int)profile->counters[i].alloc_bytes);
	}
	assert_string_equal(found, expected);
	hl_profile_free(profile);
}

static void labels_are_left_out_unless_asked_for(void **state)
{
	(void)state;
	assert_left(&(struct hl_filter){0}, "0x16d;a;0x178 7,0x16d;0x178 24,");
	assert_left(&(struct hl_filter){.stack = HL_STACK_SCRIPT}, "a 7,[native] 24,");
}

static void stacks_begin_with_the_label_that_is_asked_for(void **state)
{
	(void)state;
	assert_left(&(struct hl_filter){.root = HL_PART_TYPE},
		    "a;0x16d;a;0x178 5,b;0x16d;a;0x178 2,0x16d;0x178 24,");
	assert_left(&(struct hl_filter){.root = HL_PART_SERVICE},
		    "0x16d;a;0x178 1,0x16d;0x178 16,c;0x16d;a;0x178 6,d;0x16d;0x178 8,");
	assert_left(&(struct hl_filter){.root = HL_PART_SERVICE, .root_alone = true},
		    " 17,c 6,d 8,");
}

static void blocks_are_chosen_by_their_labels(void **state)
{
	(void)state;
	assert_left(&(struct hl_filter){.type = {"a"}}, "0x16d;a;0x178 5,");
	assert_left(&(struct hl_filter){.type = {"^b$"}}, "0x16d;a;0x178 2,");
	assert_left(&(struct hl_filter){.service = {"c|d"}}, "0x16d;a;0x178 6,0x16d;0x178 8,");
	assert_left(&(struct hl_filter){.service = {"c"}, .type = {"a"}}, "0x16d;a;0x178 4,");
	/* A frame is not a label, and a label no frame. */
	assert_left(&(struct hl_filter){.service = {"a"}}, "");
	assert_left(&(struct hl_filter){.focus = {"^d$"}}, "");
}

/* How many warnings there are of ${count} blocks that what a script calls has allocated, and of ${own} of the
 * interpreter itself. */
static size_t warnings_of(uint64_t count, uint64_t own)
{
	begin();
	add("m E x >.a", 1);
	values[0].alloc_objects = count;
	if (own)
		add("m E A >.a", 1);
	runtimes[0].name = "lua";
	struct hl_profile *profile = load();
	size_t warnings = profile->warning_count;
	hl_profile_free(profile);
	runtimes[0].name = "one";
	return warnings;
}

static void an_interpreter_whose_memory_is_not_seen_is_a_warning(void **state)
{
	(void)state;
	needs_guest("Lua");
	assert_int_equal(warnings_of(1000000, 0), 1);
	assert_int_equal(warnings_of(1000000, 1), 0);
	assert_int_equal(warnings_of(10, 0), 0); /* who knows */
}

/* How many warnings there are of Python where ${count} blocks have the stack ${text}, and one has ${other}; the first
 * has ${words}. P is a module's, all other code no module's. */
static size_t warnings_of_python(const char *text, uint64_t count, const char *other,
				 const char *words)
{
	struct hl_recording_module module = {.path = "/nowhere/python", .end = OTHER};

	begin();
	process.modules = &module;
	process.module_count = 1;
	runtimes[0].name = "python";
	add(text, count);
	values[0].alloc_objects = count;
	add(other, 1);
	struct hl_profile *profile = load();
	size_t warnings = profile->warning_count;
	if (warnings)
		assert_non_null(strstr(hl_profile_text(profile, profile->warnings[0]), words));
	hl_profile_free(profile);
	runtimes[0].name = "one";
	return warnings;
}

static void a_python_without_calls_of_its_main_function_is_a_warning(void **state)
{
	static const char words[] = "the loop that runs Python was not found in '/nowhere/python'";

	(void)state;
	needs_guest("Python");
	assert_int_equal(warnings_of_python("P I I x", 1000, "P x", words), 1);
	assert_int_equal(warnings_of_python("P I I x", 999, "P x", words), 0); /* who knows */
	assert_int_equal(warnings_of_python("P x", 1000, "P x", words), 0);
	assert_int_equal(warnings_of_python("P I I x", 1000, "P E x >.a", words), 0);
	assert_int_equal(warnings_of_python("P I I x", 1000, "P E x", words), 0);
}

static void stacks_that_end_in_code_of_python_that_is_not_read_are_a_warning(void **state)
{
	static const char words[] = "1000 allocations below it are [native]";

	(void)state;
	needs_guest("Python");
	assert_int_equal(warnings_of_python("m I x", 1000, "P E x >.a", words), 1);
	assert_int_equal(warnings_of_python("m I x", 999, "P E x >.a", words), 0);
	assert_int_equal(warnings_of_python("m x", 1000, "P E x >.a", words), 0);
}

static int splice_loaded(struct hl_profile *profile)
{
	return hl_splice(profile, HL_STACK_SCRIPT, false, NULL);
}

static void each_failing_allocation_is_an_error(void **state)
{
	int failures = 0;

	(void)state;
	begin();
	add("m E x E >.a .b >.c", 1);
	add("m x", 2);
	struct hl_profile *profile = load();
	FOR_EACH_FAILING_ALLOCATION(r, splice_loaded(profile))
	{
		assert_int_equal(r, -ENOMEM);
		hl_profile_free(profile);
		profile = load();
		failures++;
	}
	assert_true(failures > 10);
	hl_profile_free(profile);
}

/* The leaf of the first stack has figures of its own: nothing is left but it. */
static void what_runs_services_is_left_out_of_their_stacks(void **state)
{
	static const struct {
		const char *text, *folded;
	} stacks[] = {{"E >.d @b", "b;d"},
		      {"E >.d .d .a @b", "b;a"},
		      {"E >.d .a .d @b", "b;a;d"},
		      {"m E >.d .a @b", "b;0x16d;d;a"},
		      {"E >.d .a", "d;a"}};

	(void)state;
	needs_guest("skynet");
	for (size_t i = 0; i < HL_COUNT_OF(stacks); i++) {
		char found[256] = "";
		begin();
		sites[3].source = HOST;
		add(stacks[i].text, 100);
		struct hl_profile *profile = load();
		assert_int_equal(hl_splice(profile, HL_STACK_MIXED, true, NULL), 0);
		for (uint32_t node = 1; node < profile->node_count; node++)
			if (profile->counters[node].alloc_bytes)
				path_of(profile, node, found, sizeof(found));
		assert_string_equal(found, stacks[i].folded);
		assert_int_equal(profile->host_folded, i == 1 || i == 2);
		assert_int_equal(profile->total.alloc_bytes, 100);
		hl_profile_free(profile);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_stand_in_place_of_calls),
		cmocka_unit_test(paths_that_are_none_are_places_that_could_not_be_told),
		cmocka_unit_test(stacks_without_scripts_stay),
		cmocka_unit_test(one_kind_can_be_shown_alone),
		cmocka_unit_test(what_says_how_memory_came_stays_innermost),
		cmocka_unit_test(the_innermost_group_belongs_to_the_innermost_call),
		cmocka_unit_test(calls_whose_functions_have_ended_stay),
		cmocka_unit_test(runtimes_are_told_apart),
		cmocka_unit_test(the_allocator_of_the_host_is_folded),
		cmocka_unit_test(places_that_are_not_known_are_kept),
		cmocka_unit_test(stacks_that_look_alike_become_one),
		cmocka_unit_test(ids_that_are_kept_elsewhere_follow),
		cmocka_unit_test(functions_of_scripts_are_told_apart_by_where_they_begin),
		cmocka_unit_test(labels_are_left_out_unless_asked_for),
		cmocka_unit_test(stacks_begin_with_the_label_that_is_asked_for),
		cmocka_unit_test(blocks_are_chosen_by_their_labels),
		cmocka_unit_test(an_interpreter_whose_memory_is_not_seen_is_a_warning),
		cmocka_unit_test(a_python_without_calls_of_its_main_function_is_a_warning),
		cmocka_unit_test(stacks_that_end_in_code_of_python_that_is_not_read_are_a_warning),
		cmocka_unit_test(each_failing_allocation_is_an_error),
		cmocka_unit_test(what_runs_services_is_left_out_of_their_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
