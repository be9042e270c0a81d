/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline annotate: the source of functions, with figures beside its lines. */
#include "view/annotate.h"

#include "base/cleanup.h"
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
						  report->options->annotate.source_path);
	return section->missing == -ENOMEM ? -ENOMEM : 0;
}

void hl_annotate_section_release(struct hl_annotate_section *section)
{
	hl_source_release(&section->source);
}

/* ---- JSON ---- */

/* The cell of a text of the profile, by its id. */
static void text(struct hl_emit *emit, const void *id, const void *profile)
{
	hl_cell_text(emit, hl_profile_text(profile, *(const uint32_t *)id));
}

/* A function, or a line of it with its source. */
struct row {
	uint32_t name, file, line, module;
	const char *source;
	struct hl_aggregate_figures flat, cum;
};

#define MEMBER(name) HL_MEMBER(struct row, name)
#define TEXT(id)     HL_MEMBER_CELL(struct row, id, text)
#define IS_LINE	     1

static const struct hl_column columns[] = {
	{"name", NULL, HL_COLUMN_TEXT, TEXT(name)},
	{"file", NULL, HL_COLUMN_TEXT, TEXT(file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(line)},
	{"module", NULL, HL_COLUMN_TEXT, TEXT(module)},
	{"source", NULL, HL_COLUMN_TEXT, MEMBER(source), .shown_if = IS_LINE},
	{"flat", NULL, HL_COLUMN_FIGURE, MEMBER(flat)},
	{"cum", NULL, HL_COLUMN_FIGURE, MEMBER(cum)},
};

static int write_json(const struct hl_annotate *report)
{
	const struct hl_profile *profile = report->profile;
	int r = 0;

	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE("functions", columns), .context = profile});
	for (size_t i = 0; i < report->annotation->function_count; i++) {
		const struct hl_annotation_function *of = &report->annotation->functions[i];
		const struct hl_profile_function *function = &profile->functions[of->function];
		const struct row row = {function->name,
					function->file,
					function->line,
					profile->modules[function->module].path,
					"",
					of->flat,
					of->cum};
		hl_table_row(report->emit, &row, 0);
	}
	hl_table_end(report->emit);
	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE("rows", columns), .context = report->profile,
					  .facts = IS_LINE});
	for (size_t i = 0; r == 0 && i < report->annotation->function_count; i++) {
		const struct hl_annotation_function *of = &report->annotation->functions[i];
		const struct hl_profile_function *function = &profile->functions[of->function];
		for (size_t first = 0; first < of->line_count;) {
			struct hl_annotate_section section;
			r = hl_annotate_section_init(&section, report, of, first);
			if (r < 0)
				break;
			for (size_t j = 0; j < section.count; j++) {
				const struct hl_annotation_line *line = &section.lines[j];
				const char *source = hl_source_line(&section.source, line->line);
				const struct row row = {function->name,
							line->file,
							line->line,
							profile->modules[function->module].path,
							source ? source : "",
							line->flat,
							line->cum};
				hl_table_row(report->emit, &row, 0);
			}
			first += section.count;
			hl_annotate_section_release(&section);
		}
	}
	hl_table_end(report->emit);
	return r;
}

/* ---- all of it ---- */

int hl_annotate_view(const struct hl_profile *profile, const struct hl_view_options *options,
		     struct hl_error *err)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};
	HL_CLEANUP(hl_annotation_release) struct hl_annotation annotation = {0};
	struct hl_annotate report = {
		.profile = profile, .options = options, .annotation = &annotation};

	int r = hl_annotation_init(&annotation, profile, options, err);
	if (r == 0)
		r = hl_emit_open(&how, "annotate/1", &report.emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_table_figures(report.emit, profile, options->value, options->unit);
	hl_summary_members(report.emit, profile, options);
	r = options->json ? write_json(&report) : hl_annotate_text(&report);
	int finished = hl_emit_finish(report.emit);
	if (r == 0)
		r = finished;
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
