/* SPDX-License-Identifier: BSD-2-Clause */
/* Draws a flame graph as it is without script; see flame.h. */
#include "base/cleanup.h"
#include "base/names.h"
#include "view/format.h"
#include "view/pictures/flame.h"
#include "view/pictures/svg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

unsigned hl_flame_svg_function_color(const struct hl_flame_picture *picture, uint32_t function)
{
	const struct hl_profile_function *of = &picture->profile->functions[function];

	if (picture->modules.count > 1)
		return picture->modules.colors[of->module];
	return hl_palette_of_name(hl_profile_text(picture->profile, of->name));
}

static unsigned color_of(const struct hl_flame_picture *picture, const struct hl_flame_frame *frame)
{
	if (picture->palette == &hl_palette_growth)
		return hl_palette_of_growth(frame->base, frame->value);
	if (frame == picture->layout->frames)
		return (unsigned)picture->palette->count;
	return hl_flame_svg_function_color(picture, frame->function);
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
	int r = hl_flame_script_write(picture, geometry.frames);
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
