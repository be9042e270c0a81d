/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline annotate: the source of functions, with figures beside its lines. Figures by the lines of the chosen functions are
 * cut into sections of one source file each. A line that was inlined belongs to its own function.
 */
#include "view/annotate.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "profile/filter.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the source: ends of paths that are tried, and lines of files ---- */

#define SIZE_LIMIT (64u << 20) /* larger files are not sources that anybody reads */

/* A regular file for reading; anything else, a device or a pipe, could block or never end. */
static int open_regular(const char *path, struct stat *ret_status)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return -errno;
	int r = fstat(fd, ret_status) < 0 ? -errno : S_ISREG(ret_status->st_mode) ? 0 : -EINVAL;
	if (r == 0 && ret_status->st_size > SIZE_LIMIT)
		r = -EFBIG;
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

/* The longest end of ${recorded} that is below ${folder}, else ${recorded} itself; the path is to
 * be freed. */
static int find(const char *folder, const char *recorded, char **ret_path, struct stat *ret_status)
{
	char *path;
	int fd;

	for (const char *end = folder ? recorded + strspn(recorded, "/") : ""; *end;
	     end += strcspn(end, "/"), end += strspn(end, "/")) {
		if (!strncmp(end, "../", 3) || !strncmp(end, "./", 2))
			continue;
		if (asprintf(&path, "%s/%s", folder, end) < 0)
			return -ENOMEM;
		fd = open_regular(path, ret_status);
		if (fd >= 0) {
			*ret_path = path;
			return fd;
		}
		free(path);
	}
	path = strdup(recorded);
	fd = path ? open_regular(path, ret_status) : -ENOMEM;
	if (fd < 0)
		free(path);
	else
		*ret_path = path;
	return fd;
}

/* Lines end with a newline, or with the end of the file; a carriage return is part of the end. */
static int cut_lines(struct hl_source *source)
{
	size_t count = 1;

	for (const char *at = source->text; (at = strchr(at, '\n')); at++)
		count++;
	source->lines = calloc(count, sizeof(*source->lines));
	if (!source->lines)
		return -ENOMEM;
	for (char *line = source->text, *end; line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		else if (!*line)
			break;
		line[strcspn(line, "\r")] = '\0';
		source->lines[source->count++] = line;
	}
	return 0;
}

int hl_source_read(struct hl_source *source, const char *recorded, const char *folder)
{
	struct stat status;
	size_t used = 0;
	ssize_t count = 0;

	*source = (struct hl_source){0};
	HL_CLOSED int fd = find(folder, recorded, &source->path, &status);
	if (fd < 0)
		return fd;
	size_t size = (size_t)status.st_size;
	source->changed = status.st_mtime;
	source->text = calloc(size + 1, 1);
	while (source->text && used < size &&
	       (count = read(fd, source->text + used, size - used)) > 0)
		used += (size_t)count;
	int r = !source->text ? -ENOMEM : count < 0 ? -errno : cut_lines(source);
	if (r < 0)
		hl_source_release(source);
	return r;
}

void hl_source_release(struct hl_source *source)
{
	free(source->path);
	free(source->text);
	free(source->lines);
	*source = (struct hl_source){0};
}

const char *hl_source_line(const struct hl_source *source, uint32_t number)
{
	return number && number <= source->count ? source->lines[number - 1] : NULL;
}

/* ---- figures by line ---- */

struct annotation_line {
	uint32_t file, line; /* 0 when unknown */
	struct hl_aggregate_figures flat, cum;
};

struct annotation_function {
	uint32_t function;
	size_t first_line, line_count; /* in the annotation's lines, by file and line */
	struct hl_aggregate_figures flat, cum;
};

struct annotation {
	struct annotation_function *functions; /* heaviest first, by cum */
	struct annotation_line *lines;
	size_t function_count, line_count;
	struct hl_aggregate_figures total; /* of the whole profile */
};

/* ---- choosing functions ---- */

/* Those of the very name, else those that match the expression. */
static int choose(const struct hl_profile *profile, const char *wanted, bool *chosen,
		  struct hl_error *err)
{
	size_t count = 0, length = strlen(wanted);
	regex_t expression;

	for (uint32_t i = 1; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		chosen[i] =
			!strncmp(name, wanted, length) && (!name[length] || name[length] == '(');
		count += chosen[i];
	}
	if (count)
		return 0;
	int r = hl_expression_compile(wanted, "", &expression, err);
	if (r < 0)
		return r;
	for (uint32_t i = 1; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		chosen[i] = regexec(&expression, name, 0, NULL, 0) == 0;
		count += chosen[i];
	}
	regfree(&expression);
	return count ? 0
		     : hl_error_set(err, -ENOENT,
				    "no function '%s' in '%s'; 'heapline top -n 0' lists them",
				    wanted, hl_profile_text(profile, profile->name));
}

/* ---- lines ---- */

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

/* Line i has key i + 1; key 0 is for frames of other functions. */
static int add_lines(struct annotation *annotation, const struct hl_profile *profile,
		     const bool *chosen, uint32_t *keys)
{
	HL_FREED uint32_t *frames = calloc(profile->frame_count, sizeof(*frames));
	const struct hl_profile_frame *before = NULL;
	size_t count = 0;

	if (!frames)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->frame_count; i++)
		if (chosen[profile->frames[i].function])
			frames[count++] = i;
	qsort_r(frames, count, sizeof(*frames), by_place, profile->frames);
	struct annotation_function *functions = annotation->functions =
		calloc(count + 1, sizeof(*functions));
	struct annotation_line *lines = annotation->lines = calloc(count + 1, sizeof(*lines));
	if (!functions || !lines)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[frames[i]];
		if (!before || before->function != frame->function)
			functions[annotation->function_count++] = (struct annotation_function){
				.function = frame->function, .first_line = annotation->line_count};
		if (!before || compare_places(before, frame)) {
			lines[annotation->line_count++] =
				(struct annotation_line){.file = frame->file, .line = frame->line};
			functions[annotation->function_count - 1].line_count++;
		}
		keys[frames[i]] = (uint32_t)annotation->line_count;
		before = frame;
	}
	return 0;
}

/* ---- functions with figures ---- */

static void annotation_release(struct annotation *annotation)
{
	free(annotation->functions);
	free(annotation->lines);
	*annotation = (struct annotation){0};
}

static int by_weight(const void *left, const void *right, void *context)
{
	const struct annotation_function *a = left, *b = right;
	enum hl_unit unit = *(const enum hl_unit *)context;
	int64_t weight_a = hl_aggregate_figure(a->cum, unit);
	int64_t weight_b = hl_aggregate_figure(b->cum, unit);

	if (weight_a != weight_b)
		return weight_a < weight_b ? 1 : -1;
	return compare(a->function, b->function);
}

/*
 * The functions that options->annotate.function names: those of that very name, with or without its
 * parameters; else those in whose names the extended regular expression is found. 0; -ENOMEM;
 * -EINVAL for a bad expression and -ENOENT when there is no such function, with a sentence.
 */
static int annotation_init(struct annotation *annotation, const struct hl_profile *profile,
			   const struct hl_view_options *options, struct hl_error *err)
{
	HL_FREED bool *chosen = calloc(profile->function_count, sizeof(*chosen));
	HL_FREED uint32_t *keys = calloc(profile->frame_count, sizeof(*keys));
	HL_CLEANUP(hl_aggregate_release) struct hl_aggregate by_line = {0}, by_function = {0};
	enum hl_unit unit = options->unit;

	*annotation = (struct annotation){0};
	if (!chosen || !keys)
		return -ENOMEM;
	int r = choose(profile, options->annotate.function, chosen, err);
	if (r == 0)
		r = add_lines(annotation, profile, chosen, keys);
	if (r == 0)
		r = hl_aggregate_init(&by_line, profile, options->value, keys,
				      annotation->line_count + 1);
	if (r == 0)
		r = hl_aggregate_init(&by_function, profile, options->value, NULL, 0);
	if (r < 0) {
		annotation_release(annotation);
		return r;
	}
	for (size_t i = 0; i < annotation->line_count; i++) {
		annotation->lines[i].flat = by_line.flat[i + 1];
		annotation->lines[i].cum = by_line.cum[i + 1];
	}
	for (size_t i = 0; i < annotation->function_count; i++) {
		struct annotation_function *function = &annotation->functions[i];
		function->flat = by_function.flat[function->function];
		function->cum = by_function.cum[function->function];
	}
	annotation->total = by_line.total;
	qsort_r(annotation->functions, annotation->function_count, sizeof(*annotation->functions),
		by_weight, &unit);
	return 0;
}

/* ---- the report ---- */

/* What all parts of one report need. */
struct report {
	struct hl_emit *emit;
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct annotation *annotation;
};

/* Lines of one function in one file, and the file, if it is there. */
struct section {
	const struct annotation_function *function;
	const struct annotation_line *lines;
	size_t count;
	struct hl_source source;
	int missing;	       /* 0, or why there is no source */
	int64_t heaviest_from; /* text: what a line must have to be one of the heaviest */
};

/*
 * The section of ${function} that begins at its line ${first} (an index, not a number). 0 or
 * -ENOMEM.
 */
static int section_init(struct section *section, const struct report *report,
			const struct annotation_function *function, size_t first)
{
	const struct annotation_line *lines =
		&report->annotation->lines[function->first_line + first];

	*section = (struct section){.function = function, .lines = lines, .missing = -ENOENT};
	while (first + section->count < function->line_count &&
	       lines[section->count].file == lines->file)
		section->count++;
	if (lines->file)
		section->missing = hl_source_read(&section->source,
						  hl_profile_text(report->profile, lines->file),
						  report->options->annotate.source_path);
	return section->missing == -ENOMEM ? -ENOMEM : 0;
}

static void section_release(struct section *section)
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

static int write_json(const struct report *report)
{
	const struct hl_profile *profile = report->profile;
	int r = 0;

	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE("functions", columns), .context = profile});
	for (size_t i = 0; i < report->annotation->function_count; i++) {
		const struct annotation_function *of = &report->annotation->functions[i];
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
		const struct annotation_function *of = &report->annotation->functions[i];
		const struct hl_profile_function *function = &profile->functions[of->function];
		for (size_t first = 0; first < of->line_count;) {
			struct section section;
			r = section_init(&section, report, of, first);
			if (r < 0)
				break;
			for (size_t j = 0; j < section.count; j++) {
				const struct annotation_line *line = &section.lines[j];
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
			section_release(&section);
		}
	}
	hl_table_end(report->emit);
	return r;
}

/* ---- text: a table for each function and file ---- */

#define FUNCTIONS_DEFAULT 10
#define CONTEXT_LINES	  5  /* shown before and after lines with figures */
#define GAP_LINES	  20 /* as many lines without figures are shown, more are left out */
#define TAB_COLUMNS	  8
#define NS_PER_S	  1000000000u

static const char *text_of(const struct report *report, uint32_t id)
{
	return hl_profile_text(report->profile, id);
}

static const struct hl_profile_function *function_of(const struct report *report,
						     const struct annotation_function *function)
{
	return &report->profile->functions[function->function];
}

static const char *module_path(const struct report *report,
			       const struct annotation_function *function)
{
	uint32_t module = function_of(report, function)->module;

	return text_of(report, report->profile->modules[module].path);
}

/* ---- where the source is ---- */

static bool is_later_than_program(const struct report *report, const struct section *section)
{
	struct stat module;

	if (stat(module_path(report, section->function), &module) == 0)
		return section->source.changed > module.st_mtime;
	uint64_t start = report->profile->start_realtime_ns / NS_PER_S;
	return start && section->source.changed > (time_t)start;
}

static void section_lines(const struct report *report, const struct section *section)
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

struct text_row {
	struct hl_aggregate_figures flat, cum;
	uint32_t line;
	const char *source;
};

#define SHOWN(name) HL_MEMBER(struct text_row, name)
#define BLANK	    HL_COLUMN_BLANK_ZERO

static const struct hl_column text_columns[] = {
	{NULL, "flat", HL_COLUMN_BYTES, SHOWN(flat.bytes), BLANK, KNOWS_BYTES},
	{NULL, "objects", HL_COLUMN_COUNT, SHOWN(flat.objects), BLANK, KNOWS_OBJECTS},
	{NULL, "cum", HL_COLUMN_BYTES, SHOWN(cum.bytes), BLANK, KNOWS_BYTES},
	{NULL, "objects", HL_COLUMN_COUNT, SHOWN(cum.objects), BLANK, KNOWS_OBJECTS},
	{NULL, "line", HL_COLUMN_NUMBER, SHOWN(line), BLANK},
	{NULL, "source", HL_COLUMN_TEXT, SHOWN(source), HL_COLUMN_SHORTENED},
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
static int64_t heaviest_from(const struct section *section, enum hl_unit unit)
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
static int emit_source_row(const struct report *report, const struct section *section,
			   const struct annotation_line *line, uint32_t number)
{
	const char *text = hl_source_line(&section->source, number);
	char *expanded = expand_tabs(text ? text : "");
	struct text_row row = {.line = number, .source = expanded};
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
static int emit_plain_rows(const struct report *report, const struct section *section,
			   uint32_t first, uint32_t end)
{
	bool cut = end > first && end - first > GAP_LINES;
	int r = 0;

	for (uint32_t number = first; r == 0 && number < end; number++) {
		if (cut && number == first + CONTEXT_LINES) {
			hl_table_row(report->emit, &(struct text_row){.source = "..."}, 0);
			number = end - CONTEXT_LINES;
		}
		r = emit_source_row(report, section, NULL, number);
	}
	return r;
}

/* Where to begin: the function's own first line, or a little before the first with figures. */
static uint32_t first_number(const struct report *report, const struct section *section)
{
	const struct hl_profile_function *function = function_of(report, section->function);
	uint32_t line = section->lines[0].line;

	if (function->file == section->lines->file && function->line && function->line <= line)
		return function->line;
	return line > CONTEXT_LINES ? line - CONTEXT_LINES : 1;
}

static int emit_rows_of(const struct report *report, const struct section *section)
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
	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE(NULL, text_columns), .facts = facts});
	for (size_t i = 0; r == 0 && i < section->count; i++) {
		const struct annotation_line *line = &section->lines[i];
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

static int emit_function(const struct report *report, const struct annotation_function *function)
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
		struct section section;
		r = section_init(&section, report, function, first);
		if (r < 0)
			return r;
		section.heaviest_from = heaviest_from(&section, report->options->unit);
		section_lines(report, &section);
		r = emit_rows_of(report, &section);
		section_release(&section);
		first += section.count;
	}
	return r;
}

/* The report as text, without its end. 0 or -ENOMEM. */
static int report_text(const struct report *report)
{
	const struct annotation *annotation = report->annotation;
	uint64_t limit = report->options->row_limit, shown = 0, more = 0;
	char count[HL_FORMAT_MAX];
	int r = 0;

	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = FUNCTIONS_DEFAULT;
	hl_summary_lines(report->emit, report->profile);
	hl_summary_value_line(report->emit, report->profile, report->options);
	for (size_t i = 0; r == 0 && i < annotation->function_count; i++) {
		const struct annotation_function *function = &annotation->functions[i];
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

/* ---- all of it ---- */

int hl_annotate_view(const struct hl_profile *profile, const struct hl_view_options *options,
		     struct hl_error *err)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};
	HL_CLEANUP(annotation_release) struct annotation annotation = {0};
	struct report report = {.profile = profile, .options = options, .annotation = &annotation};

	int r = annotation_init(&annotation, profile, options, err);
	if (r == 0)
		r = hl_emit_open(&how, "annotate/1", &report.emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_table_figures(report.emit, profile, options->value, options->unit);
	hl_summary_members(report.emit, profile, options);
	r = options->json ? write_json(&report) : report_text(&report);
	int finished = hl_emit_finish(report.emit);
	if (r == 0)
		r = finished;
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
