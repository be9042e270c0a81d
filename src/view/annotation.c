/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses functions, sorts their frames by line, and sums by that; see annotate.h. */
#include "view/annotate.h"

#include "base/cleanup.h"
#include "profile/filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- choosing functions ---- */

/* Those of the very name, else those that match the expression. */
static int choose(const struct hl_profile *profile, const char *wanted, bool *chosen,
		  struct hl_error *err)
{
	size_t count = 0, length = strlen(wanted);
	regex_t expression;

	for (uint32_t i = 1; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		chosen[i] =
			!strncmp(name, wanted, length) && (!name[length] || name[length] == '(');
		count += chosen[i];
	}
	if (count)
		return 0;
	int r = hl_expression_compile(wanted, "", &expression, err);
	if (r < 0)
		return r;
	for (uint32_t i = 1; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		chosen[i] = regexec(&expression, name, 0, NULL, 0) == 0;
		count += chosen[i];
	}
	regfree(&expression);
	return count ? 0
		     : hl_error_set(err, -ENOENT,
				    "no function '%s' in '%s'; 'heapline top -n 0' lists them",
				    wanted, hl_profile_text(profile, profile->name));
}

/* ---- lines ---- */

static int compare(uint32_t a, uint32_t b)
{
	return (a > b) - (a < b);
}

static int compare_places(const struct hl_profile_frame *a, const struct hl_profile_frame *b)
{
	int r = compare(a->function, b->function);

	if (r == 0)
		r = compare(a->file, b->file);
	return r ? r : compare(a->line, b->line);
}

static int by_place(const void *left, const void *right, void *context)
{
	const struct hl_profile_frame *frames = context;

	return compare_places(&frames[*(const uint32_t *)left], &frames[*(const uint32_t *)right]);
}

/* Line i has key i + 1; key 0 is for frames of other functions. */
static int add_lines(struct hl_annotation *annotation, const struct hl_profile *profile,
		     const bool *chosen, uint32_t *keys)
{
	HL_FREED uint32_t *frames = calloc(profile->frame_count, sizeof(*frames));
	const struct hl_profile_frame *before = NULL;
	size_t count = 0;

	if (!frames)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->frame_count; i++)
		if (chosen[profile->frames[i].function])
			frames[count++] = i;
	qsort_r(frames, count, sizeof(*frames), by_place, profile->frames);
	struct hl_annotation_function *functions = annotation->functions =
		calloc(count + 1, sizeof(*functions));
	struct hl_annotation_line *lines = annotation->lines = calloc(count + 1, sizeof(*lines));
	if (!functions || !lines)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[frames[i]];
		if (!before || before->function != frame->function)
			functions[annotation->function_count++] = (struct hl_annotation_function){
				.function = frame->function, .first_line = annotation->line_count};
		if (!before || compare_places(before, frame)) {
			lines[annotation->line_count++] = (struct hl_annotation_line){
				.file = frame->file, .line = frame->line};
			functions[annotation->function_count - 1].line_count++;
		}
		keys[frames[i]] = (uint32_t)annotation->line_count;
		before = frame;
	}
	return 0;
}

/* ---- all of it ---- */

static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_annotation_function *a = left, *b = right;
	enum hl_unit unit = *(const enum hl_unit *)context;
	int64_t weight_a = hl_aggregate_figure(a->cum, unit);
	int64_t weight_b = hl_aggregate_figure(b->cum, unit);

	if (weight_a != weight_b)
		return weight_a < weight_b ? 1 : -1;
	return compare(a->function, b->function);
}

int hl_annotation_init(struct hl_annotation *annotation, const struct hl_profile *profile,
		       const struct hl_view_options *options, struct hl_error *err)
{
	HL_FREED bool *chosen = calloc(profile->function_count, sizeof(*chosen));
	HL_FREED uint32_t *keys = calloc(profile->frame_count, sizeof(*keys));
	HL_CLEANUP(hl_aggregate_release) struct hl_aggregate by_line = {0}, by_function = {0};
	enum hl_unit unit = options->unit;

	*annotation = (struct hl_annotation){0};
	if (!chosen || !keys)
		return -ENOMEM;
	int r = choose(profile, options->annotate.function, chosen, err);
	if (r == 0)
		r = add_lines(annotation, profile, chosen, keys);
	if (r == 0)
		r = hl_aggregate_init(&by_line, profile, options->value, keys,
				      annotation->line_count + 1);
	if (r == 0)
		r = hl_aggregate_init(&by_function, profile, options->value, NULL, 0);
	if (r < 0) {
		hl_annotation_release(annotation);
		return r;
	}
	for (size_t i = 0; i < annotation->line_count; i++) {
		annotation->lines[i].flat = by_line.flat[i + 1];
		annotation->lines[i].cum = by_line.cum[i + 1];
	}
	for (size_t i = 0; i < annotation->function_count; i++) {
		struct hl_annotation_function *function = &annotation->functions[i];
		function->flat = by_function.flat[function->function];
		function->cum = by_function.cum[function->function];
	}
	annotation->total = by_line.total;
	qsort_r(annotation->functions, annotation->function_count, sizeof(*annotation->functions),
		by_weight, &unit);
	return 0;
}

void hl_annotation_release(struct hl_annotation *annotation)
{
	free(annotation->functions);
	free(annotation->lines);
	*annotation = (struct hl_annotation){0};
}
