/* SPDX-License-Identifier: BSD-2-Clause */
/* Pictures of timelines: marks, as many as have room, and the number of the others; axes. */
#include "view/pictures/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MARKS_MAX    1000
#define LENGTH_TICKS 10000
#define INTERVALS    (LENGTH_TICKS / HL_INTERVAL_TICKS)
#define FIRST	     7 /* interval of the range */

static const struct hl_timeline_plot plot = {100, 50, 1000, 300};

struct picture {
	struct hl_log log;
	struct hl_log_mark marks[MARKS_MAX];
	struct hl_log_point points[INTERVALS];
	struct hl_history history;
	char *svg;
	size_t left_out, drawn;
};

/* ${count} marks that are spread over the range from one edge to the other. */
static void draw(struct picture *picture, size_t count, char *text)
{
	size_t size;

	for (size_t i = 0; i < INTERVALS; i++)
		picture->points[i].number = FIRST + i;
	for (size_t i = 0; i < count; i++) {
		picture->marks[i].tick = FIRST * HL_INTERVAL_TICKS + i * LENGTH_TICKS / count;
		picture->marks[i].text = text;
	}
	picture->log.marks = picture->marks;
	picture->log.mark_count = count;
	picture->history = (struct hl_history){
		.log = &picture->log, .points = picture->points, .point_count = INTERVALS};
	FILE *out = open_memstream(&picture->svg, &size);
	picture->left_out = hl_timeline_svg_marks(out, &plot, &picture->history);
	fclose(out);
	assert_int_equal(hl_timeline_svg_marks(NULL, &plot, &picture->history), picture->left_out);
	picture->drawn = 0;
	for (const char *at = picture->svg; (at = strstr(at, "<text")); at++)
		picture->drawn++;
	assert_int_equal(picture->drawn + picture->left_out, count);
}

static void many_short_marks_are_all_drawn(void **state)
{
	struct picture picture = {0};

	(void)state;
	draw(&picture, 200, "m");
	assert_int_equal(picture.left_out, 0);
	free(picture.svg);
}

/* By where the picture says that texts are, at 6 units for each letter at least. */
static void texts_do_not_cover_each_other(void **state)
{
	static char text[] = "sixteen letters!";
	const double width = 6 * (double)strlen(text);
	double ends[1000] = {0};
	struct picture picture = {0};
	double x;
	int y;

	(void)state;
	draw(&picture, MARKS_MAX, text);
	assert_in_range(picture.drawn, 30, 100);
	for (const char *at = picture.svg; (at = strstr(at, "<text")); at++) {
		bool is_left = sscanf(at, "<text class=\"right\" x=\"%lf\" y=\"%d\">", &x, &y) == 2;
		if (!is_left)
			assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%d\">", &x, &y), 2);
		double begin = is_left ? x - width : x;
		assert_true(begin >= ends[y] && begin >= plot.left &&
			    begin + width <= plot.left + plot.width);
		ends[y] = begin + width;
	}
	free(picture.svg);
}

static void marks_outside_the_range_are_not_counted(void **state)
{
	struct picture picture = {0};

	(void)state;
	draw(&picture, 3, "mark");
	free(picture.svg);
	picture.marks[0].tick = FIRST * HL_INTERVAL_TICKS - 1;
	picture.marks[2].tick = FIRST * HL_INTERVAL_TICKS + LENGTH_TICKS;
	FILE *out = open_memstream(&picture.svg, &(size_t){0});
	assert_int_equal(hl_timeline_svg_marks(out, &plot, &picture.history), 0);
	fclose(out);
	assert_null(strstr(strstr(picture.svg, "<text") + 1, "<text"));
	free(picture.svg);
}

/* ---- axes ---- */

static void axes_have_round_steps(void **state)
{
	char label[HL_FORMAT_MAX];

	(void)state;
	assert_int_equal(hl_timeline_svg_byte_step(1, 6), 1);
	assert_int_equal(hl_timeline_svg_byte_step(6000, 6), 1024);
	assert_int_equal(hl_timeline_svg_byte_step(70 << 20, 6), 20 << 20);
	assert_true(hl_timeline_svg_byte_step(INT64_MAX, 6) > 0);
	assert_int_equal(hl_timeline_svg_ms_step(100, 9), 100);
	assert_int_equal(hl_timeline_svg_ms_step(86400000, 9), 3 * 3600000);
	assert_true(hl_timeline_svg_ms_step(UINT64_C(1) << 45, 9) > 86400000);
	assert_string_equal(hl_timeline_svg_byte_label(40 << 20, 20 << 20, label), "40 MiB");
	assert_string_equal(hl_timeline_svg_byte_label(1500, 500, label), "1500 B");
	assert_string_equal(hl_timeline_svg_ms_label(300, 100, label), "0.3 s");
	assert_string_equal(hl_timeline_svg_ms_label(90000, 30000, label), "90 s");
	assert_string_equal(hl_timeline_svg_ms_label(7200000, 3600000, label), "2 h");
	assert_string_equal(hl_timeline_svg_ms_label(UINT64_C(172800000), 86400000, label), "2 d");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_short_marks_are_all_drawn),
		cmocka_unit_test(texts_do_not_cover_each_other),
		cmocka_unit_test(marks_outside_the_range_are_not_counted),
		cmocka_unit_test(axes_have_round_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
