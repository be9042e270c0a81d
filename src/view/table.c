/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows from columns: tables by libsmartcols, lines and JSON as a stream; see table.h. */
#include "view/table.h"

#include "view/emit_state.h"
#include "view/format.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <stdlib.h>
#include <string.h>

#define STREAMED_WIDTH 10  /* of numbers in tables that are streamed */
#define STREAMED_GAP   2   /* between their columns */
#define STREAMED_MAX   512 /* bytes of a text that is cut off */
/* Names in tables are cut there: templates of C++ can be far longer, and files of other tools have
 * anything. */
#define READABLE_BYTES 4097
#define REPLACEMENT    "\xef\xbf\xbd" /* U+FFFD, as long as what it stands for */

/* ---- columns ---- */

void hl_table_figures(struct hl_emit *emit, const struct hl_profile *profile, enum hl_value value,
		      enum hl_unit unit)
{
	emit->unit = unit;
	for (int i = 0; i < HL_UNIT_COUNT; i++)
		emit->knows[i] = hl_profile_knows(profile, value, (enum hl_unit)i);
}

const char *hl_table_title(const struct hl_emit *emit, const struct hl_column *column)
{
	return column->kind == HL_COLUMN_OTHER ? hl_unit_names[hl_unit_other(emit->unit)]
					       : column->title;
}

static bool is_shown(const struct hl_emit *emit, const struct hl_column *column)
{
	if (column->kind == HL_COLUMN_OTHER && !emit->knows[hl_unit_other(emit->unit)])
		return false;
	if (!(emit->form == HL_EMIT_JSON ? column->key : column->title))
		return false;
	return !column->shown_if || column->shown_if & emit->table.table.facts;
}

static bool is_number(const struct hl_column *column)
{
	switch (column->kind) {
	case HL_COLUMN_TEXT:
	case HL_COLUMN_ADDRESS:
	case HL_COLUMN_BAR:
	case HL_COLUMN_STACK:
		return false;
	default:
		return true;
	}
}

static void show_column(struct hl_emit *emit, const struct hl_column *column)
{
	struct hl_table_state *table = &emit->table;

	if (table->column_count == HL_TABLE_COLUMNS_MAX)
		abort();
	for (int unit = 0; column->kind == HL_COLUMN_FIGURE && unit < HL_UNIT_COUNT; unit++)
		snprintf(table->keys[table->column_count][unit], HL_TABLE_KEY_MAX, "%s%s%s",
			 column->key ? column->key : "", column->key && *column->key ? "_" : "",
			 hl_unit_names[unit]);
	table->columns[table->column_count++] = column;
}

static void choose_columns(struct hl_emit *emit, const struct hl_column *columns, size_t count)
{
	bool is_json = emit->form == HL_EMIT_JSON;

	for (size_t i = 0; i < count; i++)
		if (is_shown(emit, &columns[i]) &&
		    !(is_json && columns[i].kind == HL_COLUMN_FIGURE))
			show_column(emit, &columns[i]);
	for (size_t i = 0; is_json && i < count; i++)
		if (is_shown(emit, &columns[i]) && columns[i].kind == HL_COLUMN_FIGURE)
			show_column(emit, &columns[i]);
}

static int new_scols(struct hl_emit *emit)
{
	struct hl_table_state *table = &emit->table;
	struct libscols_table *scols = table->scols = scols_new_table();

	if (!scols)
		return -ENOMEM;
	scols_table_enable_colors(scols, emit->color);
	scols_table_enable_minout(scols, true); /* no blanks at the ends of lines */
	scols_table_set_termforce(scols, SCOLS_TERMFORCE_NEVER); /* hl_table_fit() cuts */
	scols_table_set_column_separator(scols, "  ");
	for (size_t i = 0; i < table->column_count; i++) {
		const struct hl_column *column = table->columns[i];
		int flags = (is_number(column) ? SCOLS_FL_RIGHT : 0) |
			    (column->flags & HL_COLUMN_TREE ? SCOLS_FL_TREE : 0);
		if (!scols_table_new_column(scols, hl_table_title(emit, column), 0, flags))
			return -ENOMEM;
	}
	return 0;
}

static void begin(struct hl_emit *emit, const struct hl_table *table)
{
	emit->table = (struct hl_table_state){.table = *table};
	choose_columns(emit, table->columns, table->column_count);
	if (emit->form == HL_EMIT_JSON)
		hl_json_open(&emit->json, table->key, '[');
}

void hl_table_begin(struct hl_emit *emit, const struct hl_table *table)
{
	begin(emit, table);
	if (emit->form == HL_EMIT_TABLE && new_scols(emit) < 0)
		hl_emit_fail(emit, -ENOMEM);
}

/* ---- tables that are written as they come ---- */

/* Puts ${text} as far as the terminal has room for it; nothing after a cell that it has no room
 * for. */
static void put_streamed(struct hl_emit *emit, const struct hl_column *column, const char *text)
{
	struct hl_table_state *table = &emit->table;
	size_t gap = table->line_has_cells ? STREAMED_GAP : 0, taken = table->line_width + gap;
	size_t room = table->width > taken ? table->width - taken : 0;
	char shortened[STREAMED_MAX];

	if (table->width && room < (is_number(column) ? STREAMED_WIDTH : 1)) {
		table->line_width = table->width;
		return;
	}
	table->line_width += gap + STREAMED_WIDTH;
	table->line_has_cells = true;
	if (is_number(column)) {
		fprintf(emit->out, "%*s", (int)(gap + STREAMED_WIDTH), text);
	} else if (*text) { /* the last cell, see hl_table_begin_streamed() */
		fprintf(emit->out, "%*s", (int)gap, "");
		hl_format_put(emit->out, table->width ? hl_format_shortened(text, room, shortened,
									    sizeof(shortened))
						      : text);
	}
}

static void end_line(struct hl_emit *emit)
{
	putc('\n', emit->out);
	emit->table.line_has_cells = false;
	emit->table.line_width = 0;
}

void hl_table_begin_streamed(struct hl_emit *emit, const struct hl_table *table)
{
	struct hl_table_state *state = &emit->table;

	begin(emit, table);
	if (emit->form != HL_EMIT_TABLE)
		return;
	state->streamed = true;
	state->width = hl_emit_width(emit);
	for (size_t i = 0; i < state->column_count; i++)
		put_streamed(emit, state->columns[i], hl_table_title(emit, state->columns[i]));
	end_line(emit);
}

/* ---- cells ---- */

static const struct hl_column *current_column(const struct hl_emit *emit)
{
	return emit->table.columns[emit->table.column];
}

/* libsmartcols writes controls as hl_format_put() does, but lets pass what turns text around. */
static void replace_overrides(char *text)
{
	for (size_t length; *text; text += length ? length : 1) {
		length = hl_format_control(text);
		if (length == strlen(REPLACEMENT))
			memcpy(text, REPLACEMENT, length);
	}
}

static void put_scols(struct hl_emit *emit, const char *text)
{
	char *copy = emit->error ? NULL : strdup(text);

	if (copy) {
		replace_overrides(copy);
		if (current_column(emit)->flags & HL_COLUMN_NAMES)
			hl_format_templates(copy);
	}
	if (!copy || scols_line_refer_data(emit->table.row, emit->table.column, copy) < 0) {
		free(copy);
		hl_emit_fail(emit, -ENOMEM);
	}
}

/* What stands before a cell of lines. */
static void put_separator(struct hl_emit *emit)
{
	if (emit->table.line_has_cells)
		putc(' ', emit->out);
	emit->table.line_has_cells = true;
}

static void put_text(struct hl_emit *emit, const char *text)
{
	if (emit->table.streamed) {
		put_streamed(emit, current_column(emit), text);
	} else if (emit->form == HL_EMIT_LINES) {
		put_separator(emit);
		hl_format_put(emit->out, text);
	} else {
		put_scols(emit, text);
	}
}

/* What a table shows of ${text}: of names that no terminal is for, the beginning. Data is whole. */
static const char *readable(const struct hl_emit *emit, const char *text,
			    char buffer[READABLE_BYTES])
{
	if (emit->form != HL_EMIT_TABLE || strnlen(text, READABLE_BYTES) < READABLE_BYTES)
		return text;
	return hl_format_shortened(text, 0, buffer, READABLE_BYTES);
}

void hl_cell_text(struct hl_emit *emit, const char *text)
{
	char buffer[READABLE_BYTES];

	if (emit->form == HL_EMIT_JSON)
		hl_json_text(&emit->json, current_column(emit)->key, text);
	else
		put_text(emit, readable(emit, text, buffer));
}

static int64_t clamp(uint64_t number)
{
	return number < INT64_MAX ? (int64_t)number : INT64_MAX;
}

static void put_integer(struct hl_emit *emit, enum hl_column_kind kind, int64_t number)
{
	char text[HL_FORMAT_MAX];

	if (!number && current_column(emit)->flags & HL_COLUMN_BLANK_ZERO &&
	    emit->form != HL_EMIT_LINES)
		text[0] = '\0';
	else if (kind == HL_COLUMN_ADDRESS)
		snprintf(text, sizeof(text), "0x%" PRIx64, number);
	else if (emit->form == HL_EMIT_LINES || kind == HL_COLUMN_NUMBER)
		snprintf(text, sizeof(text), "%" PRId64, number);
	else if (kind == HL_COLUMN_BYTES)
		hl_format_bytes(number, text);
	else if (kind == HL_COLUMN_SHARE)
		hl_format_percent(number, emit->table.table.sum, text);
	else if (kind == HL_COLUMN_BAR)
		hl_format_bar(number, emit->table.table.sum, text);
	else
		hl_format_count(number, text);
	hl_cell_text(emit, text);
}

void hl_cell_integer(struct hl_emit *emit, int64_t number)
{
	const struct hl_column *column = current_column(emit);

	if (emit->form == HL_EMIT_JSON && column->kind != HL_COLUMN_ADDRESS)
		hl_json_integer(&emit->json, column->key, number);
	else
		put_integer(emit, column->kind, number);
}

void hl_cell_unsigned(struct hl_emit *emit, uint64_t number)
{
	bool is_address = current_column(emit)->kind == HL_COLUMN_ADDRESS;

	hl_cell_integer(emit, is_address ? (int64_t)number : clamp(number));
}

void hl_cell_bar(struct hl_emit *emit, uint64_t part, uint64_t whole)
{
	char text[HL_FORMAT_MAX];

	hl_cell_text(emit, hl_format_bar(part, whole, text));
}

void hl_cell_unknown(struct hl_emit *emit)
{
	if (emit->form == HL_EMIT_JSON)
		hl_json_null(&emit->json, current_column(emit)->key);
	else
		put_text(emit, "-");
}

void hl_cell_share(struct hl_emit *emit, int64_t part, int64_t whole)
{
	char text[HL_FORMAT_MAX];

	put_text(emit, hl_format_percent(part, whole, text));
}

void hl_cell_figures(struct hl_emit *emit, struct hl_aggregate_figures figures)
{
	static const enum hl_column_kind kinds[] = {HL_COLUMN_BYTES, HL_COLUMN_COUNT};
	enum hl_column_kind kind = current_column(emit)->kind;
	enum hl_unit unit = kind == HL_COLUMN_OTHER ? hl_unit_other(emit->unit) : emit->unit;

	for (int i = 0; emit->form == HL_EMIT_JSON && i < HL_UNIT_COUNT; i++)
		if (emit->knows[i])
			hl_json_integer(&emit->json, emit->table.keys[emit->table.column][i],
					hl_aggregate_figure(figures, (enum hl_unit)i));
	if (emit->form == HL_EMIT_JSON)
		return;
	if (kind == HL_COLUMN_SHARE)
		hl_cell_share(emit, hl_aggregate_figure(figures, unit),
			      hl_aggregate_figure(emit->table.table.whole, unit));
	else
		put_integer(emit, kinds[unit], hl_aggregate_figure(figures, unit));
}

/* ';' separates frames, so within a name it is replaced. */
static void put_frames(FILE *out, const struct hl_emit *emit, const char *const *frames,
		       size_t count)
{
	char buffer[READABLE_BYTES];

	for (size_t i = 0; i < count; i++) {
		const char *name = readable(emit, frames[i], buffer);
		if (i)
			putc(';', out);
		while (*name)
			name += hl_format_put_letter(out, *name == ';' ? ":" : name);
	}
}

static void put_stack(struct hl_emit *emit, const char *const *frames, size_t count)
{
	char *joined = NULL;
	size_t size;

	if (!emit->table.scols && !emit->table.width) { /* in one piece, of any length */
		if (emit->table.streamed && emit->table.line_has_cells)
			putc(' ', emit->out);
		put_separator(emit);
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

void hl_cell_stack(struct hl_emit *emit, const char *const *frames, size_t count)
{
	if (emit->form != HL_EMIT_JSON) {
		put_stack(emit, frames, count);
		return;
	}
	hl_json_open(&emit->json, current_column(emit)->key, '[');
	for (size_t i = 0; i < count; i++)
		hl_json_text(&emit->json, NULL, frames[i]);
	hl_json_close(&emit->json, ']');
}

void hl_cell_frames(struct hl_emit *emit, const struct hl_emit_frame *frames, size_t count)
{
	hl_emit_frames(emit, current_column(emit)->key, frames, count);
}

/* ---- rows ---- */

static void write_cell(struct hl_emit *emit, const struct hl_column *column, const void *row)
{
	const void *member = (const char *)row + column->offset;

	switch (column->member) {
	case HL_MEMBER_NONE:
		column->cell(emit, member, emit->table.table.context);
		break;
	case HL_MEMBER_TEXT:
		hl_cell_text(emit, *(const char *const *)member);
		break;
	case HL_MEMBER_CHARS:
		hl_cell_text(emit, member);
		break;
	case HL_MEMBER_SIGNED:
		hl_cell_integer(emit, *(const int64_t *)member);
		break;
	case HL_MEMBER_UNSIGNED:
		hl_cell_unsigned(emit, *(const uint64_t *)member);
		break;
	case HL_MEMBER_SHORT:
		hl_cell_integer(emit, *(const uint32_t *)member);
		break;
	case HL_MEMBER_FIGURES:
		hl_cell_figures(emit, *(const struct hl_aggregate_figures *)member);
		break;
	}
}

/* The last row of ${depth} - 1: the row before, or one above it. */
static struct libscols_line *row_above(const struct hl_table_state *table, size_t depth)
{
	struct libscols_line *row = table->row;

	if (depth > table->row_depth + 1)
		abort();
	for (size_t i = table->row_depth; row && i >= depth; i--)
		row = scols_line_get_parent(row);
	return row;
}

static void begin_scols_row(struct hl_emit *emit, size_t depth, unsigned emphasis)
{
	static const char *const colors[] = {
		[HL_EMIT_HEAVY] = "\033[1m",
		[HL_EMIT_HEAVIEST] = "\033[31m",
		[HL_EMIT_HEAVY | HL_EMIT_HEAVIEST] = "\033[1;31m",
	};
	struct hl_table_state *table = &emit->table;

	table->row = scols_table_new_line(table->scols, depth ? row_above(table, depth) : NULL);
	table->row_depth = depth;
	if (!table->row ||
	    (emphasis && emit->color && scols_line_set_color(table->row, colors[emphasis]) < 0))
		hl_emit_fail(emit, -ENOMEM);
}

void hl_table_row_below(struct hl_emit *emit, size_t depth, const void *row, unsigned emphasis)
{
	struct hl_table_state *table = &emit->table;

	if (table->scols && !emit->error)
		begin_scols_row(emit, depth, emphasis);
	if (emit->error)
		return;
	if (emit->form == HL_EMIT_JSON)
		hl_json_open(&emit->json, NULL, '{');
	for (table->column = 0; table->column < table->column_count; table->column++)
		write_cell(emit, table->columns[table->column], row);
	if (emit->form == HL_EMIT_JSON)
		hl_json_close(&emit->json, '}');
	else if (!table->scols)
		end_line(emit);
}

void hl_table_row(struct hl_emit *emit, const void *row, unsigned emphasis)
{
	hl_table_row_below(emit, 0, row, emphasis);
}

/* libsmartcols pads the titles of columns that have none. */
static int print_scols(struct hl_emit *emit)
{
	char *text = NULL;

	if (hl_table_fit(emit, hl_emit_width(emit)) < 0 ||
	    scols_print_table_to_string(emit->table.scols, &text) < 0)
		return -ENOMEM;
	for (const char *line = text; line && *line;) {
		size_t length = strcspn(line, "\n"), used = length;
		while (used && line[used - 1] == ' ')
			used--;
		fwrite(line, 1, used, emit->out);
		putc('\n', emit->out);
		line += length + (line[length] == '\n');
	}
	free(text);
	return 0;
}

void hl_table_end(struct hl_emit *emit)
{
	struct hl_table_state *table = &emit->table;

	if (emit->form == HL_EMIT_JSON)
		hl_json_close(&emit->json, ']');
	if (table->scols && !emit->error && print_scols(emit) < 0)
		hl_emit_fail(emit, -ENOMEM);
	scols_unref_table(table->scols);
	*table = (struct hl_table_state){0};
}
