/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the script of a flame graph is given: every frame of the layout in a few letters.
 *
 * Numbers are written as in source maps: base 64 digits of five bits each, the lowest first, the
 * sixth bit set where more follow; signed ones have their sign in the lowest bit. A frame, in
 * preorder, is
 *
 *	how many frames end before it: 0, it lies below the previous one
 *	its function's index in `functions`
 *	its caller's value less its own
 *	the part of its value that no callee has
 *	its caller's value in the other unit less its own; signed, and only if `other` is there
 *	the earlier profile's value; signed, and only if `diff` is true
 *
 * A caller often has one callee, so that most differences are a single "A".
 */
#include "base/cleanup.h"
#include "view/format.h"
#include "view/json.h"
#include "view/pictures/flame.h"
#include "view/pictures/svg.h"

#include <errno.h>
#include <stdlib.h>

extern const char hl_flame_js[]; /* web/dist/flame.js */

struct script {
	const struct hl_flame_picture *picture;
	struct hl_json json;
	bool has_other;
	/* Functions and modules of the profile that have frames. */
	uint32_t *functions, *modules;
	size_t function_count, module_count;
	uint32_t *function_of, *module_of; /* by id of the profile: index + 1 in these; 0: none */
};

static void release_script(struct script *script)
{
	free(script->functions);
	free(script->modules);
	free(script->function_of);
	free(script->module_of);
}

/* ---- frames ---- */

static void put_number(FILE *out, uint64_t number)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (; number >= 32; number >>= 5)
		putc(digits[32 | (number & 31)], out);
	putc(digits[number], out);
}

static void put_signed(FILE *out, int64_t number)
{
	uint64_t magnitude = number < 0 ? -(uint64_t)number : (uint64_t)number;

	put_number(out, magnitude << 1 | (number < 0));
}

static int write_frames(struct script *script)
{
	const struct hl_flame_layout *layout = script->picture->layout;
	HL_FREED char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	for (size_t i = 1; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		const struct hl_flame_frame *caller = &layout->frames[frame->parent];
		put_number(out, layout->frames[i - 1].depth + 1 - frame->depth);
		put_number(out, script->function_of[frame->function] - 1);
		put_number(out, (uint64_t)(caller->value - frame->value));
		put_number(out, (uint64_t)frame->self);
		if (script->has_other)
			put_signed(out, caller->other - frame->other);
		if (script->picture->profile->base)
			put_signed(out, frame->base);
	}
	if (fclose(out) != 0)
		return -ENOMEM;
	hl_json_text(&script->json, "frames", text);
	return 0;
}

/* ---- names ---- */

static int collect_names(struct script *script)
{
	const struct hl_profile *profile = script->picture->profile;
	const struct hl_flame_layout *layout = script->picture->layout;

	script->function_of = calloc(profile->function_count, sizeof(*script->function_of));
	script->module_of = calloc(profile->module_count, sizeof(*script->module_of));
	script->functions = calloc(profile->function_count, sizeof(*script->functions));
	script->modules = calloc(profile->module_count, sizeof(*script->modules));
	if (!script->function_of || !script->module_of || !script->functions || !script->modules)
		return -ENOMEM;
	for (size_t i = 1; i < layout->count; i++) {
		uint32_t function = layout->frames[i].function;
		uint32_t module = profile->functions[function].module;
		if (!script->function_of[function]) {
			script->functions[script->function_count++] = function;
			script->function_of[function] = (uint32_t)script->function_count;
		}
		if (!script->module_of[module]) {
			script->modules[script->module_count++] = module;
			script->module_of[module] = (uint32_t)script->module_count;
		}
	}
	return 0;
}

static void put_text(struct hl_json *json, const struct hl_profile *profile, uint32_t id)
{
	char shortened[4 * HL_FLAME_NAME_CELLS];

	hl_json_text(json, NULL,
		     hl_format_shortened(hl_profile_text(profile, id), HL_FLAME_NAME_CELLS,
					 shortened, sizeof(shortened)));
}

static void write_names(struct script *script)
{
	const struct hl_flame_picture *picture = script->picture;
	const struct hl_profile *profile = picture->profile;
	struct hl_json *json = &script->json;

	hl_json_open(json, "modules", '[');
	for (size_t i = 0; i < script->module_count; i++)
		put_text(json, profile, profile->modules[script->modules[i]].path);
	hl_json_close(json, ']');
	hl_json_open(json, "functions", '['); /* name, module, file, line, colour */
	for (size_t i = 0; i < script->function_count; i++) {
		uint32_t id = script->functions[i];
		const struct hl_profile_function *function = &profile->functions[id];
		hl_json_open(json, NULL, '[');
		put_text(json, profile, function->label);
		hl_json_integer(json, NULL, script->module_of[function->module] - 1);
		put_text(json, profile, function->file);
		hl_json_integer(json, NULL, function->line);
		hl_json_integer(json, NULL, hl_flame_svg_function_color(picture, id));
		hl_json_close(json, ']');
	}
	hl_json_close(json, ']');
}

/* ---- all of it ---- */

int hl_flame_script_write(const struct hl_flame_picture *picture, int top)
{
	const struct hl_view_options *options = picture->options;
	const struct hl_flame_frame *root = &picture->layout->frames[0];
	const enum hl_unit other = hl_unit_other(options->unit);

	HL_CLEANUP(release_script)
	struct script script = {
		.picture = picture,
		.json = {.out = options->out, .is_in_markup = true},
		.has_other = hl_profile_has_unit(options->value, other) &&
			     hl_profile_knows(picture->profile, options->value, other),
	};
	struct hl_json *json = &script.json;

	int r = collect_names(&script);
	if (r < 0)
		return r;
	fputs("<script type=\"application/json\" id=\"data\">\n", options->out);
	hl_json_open(json, NULL, '{');
	hl_json_integer(json, "top", top);
	hl_json_boolean(json, "flamesUp", options->flame.flames_up);
	hl_json_boolean(json, "reversed", options->reversed);
	hl_json_boolean(json, "diff", picture->profile->base);
	hl_json_boolean(json, "growthColors", picture->palette == &hl_palette_growth);
	hl_json_text(json, "unit", hl_flame_head_unit(picture->profile, options->unit));
	if (script.has_other)
		hl_json_text(json, "other", hl_flame_head_unit(picture->profile, other));
	if (options->flame.countname)
		hl_json_text(json, "countname", options->flame.countname);
	hl_json_open(json, "root", '[');
	hl_json_integer(json, NULL, root->value);
	hl_json_integer(json, NULL, root->self);
	hl_json_integer(json, NULL, root->other);
	hl_json_integer(json, NULL, root->base);
	hl_json_close(json, ']');
	write_names(&script);
	r = write_frames(&script);
	hl_json_close(json, '}');
	fputs("</script>\n<script>\n", options->out);
	hl_svg_source(options->out, hl_flame_js);
	fputs("</script>\n", options->out);
	return r;
}
