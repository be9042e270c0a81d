/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions with their source as text: a table for each function and file. */
#include "view/annotate.h"

#include "base/names.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FUNCTIONS_DEFAULT 10
#define CONTEXT_LINES	  5  /* shown before and after lines with figures */
#define GAP_LINES	  20 /* as many lines without figures are shown, more are left out */
#define TAB_COLUMNS	  8
#define NS_PER_S	  1000000000u

static const char *text_of(const struct hl_annotate *report, uint32_t id)
{
	return hl_profile_text(report->profile, id);
}

static const struct hl_profile_function *function_of(const struct hl_annotate *report,
						     const struct hl_annotation_function *function)
{
	return &report->profile->functions[function->function];
}

static const char *module_path(const struct hl_annotate *report,
			       const struct hl_annotation_function *function)
{
	uint32_t module = function_of(report, function)->module;

	return text_of(report, report->profile->modules[module].path);
}

/* ---- where the source is ---- */

static bool is_later_than_program(const struct hl_annotate *report,
				  const struct hl_annotate_section *section)
{
	struct stat module;

	if (stat(module_path(report, section->function), &module) == 0)
		return section->source.changed > module.st_mtime;
	uint64_t start = report->profile->start_realtime_ns / NS_PER_S;
	return start && section->source.changed > (time_t)start;
}

static void section_lines(const struct hl_annotate *report,
			  const struct hl_annotate_section *section)
{
	const struct hl_profile_function *function = function_of(report, section->function);
	uint32_t reason = report->profile->modules[function->module].symbols_reason;
	const char *module = hl_path_basename(module_path(report, section->function));
	const char *recorded = text_of(report, section->lines->file);
	const char *folder = report->options->annotate.source_path;

	if (!section->lines->file && (report->profile->imported || !function->module)) {
		hl_emit_line(report->emit, "no line numbers: '%s' does not have them",
			     text_of(report, report->profile->name));
		return;
	}
	if (!section->lines->file) { /* with what would help */
		hl_emit_line(report->emit, "no line numbers for '%s'%s%s", module,
			     reason ? ": " : "", text_of(report, reason));
		return;
	}
	if (section->missing && folder) {
		hl_emit_line(report->emit,
			     "no source: neither '%s' nor an end of that path below '%s' can be "
			     "read: %s",
			     recorded, folder, strerror(-section->missing));
		return;
	}
	if (section->missing) {
		hl_emit_line(report->emit,
			     "no source: '%s' cannot be read: %s; --source-path names the folder "
			     "where the sources are",
			     recorded, strerror(-section->missing));
		return;
	}
	hl_emit_line(report->emit, "source: %s", section->source.path);
	if (is_later_than_program(report, section))
		hl_emit_warning(report->emit,
				"CHANGED: the source is newer than the program; figures may stand "
				"beside the wrong lines");
}

/* ---- rows of text ---- */

/* Facts of the table. */
enum {
	KNOWS_BYTES = 1,
	KNOWS_OBJECTS = 2,
};

struct row {
	struct hl_aggregate_figures flat, cum;
	uint32_t line;
	const char *source;
};

#define MEMBER(name) HL_MEMBER(struct row, name)
#define BLANK	     HL_COLUMN_BLANK_ZERO

static const struct hl_column columns[] = {
	{NULL, "flat", HL_COLUMN_BYTES, MEMBER(flat.bytes), BLANK, KNOWS_BYTES},
	{NULL, "objects", HL_COLUMN_COUNT, MEMBER(flat.objects), BLANK, KNOWS_OBJECTS},
	{NULL, "cum", HL_COLUMN_BYTES, MEMBER(cum.bytes), BLANK, KNOWS_BYTES},
	{NULL, "objects", HL_COLUMN_COUNT, MEMBER(cum.objects), BLANK, KNOWS_OBJECTS},
	{NULL, "line", HL_COLUMN_NUMBER, MEMBER(line), BLANK},
	{NULL, "source", HL_COLUMN_TEXT, MEMBER(source), HL_COLUMN_SHORTENED},
};

/* Tabs as spaces. NULL: no memory. */
static char *expand_tabs(const char *line)
{
	char *expanded = malloc(TAB_COLUMNS * strlen(line) + 1);
	size_t used = 0;

	if (!expanded)
		return NULL;
	for (; *line; line++)
		if (*line == '\t')
			do
				expanded[used++] = ' ';
			while (used % TAB_COLUMNS);
		else
			expanded[used++] = *line;
	expanded[used] = '\0';
	return expanded;
}

/* What a line must have to be one of the heaviest; among equals, all stand out or none. */
static int64_t heaviest_from(const struct hl_annotate_section *section, enum hl_unit unit)
{
	int64_t heaviest[HL_ROWS_HEAVIEST] = {0}; /* the last is the least */

	for (size_t i = 0; i < section->count; i++) {
		int64_t figure = hl_aggregate_figure(section->lines[i].cum, unit);
		size_t at = HL_ROWS_HEAVIEST - 1;
		if (figure <= heaviest[at])
			continue;
		for (; at && heaviest[at - 1] < figure; at--)
			heaviest[at] = heaviest[at - 1];
		heaviest[at] = figure;
	}
	return heaviest[HL_ROWS_HEAVIEST - 1];
}

/* ${line}: NULL for one without figures. */
static int emit_source_row(const struct hl_annotate *report,
			   const struct hl_annotate_section *section,
			   const struct hl_annotation_line *line, uint32_t number)
{
	const char *text = hl_source_line(&section->source, number);
	char *expanded = expand_tabs(text ? text : "");
	struct row row = {.line = number, .source = expanded};
	enum hl_unit unit = report->options->unit;
	unsigned emphasis = 0;

	if (!expanded)
		return -ENOMEM;
	if (line) {
		int64_t figure = hl_aggregate_figure(line->cum, unit);
		row.flat = line->flat;
		row.cum = line->cum;
		emphasis =
			hl_rows_emphasis(figure >= section->heaviest_from ? 0 : HL_ROWS_HEAVIEST,
					 figure, hl_aggregate_figure(section->function->cum, unit));
	}
	hl_table_row(report->emit, &row, emphasis);
	free(expanded);
	return 0;
}

/* Lines without figures from ${first} up to before ${end}; many of them are cut short. */
static int emit_plain_rows(const struct hl_annotate *report,
			   const struct hl_annotate_section *section, uint32_t first, uint32_t end)
{
	bool cut = end > first && end - first > GAP_LINES;
	int r = 0;

	for (uint32_t number = first; r == 0 && number < end; number++) {
		if (cut && number == first + CONTEXT_LINES) {
			hl_table_row(report->emit, &(struct row){.source = "..."}, 0);
			number = end - CONTEXT_LINES;
		}
		r = emit_source_row(report, section, NULL, number);
	}
	return r;
}

/* Where to begin: the function's own first line, or a little before the first with figures. */
static uint32_t first_number(const struct hl_annotate *report,
			     const struct hl_annotate_section *section)
{
	const struct hl_profile_function *function = function_of(report, section->function);
	uint32_t line = section->lines[0].line;

	if (function->file == section->lines->file && function->line && function->line <= line)
		return function->line;
	return line > CONTEXT_LINES ? line - CONTEXT_LINES : 1;
}

static int emit_rows_of(const struct hl_annotate *report, const struct hl_annotate_section *section)
{
	enum hl_value value = report->options->value;
	unsigned facts = 0;
	bool has_source = section->source.count;
	uint32_t next = has_source ? first_number(report, section) : 0;
	int r = 0;

	if (hl_profile_knows(report->profile, value, HL_UNIT_BYTES))
		facts |= KNOWS_BYTES;
	if (hl_profile_knows(report->profile, value, HL_UNIT_OBJECTS))
		facts |= KNOWS_OBJECTS;
	hl_table_begin(report->emit, &(struct hl_table){HL_TABLE(NULL, columns), .facts = facts});
	for (size_t i = 0; r == 0 && i < section->count; i++) {
		const struct hl_annotation_line *line = &section->lines[i];
		if (has_source)
			r = emit_plain_rows(report, section, next, line->line);
		if (r == 0)
			r = emit_source_row(report, section, line, line->line);
		next = line->line + 1;
	}
	/* A few lines after the last one with figures, but nothing after the end of the function. */
	const char *text = hl_source_line(&section->source, next - 1);
	for (uint32_t i = 0; r == 0 && i < CONTEXT_LINES && text && *text != '}'; i++, next++) {
		text = hl_source_line(&section->source, next);
		if (text)
			r = emit_source_row(report, section, NULL, next);
	}
	hl_table_end(report->emit);
	return r;
}

/* ---- one function ---- */

static int emit_function(const struct hl_annotate *report,
			 const struct hl_annotation_function *function)
{
	const struct hl_profile_function *described = function_of(report, function);
	const char *module = module_path(report, function);
	enum hl_unit unit = report->options->unit;
	int64_t flat = hl_aggregate_figure(function->flat, unit);
	int64_t cum = hl_aggregate_figure(function->cum, unit);
	int64_t whole = hl_aggregate_figure(report->annotation->total, unit);
	char number[HL_FORMAT_MAX], share[HL_FORMAT_MAX];
	char other[HL_FORMAT_MAX], other_share[HL_FORMAT_MAX];

	const char *(*format)(int64_t, char *) =
		unit == HL_UNIT_BYTES ? hl_format_bytes : hl_format_count;
	int r = 0;

	hl_emit_blank(report->emit);
	hl_emit_line(report->emit, "%s%s%s", text_of(report, described->name),
		     module[0] ? " in " : "", module);
	hl_emit_line(report->emit, "flat %s (%s), cum %s (%s)", format(flat, number),
		     hl_format_percent(flat, whole, share), format(cum, other),
		     hl_format_percent(cum, whole, other_share));
	for (size_t first = 0; r == 0 && first < function->line_count;) {
		struct hl_annotate_section section;
		r = hl_annotate_section_init(&section, report, function, first);
		if (r < 0)
			return r;
		section.heaviest_from = heaviest_from(&section, report->options->unit);
		section_lines(report, &section);
		r = emit_rows_of(report, &section);
		hl_annotate_section_release(&section);
		first += section.count;
	}
	return r;
}

int hl_annotate_text(const struct hl_annotate *report)
{
	const struct hl_annotation *annotation = report->annotation;
	uint64_t limit = report->options->row_limit, shown = 0, more = 0;
	char count[HL_FORMAT_MAX];
	int r = 0;

	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = FUNCTIONS_DEFAULT;
	hl_summary_lines(report->emit, report->profile);
	hl_summary_value_line(report->emit, report->profile, report->options);
	for (size_t i = 0; r == 0 && i < annotation->function_count; i++) {
		const struct hl_annotation_function *function = &annotation->functions[i];
		if (!function->cum.bytes && !function->cum.objects && !function->flat.bytes &&
		    !function->flat.objects)
			continue;
		if (limit && shown == limit) {
			more++;
			continue;
		}
		r = emit_function(report, function);
		shown++;
	}
	hl_emit_blank(report->emit);
	if (more)
		hl_emit_line(report->emit, "... and %s more; -n 0 shows all",
			     hl_format_count(more, count));
	if (!shown)
		hl_emit_line(report->emit, "nothing of it comes from '%s'",
			     report->options->annotate.function);
	hl_summary_names(report->emit, report->profile);
	return r;
}
