/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline annotate: the source of functions, with figures beside its lines. */
#include "view/annotate.h"

#include "view/summary.h"

#include <errno.h>

int hl_annotate_section_init(struct hl_annotate_section *section, const struct hl_annotate *report,
			     const struct hl_annotation_function *function, size_t first)
{
	const struct hl_annotation_line *lines =
		&report->annotation->lines[function->first_line + first];

	*section = (struct hl_annotate_section){
		.function = function, .lines = lines, .missing = -ENOENT};
	while (first + section->count < function->line_count &&
	       lines[section->count].file == lines->file)
		section->count++;
	if (lines->file)
		section->missing = hl_source_read(&section->source,
						  hl_profile_text(report->profile, lines->file),
						  report->options->source_path);
	return section->missing == -ENOMEM ? -ENOMEM : 0;
}

void hl_annotate_section_release(struct hl_annotate_section *section)
{
	hl_source_release(&section->source);
}

/* ---- JSON ---- */

#define FIGURE_COLUMNS 4

static void fill_figure_columns(const struct hl_annotate *report, struct hl_emit_column *columns)
{
	enum hl_value value = report->options->value;
	bool bytes = hl_profile_knows(report->profile, value, HL_UNIT_BYTES);
	bool objects = hl_profile_knows(report->profile, value, HL_UNIT_OBJECTS);
	unsigned of_bytes = bytes ? 0 : HL_EMIT_TEXT_ONLY;
	unsigned of_objects = objects ? 0 : HL_EMIT_TEXT_ONLY;

	columns[0] = (struct hl_emit_column){"flat_bytes", NULL, HL_EMIT_BYTES, of_bytes};
	columns[1] = (struct hl_emit_column){"flat_objects", NULL, HL_EMIT_COUNT, of_objects};
	columns[2] = (struct hl_emit_column){"cum_bytes", NULL, HL_EMIT_BYTES, of_bytes};
	columns[3] = (struct hl_emit_column){"cum_objects", NULL, HL_EMIT_COUNT, of_objects};
}

static void emit_figures(struct hl_emit *emit, struct hl_aggregate_figures flat,
			 struct hl_aggregate_figures cum)
{
	hl_emit_cell_integer(emit, flat.bytes);
	hl_emit_cell_integer(emit, flat.objects);
	hl_emit_cell_integer(emit, cum.bytes);
	hl_emit_cell_integer(emit, cum.objects);
}

static void emit_functions(const struct hl_annotate *report)
{
	const struct hl_profile *profile = report->profile;
	struct hl_emit_column columns[4 + FIGURE_COLUMNS] = {
		{"name", NULL, HL_EMIT_TEXT, 0},
		{"file", NULL, HL_EMIT_TEXT, 0},
		{"line", NULL, HL_EMIT_COUNT, 0},
		{"module", NULL, HL_EMIT_TEXT, 0},
	};

	fill_figure_columns(report, columns + 4);
	hl_emit_rows(report->emit, "functions", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < report->annotation->function_count; i++) {
		const struct hl_annotation_function *row = &report->annotation->functions[i];
		const struct hl_profile_function *function = &profile->functions[row->function];
		uint32_t path = profile->modules[function->module].path;
		hl_emit_row(report->emit, 0);
		hl_emit_cell_text(report->emit, hl_profile_text(profile, function->name));
		hl_emit_cell_text(report->emit, hl_profile_text(profile, function->file));
		hl_emit_cell_integer(report->emit, function->line);
		hl_emit_cell_text(report->emit, hl_profile_text(profile, path));
		emit_figures(report->emit, row->flat, row->cum);
	}
	hl_emit_rows_end(report->emit);
}

static void emit_section(const struct hl_annotate *report,
			 const struct hl_annotate_section *section)
{
	const struct hl_profile *profile = report->profile;
	const struct hl_profile_function *function =
		&profile->functions[section->function->function];
	uint32_t module = profile->modules[function->module].path;

	for (size_t i = 0; i < section->count; i++) {
		const struct hl_annotation_line *line = &section->lines[i];
		const char *text = hl_source_line(&section->source, line->line);
		hl_emit_row(report->emit, 0);
		hl_emit_cell_text(report->emit, hl_profile_text(profile, function->name));
		hl_emit_cell_text(report->emit, hl_profile_text(profile, line->file));
		hl_emit_cell_integer(report->emit, line->line);
		hl_emit_cell_text(report->emit, hl_profile_text(profile, module));
		hl_emit_cell_text(report->emit, text ? text : "");
		emit_figures(report->emit, line->flat, line->cum);
	}
}

static int emit_lines(const struct hl_annotate *report,
		      const struct hl_annotation_function *function)
{
	for (size_t first = 0; first < function->line_count;) {
		struct hl_annotate_section section;
		int r = hl_annotate_section_init(&section, report, function, first);
		if (r < 0)
			return r;
		emit_section(report, &section);
		first += section.count;
		hl_annotate_section_release(&section);
	}
	return 0;
}

static int emit_json(const struct hl_annotate *report)
{
	struct hl_emit_column columns[5 + FIGURE_COLUMNS] = {
		{"name", NULL, HL_EMIT_TEXT, 0},   {"file", NULL, HL_EMIT_TEXT, 0},
		{"line", NULL, HL_EMIT_COUNT, 0},  {"module", NULL, HL_EMIT_TEXT, 0},
		{"source", NULL, HL_EMIT_TEXT, 0},
	};
	int r = 0;

	emit_functions(report);
	fill_figure_columns(report, columns + 5);
	hl_emit_rows(report->emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; r == 0 && i < report->annotation->function_count; i++)
		r = emit_lines(report, &report->annotation->functions[i]);
	hl_emit_rows_end(report->emit);
	return r;
}

/* ---- all of it ---- */

static int emit_report(struct hl_annotate *report)
{
	const struct hl_view_options *options = report->options;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &report->emit);
	if (r < 0)
		return r;
	hl_emit_begin(report->emit, "annotate");
	hl_summary_members(report->emit, report->profile, options);
	r = options->json ? emit_json(report) : hl_annotate_text(report);
	int finished = hl_emit_finish(report->emit);
	return r < 0 ? r : finished;
}

int hl_view_annotate(const struct hl_profile *profile, const struct hl_view_options *options,
		     struct hl_error *err)
{
	struct hl_annotation annotation;
	struct hl_annotate report = {
		.profile = profile, .options = options, .annotation = &annotation};

	int r = hl_annotation_init(&annotation, profile, options, err);
	if (r == 0)
		r = emit_report(&report);
	hl_annotation_release(&annotation);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
