/* SPDX-License-Identifier: BSD-2-Clause */
/* Views of carriers and allocations: all forms say the same, whatever names and figures there are.
 */
#include "base/compiler.h"
#include "guests/beam/beam.h"
#include "view/format.h"
#include "view/heap.h"

#include "fail_allocations.h"

#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AWKWARD "a'\\\"<b>&\x1b[31m\n"

static const struct hl_log2_shape beam_shape = {
	.start = 1024, .width = 4, .bounds = HL_LOG2_LESS_ONE};
static const struct hl_log2_shape own_shape = {.start = 512, .width = 4};

/* ---- carriers to show ---- */

static struct hl_carrier *add(struct hl_carriers *carriers, const char *allocator, const char *type,
			      uint64_t total, uint64_t allocated)
{
	struct hl_carrier *carrier = hl_carriers_add(carriers);

	assert_non_null(carrier);
	snprintf(carrier->allocator, sizeof(carrier->allocator), "%s", allocator);
	snprintf(carrier->type, sizeof(carrier->type), "%s", type);
	carrier->total_bytes = total;
	carrier->allocated_bytes = allocated;
	carrier->allocated_blocks = 1;
	carrier->free_bytes = total - allocated;
	carrier->free_blocks = 2;
	carrier->free_histogram.counts[1] = 2;
	carrier->blocks[0] = (struct hl_carrier_blocks){.count = 1, .bytes = allocated};
	snprintf(carrier->blocks[0].type, sizeof(carrier->blocks[0].type), "%s", allocator);
	carrier->block_kinds = 1;
	return carrier;
}

/* As a BEAM tells of them: no addresses, no residency. */
static struct hl_carriers beam_carriers(void)
{
	struct hl_carriers carriers = {.shape = beam_shape};

	add(&carriers, "eheap_alloc", "mbc", 65536, 4096);
	add(&carriers, "binary_alloc", "sbc", 1 << 20, 1 << 20);
	add(&carriers, "eheap_alloc", "mbc", 262144, 1000)->in_pool = true;
	add(&carriers, AWKWARD, "mbc", 262144, 262144)->unscanned_bytes = 100000;
	add(&carriers, "fun", "mbc", 0, 0);
	return carriers;
}

/* As glibc's are read from outside: with a strip of four parts. */
static struct hl_carriers walked_carriers(void)
{
	struct hl_carriers carriers = {.shape = own_shape};
	struct hl_carrier *carrier = add(&carriers, "glibc", "main heap", 16384, 4096);

	carrier->address = 0x7f0000001000;
	carrier->cached_bytes = 2048;
	carrier->cached_blocks = 9;
	carrier->largest_free_bytes = 8192;
	carrier->resident_bytes = 8192;
	carrier->free_resident_bytes = 1024;
	carrier->strip_count = 4;
	carrier->strip = calloc(4, sizeof(*carrier->strip));
	assert_non_null(carrier->strip);
	carrier->strip[0][HL_STRETCH_LIVE] = 4096;
	carrier->strip[1][HL_STRETCH_CACHED] = 2048;
	carrier->strip[1][HL_STRETCH_FREE_RESIDENT] = 2048;
	carrier->strip[2][HL_STRETCH_FREE_ABSENT] = 4096;
	carrier->strip[3][HL_STRETCH_FREE_ABSENT] = 4096;
	return carriers;
}

/* ---- what is written ---- */

static char *text;
static size_t text_size;

static int forget(void **state)
{
	(void)state;
	free(text);
	text = NULL;
	return 0;
}

/* A file whose contents are in ${text} after fclose(). */
static FILE *open_text(void)
{
	forget(NULL);
	FILE *out = open_memstream(&text, &text_size);
	assert_non_null(out);
	return out;
}

static int write_report(const struct hl_carriers *carriers, enum hl_emit_form form, uint64_t rows)
{
	struct hl_emit *emit;
	FILE *out = open_text();
	int r = hl_emit_new(out, form, false, "carriers/1", &emit);

	if (r == 0) {
		r = hl_carriers_emit(emit, carriers, rows);
		int finished = hl_emit_finish(emit);
		r = r < 0 ? r : finished;
	}
	assert_int_equal(fclose(out), 0);
	return r;
}

static json_t *report_of(const struct hl_carriers *carriers)
{
	assert_int_equal(write_report(carriers, HL_EMIT_JSON, HL_EMIT_ROWS_DEFAULT), 0);
	json_t *report = json_loads(text, 0, NULL);
	assert_non_null(report);
	return report;
}

static json_int_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void assert_says(const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static void assert_says_not(const char *part)
{
	if (strstr(text, part))
		fail_msg("'%s' is in:\n%s", part, text);
}

/* Nothing that a terminal would obey. */
static void assert_harmless(void)
{
	for (const char *at = text; *at; at++)
		assert_true(*at == '\n' || (unsigned char)*at >= ' ');
}

/* ---- reports ---- */

static void rows_and_sums_of_allocators_add_up_to_the_total(void **state)
{
	static const char *const keys[] = {"total_bytes", "inuse_bytes", "inuse_blocks",
					   "free_bytes",  "free_blocks", "unscanned_bytes"};
	struct hl_carriers carriers = beam_carriers();
	json_t *report = report_of(&carriers);
	size_t i, at;
	const json_t *row;

	(void)state;

	for (i = 0; i < HL_COUNT_OF(keys); i++) {
		json_int_t rows = 0, allocators = 0;
		const char *of = strcmp(keys[i], "unscanned_bytes") ? "total" : "lost";
		json_array_foreach(json_object_get(report, "rows"), at, row)
			rows += number(row, keys[i]);
		json_array_foreach(json_object_get(report, "allocators"), at, row)
			allocators += number(row, keys[i]);
		assert_int_equal(rows, number(json_object_get(report, of), keys[i]));
		assert_int_equal(allocators, rows);
	}
	assert_int_equal(number(json_object_get(report, "total"), "carriers"), 5);
	assert_int_equal(number(json_object_get(report, "total"), "pool_bytes"), 262144);
	json_decref(report);
	hl_carriers_release(&carriers);
}

static void rows_have_the_members_that_scripts_rely_on(void **state)
{
	static const char *const keys[] = {"allocator",	       "type",
					   "address",	       "total_bytes",
					   "unscanned_bytes",  "allocated_bytes",
					   "allocated_blocks", "in_pool",
					   "free_histogram",   "blocks"};
	struct hl_carriers beam = beam_carriers(), walked = walked_carriers();
	json_t *report = report_of(&beam);
	const json_t *row = json_array_get(json_object_get(report, "rows"), 0);

	(void)state;

	for (size_t i = 0; i < HL_COUNT_OF(keys); i++)
		assert_non_null(json_object_get(row, keys[i]));
	assert_string_equal(json_string_value(json_object_get(row, "allocator")), "binary_alloc");
	assert_int_equal(json_array_size(json_object_get(row, "free_histogram")), 4);
	assert_null(json_object_get(row, "resident_bytes")); /* a BEAM does not tell */
	json_decref(report);
	report = report_of(&walked);
	row = json_array_get(json_object_get(report, "rows"), 0);
	assert_int_equal(number(row, "address"), 0x7f0000001000);
	assert_int_equal(number(row, "resident_bytes"), 8192);
	assert_int_equal(number(row, "cached_bytes"), 2048);
	json_decref(report);
	hl_carriers_release(&beam);
	hl_carriers_release(&walked);
}

static void tables_show_what_is_known_and_no_more(void **state)
{
	struct hl_carriers beam = beam_carriers(), walked = walked_carriers();

	(void)state;

	assert_int_equal(write_report(&beam, HL_EMIT_TABLE, HL_EMIT_ROWS_DEFAULT), 0);
	assert_says("1.6 MiB in 5 segments (carriers)");
	assert_says("unscanned: 97.7 KiB");
	assert_says("in the pool, where no thread allocates from them: 256.0 KiB in 1 segment\n");
	assert_says("1 KiB .. <3 KiB");
	assert_says_not("address");
	assert_says_not("free in RAM");
	assert_harmless();
	assert_int_equal(write_report(&walked, HL_EMIT_TABLE, HL_EMIT_ROWS_DEFAULT), 0);
	assert_says("0x7f0000001000");
	assert_says("free in RAM");
	assert_says("1 KiB .. <2 KiB");
	assert_says_not("pool");
	assert_says_not("unscanned");
	hl_carriers_release(&beam);
	hl_carriers_release(&walked);
}

static void the_largest_carriers_come_first_and_others_are_counted(void **state)
{
	struct hl_carriers carriers = beam_carriers();

	(void)state;

	assert_int_equal(write_report(&carriers, HL_EMIT_TABLE, 2), 0);
	assert_says("... and 3 more");
	const char *table = strstr(text, "free blocks  by size");
	assert_non_null(table);
	const char *first = strstr(table, "binary_alloc"), *second = strstr(table, "eheap_alloc");
	assert_true(first && second && first < second);
	assert_null(strstr(second + 1, "eheap_alloc"));
	assert_int_equal(write_report(&carriers, HL_EMIT_TABLE, 0), 0);
	assert_says_not("more;");
	hl_carriers_release(&carriers);
}

static void no_carriers_are_a_report_too(void **state)
{
	struct hl_carriers none = {0};
	FILE *out;

	(void)state;

	json_t *report = report_of(&none);
	assert_int_equal(json_array_size(json_object_get(report, "rows")), 0);
	json_decref(report);
	assert_int_equal(write_report(&none, HL_EMIT_TABLE, 0), 0);
	assert_says("0 B in 0 segments (carriers)");
	out = open_text();
	assert_int_equal(hl_carriers_svg_write(out, &none, "nothing"), 0);
	assert_int_equal(fclose(out), 0);
	assert_says("there are no carriers");
}

static void a_node_that_names_too_many_allocators_is_summed_up(void **state)
{
	struct hl_carriers carriers = {.shape = beam_shape};
	char name[32];

	(void)state;

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "allocator%d", i);
		add(&carriers, name, "mbc", 4096, 1000);
	}
	json_t *report = report_of(&carriers);
	const json_t *sums = json_object_get(report, "allocators");
	assert_int_equal(json_array_size(sums), 64);
	assert_int_equal(number(json_array_get(sums, 0), "carriers"), 37);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(sums, 0), "allocator")), "others");
	json_decref(report);
	hl_carriers_release(&carriers);
}

/* ---- terms ---- */

static void terms_have_the_shape_of_instrument(void **state)
{
	struct hl_carriers carriers = beam_carriers();
	FILE *out = open_text();

	(void)state;

	hl_erlang_term_put_carriers(out, &carriers);
	assert_int_equal(fclose(out), 0);
	assert_says("\n{ok,{512,\n"); /* the option's value, not that of the slots */
	assert_says("{eheap_alloc,false,65536,0,[{eheap_alloc,1,4096}],{0,2,0,0}}");
	assert_says("{eheap_alloc,true,262144,0,");
	assert_says("{'a\\'\\\\\"<b>&\\x{1b}[31m\\x{a}',false,262144,100000,");
	assert_says("{'fun',false,0,0,"); /* a word that is not an atom without quotes */
	assert_says("below 1 KiB; 1 KiB .. <3 KiB; 3 KiB .. <7 KiB; 7 KiB and more");
	assert_harmless();
	hl_carriers_release(&carriers);
}

/* ---- pictures ---- */

static size_t count_of(const char *part)
{
	size_t count = 0;

	for (const char *at = text; (at = strstr(at, part)); at++)
		count++;
	return count;
}

static void pictures_have_a_strip_for_each_carrier(void **state)
{
	struct hl_carriers carriers = beam_carriers();
	FILE *out = open_text();

	(void)state;

	assert_int_equal(hl_carriers_svg_write(out, &carriers, AWKWARD), 0);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(count_of("<g>"), 5);
	assert_int_equal(count_of(">pool<"), 1);
	assert_says("&lt;b&gt;&amp;");
	assert_says_not("<b>");
	assert_says("unscanned: 97.7 KiB");
	assert_harmless();
	hl_carriers_release(&carriers);
}

static void strips_are_drawn_from_their_beginning_to_their_end(void **state)
{
	struct hl_carriers carriers = walked_carriers();
	FILE *out = open_text();

	(void)state;

	assert_int_equal(hl_carriers_svg_write(out, &carriers, "p"), 0);
	assert_int_equal(fclose(out), 0);
	/* The two last parts hold the same: one rectangle. The second part is half and half. */
	assert_says("x=\"360\" y=\"92\" width=\"150\" height=\"14\"");
	assert_says("x=\"510\" y=\"99\" width=\"150\" height=\"7\"");
	assert_says("x=\"660\" y=\"92\" width=\"300\" height=\"14\"");
	/* The sums are the tables', however the strip is made. */
	assert_says("in use: 4.0 KiB");
	assert_says("free, not in memory: 11.0 KiB");
	hl_carriers_release(&carriers);
}

/* ---- allocations ---- */

static struct hl_allocations some_allocations(void)
{
	static const struct {
		const char *origin, *type;
		uint64_t counts[3];
	} rows[] = {
		{"system", "binary", {1, 0, 7}},
		{"m:f/1", "heap", {2, 3, 0}},
		{"system", AWKWARD, {0, 1, 0}},
	};
	struct hl_allocations allocations = {
		.shape = {.start = 128, .width = 3, .bounds = HL_LOG2_LESS_ONE},
		.unscanned_bytes = 4096};

	for (size_t i = 0; i < HL_COUNT_OF(rows); i++) {
		struct hl_allocation *row;
		assert_int_equal(
			hl_allocations_add(&allocations, rows[i].origin, rows[i].type, &row), 0);
		memcpy(row->histogram.counts, rows[i].counts, sizeof(rows[i].counts));
		for (int slot = 0; slot < 3; slot++)
			row->blocks += rows[i].counts[slot];
	}
	return allocations;
}

static int write_allocations(const struct hl_allocations *allocations, enum hl_emit_form form)
{
	struct hl_emit *emit;
	FILE *out = open_text();
	int r = hl_emit_new(out, form, false, "allocations/1", &emit);

	if (r == 0) {
		hl_allocations_emit(emit, allocations, HL_EMIT_ROWS_DEFAULT);
		r = hl_emit_finish(emit);
	}
	assert_int_equal(fclose(out), 0);
	return r;
}

static void allocations_are_the_same_in_tables_and_json(void **state)
{
	struct hl_allocations allocations = some_allocations();

	(void)state;

	assert_int_equal(write_allocations(&allocations, HL_EMIT_JSON), 0);
	json_t *report = json_loads(text, 0, NULL);
	assert_non_null(report);
	const json_t *rows = json_object_get(report, "rows");
	assert_int_equal(json_array_size(rows), 3);
	assert_int_equal(number(json_object_get(report, "total"), "inuse_blocks"), 14);
	assert_int_equal(number(json_object_get(report, "lost"), "unscanned_bytes"), 4096);
	assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 2), "type")),
			    AWKWARD);
	json_decref(report);
	assert_int_equal(write_allocations(&allocations, HL_EMIT_TABLE), 0);
	/* 2 * 128 + ... of the second slot, 384 of the third, which has no end */
	assert_says("14 blocks in use, at least 3.1 KiB");
	assert_says("unscanned: 4.0 KiB");
	assert_says("128 B .. <384 B");
	assert_harmless();
	hl_allocations_release(&allocations);
}

static void template_arguments_are_shortened_in_tables_alone(void **state)
{
	static const char name[] = "std::map<int, long>::insert(int)";
	struct hl_allocations allocations = {.shape = own_shape};
	struct hl_allocation *row;

	(void)state;

	assert_int_equal(hl_allocations_add(&allocations, "shop", name, &row), 0);
	assert_int_equal(write_allocations(&allocations, HL_EMIT_TABLE), 0);
	assert_says("std::map<...>::insert(int)\n");
	assert_int_equal(write_allocations(&allocations, HL_EMIT_JSON), 0);
	assert_says(name);
	hl_allocations_release(&allocations);
}

static void bytes_are_bounded_by_the_histogram_where_nothing_else_is_known(void **state)
{
	struct hl_allocations allocations = some_allocations();

	(void)state;

	allocations.rows[0].histogram.counts[2] = 0;
	allocations.rows[0].blocks = 1;
	assert_int_equal(write_allocations(&allocations, HL_EMIT_TABLE), 0);
	assert_says("7 blocks in use, between 512 B and 1.9 KiB");
	allocations.knows_bytes = true;
	allocations.rows[0].bytes = 1000;
	assert_int_equal(write_allocations(&allocations, HL_EMIT_TABLE), 0);
	assert_says("1000 B in use, in 7 blocks");
	hl_allocations_release(&allocations);
}

static void allocations_as_a_term_are_maps_of_maps(void **state)
{
	struct hl_allocations allocations = some_allocations();
	FILE *out = open_text();

	(void)state;

	assert_int_equal(hl_erlang_term_put_allocations(out, &allocations), 0);
	assert_int_equal(fclose(out), 0);
	assert_says("{ok,{128,4096,");
	assert_int_equal(count_of("system =>"), 1);
	assert_says("binary => {1,0,7}");
	assert_says("'m:f/1' =>\n      #{heap => {2,3,0}}");
	assert_harmless();
	hl_allocations_release(&allocations);
}

/* ---- instances ---- */

static void write_instances(const struct hl_beam_instances *instances, enum hl_emit_form form)
{
	struct hl_emit *emit;
	FILE *out = open_text();

	assert_int_equal(hl_emit_new(out, form, false, "beam-carriers/1", &emit), 0);
	hl_beam_instances_emit(emit, instances);
	assert_int_equal(hl_emit_finish(emit), 0);
	assert_int_equal(fclose(out), 0);
}

static void sums_of_instances_add_up_in_tables_and_json(void **state)
{
	struct hl_beam_instance rows[] = {
		{AWKWARD, "mbc", 0, false, 3, 196608, 10, 65536},
		{"ets_alloc", "mbc", 2, true, 1, 65536, 1, 0},
	};
	const struct hl_beam_instances instances = {rows, 2, 2};

	(void)state;

	write_instances(&instances, HL_EMIT_TABLE);
	assert_says("256.0 KiB in 4 carriers; 64.0 KiB (25.0%) in use, in 11 blocks");
	assert_says("pool");
	assert_harmless();
	write_instances(&instances, HL_EMIT_JSON);
	json_t *report = json_loads(text, 0, NULL);
	assert_non_null(report);
	assert_int_equal(number(json_object_get(report, "total"), "total_bytes"), 262144);
	const json_t *row = json_array_get(json_object_get(report, "rows"), 1);
	assert_int_equal(number(row, "instance"), 2);
	assert_true(json_is_true(json_object_get(row, "in_pool")));
	json_decref(report);
}

/* ---- words ---- */

static void bars_and_sparks_are_never_longer_than_their_room(void **state)
{
	struct hl_log2_shape widest = {.start = 1, .width = HL_LOG2_WIDTH_MAX};
	struct hl_log2_histogram histogram;
	char bar[HL_FORMAT_MAX], spark[HL_HEAP_SPARK_MAX];

	(void)state;

	assert_string_equal(hl_format_bar(0, 0, bar), "................");
	assert_string_equal(hl_format_bar(1, 1000000, bar), "#...............");
	assert_string_equal(hl_format_bar(UINT64_MAX, 1, bar), "################");
	assert_string_equal(hl_format_bar(1, 2, bar), "########........");
	memset(&histogram, 0xff, sizeof(histogram));
	assert_int_equal(strlen(hl_heap_histogram_spark(&widest, &histogram, spark)),
			 HL_LOG2_WIDTH_MAX);
	histogram = (struct hl_log2_histogram){.counts = {0, 1, 1000, 1000000}};
	widest.width = 4;
	assert_string_equal(hl_heap_histogram_spark(&widest, &histogram, spark), "._=#");
}

static void slots_are_labelled_with_their_exact_bounds(void **state)
{
	char label[HL_HEAP_LABEL_MAX];
	struct hl_log2_shape one = {.start = 512, .width = 1};

	(void)state;

	assert_string_equal(hl_heap_histogram_label(&own_shape, 0, label), "below 1 KiB");
	assert_string_equal(hl_heap_histogram_label(&own_shape, 1, label), "1 KiB .. <2 KiB");
	assert_string_equal(hl_heap_histogram_label(&own_shape, 3, label), "4 KiB and more");
	assert_string_equal(hl_heap_histogram_label(&beam_shape, 2, label), "3 KiB .. <7 KiB");
	assert_string_equal(hl_heap_histogram_label(&one, 0, label), "all sizes");
}

/* ---- failures ---- */

/* Memory for the file itself is given before; its growth may fail, and then so does fclose(). */
static int write_all(const struct hl_carriers *carriers, const struct hl_allocations *allocations)
{
	FILE *out = fopen("/dev/null", "w");
	struct hl_emit *emit;

	if (!out)
		return -ENOMEM;
	int r = hl_emit_new(out, HL_EMIT_TABLE, false, NULL, &emit);
	if (r == 0) {
		r = hl_carriers_emit(emit, carriers, 0);
		hl_allocations_emit(emit, allocations, 0);
		int finished = hl_emit_finish(emit);
		r = r < 0 ? r : finished;
	}
	if (r == 0)
		r = hl_carriers_svg_write(out, carriers, "p");
	if (r == 0)
		r = hl_erlang_term_put_allocations(out, allocations);
	fclose(out);
	return r;
}

static void every_allocation_may_fail(void **state)
{
	struct hl_carriers carriers = beam_carriers();
	struct hl_allocations allocations = some_allocations();

	(void)state;

	FOR_EACH_FAILING_ALLOCATION(r, write_all(&carriers, &allocations))
	assert_int_equal(r, -ENOMEM);
	hl_carriers_release(&carriers);
	hl_allocations_release(&allocations);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_and_sums_of_allocators_add_up_to_the_total),
		cmocka_unit_test(rows_have_the_members_that_scripts_rely_on),
		cmocka_unit_test(tables_show_what_is_known_and_no_more),
		cmocka_unit_test(the_largest_carriers_come_first_and_others_are_counted),
		cmocka_unit_test(no_carriers_are_a_report_too),
		cmocka_unit_test(a_node_that_names_too_many_allocators_is_summed_up),
		cmocka_unit_test(terms_have_the_shape_of_instrument),
		cmocka_unit_test(pictures_have_a_strip_for_each_carrier),
		cmocka_unit_test(strips_are_drawn_from_their_beginning_to_their_end),
		cmocka_unit_test(allocations_are_the_same_in_tables_and_json),
		cmocka_unit_test(template_arguments_are_shortened_in_tables_alone),
		cmocka_unit_test(bytes_are_bounded_by_the_histogram_where_nothing_else_is_known),
		cmocka_unit_test(allocations_as_a_term_are_maps_of_maps),
		cmocka_unit_test(sums_of_instances_add_up_in_tables_and_json),
		cmocka_unit_test(bars_and_sparks_are_never_longer_than_their_room),
		cmocka_unit_test(slots_are_labelled_with_their_exact_bounds),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}
