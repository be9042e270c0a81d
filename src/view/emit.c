/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables by libsmartcols, lines and JSON as a stream; see emit.h. */
#include "view/emit.h"

#include "view/emit_fit.h"
#include "view/emit_state.h"
#include "view/format.h"
#include "view/json.h"

#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLUMNS_MAX    HL_TABLE_COLUMNS_MAX
#define STREAMED_WIDTH 10  /* of numbers in tables that are streamed */
#define STREAMED_GAP   2   /* between their columns */
#define STREAMED_MAX   512 /* bytes of a text that is cut off */
#define WIDTH_DEFAULT  80  /* of a terminal that does not say */
#define INDENT	       2   /* of a line that goes on */
#define WARNING_COLOR  "\033[1;31m"
#define PLAIN_COLOR    "\033[0m"
/* Names in tables are cut there: templates of C++ can be far longer, and files of other tools have
 * anything. */
#define READABLE_BYTES 4097
#define REPLACEMENT    "\xef\xbf\xbd" /* U+FFFD, as long as what it stands for */

int hl_emit_new(FILE *out, enum hl_emit_form form, bool color, struct hl_emit **ret_emit)
{
	struct hl_emit *emit = calloc(1, sizeof(*emit));

	if (!emit)
		return -ENOMEM;
	emit->out = out;
	emit->form = form;
	emit->color = color;
	emit->json.out = out;
	*ret_emit = emit;
	return 0;
}

int hl_emit_open(const struct hl_emit_options *options, const char *verb, struct hl_emit **ret_emit)
{
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, ret_emit);
	if (r < 0)
		return r;
	hl_emit_begin(*ret_emit, verb);
	return 0;
}

void hl_emit_fail(struct hl_emit *emit, int error)
{
	if (!emit->error)
		emit->error = error;
}

static bool is_json(const struct hl_emit *emit)
{
	return emit->form == HL_EMIT_JSON;
}

bool hl_emit_is_json(const struct hl_emit *emit)
{
	return is_json(emit);
}

void hl_emit_begin(struct hl_emit *emit, const char *verb)
{
	hl_emit_begin_version(emit, verb, 1);
}

void hl_emit_begin_version(struct hl_emit *emit, const char *verb, unsigned version)
{
	char schema[64];

	if (!is_json(emit))
		return;
	snprintf(schema, sizeof(schema), "heapline/%s/%u", verb, version);
	hl_json_open(&emit->json, NULL, '{');
	hl_json_text(&emit->json, "schema", schema);
}

/* Standard output is a terminal, and what is written gets there, through a pager perhaps. */
static bool is_for_terminal(FILE *out)
{
	struct stat status;
	int fd = fileno(out); /* -1 where the file is in memory */

	return isatty(STDOUT_FILENO) && fd >= 0 && fstat(fd, &status) == 0 &&
	       !S_ISREG(status.st_mode);
}

/* Of the terminal; 0 when there is none. */
static size_t terminal_width(const struct hl_emit *emit)
{
	struct winsize size;

	if (!is_for_terminal(emit->out))
		return 0;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return WIDTH_DEFAULT;
	return size.ws_col;
}

size_t hl_emit_width(const struct hl_emit *emit)
{
	return isatty(fileno(emit->out)) ? terminal_width(emit) : 0;
}

static void put_line(struct hl_emit *emit, const char *format, va_list args)
{
	char *line;

	if (vasprintf(&line, format, args) < 0) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	hl_format_put_wrapped(emit->out, line, 0, INDENT, terminal_width(emit));
	free(line);
}

void hl_emit_line(struct hl_emit *emit, const char *format, ...)
{
	va_list args;

	if (emit->form != HL_EMIT_TABLE)
		return;
	va_start(args, format);
	put_line(emit, format, args);
	va_end(args);
	putc('\n', emit->out);
}

void hl_emit_warning(struct hl_emit *emit, const char *format, ...)
{
	va_list args;

	if (emit->form != HL_EMIT_TABLE)
		return;
	fputs(emit->color ? WARNING_COLOR : "", emit->out);
	va_start(args, format);
	put_line(emit, format, args);
	va_end(args);
	fputs(emit->color ? PLAIN_COLOR : "", emit->out);
	putc('\n', emit->out);
}

void hl_emit_blank(struct hl_emit *emit)
{
	hl_emit_line(emit, "%s", "");
}

size_t hl_emit_shown(const struct hl_emit *emit, uint64_t limit, uint64_t usual, size_t count)
{
	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = is_json(emit) ? 0 : usual;
	return limit && limit < count ? limit : count;
}

void hl_emit_more(struct hl_emit *emit, size_t count, const char *option)
{
	char more[HL_FORMAT_MAX];

	if (count)
		hl_emit_line(emit, "... and %s more; %s 0 shows all",
			     hl_format_count((int64_t)count, more), option);
}

void hl_emit_object(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_open(&emit->json, key, '{');
}

void hl_emit_object_end(struct hl_emit *emit)
{
	if (is_json(emit))
		hl_json_close(&emit->json, '}');
}

void hl_emit_array(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_open(&emit->json, key, '[');
}

void hl_emit_array_end(struct hl_emit *emit)
{
	if (is_json(emit))
		hl_json_close(&emit->json, ']');
}

void hl_emit_text(struct hl_emit *emit, const char *key, const char *text)
{
	if (is_json(emit))
		hl_json_text(&emit->json, key, text);
}

void hl_emit_integer(struct hl_emit *emit, const char *key, int64_t number)
{
	if (is_json(emit))
		hl_json_integer(&emit->json, key, number);
}

void hl_emit_unsigned(struct hl_emit *emit, const char *key, uint64_t number)
{
	hl_emit_integer(emit, key, number < INT64_MAX ? (int64_t)number : INT64_MAX);
}

void hl_emit_boolean(struct hl_emit *emit, const char *key, bool truth)
{
	if (is_json(emit))
		hl_json_boolean(&emit->json, key, truth);
}

void hl_emit_unknown(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_null(&emit->json, key);
}

void hl_emit_frames(struct hl_emit *emit, const char *key, const struct hl_emit_frame *frames,
		    size_t count)
{
	hl_emit_array(emit, key);
	for (size_t i = 0; i < count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "function", frames[i].function);
		hl_emit_text(emit, "module", frames[i].module);
		hl_emit_text(emit, "file", frames[i].file);
		hl_emit_integer(emit, "line", frames[i].line);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

/* ---- rows ---- */

static bool is_shown(const struct hl_emit *emit, const struct hl_emit_column *column)
{
	return !(column->flags & (is_json(emit) ? HL_EMIT_TEXT_ONLY : HL_EMIT_JSON_ONLY));
}

static bool is_number(enum hl_emit_type type)
{
	return type == HL_EMIT_BYTES || type == HL_EMIT_COUNT || type == HL_EMIT_NUMBER ||
	       type == HL_EMIT_PERCENT;
}

/* Whose view shortens names by itself, for branches take room of their own. */
static bool has_tree(const struct hl_emit *emit)
{
	for (size_t i = 0; i < emit->column_count; i++)
		if (emit->columns[i].flags & HL_EMIT_TREE)
			return true;
	return false;
}

static int new_table(struct hl_emit *emit)
{
	emit->scols = scols_new_table();
	if (!emit->scols)
		return -ENOMEM;
	scols_table_set_stream(emit->scols, emit->out);
	scols_table_enable_colors(emit->scols, emit->color);
	scols_table_set_termforce(emit->scols, SCOLS_TERMFORCE_NEVER); /* hl_emit_fit() cuts */
	scols_table_set_column_separator(emit->scols, "  ");
	for (size_t i = 0; i < emit->column_count; i++) {
		const struct hl_emit_column *column = &emit->columns[i];
		int flags = (is_number(column->type) ? SCOLS_FL_RIGHT : 0) |
			    (column->flags & HL_EMIT_TREE ? SCOLS_FL_TREE : 0);
		if (!is_shown(emit, column))
			continue;
		if (!scols_table_new_column(emit->scols, column->title, 0, flags))
			return -ENOMEM;
	}
	return 0;
}

static void begin_rows(struct hl_emit *emit, const char *key, const struct hl_emit_column *columns,
		       size_t column_count)
{
	if (column_count > COLUMNS_MAX)
		abort();
	memcpy(emit->columns, columns, column_count * sizeof(*columns));
	emit->column_count = column_count;
	emit->row = NULL;
	emit->line_has_cells = false;
	if (is_json(emit))
		hl_json_open(&emit->json, key, '[');
}

void hl_emit_rows(struct hl_emit *emit, const char *key, const struct hl_emit_column *columns,
		  size_t column_count)
{
	begin_rows(emit, key, columns, column_count);
	if (emit->form == HL_EMIT_TABLE && new_table(emit) < 0)
		hl_emit_fail(emit, -ENOMEM);
}

/* What stands before a cell of lines. */
static void begin_cell(struct hl_emit *emit)
{
	if (emit->line_has_cells)
		putc(' ', emit->out);
	emit->line_has_cells = true;
}

/* A cell of a streamed table, as far as the terminal has room for it; none comes after one that it
 * has no room for. */
static void put_streamed(struct hl_emit *emit, enum hl_emit_type type, const char *text)
{
	size_t gap = emit->line_has_cells ? STREAMED_GAP : 0;
	size_t room =
		emit->width > emit->line_width + gap ? emit->width - emit->line_width - gap : 0;
	char shortened[STREAMED_MAX];

	if (emit->width && room < (is_number(type) ? STREAMED_WIDTH : 1)) {
		emit->line_width = emit->width;
		return;
	}
	emit->line_width += gap + STREAMED_WIDTH;
	emit->line_has_cells = true;
	if (is_number(type))
		fprintf(emit->out, "%*s", (int)(gap + STREAMED_WIDTH), text);
	else if (*text) /* the last cell, see hl_emit_rows_streamed() */
		fprintf(emit->out, "%*s", (int)gap, "");
	if (!is_number(type))
		hl_format_put(emit->out, emit->width ? hl_format_shortened(text, room, shortened,
									   sizeof(shortened))
						     : text);
}

void hl_emit_rows_streamed(struct hl_emit *emit, const char *key,
			   const struct hl_emit_column *columns, size_t column_count)
{
	begin_rows(emit, key, columns, column_count);
	if (emit->form != HL_EMIT_TABLE)
		return;
	emit->streamed = true;
	emit->width = hl_emit_width(emit);
	for (size_t i = 0; i < column_count; i++)
		if (is_shown(emit, &columns[i]))
			put_streamed(emit, columns[i].type, columns[i].title);
	putc('\n', emit->out);
	emit->line_has_cells = false;
	emit->line_width = 0;
}

/* Whether cells are written at once, and not kept for a table. */
static bool writes_cells(const struct hl_emit *emit)
{
	return emit->form == HL_EMIT_LINES || emit->streamed;
}

/* Ends the row before, if there is one. */
static void end_row(struct hl_emit *emit)
{
	if (is_json(emit) && emit->column)
		hl_json_close(&emit->json, '}');
	else if (writes_cells(emit) && emit->column)
		putc('\n', emit->out);
	emit->column = 0;
	emit->table_column = 0;
	emit->line_has_cells = false;
	emit->line_width = 0;
}

static const char *color_of(unsigned emphasis)
{
	static const char *const colors[] = {
		[HL_EMIT_HEAVY] = "\033[1m",
		[HL_EMIT_HEAVIEST] = "\033[31m",
		[HL_EMIT_HEAVY | HL_EMIT_HEAVIEST] = "\033[1;31m",
	};
	return colors[emphasis];
}

/* The last row of ${depth} - 1: the row before, or one above it. */
static struct libscols_line *row_above(const struct hl_emit *emit, size_t depth)
{
	struct libscols_line *row = emit->row;

	if (depth > emit->row_depth + 1)
		abort();
	for (size_t i = emit->row_depth; row && i >= depth; i--)
		row = scols_line_get_parent(row);
	return row;
}

static void begin_row(struct hl_emit *emit, size_t depth, unsigned emphasis)
{
	end_row(emit);
	if (is_json(emit))
		hl_json_open(&emit->json, NULL, '{');
	if (emit->form != HL_EMIT_TABLE || emit->streamed || emit->error)
		return;
	emit->row = scols_table_new_line(emit->scols, depth ? row_above(emit, depth) : NULL);
	emit->row_depth = depth;
	if (!emit->row)
		hl_emit_fail(emit, -ENOMEM);
	else if (emphasis && emit->color && scols_line_set_color(emit->row, color_of(emphasis)) < 0)
		hl_emit_fail(emit, -ENOMEM);
}

void hl_emit_row(struct hl_emit *emit, unsigned emphasis)
{
	begin_row(emit, 0, emphasis);
}

void hl_emit_row_below(struct hl_emit *emit, size_t depth, unsigned emphasis)
{
	begin_row(emit, depth, emphasis);
}

/* The column of the cell that is now given; NULL when this form does not show it. */
static const struct hl_emit_column *next_column(struct hl_emit *emit)
{
	const struct hl_emit_column *column = &emit->columns[emit->column++];

	if (emit->column > emit->column_count)
		abort();
	return is_shown(emit, column) ? column : NULL;
}

/* Libsmartcols writes controls as hl_format_put() does, but lets pass what turns text around. */
static void replace_overrides(char *text)
{
	for (size_t length; *text; text += length ? length : 1) {
		length = hl_format_control(text);
		if (length == strlen(REPLACEMENT))
			memcpy(text, REPLACEMENT, length);
	}
}

static void put_table_cell(struct hl_emit *emit, const char *text)
{
	size_t column = emit->table_column++;

	if (emit->error)
		return;
	char *copy = strdup(text);
	if (copy) {
		replace_overrides(copy);
		if (emit->columns[emit->column - 1].flags & HL_EMIT_NAMES)
			hl_format_templates(copy);
	}
	if (!copy || scols_line_refer_data(emit->row, column, copy) < 0) {
		free(copy);
		hl_emit_fail(emit, -ENOMEM);
	}
}

static void put_text(struct hl_emit *emit, const char *text)
{
	if (!writes_cells(emit)) {
		put_table_cell(emit, text);
		return;
	}
	if (emit->streamed) {
		put_streamed(emit, emit->columns[emit->column - 1].type, text);
		return;
	}
	begin_cell(emit);
	hl_format_put(emit->out, text);
}

/* What a table shows of ${text}: of names that no terminal is for, the beginning. Data is whole. */
static const char *readable(const struct hl_emit *emit, const char *text,
			    char buffer[READABLE_BYTES])
{
	if (emit->form != HL_EMIT_TABLE || strnlen(text, READABLE_BYTES) < READABLE_BYTES)
		return text;
	return hl_format_shortened(text, 0, buffer, READABLE_BYTES);
}

void hl_emit_cell_text(struct hl_emit *emit, const char *text)
{
	const struct hl_emit_column *column = next_column(emit);
	char buffer[READABLE_BYTES];

	if (!column)
		return;
	if (is_json(emit))
		hl_json_text(&emit->json, column->key, text);
	else
		put_text(emit, readable(emit, text, buffer));
}

void hl_emit_cell_integer(struct hl_emit *emit, int64_t number)
{
	const struct hl_emit_column *column = next_column(emit);
	char text[HL_FORMAT_MAX];

	if (!column)
		return;
	if (is_json(emit)) {
		hl_json_integer(&emit->json, column->key, number);
		return;
	}
	if (emit->form == HL_EMIT_TABLE && !number && column->flags & HL_EMIT_BLANK_ZERO)
		text[0] = '\0';
	else if (emit->form == HL_EMIT_LINES || column->type == HL_EMIT_NUMBER)
		snprintf(text, sizeof(text), "%lld", (long long)number);
	else if (column->type == HL_EMIT_BYTES)
		hl_format_bytes(number, text);
	else
		hl_format_count(number, text);
	put_text(emit, text);
}

void hl_emit_cell_unknown(struct hl_emit *emit)
{
	const struct hl_emit_column *column = next_column(emit);

	if (column && is_json(emit))
		hl_json_null(&emit->json, column->key);
	else if (column)
		put_text(emit, "-");
}

void hl_emit_cell_percent(struct hl_emit *emit, int64_t part, int64_t whole)
{
	char text[HL_FORMAT_MAX];

	if (next_column(emit))
		put_text(emit, hl_format_percent(part, whole, text));
}

/* ';' separates frames, so within a name it is replaced. */
static void put_frame(FILE *out, const struct hl_emit *emit, const char *name)
{
	char buffer[READABLE_BYTES];

	name = readable(emit, name, buffer);
	while (*name)
		name += hl_format_put_letter(out, *name == ';' ? ":" : name);
}

static void put_frames(FILE *out, const struct hl_emit *emit, const char *const *frames,
		       size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (i)
			putc(';', out);
		put_frame(out, emit, frames[i]);
	}
}

static void put_stack(struct hl_emit *emit, const char *const *frames, size_t count)
{
	char *joined = NULL;
	size_t size;

	if (writes_cells(emit) && !emit->width) { /* in one piece, of any length */
		if (emit->streamed && emit->line_has_cells)
			putc(' ', emit->out);
		begin_cell(emit);
		put_frames(emit->out, emit, frames, count);
		return;
	}
	FILE *out = open_memstream(&joined, &size);
	if (!out) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	put_frames(out, emit, frames, count);
	if (fclose(out) != 0)
		hl_emit_fail(emit, -ENOMEM);
	else
		put_text(emit, joined);
	free(joined);
}

void hl_emit_cell_stack(struct hl_emit *emit, const char *const *frames, size_t count)
{
	const struct hl_emit_column *column = next_column(emit);

	if (!column)
		return;
	if (!is_json(emit)) {
		put_stack(emit, frames, count);
		return;
	}
	hl_json_open(&emit->json, column->key, '[');
	for (size_t i = 0; i < count; i++)
		hl_json_text(&emit->json, NULL, frames[i]);
	hl_json_close(&emit->json, ']');
}

void hl_emit_cell_frames(struct hl_emit *emit, const struct hl_emit_frame *frames, size_t count)
{
	const struct hl_emit_column *column = next_column(emit);

	if (column)
		hl_emit_frames(emit, column->key, frames, count);
}

static int fit_table(struct hl_emit *emit)
{
	struct hl_emit_column shown[COLUMNS_MAX];
	size_t width = hl_emit_width(emit), count = 0;

	for (size_t i = 0; i < emit->column_count; i++)
		if (is_shown(emit, &emit->columns[i]))
			shown[count++] = emit->columns[i];
	return width && !has_tree(emit) ? hl_emit_fit(emit->scols, shown, count, width) : 0;
}

void hl_emit_rows_end(struct hl_emit *emit)
{
	end_row(emit);
	if (is_json(emit))
		hl_json_close(&emit->json, ']');
	emit->streamed = false;
	if (emit->form != HL_EMIT_TABLE || !emit->scols)
		return;
	if (!emit->error && (fit_table(emit) < 0 || scols_print_table(emit->scols) < 0))
		hl_emit_fail(emit, -ENOMEM);
	scols_unref_table(emit->scols);
	emit->scols = NULL;
	emit->row = NULL;
}

int hl_emit_finish(struct hl_emit *emit)
{
	if (is_json(emit))
		hl_json_close(&emit->json, '}');
	int error = emit->error;
	if (!error && ferror(emit->out))
		error = -EIO;
	scols_unref_table(emit->table.scols);
	scols_unref_table(emit->scols);
	free(emit);
	return error;
}
