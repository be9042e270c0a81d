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
 *	what of its value no callee has
 *	its caller's value in the other unit less its own; signed, and only if `other` is there
 *	the earlier profile's value; signed, and only if `diff` is true
 *
 * A caller often has one callee, so that most differences are a single "A".
 */
#include "view/flame_picture.h"

#include "view/keys.h"
#include "view/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Embedded files, each of which needs the ones before it. */
extern const char hl_flame_frames_js[], hl_flame_draw_js[], hl_flame_controls_js[];

struct script {
	const struct hl_flame_picture *picture;
	FILE *out;
	bool has_other;
	uint32_t *function_of; /* by function of the profile: one more than its index; 0: none */
	uint32_t *module_of;   /* the same of modules */
	uint32_t *functions;   /* by index: of the profile */
	uint32_t *modules;
	size_t function_count, module_count;
};

/* ---- numbers ---- */

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

static void write_frames(const struct script *script)
{
	const struct hl_flame_layout *layout = script->picture->layout;
	FILE *out = script->out;

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
}

/* ---- names ---- */

static uint32_t number_of(uint32_t *numbers, uint32_t id, uint32_t *listed, size_t *count)
{
	if (!numbers[id]) {
		listed[(*count)++] = id;
		numbers[id] = (uint32_t)*count;
	}
	return numbers[id];
}

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
		number_of(script->function_of, function, script->functions,
			  &script->function_count);
		number_of(script->module_of, profile->functions[function].module, script->modules,
			  &script->module_count);
	}
	return 0;
}

/* [name, module, file:line, color] */
static void write_function(const struct script *script, uint32_t id)
{
	const struct hl_profile *profile = script->picture->profile;
	const struct hl_profile_function *function = &profile->functions[id];
	bool diff = script->picture->palette == HL_VIEW_PALETTE_DIFF;

	putc('[', script->out);
	hl_xml_json_string(script->out, hl_profile_text(profile, function->name),
			   HL_FLAME_NAME_CELLS);
	fprintf(script->out, ",%u,", script->module_of[function->module] - 1);
	hl_xml_json_string(script->out, hl_profile_text(profile, function->file),
			   HL_FLAME_NAME_CELLS);
	fprintf(script->out, ",%u,%u]", function->line,
		diff ? 0 : hl_flame_picture_function_color(script->picture, id));
}

static void write_names(const struct script *script)
{
	const struct hl_profile *profile = script->picture->profile;

	fputs(",\n\"modules\":[", script->out);
	for (size_t i = 0; i < script->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[script->modules[i]];
		fputs(i ? ",\n" : "", script->out);
		hl_xml_json_string(script->out, hl_profile_text(profile, module->path),
				   HL_FLAME_NAME_CELLS);
	}
	fputs("],\n\"functions\":[", script->out);
	for (size_t i = 0; i < script->function_count; i++) {
		fputs(i ? ",\n" : "", script->out);
		write_function(script, script->functions[i]);
	}
	fputs("]", script->out);
}

/* ---- all ---- */

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static void write_settings(const struct script *script, int top)
{
	const struct hl_flame_picture *picture = script->picture;
	const struct hl_view_options *options = picture->options;
	const struct hl_flame_frame *root = &picture->layout->frames[0];
	enum hl_unit other = hl_unit_other(options->unit);

	fprintf(script->out,
		"{\"top\":%d,\"margin\":%d,\"row\":%d,\"minimumWidth\":%d,\"cell\":%.1f,"
		"\"narrow\":%.1f,\"labelCells\":%d,\n",
		top, HL_FLAME_MARGIN, HL_FLAME_ROW, HL_FLAME_WIDTH_MIN, HL_FLAME_CELL,
		HL_FLAME_NARROW, HL_FLAME_LABEL_CELLS);
	fprintf(script->out,
		"\"flamesUp\":%s,\"reversed\":%s,\"diff\":%s,\"growthColors\":%s,\"rootColor\":%u,"
		"\"unit\":\"%s\",",
		truth(options->flames_up), truth(options->reversed), truth(picture->profile->base),
		truth(picture->palette == HL_VIEW_PALETTE_DIFF),
		hl_flame_picture_color(picture, root),
		hl_flame_unit(picture->profile, options->unit));
	if (script->has_other)
		fprintf(script->out, "\"other\":\"%s\",", hl_flame_unit(picture->profile, other));
	if (options->countname) {
		fputs("\"countname\":", script->out);
		hl_xml_json_string(script->out, options->countname, HL_FLAME_NAME_CELLS);
		putc(',', script->out);
	}
	fprintf(script->out, "\n\"root\":[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]",
		root->value, root->self, root->other, root->base);
}

/* Within a function, so that a page around the picture keeps its names for itself. */
static void write_parts(FILE *out)
{
	const char *const parts[] = {hl_flame_frames_js, hl_flame_draw_js, hl_flame_controls_js};

	fputs("<script>\n'use strict';\n(() =&gt; {\n", out);
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		hl_xml_source(out, parts[i]);
	fputs("})();\n</script>\n", out);
}

static void release_script(struct script *script)
{
	free(script->function_of);
	free(script->module_of);
	free(script->functions);
	free(script->modules);
}

static bool has_other_unit(const struct hl_flame_picture *picture)
{
	const struct hl_view_options *options = picture->options;
	enum hl_unit other = hl_unit_other(options->unit);

	return hl_profile_has_unit(options->value, other) &&
	       hl_profile_knows(picture->profile, options->value, other);
}

int hl_flame_script_write(const struct hl_flame_picture *picture, int top)
{
	struct script script = {
		.picture = picture,
		.out = picture->options->out,
		.has_other = has_other_unit(picture),
	};

	int r = collect_names(&script);
	if (r == 0) {
		fputs("<script type=\"application/json\" id=\"data\">\n", script.out);
		write_settings(&script, top);
		write_names(&script);
		fputs(",\n\"frames\":\"", script.out);
		write_frames(&script);
		fputs("\"}\n</script>\n", script.out);
		write_parts(script.out);
	}
	release_script(&script);
	return r;
}
