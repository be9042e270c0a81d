/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format speedscope: its own file format, with a profile for each value. Stacks
 * are those of the folded view.
 */
#include "base/cleanup.h"
#include "profile/calltree.h"
#include "view/emit.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"

/* Frames in the order in which the tree first has them; equal names are one frame. */
struct frame_table {
	uint32_t *index_of; /* by string id of the name: one more than the frame's index */
	uint32_t count;
};

struct figure {
	enum hl_value value;
	enum hl_unit unit;
};

static void put_frames(struct hl_json *json, const struct hl_profile *profile,
		       const struct hl_calltree *tree, struct frame_table *frames)
{
	hl_json_open(json, "shared", '{');
	hl_json_open(json, "frames", '[');
	if (hl_profile_counters_any(&profile->counters[0])) {
		/* Figures without a stack: the frame of the root, whose name is not a string. */
		frames->index_of[0] = ++frames->count;
		hl_json_open(json, NULL, '{');
		hl_json_text(json, "name", HL_KEYS_NO_STACK);
		hl_json_close(json, '}');
	}
	for (size_t i = 1; i < tree->count; i++) {
		uint32_t *index = &frames->index_of[tree->nodes[i].name];
		if (*index)
			continue;
		*index = ++frames->count;
		const struct hl_profile_frame *frame = &profile->frames[tree->nodes[i].frame];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		hl_json_open(json, NULL, '{');
		hl_json_text(json, "name", hl_profile_text(profile, tree->nodes[i].name));
		if (function->file)
			hl_json_text(json, "file", hl_profile_text(profile, function->file));
		if (function->file && function->line)
			hl_json_integer(json, "line", function->line);
		hl_json_close(json, '}');
	}
	hl_json_close(json, ']');
	hl_json_close(json, '}');
}

static int put_profile(struct hl_json *json, const struct hl_profile *profile,
		       const struct frame_table *frames, struct figure figure)
{
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};
	int64_t end = 0;
	char name[32];

	int r = hl_calltree_init(&tree, profile, figure.value, figure.unit);
	if (r < 0)
		return r;
	HL_FREED uint32_t *path = calloc(tree.depth_max + 1, sizeof(*path));
	if (!path)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s %s", hl_value_words[figure.value],
		 hl_unit_names[figure.unit]);
	hl_json_open(json, NULL, '{');
	hl_json_text(json, "type", "sampled");
	hl_json_text(json, "name", name);
	hl_json_text(json, "unit", figure.unit == HL_UNIT_BYTES ? "bytes" : "none");
	/* speedscope refuses negative weights, which only damaged files have. */
	hl_json_open(json, "samples", '[');
	for (uint32_t i = 0; i < tree.count; i++) {
		uint32_t length = i ? tree.nodes[i].depth : 1, node = i;
		if (tree.nodes[i].self <= 0)
			continue;
		for (uint32_t at = length; at-- > 0; node = tree.nodes[node].parent)
			path[at] = frames->index_of[tree.nodes[node].name] - 1;
		hl_json_open(json, NULL, '[');
		for (uint32_t at = 0; at < length; at++)
			hl_json_integer(json, NULL, path[at]);
		hl_json_close(json, ']');
	}
	hl_json_close(json, ']');
	hl_json_open(json, "weights", '[');
	for (size_t i = 0; i < tree.count; i++)
		if (tree.nodes[i].self > 0) {
			hl_json_integer(json, NULL, tree.nodes[i].self);
			end += tree.nodes[i].self;
		}
	hl_json_close(json, ']');
	hl_json_integer(json, "startValue", 0);
	hl_json_integer(json, "endValue", end);
	hl_json_close(json, '}');
	return 0;
}

static int put_file(const struct hl_profile *profile, const struct hl_view_options *options,
		    const struct hl_calltree *tree)
{
	HL_FREED uint32_t *index_of = calloc(profile->strings.count + 1, sizeof(*index_of));
	struct frame_table frames = {.index_of = index_of};
	struct hl_json json = {.out = options->out};
	int64_t count = 0, active = 0;
	int r = 0;

	if (!index_of)
		return -ENOMEM;
	hl_json_open(&json, NULL, '{');
	hl_json_text(&json, "$schema", SCHEMA);
	hl_json_text(&json, "exporter", "heapline@" HL_VERSION);
	hl_json_text(&json, "name", hl_profile_text(profile, profile->name));
	put_frames(&json, profile, tree, &frames);
	hl_json_open(&json, "profiles", '[');
	for (int i = 0; r == 0 && i < HL_VALUE_COUNT * HL_UNIT_COUNT; i++) {
		struct figure figure = {(enum hl_value)(i / HL_UNIT_COUNT),
					(enum hl_unit)(i % HL_UNIT_COUNT)};
		if (!hl_profile_knows(profile, figure.value, figure.unit))
			continue;
		if (figure.value == options->value && figure.unit == options->unit)
			active = count; /* the one that speedscope opens with */
		r = put_profile(&json, profile, &frames, figure);
		count++;
	}
	hl_json_close(&json, ']');
	hl_json_integer(&json, "activeProfileIndex", active);
	hl_json_close(&json, '}');
	return r == 0 && ferror(options->out) ? -EIO : r;
}

int hl_speedscope_view(const struct hl_profile *profile, const struct hl_view_options *options,
		       struct hl_error *err)
{
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = put_file(profile, options, &tree);
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
