/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses functions, sorts their frames by line, and sums by that; see annotation.h. */
#include "view/annotation.h"

#include "profile/expression.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- choosing functions ---- */

static bool has_name(const char *name, const char *wanted)
{
	size_t length = strlen(wanted);
	return !strncmp(name, wanted, length) && (!name[length] || name[length] == '(');
}

static size_t choose_by_name(const struct hl_profile *profile, const char *wanted, bool *chosen)
{
	size_t count = 0;

	for (uint32_t i = 1; i < profile->function_count; i++) {
		chosen[i] = has_name(hl_profile_text(profile, profile->functions[i].name), wanted);
		count += chosen[i];
	}
	return count;
}

static int choose_by_expression(const struct hl_profile *profile, const char *wanted, bool *chosen,
				size_t *ret_count, struct hl_error *err)
{
	regex_t expression;
	size_t count = 0;

	int r = hl_expression_compile(wanted, "", &expression, err);
	if (r < 0)
		return r;
	for (uint32_t i = 1; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		chosen[i] = regexec(&expression, name, 0, NULL, 0) == 0;
		count += chosen[i];
	}
	regfree(&expression);
	*ret_count = count;
	return 0;
}

static int choose(const struct hl_profile *profile, const char *wanted, bool *chosen,
		  struct hl_error *err)
{
	size_t count = choose_by_name(profile, wanted, chosen);
	int r = count ? 0 : choose_by_expression(profile, wanted, chosen, &count, err);

	if (r == 0 && !count)
		return hl_error_set(err, -ENOENT,
				    "no function '%s' in '%s'; 'heapline top -n 0' lists them",
				    wanted, hl_profile_text(profile, profile->name));
	return r;
}

/* ---- lines ---- */

/* Frames of chosen functions, in order of function, file and line. */
struct ordered {
	uint32_t *frames;
	size_t count;
};

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

static int order_frames(const struct hl_profile *profile, const bool *chosen,
			struct ordered *ret_ordered)
{
	struct ordered ordered = {.frames = calloc(profile->frame_count, sizeof(uint32_t))};

	if (!ordered.frames)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->frame_count; i++)
		if (chosen[profile->frames[i].function])
			ordered.frames[ordered.count++] = i;
	qsort_r(ordered.frames, ordered.count, sizeof(*ordered.frames), by_place, profile->frames);
	*ret_ordered = ordered;
	return 0;
}

/* Line i has key i + 1; key 0 is for frames of other functions. */
static void add_lines(struct hl_annotation *annotation, const struct hl_profile *profile,
		      const struct ordered *ordered, uint32_t *keys)
{
	struct hl_annotation_function *functions = annotation->functions;

	for (size_t i = 0; i < ordered->count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[ordered->frames[i]];
		const struct hl_profile_frame *before =
			i ? &profile->frames[ordered->frames[i - 1]] : NULL;
		if (!before || before->function != frame->function)
			functions[annotation->function_count++] = (struct hl_annotation_function){
				.function = frame->function, .first_line = annotation->line_count};
		if (!before || compare_places(before, frame)) {
			annotation->lines[annotation->line_count++] = (struct hl_annotation_line){
				.file = frame->file, .line = frame->line};
			functions[annotation->function_count - 1].line_count++;
		}
		keys[ordered->frames[i]] = (uint32_t)annotation->line_count;
	}
}

static int sum_lines(struct hl_annotation *annotation, const struct hl_profile *profile,
		     enum hl_value value, const uint32_t *keys)
{
	struct hl_aggregate sums;

	int r = hl_aggregate_init(&sums, profile, value, keys, annotation->line_count + 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < annotation->line_count; i++) {
		annotation->lines[i].flat = sums.flat[i + 1];
		annotation->lines[i].cum = sums.cum[i + 1];
	}
	annotation->total = sums.total;
	hl_aggregate_release(&sums);
	return 0;
}

static int sum_functions(struct hl_annotation *annotation, const struct hl_profile *profile,
			 enum hl_value value)
{
	struct hl_aggregate sums;

	int r = hl_aggregate_init(&sums, profile, value, NULL, 0);
	if (r < 0)
		return r;
	for (size_t i = 0; i < annotation->function_count; i++) {
		struct hl_annotation_function *function = &annotation->functions[i];
		function->flat = sums.flat[function->function];
		function->cum = sums.cum[function->function];
	}
	hl_aggregate_release(&sums);
	return 0;
}

static int add_figures(struct hl_annotation *annotation, const struct hl_profile *profile,
		       enum hl_value value, const struct ordered *ordered)
{
	uint32_t *keys = calloc(profile->frame_count, sizeof(*keys));

	annotation->functions = calloc(ordered->count + 1, sizeof(*annotation->functions));
	annotation->lines = calloc(ordered->count + 1, sizeof(*annotation->lines));
	int r = keys && annotation->functions && annotation->lines ? 0 : -ENOMEM;
	if (r == 0) {
		add_lines(annotation, profile, ordered, keys);
		r = sum_lines(annotation, profile, value, keys);
	}
	if (r == 0)
		r = sum_functions(annotation, profile, value);
	free(keys);
	return r;
}

/* ---- all of it ---- */

static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_annotation_function *a = left, *b = right;
	bool bytes = *(const enum hl_unit *)context == HL_UNIT_BYTES;
	int64_t weight_a = bytes ? a->cum.bytes : a->cum.objects;
	int64_t weight_b = bytes ? b->cum.bytes : b->cum.objects;

	if (weight_a != weight_b)
		return weight_a < weight_b ? 1 : -1;
	return compare(a->function, b->function);
}

int hl_annotation_init(struct hl_annotation *annotation, const struct hl_profile *profile,
		       const struct hl_view_options *options, struct hl_error *err)
{
	bool *chosen = calloc(profile->function_count, sizeof(*chosen));
	struct ordered ordered = {0};
	enum hl_unit unit = options->unit;

	*annotation = (struct hl_annotation){0};
	int r = chosen ? choose(profile, options->function, chosen, err) : -ENOMEM;
	if (r == 0)
		r = order_frames(profile, chosen, &ordered);
	if (r == 0)
		r = add_figures(annotation, profile, options->value, &ordered);
	if (r == 0)
		qsort_r(annotation->functions, annotation->function_count,
			sizeof(*annotation->functions), by_weight, &unit);
	else
		hl_annotation_release(annotation);
	free(ordered.frames);
	free(chosen);
	return r;
}

void hl_annotation_release(struct hl_annotation *annotation)
{
	free(annotation->functions);
	free(annotation->lines);
	*annotation = (struct hl_annotation){0};
}
