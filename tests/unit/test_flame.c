/* SPDX-License-Identifier: BSD-2-Clause */
/* Flame graphs: frames lie where they should, what is left out is counted, and names stay text. */
#include "profile/profile.h"
#include "view/emit.h"
#include "view/pictures/flame.h"
#include "view/pictures/svg.h"

#include "fail_allocations.h"
#include "stacks.h"

#include <errno.h>

#define AWKWARD "op<T&>\"]]>\n\x1b[31m\xff"

static const struct stack stacks[] = {
	{"main;load;strings", 1009, 5},
	{"main;load;table", 503, 2},
	{"main;load", 101, 1},
	{"main;" AWKWARD, 17, 17},
	{"worker!/lib/libwork.so;load", 7, 3},
	{NULL, 0, 0},
};

static const struct hl_view_options alloc_bytes = {.value = HL_VALUE_ALLOC};

static struct hl_flame_layout lay_out(const struct hl_profile *profile,
				      struct hl_view_options options, size_t count_max)
{
	struct hl_flame_layout layout;

	assert_int_equal(hl_flame_layout_init(&layout, profile, &options, count_max), 0);
	return layout;
}

static const char *name_of(const struct hl_profile *profile, const struct hl_flame_frame *frame)
{
	return frame->depth ? hl_profile_text(profile, profile->functions[frame->function].name)
			    : "all";
}

/* The frame of a stack given as names joined by ';'. */
static const struct hl_flame_frame *find(const struct hl_profile *profile,
					 const struct hl_flame_layout *layout, const char *path)
{
	char *text = strdup(path), *rest = text, *word;
	uint32_t at = 0;

	while ((word = strsep(&rest, ";"))) {
		uint32_t child = at + 1;
		while (child < layout->frames[at].end &&
		       strcmp(name_of(profile, &layout->frames[child]), word) != 0)
			child = layout->frames[child].end;
		if (child >= layout->frames[at].end)
			fail_msg("no frame '%s' of '%s'", word, path);
		at = child;
	}
	free(text);
	return &layout->frames[at];
}

static void assert_in_order(const struct hl_flame_layout *layout)
{
	for (size_t i = 0; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		int64_t next = frame->start, sum = 0;
		for (uint32_t child = (uint32_t)i + 1; child < frame->end;
		     child = layout->frames[child].end) {
			assert_int_equal(layout->frames[child].parent, i);
			assert_int_equal(layout->frames[child].depth, frame->depth + 1);
			assert_int_equal(layout->frames[child].start, next);
			next += layout->frames[child].value;
			sum += layout->frames[child].value;
		}
		assert_true(sum + frame->self <= frame->value);
	}
}

/* ---- layout ---- */

static void frames_lie_side_by_side_above_their_caller(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);

	(void)state;
	assert_in_order(&layout);
	assert_int_equal(layout.count, 8);
	assert_int_equal(layout.frames[0].value, profile->total.alloc_bytes);
	const struct hl_flame_frame *load = find(profile, &layout, "main;load");
	assert_int_equal(load->value, 1009 + 503 + 101);
	assert_int_equal(load->self, 101);
	assert_int_equal(load->other, 8);
	assert_int_equal(find(profile, &layout, "main;load;table")->start - load->start, 1009);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void reversed_frames_begin_with_what_allocated(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct hl_view_options options = alloc_bytes;

	(void)state;
	options.reversed = true;
	struct hl_flame_layout layout = lay_out(profile, options, SIZE_MAX);
	assert_in_order(&layout);
	assert_int_equal(layout.frames[0].value, profile->total.alloc_bytes);
	assert_int_equal(find(profile, &layout, "load")->value, 101 + 7);
	assert_int_equal(find(profile, &layout, "load;worker")->value, 7);
	assert_int_equal(find(profile, &layout, "strings;load;main")->self, 1009);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void of_too_many_frames_the_lightest_are_left_out_and_counted(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, 4);

	(void)state;
	assert_in_order(&layout);
	assert_int_equal(layout.count, 4); /* all, main, load, strings */
	assert_int_equal(layout.light_count, 4);
	assert_int_equal(layout.light_max, 503);
	assert_int_equal(find(profile, &layout, "main;load")->value, 1009 + 503 + 101);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void of_equal_frames_as_many_are_kept_as_there_is_room_for(void **state)
{
	static const struct stack equals[] = {
		{"a;x", 10, 1}, {"b", 10, 1}, {"c", 10, 1}, {"d", 10, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", equals, 0x1000);

	(void)state;
	for (size_t room = 1; room <= 6; room++) {
		struct hl_flame_layout layout = lay_out(profile, alloc_bytes, room);
		assert_in_order(&layout);
		assert_int_equal(layout.count, room);
		assert_int_equal(layout.light_count, 6 - room);
		hl_flame_layout_release(&layout);
	}
	hl_profile_free(profile);
}

static void stacks_with_less_than_nothing_have_no_width_and_are_counted(void **state)
{
	static const struct stack negative[] = {{"main;kept", 103, 1},
						{"main;freed;elsewhere", -11, -1},
						{"main;more", -5, -1},
						{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", negative, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);

	(void)state;
	assert_in_order(&layout);
	assert_int_equal(layout.count, 3);
	assert_int_equal(layout.frames[0].value, 103);
	assert_int_equal(layout.negative_count, 2);
	assert_int_equal(layout.negative_sum, -16);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void sums_beyond_the_largest_number_stay_in_order(void **state)
{
	static const struct stack huge[] = {{"main;a", INT64_MAX - 2, 1},
					    {"main;b", INT64_MAX - 3, 1},
					    {"main", INT64_MAX, 1},
					    {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", huge, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);

	(void)state;
	assert_int_equal(layout.count, 4);
	assert_int_equal(layout.frames[0].value, INT64_MAX);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void nothing_at_all_is_one_frame(void **state)
{
	static const struct stack none[] = {{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", none, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);

	(void)state;
	assert_int_equal(layout.count, 1);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

/* ---- two profiles ---- */

static struct hl_profile *compared_profile(void)
{
	static const struct stack before[] = {{"main;same", 100, 1},
					      {"main;gone;deep", 50, 1},
					      {"main;gone", 5, 1},
					      {"main;shrank", 60, 1},
					      {NULL, 0, 0}};
	static const struct stack after[] = {
		{"main;same", 100, 1}, {"main;new", 40, 1}, {"main;shrank", 30, 1}, {NULL, 0, 0}};
	struct hl_profile *old = profile_of("old.hl", before, 0x1000);
	struct hl_profile *young = profile_of("new.hl", after, 0x1000), *both;

	assert_int_equal(hl_profile_join(old, young, false, &both, NULL), 0);
	hl_profile_free(old);
	hl_profile_free(young);
	return both;
}

static void widths_are_the_later_values_and_what_vanished_is_counted(void **state)
{
	struct hl_profile *profile = compared_profile();
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);

	(void)state;
	assert_int_equal(layout.frames[0].value, 170);
	assert_int_equal(layout.frames[0].base, 215);
	assert_int_equal(find(profile, &layout, "main;new")->base, 0);
	assert_int_equal(find(profile, &layout, "main;shrank")->base, 60);
	assert_int_equal(layout.count, 5); /* all, main, new, same, shrank */
	assert_int_equal(layout.vanished_count, 2);
	assert_int_equal(layout.vanished_sum, 55);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

static void growth_has_a_colour_of_thirteen(void **state)
{
	(void)state;
	assert_int_equal(hl_palette_growth.count, 13);
	assert_int_equal(hl_palette_of_growth(1000, 1000), 6);
	assert_int_equal(hl_palette_of_growth(1000, 1004), 6);
	assert_int_equal(hl_palette_of_growth(1000, 1010), 7);
	assert_int_equal(hl_palette_of_growth(1010, 1000), 5);
	assert_int_equal(hl_palette_of_growth(0, 1), 12);
	assert_int_equal(hl_palette_of_growth(1, 0), 0);
	assert_int_equal(hl_palette_of_growth(-5, 3), 12);
	assert_int_equal(hl_palette_of_growth(0, 0), 6);
}

static void growth_cannot_be_coloured_without_an_earlier_profile(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct hl_view_options options = alloc_bytes;
	struct hl_error err = {0};

	(void)state;
	options.flame.palette = HL_VIEW_PALETTE_DIFF;
	assert_int_equal(hl_flame_view(profile, &options, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'t.hl'"));
	hl_profile_free(profile);
}

static void modules_have_colours_of_their_own(void **state)
{
	static const struct stack of_modules[] = {
		{"f!/lib/liba.so;g!/lib/libb.so;h!/lib/libc.so;i!/lib/libd.so", 103, 1},
		{"j!/lib/libe.so;k!/lib/libf.so;l!/lib/libg.so;m!/lib/libh.so", 11, 1},
		{"unused!/lib/libi.so", 0, 1},
		{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", of_modules, 0x1000);
	struct hl_flame_layout layout = lay_out(profile, alloc_bytes, SIZE_MAX);
	struct hl_flame_modules modules;

	(void)state;
	assert_int_equal(hl_flame_svg_modules_init(&modules, profile, &layout), 0);
	assert_int_equal(modules.count, 8);
	for (size_t i = 0; i < modules.count; i++)
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(modules.colors[modules.by_area[i]],
					     modules.colors[modules.by_area[j]]);
	hl_flame_svg_modules_release(&modules);
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

/* ---- texts ---- */

/* What ${text} becomes in a picture, or with ${json} in its data; to be freed. */
static char *written_of(const char *text, size_t cell_max, bool json)
{
	char *written;
	size_t size;
	FILE *out = open_memstream(&written, &size);

	if (json)
		hl_json_text(&(struct hl_json){.out = out, .is_in_markup = true}, NULL, text);
	else
		hl_svg_put(out, text, cell_max);
	fclose(out);
	return written;
}

static void assert_written(const char *text, size_t cell_max, const char *expected)
{
	char *written = written_of(text, cell_max, false);

	assert_string_equal(written, expected);
	free(written);
}

static void texts_are_escaped_for_xml(void **state)
{
	(void)state;
	assert_written("a<b>&\"c\"", SIZE_MAX, "a&lt;b&gt;&amp;&quot;c&quot;");
	assert_written("\x1b[1m\n\x7f", SIZE_MAX, "\u241b[1m\u240a\u2421");
	assert_written("\xff\xc2\x9b\xed\xa0\x80", SIZE_MAX, "\ufffd\ufffd\ufffd\ufffd\ufffd");
	assert_written("\u202eevil\uffff", SIZE_MAX, "\ufffdevil\ufffd");
	assert_written("caf\u00e9 \U0001f980", SIZE_MAX, "caf\u00e9 \U0001f980");
}

static void json_within_xml_has_no_markup(void **state)
{
	char *written = written_of("]]><b>&\\\"\x1b\xff\uffff\u00e9", 0, true);

	(void)state;
	assert_string_equal(written, "\"]]\\u003e\\u003cb\\u003e\\u0026\\\\\\\"\\u001b\\ufffd"
				     "\\uffff\u00e9\"");
	free(written);
}

static void texts_are_cut_to_columns(void **state)
{
	(void)state;
	assert_int_equal(hl_svg_cells("caf\u00e9", SIZE_MAX), 4);
	assert_int_equal(hl_svg_cells("\u6f22\u5b57", SIZE_MAX), 4);
	assert_written("abcdef", 6, "abcdef");
	assert_written("abcdef", 5, "abcd\u2026");
	assert_written("\u6f22\u5b57", 3, "\u6f22\u2026");
	assert_written("<<<<", 3, "&lt;&lt;\u2026");
}

/* ---- the picture ---- */

/* What is written about ${profile}, which is freed; to be freed. */
static char *picture_of(struct hl_profile *profile, struct hl_view_options options)
{
	struct hl_error err = {0};
	char *text;
	size_t size;

	options.out = open_memstream(&text, &size);
	assert_int_equal(hl_flame_view(profile, &options, &err), 0);
	fclose(options.out);
	hl_profile_free(profile);
	return text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in the picture", part);
}

static void objects_are_called_what_was_traced(void **state)
{
	static const char *const traces[][2] = {
		{"stacks", "blocks not freed"},	    {"stacks-all", "blocks allocated"},
		{"stacks-growth", "blocks gained"}, {"pgfault", "pages gained"},
		{"page-events", "faults touched"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(traces); i++) {
		struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
		char title[64];
		snprintf(title, sizeof(title), "<title>t.hl: %s</title>", traces[i][1]);
		assert_int_equal(hl_strings_intern(&profile->strings, traces[i][0], &profile->mode),
				 0);
		char *text = picture_of(profile, (struct hl_view_options){
							 .value = HL_VALUE_ALLOC,
							 .unit = HL_UNIT_OBJECTS,
						 });
		assert_has(text, title);
		free(text);
	}
}

static void names_stay_text_in_pictures(void **state)
{
	struct hl_view_options options = alloc_bytes;

	(void)state;
	options.flame.title = "<script>";
	options.flame.countname = "a&b";
	char *text = picture_of(profile_of("t.hl", stacks, 0x1000), options);
	assert_null(strstr(text, "]]>"));
	assert_null(strstr(text, "<script>alert"));
	assert_has(text, "<title>&lt;script&gt;</title>");
	assert_has(text, "\"countname\": \"a\\u0026b\"");
	assert_has(text, "op\\u003cT\\u0026\\u003e\\\"]]\\u003e\\u000a\\u001b[31m\\ufffd");
	for (const char *at = text; *at; at++)
		assert_true((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t');
	free(text);
}

static void what_is_missing_stands_in_the_picture(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);

	(void)state;
	profile->complete = false;
	profile->lost.events = 4711;
	char *text = picture_of(profile, alloc_bytes);
	assert_has(text, "<text class=\"warning\" x=\"12\" y=\"98\">INCOMPLETE");
	assert_has(text, ">LOST: 4,711 events");
	free(text);
}

static void frames_below_half_a_pixel_are_counted_instead_of_drawn(void **state)
{
	static const struct stack uneven[] = {{"main;heavy", 100000, 1},
					      {"main;light", 42, 1},
					      {"main;visible", 43, 1},
					      {NULL, 0, 0}};

	(void)state;
	char *text = picture_of(profile_of("t.hl", uneven, 0x1000), alloc_bytes);
	assert_has(text, ">1 frame is too narrow to draw; zoom in to see it<");
	assert_has(text, "[\"light\",");
	free(text);
}

static void pictures_are_the_same_every_time(void **state)
{
	char *first = picture_of(profile_of("t.hl", stacks, 0x1000), alloc_bytes);
	char *second = picture_of(profile_of("t.hl", stacks, 0x9000), alloc_bytes);

	(void)state;
	assert_string_equal(first, second);
	free(first);
	free(second);
}

static void compared_profiles_are_coloured_by_growth(void **state)
{
	char *text = picture_of(compared_profile(), alloc_bytes);

	(void)state;
	assert_has(text, "\"growthColors\": true");
	assert_has(text, ">215 B before, 170 B now: -45 B<");
	assert_has(text, ">nothing is left of 2 frames that held 55 B before<");
	assert_has(text, "<title>new: 40 B (+40 B), 23.5%</title><rect class=\"c12\"");
	assert_has(text, "<title>shrank: 30 B (-30 B), 17.6%</title><rect class=\"c2\"");
	free(text);
}

/* ---- every allocation of ours made to fail in turn ---- */

static int draw(const struct hl_profile *profile, enum hl_view_palette palette, bool json)
{
	struct hl_view_options options = alloc_bytes;

	options.flame.palette = palette;
	options.json = json;
	options.reversed = json;
	options.out = fopen("/dev/null", "w");
	int r = hl_flame_view(profile, &options, NULL);
	fclose(options.out);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct hl_flame_layout layout;

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, draw(profile, HL_VIEW_PALETTE_MODULE, false))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, draw(profile, HL_VIEW_PALETTE_AUTO, true))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, hl_flame_layout_init(&layout, profile, &alloc_bytes, 3))
	{
		assert_int_equal(r, -ENOMEM);
		assert_null(layout.frames);
	}
	hl_flame_layout_release(&layout);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_lie_side_by_side_above_their_caller),
		cmocka_unit_test(reversed_frames_begin_with_what_allocated),
		cmocka_unit_test(of_too_many_frames_the_lightest_are_left_out_and_counted),
		cmocka_unit_test(of_equal_frames_as_many_are_kept_as_there_is_room_for),
		cmocka_unit_test(stacks_with_less_than_nothing_have_no_width_and_are_counted),
		cmocka_unit_test(sums_beyond_the_largest_number_stay_in_order),
		cmocka_unit_test(nothing_at_all_is_one_frame),
		cmocka_unit_test(widths_are_the_later_values_and_what_vanished_is_counted),
		cmocka_unit_test(growth_has_a_colour_of_thirteen),
		cmocka_unit_test(growth_cannot_be_coloured_without_an_earlier_profile),
		cmocka_unit_test(modules_have_colours_of_their_own),
		cmocka_unit_test(texts_are_escaped_for_xml),
		cmocka_unit_test(json_within_xml_has_no_markup),
		cmocka_unit_test(texts_are_cut_to_columns),
		cmocka_unit_test(objects_are_called_what_was_traced),
		cmocka_unit_test(names_stay_text_in_pictures),
		cmocka_unit_test(what_is_missing_stands_in_the_picture),
		cmocka_unit_test(frames_below_half_a_pixel_are_counted_instead_of_drawn),
		cmocka_unit_test(pictures_are_the_same_every_time),
		cmocka_unit_test(compared_profiles_are_coloured_by_growth),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
