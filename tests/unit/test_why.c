/* SPDX-License-Identifier: BSD-2-Clause */
/* Verdicts of 'heapline why': facts and what is said of them. */
#include "why/why.h"

#include "base/cleanup.h"
#include "base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define KIB 1024
#define MIB (1024 * KIB)

/* A process of 100 MiB whose heap was read, and in which nothing happened. */
static struct hl_why_facts quiet(void)
{
	return (struct hl_why_facts){.seconds = 10,
				     .may_attach = true,
				     .has_heap = true,
				     .rss = {100 * MIB, 100 * MIB},
				     .live = {80 * MIB, 80 * MIB},
				     .heap_bytes = 82 * MIB,
				     .limit = -1,
				     .kind = "live",
				     .purge = "malloc_trim(0)",
				     .has_leaks = true};
}

/* The same, and a stack keeps 10 MiB. */
static struct hl_why_facts growing(void)
{
	struct hl_why_facts facts = quiet();

	facts.rss.after += 10 * MIB;
	facts.live.after += 10 * MIB;
	facts.source = "attach";
	facts.grown_bytes = facts.total_grown_bytes = 10 * MIB;
	facts.grown_seconds = 10;
	facts.line = (struct hl_why_frame){
		.function = "keep", .file = "/src/a.c", .line = 7, .module = "a"};
	snprintf(facts.leaf, sizeof(facts.leaf), "keep");
	return facts;
}

static struct hl_why_facts growing_of_script(void)
{
	struct hl_why_facts facts = growing();

	facts.is_script = true;
	facts.live.after -= 10 * MIB;
	facts.other.after += 10 * MIB;
	return facts;
}

static struct hl_why_facts losing(void)
{
	struct hl_why_facts facts = growing();

	facts.grower_lost_bytes = 9 * MIB;
	facts.grower_lost_blocks = 900;
	return facts;
}

static struct hl_why_facts in_group(void)
{
	struct hl_why_facts facts = quiet();

	facts.has_group = true;
	facts.limit = 512 * MIB;
	facts.usage = (struct hl_why_pair){200 * MIB, 200 * MIB};
	facts.cache = (struct hl_why_pair){50 * MIB, 50 * MIB};
	snprintf(facts.group, sizeof(facts.group), "/shop");
	return facts;
}

static struct hl_why *judged(struct hl_why_facts facts)
{
	struct hl_why *why = test_calloc(1, sizeof(*why));

	why->pid = 4711;
	snprintf(why->target, sizeof(why->target), "-p 4711");
	why->facts = facts;
	hl_why_judge(why);
	return why;
}

static void expect(struct hl_why_facts facts, enum hl_why_cause cause,
		   enum hl_why_certainty certainty, const char *next)
{
	struct hl_why *why = judged(facts);

	assert_string_equal(hl_why_cause_keys[why->cause], hl_why_cause_keys[cause]);
	assert_int_equal(why->certainty, certainty);
	assert_string_equal(why->next, next);
	assert_null(strchr(why->sentence, '%'));
	test_free(why);
}

static void what_grows_and_is_lost_is_a_leak(void **state)
{
	struct hl_why_facts facts = losing();

	(void)state;
	expect(facts, HL_WHY_LEAK, HL_WHY_CERTAIN, "heapline leaks -p 4711");
	facts.lost_events = 1;
	expect(facts, HL_WHY_LEAK, HL_WHY_LIKELY, "heapline leaks -p 4711");
	facts = losing();
	facts.is_script = true;
	expect(facts, HL_WHY_LEAK, HL_WHY_LIKELY, "heapline leaks -p 4711");
	facts = losing();
	facts.grower_lost_blocks = 3; /* may be in use by a function that runs */
	facts.grower_lost_bytes = 1;
	expect(facts, HL_WHY_CACHE, HL_WHY_LIKELY, "heapline holders -p 4711");
}

static void what_a_program_profiles_itself_is_named_with_the_line(void **state)
{
	struct hl_why_facts facts = growing_of_script();

	(void)state;
	facts.is_script = false;
	facts.source = "pgfault";
	facts.profiles = "its own profiles tell";
	struct hl_why *why = judged(facts);
	assert_non_null(strstr(why->remedy, "its own profiles tell"));
	test_free(why);
}

static void what_a_collector_moves_has_no_line(void **state)
{
	struct hl_why_facts facts = growing_of_script();
	struct hl_why *why;

	(void)state;
	facts.is_script = false;
	facts.is_collected = true;
	facts.grown_part_bytes = 8 * MIB;
	snprintf(facts.grown_part, sizeof(facts.grown_part), "objects");
	expect(facts, HL_WHY_GROWTH, HL_WHY_POSSIBLE, "heapline heap -p 4711");
	why = judged(facts);
	assert_non_null(strstr(why->sentence, "objects grow, by 8.0 MiB"));
	test_free(why);
	facts.grown_part_bytes = 2 * MIB;
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline growth -p 4711 60");
}

static void one_stack_of_many_is_only_possible(void **state)
{
	struct hl_why_facts facts = growing();

	(void)state;
	facts.is_unsteady = true;
	expect(facts, HL_WHY_CACHE, HL_WHY_POSSIBLE, "heapline holders -p 4711");
	facts = growing_of_script();
	facts.is_script = false;
	facts.source = "pgfault";
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline pgfault -p 4711 60");
	facts.total_grown_bytes = 50 * MIB;
	expect(facts, HL_WHY_GROWTH, HL_WHY_POSSIBLE, "heapline pgfault -p 4711 60");
}

static void several_holders_hold(void **state)
{
	struct hl_why_facts facts = growing();
	struct hl_why *why;

	(void)state;
	snprintf(facts.holder, sizeof(facts.holder), "[shared by 3]");
	why = judged(facts);
	assert_non_null(strstr(why->remedy, "what several holders hold,"));
	test_free(why);
	snprintf(facts.holder, sizeof(facts.holder), "table");
	why = judged(facts);
	assert_non_null(strstr(why->remedy, "what table holds,"));
	test_free(why);
}

static void what_grows_and_is_held_is_a_cache(void **state)
{
	struct hl_why_facts facts = growing();

	(void)state;
	snprintf(facts.holder, sizeof(facts.holder), "table");
	expect(facts, HL_WHY_CACHE, HL_WHY_LIKELY, "heapline holders -p 4711");
	struct hl_why *why = judged(facts);
	assert_string_equal(why->sentence,
			    "keep (a.c:7) keeps 1.0 MiB a second, still held by table: a cache "
			    "without bound, or what is never removed from there");
	test_free(why);
	expect(growing_of_script(), HL_WHY_CACHE, HL_WHY_POSSIBLE, "heapline growth -p 4711 60");
}

static void growth_without_a_proof_is_growth(void **state)
{
	struct hl_why_facts facts = growing();

	(void)state;
	facts.has_leaks = false;
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline growth -p 4711 60");
	facts.may_attach = false;
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline doctor -p 4711");
	facts.may_trace = true;
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline stacks -p 4711 60");
	facts = growing();
	facts.source = NULL;
	expect(facts, HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, "heapline heap -p 4711");
	/* A stack grew, and the process did not: it may fill what was free. */
	facts = growing();
	facts.rss.after = facts.rss.before;
	facts.live.after = facts.live.before;
	facts.grown_bytes = 5 * MIB;
	expect(facts, HL_WHY_USUAL, HL_WHY_LIKELY, "heapline why -p 4711 --for 600");
}

static void groups_have_neighbours_and_page_cache(void **state)
{
	struct hl_why_facts facts = in_group();

	(void)state;
	expect(facts, HL_WHY_USUAL, HL_WHY_LIKELY, "heapline why -p 4711 --for 600");
	facts.neighbour = 4712;
	facts.neighbour_gain = 20 * MIB;
	expect(facts, HL_WHY_NEIGHBOUR, HL_WHY_CERTAIN, "heapline why -p 4712");
	/* One that grows, too, is asked about: its growth is the answer, unless the group was asked about. */
	facts = growing();
	facts.has_group = true;
	facts.neighbour = 4712;
	facts.neighbour_gain = 100 * MIB;
	expect(facts, HL_WHY_CACHE, HL_WHY_LIKELY, "heapline holders -p 4711");
	facts.asks_group = true;
	expect(facts, HL_WHY_NEIGHBOUR, HL_WHY_CERTAIN, "heapline why -p 4712");
	facts = in_group();
	facts.cache = (struct hl_why_pair){300 * MIB, 380 * MIB};
	facts.usage = (struct hl_why_pair){400 * MIB, 480 * MIB};
	expect(facts, HL_WHY_PAGE_CACHE, HL_WHY_CERTAIN, "heapline pod -p 4711");
	facts = in_group();
	facts.group_shared.after = 90 * MIB;
	expect(facts, HL_WHY_GROWTH, HL_WHY_LIKELY, "heapline pod -p 4711");
}

static void free_memory_is_retained_or_fragmented(void **state)
{
	struct hl_why_facts facts = quiet();

	(void)state;
	snprintf(facts.kind, sizeof(facts.kind), "retention and fragmentation");
	facts.pinned_bytes = 40 * MIB;
	facts.returnable_bytes = 10 * MIB;
	expect(facts, HL_WHY_FRAGMENTATION, HL_WHY_CERTAIN, "heapline pins -p 4711");
	facts.pinned_bytes = 5 * MIB;
	expect(facts, HL_WHY_RETENTION, HL_WHY_CERTAIN, "heapline heap -p 4711 --arenas");
	facts.unscanned = 20 * MIB;
	expect(facts, HL_WHY_RETENTION, HL_WHY_LIKELY, "heapline heap -p 4711 --arenas");
}

static void memory_that_is_not_used_is_said(void **state)
{
	struct hl_why_facts facts = quiet();

	(void)state;
	facts.header_bytes = 15 * MIB; /* of 100 */
	expect(facts, HL_WHY_USUAL, HL_WHY_LIKELY, "heapline why -p 4711 --for 600");
	facts.header_bytes = 20 * MIB;
	expect(facts, HL_WHY_WASTE, HL_WHY_CERTAIN, "heapline heap -p 4711 --arenas");
	facts.header_bytes = 0;
	facts.cold_bytes = 60 * MIB;
	expect(facts, HL_WHY_USUAL, HL_WHY_LIKELY, "heapline holders -p 4711");
	facts.live.before = facts.live.after = 20 * MIB; /* the rest is a runtime's */
	expect(facts, HL_WHY_USUAL, HL_WHY_LIKELY, "heapline heap -p 4711");
	facts.rss.after += 10 * MIB;
	facts.live.after += 10 * MIB;
	expect(facts, HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, "heapline heap -p 4711");
}

static void of_what_has_ended_no_command_asks(void **state)
{
	struct hl_why_facts facts = growing();

	(void)state;
	facts.has_ended = true;
	facts.has_heap = facts.has_leaks = false;
	facts.rss.after = -1;
	facts.live.after = -1;
	expect(facts, HL_WHY_GROWTH, HL_WHY_POSSIBLE, "");
	facts.source = NULL;
	expect(facts, HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, "");
}

static void what_could_not_be_read_is_not_known(void **state)
{
	struct hl_why_facts facts = quiet();

	(void)state;
	facts.has_heap = facts.has_leaks = false;
	expect(facts, HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, "heapline doctor -p 4711");
	facts.is_forbidden = true;
	facts.rss.after += 10 * MIB;
	struct hl_why *why = judged(facts);
	assert_non_null(strstr(why->sentence, "you may not look into the process"));
	test_free(why);
}

/* However long texts are, and whatever is in them. */
static void the_json_has_four_kib(void **state)
{
	struct hl_why *why = judged(losing());
	HL_FREED char *text = NULL;
	size_t size = 0;

	(void)state;
	why->done_count = why->unseen_count = HL_WHY_LIST_MAX;
	for (size_t i = 0; i < HL_WHY_LIST_MAX; i++) {
		memset(why->done[i].command, '"', HL_WHY_TEXT_MAX - 1);
		memset(why->done[i].said, '\001', HL_WHY_TEXT_MAX - 1);
		memset(why->unseen[i], '\xff', HL_WHY_TEXT_MAX - 1);
	}
	for (size_t i = 0; i < HL_WHY_STACK_MAX; i++)
		memset(why->facts.stack[i], '\\', HL_WHY_TEXT_MAX - 1);
	FILE *out = open_memstream(&text, &size);
	assert_int_equal(hl_why_write_json(why, out), 0);
	fclose(out);
	assert_in_range(size, 1000, HL_WHY_JSON_BYTES);
	assert_non_null(strstr(text, "\"cause\": \"leak\""));
	test_free(why);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_grows_and_is_lost_is_a_leak),
		cmocka_unit_test(what_a_program_profiles_itself_is_named_with_the_line),
		cmocka_unit_test(what_a_collector_moves_has_no_line),
		cmocka_unit_test(one_stack_of_many_is_only_possible),
		cmocka_unit_test(several_holders_hold),
		cmocka_unit_test(what_grows_and_is_held_is_a_cache),
		cmocka_unit_test(growth_without_a_proof_is_growth),
		cmocka_unit_test(groups_have_neighbours_and_page_cache),
		cmocka_unit_test(free_memory_is_retained_or_fragmented),
		cmocka_unit_test(memory_that_is_not_used_is_said),
		cmocka_unit_test(of_what_has_ended_no_command_asks),
		cmocka_unit_test(what_could_not_be_read_is_not_known),
		cmocka_unit_test(the_json_has_four_kib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
