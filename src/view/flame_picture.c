/* SPDX-License-Identifier: BSD-2-Clause */
/* Draws a flame graph as it is without script; see flame_picture.h. */
#include "view/flame_picture.h"

#include "base/path.h"
#include "view/format.h"
#include "view/xml.h"

#include <stdlib.h>
#include <string.h>

#define TITLE_BASELINE 30
#define TITLE_CELLS    76
#define LINE_HEIGHT    16
#define LEGEND_HEIGHT  16
#define LEGEND_MODULES 8
#define LEGEND_CELLS   16
#define FRAMES_GAP     14 /* between the head and the frames, and below the frames */
#define TEXT_INSET     4
#define TEXT_BASELINE  12.5
#define LABELLED_WIDTH (HL_FLAME_LABEL_CELLS * HL_FLAME_CELL + 2 * TEXT_INSET)

/* Where things are, from top to bottom. */
struct geometry {
	int legend, frames, height;
	double scale; /* pixels for one of the value */
};

static bool has_legend(const struct hl_flame_picture *picture)
{
	return picture->palette == HL_VIEW_PALETTE_DIFF || picture->modules.count > 1;
}

static struct geometry geometry_of(const struct hl_flame_picture *picture)
{
	const struct hl_flame_frame *root = &picture->layout->frames[0];
	int legend = TITLE_BASELINE + 14 + LINE_HEIGHT * (int)picture->head->line_count;
	int frames = legend + (has_legend(picture) ? LEGEND_HEIGHT : 0) + FRAMES_GAP;

	return (struct geometry){
		.legend = legend,
		.frames = frames,
		.height = frames + HL_FLAME_ROW * ((int)picture->depth_max + 1) + FRAMES_GAP,
		.scale = (HL_FLAME_WIDTH - 2.0 * HL_FLAME_MARGIN) /
			 (root->value > 0 ? (double)root->value : 1.0),
	};
}

unsigned hl_flame_picture_function_color(const struct hl_flame_picture *picture, uint32_t function)
{
	const struct hl_profile_function *of = &picture->profile->functions[function];

	if (picture->modules.count > 1)
		return picture->modules.colors[of->module];
	return hl_flame_color_of_name(hl_profile_text(picture->profile, of->name));
}

unsigned hl_flame_picture_color(const struct hl_flame_picture *picture,
				const struct hl_flame_frame *frame)
{
	if (picture->palette == HL_VIEW_PALETTE_DIFF)
		return hl_flame_color_of_growth(frame->base, frame->value);
	if (frame == picture->layout->frames)
		return (unsigned)hl_flame_palette(picture->palette)->count;
	return hl_flame_picture_function_color(picture, frame->function);
}

/* ---- head ---- */

static void write_style(FILE *out, const struct hl_flame_palette *palette)
{
	fputs("<style>\n"
	      "svg{background:#fff;font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,"
	      "'Liberation Mono',monospace;fill:#16191d}\n"
	      "#paper{fill:#fff}\n"
	      ".title{font:600 17px system-ui,'DejaVu Sans',sans-serif}\n"
	      ".plain,.note{fill:#5a636e}\n"
	      ".warning{fill:#b3261e;font-weight:600}\n"
	      "tspan{fill-opacity:.62}\n",
	      out);
	for (size_t i = 0; i < palette->count; i++)
		fprintf(out, ".c%zu{fill:#%06x}", i, palette->rgb[i]);
	fprintf(out, ".c%zu{fill:#dde2e8}\n", palette->count);
	fputs("@media (prefers-color-scheme:dark){\n"
	      "svg{background:#1c1d20;fill:#f0f0ed}#paper{fill:#1c1d20}\n"
	      ".plain,.note{fill:#9a9da3}.warning{fill:#f0b866}\n",
	      out);
	for (size_t i = 0; i < palette->count; i++)
		fprintf(out, ".c%zu{fill:#%06x}", i, hl_flame_dark(palette->rgb[i]));
	fprintf(out, ".c%zu{fill:#36383c}}\n</style>\n", palette->count);
}

static void write_head(const struct hl_flame_picture *picture)
{
	static const char *const classes[HL_FLAME_LINE_KINDS] = {
		[HL_FLAME_LINE_PLAIN] = "plain",
		[HL_FLAME_LINE_WARNING] = "warning",
		[HL_FLAME_LINE_NOTE] = "note",
	};
	FILE *out = picture->options->out;
	const struct hl_flame_head *head = picture->head;

	fprintf(out, "<g id=\"head\">\n<text class=\"title\" x=\"%d\" y=\"%d\">", HL_FLAME_MARGIN,
		TITLE_BASELINE);
	hl_xml_text_cut(out, head->title, TITLE_CELLS);
	fputs("</text>\n", out);
	for (size_t i = 0; i < head->line_count; i++) {
		fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", classes[head->lines[i].kind],
			HL_FLAME_MARGIN, TITLE_BASELINE + LINE_HEIGHT * (int)(i + 1) + 4);
		hl_xml_text_cut(out, head->lines[i].text, HL_FLAME_LINE_CELLS);
		fputs("</text>\n", out);
	}
}

/* ---- legend ---- */

static double write_swatch(FILE *out, double x, int y, unsigned color, const char *text)
{
	size_t cells = hl_xml_cells(text, LEGEND_CELLS);

	fprintf(out, "<rect class=\"c%u\" x=\"%.1f\" y=\"%d\" width=\"14\" height=\"12\"/>", color,
		x, y);
	if (!cells)
		return x + 14;
	fprintf(out, "<text class=\"plain\" x=\"%.1f\" y=\"%d\">", x + 19, y + 10);
	hl_xml_text_cut(out, text, LEGEND_CELLS);
	fputs("</text>\n", out);
	return x + 34 + HL_FLAME_CELL * (double)(cells < LEGEND_CELLS ? cells : LEGEND_CELLS);
}

static void write_growth_legend(const struct hl_flame_picture *picture, int y)
{
	static const char *const texts[] = {
		[0] = "gone", [3] = "shrank", [6] = "the same", [9] = "grew", [12] = "new"};
	double x = HL_FLAME_MARGIN;

	for (unsigned i = 0; i < HL_COUNT_OF(texts); i += 3)
		x = write_swatch(picture->options->out, x, y, i, texts[i]);
}

static void write_module_legend(const struct hl_flame_picture *picture, int y)
{
	const struct hl_profile *profile = picture->profile;
	const struct hl_flame_modules *modules = &picture->modules;
	double x = HL_FLAME_MARGIN;

	for (size_t i = 0; i < modules->count && i < LEGEND_MODULES; i++) {
		uint32_t module = modules->by_area[i];
		const char *path = hl_profile_text(profile, profile->modules[module].path);
		x = write_swatch(picture->options->out, x, y, modules->colors[module],
				 *path ? hl_path_basename(path) : "no module");
	}
}

static void write_legend(const struct hl_flame_picture *picture, int y)
{
	if (picture->palette == HL_VIEW_PALETTE_DIFF)
		write_growth_legend(picture, y);
	else if (has_legend(picture))
		write_module_legend(picture, y);
}

/* ---- frames ---- */

static const char *name_of(const struct hl_flame_picture *picture,
			   const struct hl_flame_frame *frame)
{
	if (frame == picture->layout->frames)
		return "all";
	return hl_profile_text(picture->profile, picture->profile->functions[frame->function].name);
}

static const char *format_value(const struct hl_flame_picture *picture, int64_t value,
				char buffer[HL_FORMAT_MAX])
{
	return picture->options->unit == HL_UNIT_BYTES && !picture->options->countname
		       ? hl_format_bytes(value, buffer)
		       : hl_format_count(value, buffer);
}

static double width_of(const struct geometry *geometry, const struct hl_flame_frame *frame)
{
	return frame->depth ? geometry->scale * (double)frame->value
			    : HL_FLAME_WIDTH - 2.0 * HL_FLAME_MARGIN;
}

static double left_of(const struct geometry *geometry, const struct hl_flame_frame *frame)
{
	return HL_FLAME_MARGIN + geometry->scale * (double)frame->start;
}

static int top_of(const struct hl_flame_picture *picture, const struct geometry *geometry,
		  const struct hl_flame_frame *frame)
{
	uint32_t row =
		picture->options->flames_up ? picture->depth_max - frame->depth : frame->depth;

	return geometry->frames + HL_FLAME_ROW * (int)row;
}

/* "1.5 MiB", or compared "1.5 MiB (+0.5 MiB)". */
static void format_figures(const struct hl_flame_picture *picture,
			   const struct hl_flame_frame *frame, char text[3 * HL_FORMAT_MAX])
{
	char value[HL_FORMAT_MAX], growth[HL_FORMAT_MAX];

	format_value(picture, frame->value, value);
	format_value(picture, frame->value - frame->base, growth);
	if (picture->profile->base)
		snprintf(text, 3 * HL_FORMAT_MAX, "%s (%s%s)", value,
			 frame->value > frame->base ? "+" : "", growth);
	else
		strcpy(text, value);
}

/* The name, and after it the value where both fit. */
static void write_label(const struct hl_flame_picture *picture, const struct hl_flame_frame *frame,
			double width)
{
	FILE *out = picture->options->out;
	const char *name = name_of(picture, frame);
	char figures[3 * HL_FORMAT_MAX];
	size_t cells = (size_t)((width - 2 * TEXT_INSET) / HL_FLAME_CELL);

	hl_xml_text_cut(out, name, cells);
	format_figures(picture, frame, figures);
	if (hl_xml_cells(name, cells) + 2 + strlen(figures) <= cells)
		fprintf(out, "<tspan dx=\"8\">%s</tspan>", figures);
}

static void write_labelled(const struct hl_flame_picture *picture, const struct geometry *geometry,
			   const struct hl_flame_frame *frame)
{
	FILE *out = picture->options->out;
	double left = left_of(geometry, frame), width = width_of(geometry, frame);
	int top = top_of(picture, geometry, frame);
	char figures[3 * HL_FORMAT_MAX], percent[HL_FORMAT_MAX];

	format_figures(picture, frame, figures);
	fputs("<g><title>", out);
	hl_xml_text_cut(out, name_of(picture, frame), HL_FLAME_NAME_CELLS);
	fprintf(out, ": %s, %s</title>", figures,
		hl_format_percent(frame->value, picture->layout->frames[0].value, percent));
	fprintf(out,
		"<rect class=\"c%u\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
		hl_flame_picture_color(picture, frame), left, top, width - 1, HL_FLAME_ROW - 1);
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">", left + TEXT_INSET, top + TEXT_BASELINE);
	write_label(picture, frame, width);
	fputs("</text></g>\n", out);
}

/* Frames without a label share one path for each colour, which is far smaller. */
static void write_unlabelled(const struct hl_flame_picture *picture,
			     const struct geometry *geometry, unsigned color)
{
	FILE *out = picture->options->out;
	bool begun = false;

	for (size_t i = 1; i < picture->layout->count; i++) {
		const struct hl_flame_frame *frame = &picture->layout->frames[i];
		double width = width_of(geometry, frame);
		if (width < HL_FLAME_NARROW || width >= LABELLED_WIDTH ||
		    hl_flame_picture_color(picture, frame) != color)
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

static void write_frames(const struct hl_flame_picture *picture, const struct geometry *geometry)
{
	FILE *out = picture->options->out;
	const struct hl_flame_layout *layout = picture->layout;

	fputs("<g id=\"frames\">\n", out);
	for (unsigned i = 0; i < hl_flame_palette(picture->palette)->count; i++)
		write_unlabelled(picture, geometry, i);
	for (size_t i = 0; i < layout->count; i++)
		if (width_of(geometry, &layout->frames[i]) >= LABELLED_WIDTH)
			write_labelled(picture, geometry, &layout->frames[i]);
	fputs("</g>\n", out);
}

int hl_flame_picture_write(const struct hl_flame_picture *picture)
{
	FILE *out = picture->options->out;
	struct geometry geometry = geometry_of(picture);

	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\">\n<!-- Made by heapline %s. -->\n<title>",
		HL_FLAME_WIDTH, geometry.height, HL_FLAME_WIDTH, geometry.height, HL_VERSION);
	hl_xml_text(out, picture->head->title);
	fputs("</title>\n", out);
	write_style(out, hl_flame_palette(picture->palette));
	fputs("<rect id=\"paper\" width=\"100%\" height=\"100%\"/>\n", out);
	write_head(picture);
	write_legend(picture, geometry.legend);
	fputs("</g>\n", out);
	write_frames(picture, &geometry);
	int r = hl_flame_script_write(picture, geometry.frames);
	fputs("</svg>\n", out);
	return r;
}
