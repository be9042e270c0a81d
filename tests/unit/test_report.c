/* SPDX-License-Identifier: BSD-2-Clause */
/* The page of `heapline report`: what it carries comes out whole, and no name gets out of it. */
#include "profile/builder.h"
#include "view/page/report.h"
#include "view/view.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "viewing.h"

#define EVIL "</script><img src=x onerror=alert(1)>\"'\xe2\x80\xae\x01 \xff"

/* ---- a profile made by hand: main -> f -> main, and a second child of main ---- */

static uint32_t add_node(struct hl_builder *builder, uint32_t parent, uint64_t address)
{
	uint32_t node;

	assert_int_equal(hl_builder_node(builder, parent, 0, address, &node), 0);
	return node;
}

static struct hl_profile *make_profile(void)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	uint32_t outer = add_node(&builder, 0, 0x10), middle = add_node(&builder, outer, 0x20);
	uint32_t inner = add_node(&builder, middle, 0x10), other = add_node(&builder, outer, 0x30);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	rename_function(profile, 1, "main");
	rename_function(profile, 2, "f");
	rename_function(profile, 3, EVIL);
	assert_int_equal(hl_strings_intern(&profile->strings, "t.hl", &profile->name), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, EVIL, &profile->command), 0);
	profile->counters[final_ids[inner]] = (struct hl_profile_counters){
		.alloc_bytes = 1536, .alloc_objects = 3, .free_bytes = 1600, .free_objects = 3};
	profile->counters[final_ids[other]] = (struct hl_profile_counters){
		.alloc_bytes = INT64_C(5) << 40, .alloc_objects = 7, .peak_bytes = 512};
	profile->total = (struct hl_profile_counters){.alloc_bytes = (INT64_C(5) << 40) + 1536,
						      .alloc_objects = 10,
						      .free_bytes = 1600,
						      .free_objects = 3,
						      .peak_bytes = 512};
	profile->complete = true;
	profile->recorded_process_count = 1;
	hl_profile_know_all(profile);
	free(final_ids);
	hl_builder_release(&builder);
	return profile;
}

static char *write_report(const struct hl_profile *profile, bool json)
{
	struct hl_view_options options = {.value = HL_VALUE_INUSE, .json = json, .notes = stderr};
	struct hl_error err = {0};
	char *text;
	size_t size;

	options.out = open_memstream(&text, &size);
	assert_int_equal(hl_report_view(profile, &options, &err), 0);
	fclose(options.out);
	return text;
}

/* ---- the way back ---- */

static int digit_of(char c)
{
	const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *found = c ? strchr(digits, c) : NULL;

	return found ? (int)(found - digits) : -1;
}

/* The bytes that ${base64}, up to the first other character than a newline, stands for. */
static size_t decode(const char *base64, uint8_t *bytes)
{
	uint32_t bits = 0;
	size_t count = 0, bit_count = 0;

	for (; *base64 == '\n' || digit_of(*base64) >= 0; base64++) {
		if (*base64 == '\n')
			continue;
		bits = bits << 6 | (uint32_t)digit_of(*base64);
		bit_count += 6;
		if (bit_count >= 8)
			bytes[count++] = (uint8_t)(bits >> (bit_count -= 8));
	}
	return count;
}

static uint8_t *inflate_text(const char *base64, size_t *ret_size)
{
	uLongf size = 1 << 20;
	uint8_t *deflated = malloc(strlen(base64) + 1), *bytes = malloc(size);

	assert_int_equal(uncompress(bytes, &size, deflated, decode(base64, deflated)), Z_OK);
	free(deflated);
	*ret_size = size;
	return bytes;
}

/* What ${page} carries: the object, and the columns after it. */
static json_t *read_page(const char *page, uint8_t **ret_bytes, const uint8_t **ret_columns)
{
	const char *data = strstr(page, "id=\"data\">");
	size_t size;

	assert_non_null(data);
	*ret_bytes = inflate_text(strchr(data, '>') + 1, &size);
	*ret_columns = *ret_bytes + strlen((char *)*ret_bytes) + 1;
	json_t *object = json_loads((char *)*ret_bytes, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(object);
	return object;
}

static uint64_t next_unsigned(const uint8_t **at)
{
	uint64_t number = 0;

	for (unsigned shift = 0;; shift += 7) {
		uint8_t byte = *(*at)++;
		number |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return number;
	}
}

static int64_t next_signed(const uint8_t **at)
{
	uint64_t number = next_unsigned(at);

	return (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
}

static int64_t member(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Skips the columns before the figures. */
static void skip_to_figures(const json_t *object, const uint8_t **at)
{
	int64_t count = 5 * (member(object, "functions") - 1) + 3 * (member(object, "frames") - 1) +
			2 * (member(object, "nodes") - 1) + member(object, "leaves");

	for (int64_t i = 0; i < count; i++)
		next_unsigned(at);
}

static void assert_sums(const json_t *object, const json_t *total, const uint8_t **at)
{
	json_t *name;
	size_t i;

	json_array_foreach(json_object_get(object, "figures"), i, name) {
		int64_t sum = 0;
		for (int64_t leaf = 0; leaf < member(object, "leaves"); leaf++)
			sum += next_signed(at);
		assert_int_equal(sum, member(total, json_string_value(name)));
	}
}

/* ---- tests ---- */

static void the_columns_of_a_page_sum_to_its_totals(void **state)
{
	struct hl_profile *profile = make_profile();
	char *page = write_report(profile, false);
	uint8_t *bytes;
	const uint8_t *at;
	json_t *object = read_page(page, &bytes, &at);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(object, "figures")), 8);
	assert_int_equal(member(object, "leaves"), 2);
	skip_to_figures(object, &at);
	assert_sums(object, json_object_get(object, "total"), &at);
	json_decref(object);
	free(bytes);
	free(page);
	hl_profile_free(profile);
}

static void figures_of_an_earlier_profile_follow(void **state)
{
	struct hl_profile *profile = make_profile();
	uint8_t *bytes;
	const uint8_t *at;

	(void)state;
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	profile->base[1].alloc_bytes = 77; /* a stack that the later profile does not have */
	char *page = write_report(profile, false);
	json_t *object = read_page(page, &bytes, &at);
	json_t *base = json_pack("{s:i, s:i}", "alloc_bytes", 77, "inuse_bytes", 77);
	assert_int_equal(member(object, "leaves"), 3);
	skip_to_figures(object, &at);
	assert_sums(object, json_object_get(object, "total"), &at);
	assert_sums(object, base, &at);
	assert_true(json_is_object(json_object_get(object, "base")));
	json_decref(base);
	json_decref(object);
	free(bytes);
	free(page);
	hl_profile_free(profile);
}

static void only_known_figures_have_columns(void **state)
{
	struct hl_profile *profile = make_profile();
	uint8_t *bytes;
	const uint8_t *at;

	(void)state;
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	char *page = write_report(profile, false);
	json_t *object = read_page(page, &bytes, &at);
	json_t *figures = json_object_get(object, "figures");
	assert_int_equal(json_array_size(figures), 1);
	assert_string_equal(json_string_value(json_array_get(figures, 0)), "inuse_bytes");
	skip_to_figures(object, &at);
	assert_sums(object, json_object_get(object, "total"), &at);
	json_decref(object);
	free(bytes);
	free(page);
	hl_profile_free(profile);
}

static void no_name_stands_in_the_page_itself(void **state)
{
	struct hl_profile *profile = make_profile();
	char *page = write_report(profile, false);
	uint8_t *bytes;
	const uint8_t *at;
	json_t *object = read_page(page, &bytes, &at);
	const char *text = json_string_value(json_array_get(json_object_get(object, "texts"), 1));

	(void)state;
	assert_null(strstr(page, "onerror=alert"));
	assert_null(strstr(page, "t.hl"));
	assert_string_equal(
		text, "</script><img src=x onerror=alert(1)>\"'\xe2\x80\xae\x01 \xef\xbf\xbd");
	json_decref(object);
	free(bytes);
	free(page);
	hl_profile_free(profile);
}

static void json_is_the_summary(void **state)
{
	struct hl_profile *profile = make_profile();
	char *text = write_report(profile, true);
	json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	(void)state;
	assert_non_null(object);
	assert_string_equal(json_string_value(json_object_get(object, "schema")),
			    "heapline/report/1");
	assert_int_equal(member(json_object_get(object, "total"), "inuse_bytes"),
			 (INT64_C(5) << 40) - 64);
	assert_true(json_is_array(json_object_get(object, "modules")));
	json_decref(object);
	free(text);
	hl_profile_free(profile);
}

static void what_is_missing_is_noted_in_sentences(void **state)
{
	struct hl_profile *profile = make_profile();
	char *text;

	(void)state;
	profile->complete = false;
	profile->lost.events = 3;
	text = write_report(profile, true);
	json_t *object = json_loads(text, 0, NULL);
	json_t *notes = json_object_get(object, "notes");
	assert_int_equal(json_array_size(notes), 2);
	assert_ptr_equal(strstr(json_string_value(json_array_get(notes, 1)), "LOST: 3 events"),
			 json_string_value(json_array_get(notes, 1)));
	json_decref(object);
	free(text);
	hl_profile_free(profile);
}

static void bytes_of_any_number_come_through_a_payload(void **state)
{
	static const size_t sizes[] = {0, 1, 2, 3, 89, 90, 91, 100000, 300001};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(sizes); i++) {
		uint8_t *bytes = malloc(sizes[i] + 1);
		char *text;
		size_t text_size, size;
		FILE *out = open_memstream(&text, &text_size), *payload;
		for (size_t j = 0; j < sizes[i]; j++)
			bytes[j] = (uint8_t)(j * j >> 7); /* does not compress well */
		assert_int_equal(hl_report_payload_open(out, &payload), 0);
		assert_int_equal(fwrite(bytes, 1, sizes[i], payload), sizes[i]);
		assert_int_equal(fclose(payload), 0);
		fclose(out);
		uint8_t *found = inflate_text(text, &size);
		assert_int_equal(size, sizes[i]);
		assert_memory_equal(found, bytes, sizes[i]);
		free(found);
		free(text);
		free(bytes);
	}
}

static void a_full_device_is_an_error(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/full", "w"), .notes = stderr};

	(void)state;
	for (int json = 0; json < 2; json++) {
		struct hl_error err = {0};
		options.json = json;
		setvbuf(options.out, NULL, _IONBF, 0);
		assert_true(hl_report_view(profile, &options, &err) < 0);
		assert_non_null(strstr(err.text, "t.hl"));
	}
	fclose(options.out);
	hl_profile_free(profile);
}

static int report_into_nothing(const struct hl_profile *profile, bool json)
{
	struct hl_view_options options = {
		.out = fopen("/dev/null", "w"), .notes = stderr, .json = json};
	struct hl_error err = {0};

	int r = hl_report_view(profile, &options, &err);
	fclose(options.out);
	assert_true(r == 0 || strstr(err.text, "t.hl"));
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, report_into_nothing(profile, false))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, report_into_nothing(profile, true))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_columns_of_a_page_sum_to_its_totals),
		cmocka_unit_test(figures_of_an_earlier_profile_follow),
		cmocka_unit_test(only_known_figures_have_columns),
		cmocka_unit_test(no_name_stands_in_the_page_itself),
		cmocka_unit_test(json_is_the_summary),
		cmocka_unit_test(what_is_missing_is_noted_in_sentences),
		cmocka_unit_test(bytes_of_any_number_come_through_a_payload),
		cmocka_unit_test(a_full_device_is_an_error),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
