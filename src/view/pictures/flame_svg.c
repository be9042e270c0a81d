/* SPDX-License-Identifier: BSD-2-Clause */
/* The picture of a flame graph: frames, modules and the legend as it is without script, and the data that its script is given; see flame.h. */
#include "base/cleanup.h"
#include "base/names.h"
#include "view/emit.h"
#include "view/format.h"
#include "view/pictures/flame.h"
#include "view/pictures/svg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Number of the function's colour in the palette, unless it goes by growth. */
static unsigned flame_svg_function_color(const struct hl_flame_picture *picture, uint32_t function)
{
	const struct hl_profile_function *of = &picture->profile->functions[function];

	if (picture->modules.count > 1)
		return picture->modules.colors[of->module];
	return hl_palette_of_name(hl_profile_text(picture->profile, of->name));
}

/* ---- what the script is given ---- */

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
		hl_json_integer(json, NULL, flame_svg_function_color(picture, id));
		hl_json_close(json, ']');
	}
	hl_json_close(json, ']');
}

/* ---- all of it ---- */

/* Within the picture: data for the script, and the script. Frames begin at ${top}. 0 or -ENOMEM. */
static int flame_script_write(const struct hl_flame_picture *picture, int top)
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

/* ---- the picture ---- */

#define WIDTH	       1200 /* without script; with it the window's */
#define TITLE_BASELINE 30
#define LINE_HEIGHT    16
#define LEGEND_HEIGHT  16
#define LEGEND_MODULES 8
#define LEGEND_CELLS   16
#define FRAMES_GAP     14 /* between the head and the frames, and below the frames */
#define TEXT_INSET     4
#define TEXT_BASELINE  12.5
#define LABELLED_WIDTH (HL_FLAME_LABEL_CELLS * HL_SVG_CELL + 2 * TEXT_INSET)

/* ---- modules ---- */

struct module_area {
	uint32_t module;
	double area; /* a sum over all rows, which may be beyond any integer */
};

static int larger_first(const void *left, const void *right)
{
	const struct module_area *a = left, *b = right;

	if (a->area < b->area || a->area > b->area)
		return a->area < b->area ? 1 : -1;
	return (a->module > b->module) - (a->module < b->module);
}

int hl_flame_svg_modules_init(struct hl_flame_modules *modules, const struct hl_profile *profile,
			      const struct hl_flame_layout *layout)
{
	const size_t count = profile->module_count;
	HL_FREED struct module_area *areas = calloc(count, sizeof(*areas));
	HL_FREED const char **names = calloc(count, sizeof(*names));
	HL_FREED unsigned *colors = calloc(count, sizeof(*colors));

	*modules = (struct hl_flame_modules){
		.by_area = calloc(count, sizeof(*modules->by_area)),
		.colors = calloc(count, sizeof(*modules->colors)),
	};
	if (!areas || !names || !colors || !modules->by_area || !modules->colors)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		areas[i].module = (uint32_t)i;
	for (size_t i = 1; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		areas[profile->functions[frame->function].module].area += (double)frame->value;
	}
	qsort(areas, count, sizeof(*areas), larger_first);
	for (size_t i = 0; i < count && areas[i].area > 0; i++) {
		uint32_t module = areas[i].module;
		modules->by_area[modules->count++] = module;
		names[i] =
			hl_path_basename(hl_profile_text(profile, profile->modules[module].path));
	}
	hl_palette_assign(names, modules->count, colors);
	for (size_t i = 0; i < modules->count; i++)
		modules->colors[modules->by_area[i]] = colors[i];
	return 0;
}

void hl_flame_svg_modules_release(struct hl_flame_modules *modules)
{
	free(modules->by_area);
	free(modules->colors);
	*modules = (struct hl_flame_modules){0};
}

/* Where things are, from top to bottom. */
struct geometry {
	int legend, frames, height;
	double scale; /* pixels for one of the value */
};

static bool has_legend(const struct hl_flame_picture *picture)
{
	return picture->palette == &hl_palette_growth || picture->modules.count > 1;
}

static unsigned color_of(const struct hl_flame_picture *picture, const struct hl_flame_frame *frame)
{
	if (picture->palette == &hl_palette_growth)
		return hl_palette_of_growth(frame->base, frame->value);
	if (frame == picture->layout->frames)
		return (unsigned)picture->palette->count;
	return flame_svg_function_color(picture, frame->function);
}

/* ---- the legend ---- */

static void put_legend(const struct hl_flame_picture *picture, int y)
{
	static const char *const growth[] = {
		[0] = "gone", [3] = "shrank", [6] = "the same", [9] = "grew", [12] = "new"};
	const struct hl_profile *profile = picture->profile;
	const struct hl_flame_modules *modules = &picture->modules;
	FILE *out = picture->options->out;
	const struct hl_code_runtime *runtime = hl_profile_code_runtime(profile);
	char no_module[64] = "no module";
	double x = HL_FLAME_MARGIN;

	if (runtime)
		snprintf(no_module, sizeof(no_module), "%s code", runtime->language);
	if (picture->palette == &hl_palette_growth)
		for (unsigned i = 0; i < HL_COUNT_OF(growth); i += 3)
			x = hl_svg_swatch(out, i, x, y, growth[i], LEGEND_CELLS);
	else if (has_legend(picture))
		for (size_t i = 0; i < modules->count && i < LEGEND_MODULES; i++) {
			uint32_t module = modules->by_area[i];
			const char *path = hl_profile_text(profile, profile->modules[module].path);
			x = hl_svg_swatch(out, modules->colors[module], x, y,
					  *path ? hl_path_basename(path) : no_module, LEGEND_CELLS);
		}
}

/* ---- frames ---- */

static double width_of(const struct geometry *geometry, const struct hl_flame_frame *frame)
{
	return frame->depth ? geometry->scale * (double)frame->value
			    : WIDTH - 2.0 * HL_FLAME_MARGIN;
}

static double left_of(const struct geometry *geometry, const struct hl_flame_frame *frame)
{
	return HL_FLAME_MARGIN + geometry->scale * (double)frame->start;
}

static int top_of(const struct hl_flame_picture *picture, const struct geometry *geometry,
		  const struct hl_flame_frame *frame)
{
	uint32_t row = picture->options->flame.flames_up ? picture->depth_max - frame->depth
							 : frame->depth;

	return geometry->frames + HL_FLAME_ROW * (int)row;
}

/* The name, and after it the value where both fit; compared "1.5 MiB (+0.5 MiB)". */
static void put_labelled(const struct hl_flame_picture *picture, const struct geometry *geometry,
			 const struct hl_flame_frame *frame)
{
	const struct hl_profile *profile = picture->profile;
	FILE *out = picture->options->out;
	const char *name = "all";
	double left = left_of(geometry, frame), width = width_of(geometry, frame);
	int top = top_of(picture, geometry, frame);
	size_t cells = (size_t)((width - 2 * TEXT_INSET) / HL_SVG_CELL);
	char value[HL_FORMAT_MAX], growth[HL_FORMAT_MAX], percent[HL_FORMAT_MAX], class[16];
	char figures[3 * HL_FORMAT_MAX], shortened[4 * HL_FLAME_NAME_CELLS];

	if (frame->depth)
		name = hl_profile_text(profile, profile->functions[frame->function].label);
	hl_flame_head_figure(frame->value, picture->options, value);
	hl_flame_head_figure(frame->value - frame->base, picture->options, growth);
	if (profile->base)
		snprintf(figures, sizeof(figures), "%s (%s%s)", value,
			 frame->value > frame->base ? "+" : "", growth);
	else
		strcpy(figures, value);
	hl_svg_group_begin(
		out, "%s: %s, %s",
		hl_format_shortened(name, HL_FLAME_NAME_CELLS, shortened, sizeof(shortened)),
		figures,
		hl_format_percent(frame->value, picture->layout->frames[0].value, percent));
	snprintf(class, sizeof(class), "c%u", color_of(picture, frame));
	hl_svg_rect(out, class, left, top, width - 1, HL_FLAME_ROW - 1);
	hl_svg_text_begin(out, NULL, left + TEXT_INSET, top + TEXT_BASELINE);
	hl_svg_put(out, name, cells);
	if (hl_svg_cells(name, cells) + 2 + strlen(figures) <= cells)
		fprintf(out, "<tspan dx=\"8\">%s</tspan>", figures);
	hl_svg_text_end(out);
	hl_svg_group_end(out);
}

/* Frames without a label share one path for each colour, which is far smaller. */
static void put_unlabelled(const struct hl_flame_picture *picture, const struct geometry *geometry,
			   unsigned color)
{
	FILE *out = picture->options->out;
	bool begun = false;

	for (size_t i = 1; i < picture->layout->count; i++) {
		const struct hl_flame_frame *frame = &picture->layout->frames[i];
		double width = width_of(geometry, frame);
		if (width < HL_FLAME_NARROW || width >= LABELLED_WIDTH ||
		    color_of(picture, frame) != color)
			continue;
		if (!begun)
			fprintf(out, "<path class=\"c%u\" d=\"", color);
		begun = true;
		double gap = width > 4 ? 1 : width / 4;
		fprintf(out, "M%.1f %dh%.2fv%dH%.1fz", left_of(geometry, frame),
			top_of(picture, geometry, frame), width - gap, HL_FLAME_ROW - 1,
			left_of(geometry, frame));
	}
	fputs(begun ? "\"/>\n" : "", out);
}

static int write_picture(const struct hl_flame_picture *picture, const struct hl_flame_head *head)
{
	const struct hl_flame_layout *layout = picture->layout;
	const int64_t total = layout->frames[0].value;
	FILE *out = picture->options->out;
	struct geometry geometry = {
		.legend = TITLE_BASELINE + 14 + LINE_HEIGHT * (int)head->line_count,
		.scale = (WIDTH - 2.0 * HL_FLAME_MARGIN) / (total > 0 ? (double)total : 1.0),
	};

	geometry.frames = geometry.legend + (has_legend(picture) ? LEGEND_HEIGHT : 0) + FRAMES_GAP;
	geometry.height =
		geometry.frames + HL_FLAME_ROW * ((int)picture->depth_max + 1) + FRAMES_GAP;
	hl_svg_begin(out, WIDTH, geometry.height, head->title, picture->palette);
	fputs("<g id=\"head\">\n", out);
	hl_svg_heading(out, HL_FLAME_MARGIN, TITLE_BASELINE, head->title);
	for (size_t i = 0; i < head->line_count; i++) {
		hl_svg_text_begin(out, head->lines[i].is_warning ? "warning" : "plain",
				  HL_FLAME_MARGIN,
				  TITLE_BASELINE + LINE_HEIGHT * (double)(i + 1) + 4);
		hl_svg_put(out, head->lines[i].text, HL_FLAME_HEAD_CELLS);
		hl_svg_text_end(out);
	}
	put_legend(picture, geometry.legend);
	fputs("</g>\n<g id=\"frames\">\n", out);
	for (unsigned i = 0; i < picture->palette->count; i++)
		put_unlabelled(picture, &geometry, i);
	for (size_t i = 0; i < layout->count; i++)
		if (width_of(&geometry, &layout->frames[i]) >= LABELLED_WIDTH)
			put_labelled(picture, &geometry, &layout->frames[i]);
	fputs("</g>\n", out);
	int r = flame_script_write(picture, geometry.frames);
	hl_svg_end(out);
	return r < 0 ? r : ferror(out) ? -EIO : 0;
}

int hl_flame_svg_write(const struct hl_profile *profile, const struct hl_view_options *options,
		       const struct hl_flame_layout *layout)
{
	bool by_growth = options->flame.palette == HL_VIEW_PALETTE_DIFF ||
			 (options->flame.palette == HL_VIEW_PALETTE_AUTO && profile->base);
	double least =
		HL_FLAME_NARROW * (double)layout->frames[0].value / (WIDTH - 2.0 * HL_FLAME_MARGIN);
	size_t narrow_count = 0;
	struct hl_flame_head head;
	struct hl_flame_picture picture = {
		.profile = profile,
		.options = options,
		.layout = layout,
		.palette = by_growth ? &hl_palette_growth : &hl_palette_names,
	};

	for (size_t i = 1; i < layout->count; i++)
		if ((double)layout->frames[i].value < least)
			narrow_count++;
		else if (layout->frames[i].depth > picture.depth_max)
			picture.depth_max = layout->frames[i].depth;
	int r = hl_flame_head_init(&head, profile, options, layout, narrow_count);
	if (r == 0 && !by_growth)
		r = hl_flame_svg_modules_init(&picture.modules, profile, layout);
	if (r == 0)
		r = write_picture(&picture, &head);
	hl_flame_svg_modules_release(&picture.modules);
	hl_flame_head_release(&head);
	return r;
}
