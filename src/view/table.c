/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows from columns: tables by libsmartcols, all other forms as a stream; see table.h. */
#include "view/table.h"

#include "base/cleanup.h"
#include "view/format.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <stdlib.h>
#include <string.h>

/* ---- cells of a table, in each form of a report ---- */

#define STREAMED_WIDTH 10  /* of numbers in tables that are streamed */
#define STREAMED_GAP   2   /* between their columns */
#define STREAMED_MAX   512 /* bytes of a text that is cut off */

/* Names in tables are cut there: templates of C++ can be far longer, and files of other tools have
 * anything. */
#define READABLE_BYTES 4097
#define REPLACEMENT    "\xef\xbf\xbd" /* U+FFFD, as long as what it stands for */

/* ---- columns ---- */

static const char *table_title(const struct hl_emit *emit, const struct hl_column *column)
{
	return column->kind == HL_COLUMN_OTHER && !strcmp(column->title, "other")
		       ? hl_unit_names[hl_unit_other(emit->unit)]
		       : column->title;
}

/* Whether cells of ${column} are aligned to the right. */
static bool table_is_number(const struct hl_column *column)
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

/* ---- texts ---- */

/* Puts ${text} as far as the terminal has room for it; nothing after a cell that it has no room
 * for. */
static void put_streamed(struct hl_emit *emit, const struct hl_column *column, const char *text)
{
	struct hl_table_state *table = &emit->table;
	size_t gap = table->line_has_cells ? STREAMED_GAP : 0, taken = table->line_width + gap;
	size_t room = table->width > taken ? table->width - taken : 0;
	bool is_number = table_is_number(column);
	char shortened[STREAMED_MAX];

	if (table->width && room < (is_number ? STREAMED_WIDTH : 1)) {
		table->line_width = table->width;
		return;
	}
	table->line_width += gap + STREAMED_WIDTH;
	table->line_has_cells = true;
	if (is_number) {
		fprintf(emit->out, "%*s", (int)(gap + STREAMED_WIDTH), text);
	} else if (*text) { /* the last cell, see hl_table_begin_streamed() */
		fprintf(emit->out, "%*s", (int)gap, "");
		hl_format_put(emit->out, table->width ? hl_format_shortened(text, room, shortened,
									    sizeof(shortened))
						      : text);
	}
}

static void put_quoted(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			putc('"', out);
		putc((unsigned char)*text < ' ' ? ' ' : *text, out);
	}
	putc('"', out);
}

/* What stands before a cell of lines or CSV. */
static void put_separator(struct hl_emit *emit)
{
	if (emit->table.line_has_cells)
		putc(emit->form == HL_EMIT_CSV ? ',' : ' ', emit->out);
	emit->table.line_has_cells = true;
}

static void cell_put(struct hl_emit *emit, const struct hl_column *column, const char *text)
{
	/* In CSV, keys and numbers stand for themselves. */
	bool has_quotes = emit->form == HL_EMIT_CSV && text != column->key &&
			  (text == column->title || !table_is_number(column));

	if (emit->table.streamed) {
		put_streamed(emit, column, text);
	} else if (emit->form == HL_EMIT_TABLE) {
		char *copy = emit->error ? NULL : strdup(text);
		/* libsmartcols writes controls as hl_format_put() does, but lets pass what turns
		 * text around. */
		for (char *at = copy; at && *at;) {
			size_t length = hl_format_control(at);
			if (length == strlen(REPLACEMENT))
				memcpy(at, REPLACEMENT, length);
			at += length ? length : 1;
		}
		if (copy && column->flags & HL_COLUMN_NAMES)
			hl_format_templates(copy);
		if (!copy || scols_line_refer_data(emit->table.row, emit->table.column, copy) < 0) {
			free(copy);
			hl_emit_fail(emit, -ENOMEM);
		}
	} else {
		put_separator(emit);
		(has_quotes ? put_quoted : hl_format_put)(emit->out, text);
	}
}

static const struct hl_column *current_column(const struct hl_emit *emit)
{
	return emit->table.columns[emit->table.column];
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
		cell_put(emit, current_column(emit), readable(emit, text, buffer));
}

void hl_cell_unknown(struct hl_emit *emit)
{
	if (emit->form == HL_EMIT_JSON)
		hl_json_null(&emit->json, current_column(emit)->key);
	else
		cell_put(emit, current_column(emit), emit->form == HL_EMIT_CSV ? "" : "-");
}

/* ---- numbers ---- */

static void put_integer(struct hl_emit *emit, enum hl_column_kind kind, int64_t number)
{
	bool is_plain = emit->form == HL_EMIT_LINES || emit->form == HL_EMIT_CSV;
	char text[HL_FORMAT_MAX];

	if (!number && current_column(emit)->flags & HL_COLUMN_BLANK_ZERO && !is_plain)
		text[0] = '\0';
	else if (kind == HL_COLUMN_ADDRESS)
		snprintf(text, sizeof(text), "0x%" PRIx64, number);
	else if (is_plain || kind == HL_COLUMN_NUMBER)
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

	if (!is_address && number > INT64_MAX)
		number = INT64_MAX;
	hl_cell_integer(emit, (int64_t)number);
}

static void cell_bar(struct hl_emit *emit, uint64_t part, uint64_t whole)
{
	char text[HL_FORMAT_MAX];

	hl_cell_text(emit, hl_format_bar(part, whole, text));
}

void hl_cell_share(struct hl_emit *emit, int64_t part, int64_t whole)
{
	char text[HL_FORMAT_MAX];

	hl_cell_text(emit, hl_format_percent(part, whole, text));
}

static void cell_figures(struct hl_emit *emit, struct hl_aggregate_figures figures)
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

/* ---- stacks ---- */

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

void hl_cell_stack(struct hl_emit *emit, const char *const *frames, size_t count)
{
	const struct hl_table_state *table = &emit->table;
	char *joined = NULL;
	size_t size;

	if (emit->form == HL_EMIT_JSON) {
		hl_json_open(&emit->json, current_column(emit)->key, '[');
		for (size_t i = 0; i < count; i++)
			hl_json_text(&emit->json, NULL, frames[i]);
		hl_json_close(&emit->json, ']');
		return;
	}
	if (emit->form == HL_EMIT_LINES || (table->streamed && !table->width)) {
		/* In one piece, of any length. */
		if (table->streamed && table->line_has_cells)
			putc(' ', emit->out);
		put_separator(emit);
		put_frames(emit->out, emit, frames, count);
		return;
	}
	FILE *out = open_memstream(&joined, &size);
	if (out)
		put_frames(out, emit, frames, count);
	if (out && fclose(out) == 0)
		cell_put(emit, current_column(emit), joined);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(joined);
}

void hl_cell_frames(struct hl_emit *emit, const struct hl_emit_frame *frames, size_t count)
{
	hl_emit_frames(emit, current_column(emit)->key, frames, count);
}

/*
 * ---- widths of columns ----
 * libsmartcols would cut ends off without a mark, and with them line numbers and all of the last columns; so texts are
 * shortened before it sees them.
 */

#define SEPARATOR_WIDTH 2
#define TEXT_MIN	12 /* what texts beside the key keep at least */
#define KEY_MIN		20 /* what the key keeps, if the line is then too long */

struct fitting {
	const struct hl_emit *emit;
	const struct hl_column *const *columns;
	size_t count;
	size_t widths[HL_TABLE_COLUMNS_MAX];
	bool hidden[HL_TABLE_COLUMNS_MAX];
};

static const char *text_at(struct libscols_line *line, size_t column)
{
	struct libscols_cell *cell = scols_line_get_cell(line, column);
	const char *text = cell ? scols_cell_get_data(cell) : NULL;

	return text ? text : "";
}

static size_t least_width(const struct fitting *fitting, size_t i)
{
	const struct hl_column *column = fitting->columns[i];
	size_t width = fitting->widths[i], title = strlen(table_title(fitting->emit, column));
	size_t least = column->flags & HL_COLUMN_KEY ? KEY_MIN : TEXT_MIN;

	if (!(column->flags & HL_COLUMN_SHORTENED) || width < least)
		return width;
	return title > least ? title : least;
}

/* The width of lines with all columns that are not hidden; ${least}: once they are shortened. */
static size_t total_width(const struct fitting *fitting, bool least)
{
	size_t total = 0;

	for (size_t i = 0; i < fitting->count; i++)
		if (!fitting->hidden[i])
			total += (least ? least_width(fitting, i) : fitting->widths[i]) +
				 (total ? SEPARATOR_WIDTH : 0);
	return total;
}

/* Leaves out columns, from the right on: those that say they may go, then the others. The first one
 * and what rows stand for stay on the narrowest terminal. */
static void omit_columns(struct fitting *fitting, size_t width)
{
	size_t least = 0;

	for (size_t i = 0; i < fitting->count; i++)
		if (i == 0 || fitting->columns[i]->flags & HL_COLUMN_KEY)
			least += least_width(fitting, i) + (i ? SEPARATOR_WIDTH : 0);
	for (int pass = 0; pass < 3; pass++) {
		if (pass && least > width)
			return; /* in vain */
		for (size_t i = fitting->count; i-- > 0 && total_width(fitting, true) > width;) {
			unsigned flags = fitting->columns[i]->flags;
			bool may_go = i && !(flags & HL_COLUMN_KEY) &&
				      (pass == 2 || !(flags & HL_COLUMN_ESSENTIAL));
			fitting->hidden[i] |= pass ? may_go : flags & HL_COLUMN_OMITTED;
		}
	}
}

/* Takes from the columns with just these ${flags}, the widest first, what is too much. */
static void narrow(struct fitting *fitting, size_t width, unsigned flags)
{
	const unsigned mask = HL_COLUMN_SHORTENED | HL_COLUMN_KEY;

	while (total_width(fitting, false) > width) {
		size_t widest = fitting->count;
		for (size_t i = 0; i < fitting->count; i++) {
			if (!fitting->hidden[i] && (fitting->columns[i]->flags & mask) == flags &&
			    fitting->widths[i] > least_width(fitting, i) &&
			    (widest == fitting->count ||
			     fitting->widths[i] > fitting->widths[widest]))
				widest = i;
		}
		if (widest == fitting->count)
			return;
		fitting->widths[widest]--;
	}
}

static int shorten_cell(struct libscols_line *line, size_t column, size_t width, unsigned flags)
{
	const char *text = text_at(line, column);
	size_t size = strlen(text) + 1;

	if (hl_format_width(text) <= width)
		return 0;
	char *buffer = malloc(size);
	if (!buffer)
		return -ENOMEM;
	(flags & HL_COLUMN_PATH ? hl_format_tail : hl_format_shortened)(text, width, buffer, size);
	if (scols_line_refer_data(line, column, buffer) == 0)
		return 0;
	free(buffer);
	return -ENOMEM;
}

/*
 * Has the table, complete with all its rows, take ${width} columns at most, where its columns
 * allow: hides those with HL_COLUMN_OMITTED, the last one first, as long as need be, then shortens
 * texts with HL_COLUMN_SHORTENED, those with HL_COLUMN_KEY last. 0 or -ENOMEM.
 */
static int table_fit(struct hl_emit *emit, size_t width)
{
	const struct hl_table_state *table = &emit->table;
	struct fitting fitting = {
		.emit = emit, .columns = table->columns, .count = table->column_count};
	struct libscols_line *line;

	for (size_t i = 0; i < fitting.count; i++)
		if (table->columns[i]->flags & HL_COLUMN_TREE)
			return 0; /* such a view shortens names itself: branches take room */
	if (!width)
		return 0;
	struct libscols_iter *lines = scols_new_iter(SCOLS_ITER_FORWARD);
	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < fitting.count; i++)
		fitting.widths[i] = strlen(table_title(emit, table->columns[i]));
	while (scols_table_next_line(table->scols, lines, &line) == 0)
		for (size_t i = 0; i < fitting.count; i++) {
			size_t cell_width = hl_format_width(text_at(line, i));
			if (cell_width > fitting.widths[i])
				fitting.widths[i] = cell_width;
		}
	omit_columns(&fitting, width);
	narrow(&fitting, width, HL_COLUMN_SHORTENED);
	narrow(&fitting, width, HL_COLUMN_SHORTENED | HL_COLUMN_KEY);
	for (size_t i = 0; i < fitting.count; i++) {
		struct libscols_column *column = scols_table_get_column(table->scols, i);
		int flags = scols_column_get_flags(column);
		if (fitting.hidden[i])
			scols_column_set_flags(column, flags | SCOLS_FL_HIDDEN);
	}
	scols_reset_iter(lines, SCOLS_ITER_FORWARD);
	int r = 0;
	while (r == 0 && scols_table_next_line(table->scols, lines, &line) == 0)
		for (size_t i = 0; r == 0 && i < fitting.count; i++)
			r = shorten_cell(line, i, fitting.widths[i], table->columns[i]->flags);
	scols_free_iter(lines);
	return r;
}

/* ---- the columns of a table ---- */

void hl_table_figures(struct hl_emit *emit, const struct hl_profile *profile, enum hl_value value,
		      enum hl_unit unit)
{
	emit->unit = unit;
	for (int i = 0; i < HL_UNIT_COUNT; i++)
		emit->knows[i] = hl_profile_knows(profile, value, (enum hl_unit)i);
}

/* Adds the columns that this form shows: in JSON, those of figures or those of the rest. */
static void choose_columns(struct hl_emit *emit, bool of_figures)
{
	struct hl_table_state *state = &emit->table;

	for (size_t i = 0; i < state->table.column_count; i++) {
		const struct hl_column *column = &state->table.columns[i];
		if ((column->kind == HL_COLUMN_OTHER && !emit->knows[hl_unit_other(emit->unit)]) ||
		    !(emit->form == HL_EMIT_JSON ? column->key : column->title) ||
		    (column->shown_if && !(column->shown_if & state->table.facts)) ||
		    (emit->form == HL_EMIT_JSON &&
		     (column->kind == HL_COLUMN_FIGURE) != of_figures))
			continue;
		if (state->column_count == HL_TABLE_COLUMNS_MAX)
			abort();
		for (int unit = 0; of_figures && unit < HL_UNIT_COUNT; unit++)
			snprintf(state->keys[state->column_count][unit], HL_TABLE_KEY_MAX, "%s%s%s",
				 column->key, *column->key ? "_" : "", hl_unit_names[unit]);
		state->columns[state->column_count++] = column;
	}
}

static void end_line(struct hl_emit *emit)
{
	fputs(emit->form == HL_EMIT_CSV ? "\r\n" : "\n", emit->out);
	emit->table.line_has_cells = false;
	emit->table.line_width = 0;
}

static void begin(struct hl_emit *emit, const struct hl_table *table)
{
	struct hl_table_state *state = &emit->table;

	*state = (struct hl_table_state){.table = *table};
	choose_columns(emit, false);
	if (emit->form == HL_EMIT_JSON) {
		choose_columns(emit, true);
		hl_json_open(&emit->json, table->key, '[');
	} else if (emit->form == HL_EMIT_CSV) {
		for (size_t i = 0; i < state->column_count; i++) {
			const struct hl_column *column = state->columns[i];
			cell_put(emit, column, column->key ? column->key : column->title);
		}
		end_line(emit);
	}
}

void hl_table_begin(struct hl_emit *emit, const struct hl_table *table)
{
	struct hl_table_state *state = &emit->table;

	begin(emit, table);
	if (emit->form != HL_EMIT_TABLE)
		return;
	state->scols = scols_new_table();
	if (!state->scols) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	scols_table_enable_colors(state->scols, emit->color);
	scols_table_enable_minout(state->scols, true); /* no blanks at the ends of lines */
	scols_table_set_termforce(state->scols, SCOLS_TERMFORCE_NEVER); /* table_fit() cuts */
	scols_table_set_column_separator(state->scols, "  ");
	for (size_t i = 0; i < state->column_count; i++) {
		const struct hl_column *column = state->columns[i];
		int flags = (table_is_number(column) ? SCOLS_FL_RIGHT : 0) |
			    (column->flags & HL_COLUMN_TREE ? SCOLS_FL_TREE : 0);
		if (!scols_table_new_column(state->scols, table_title(emit, column), 0, flags))
			hl_emit_fail(emit, -ENOMEM);
	}
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
		cell_put(emit, state->columns[i], table_title(emit, state->columns[i]));
	end_line(emit);
}

/* ---- rows ---- */

static int64_t clamp(uint64_t number)
{
	return number < INT64_MAX ? (int64_t)number : INT64_MAX;
}

static void write_cell(struct hl_emit *emit, const struct hl_column *column, const void *row)
{
	const void *member = (const char *)row + column->offset;
	uint64_t part, whole;

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
		cell_figures(emit, *(const struct hl_aggregate_figures *)member);
		break;
	case HL_MEMBER_PART:
		part = *(const uint64_t *)member;
		whole = *(const uint64_t *)((const char *)row + column->whole);
		if (column->kind == HL_COLUMN_BAR)
			cell_bar(emit, part, whole);
		else
			hl_cell_share(emit, clamp(part), clamp(whole));
		break;
	}
}

void hl_table_row_below(struct hl_emit *emit, size_t depth, const void *row, unsigned emphasis)
{
	static const char *const colors[] = {
		[HL_EMIT_HEAVY] = "\033[1m",
		[HL_EMIT_HEAVIEST] = "\033[31m",
		[HL_EMIT_HEAVY | HL_EMIT_HEAVIEST] = "\033[1;31m",
	};
	struct hl_table_state *table = &emit->table;

	if (table->scols && !emit->error) {
		/* The last row of depth - 1: the row before, or one above it. */
		struct libscols_line *above = depth ? table->row : NULL;
		if (depth > table->row_depth + 1)
			abort();
		for (size_t i = table->row_depth; above && i >= depth; i--)
			above = scols_line_get_parent(above);
		table->row = scols_table_new_line(table->scols, above);
		table->row_depth = depth;
		if (!table->row || (emphasis && emit->color &&
				    scols_line_set_color(table->row, colors[emphasis]) < 0))
			hl_emit_fail(emit, -ENOMEM);
	}
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

void hl_table_end(struct hl_emit *emit)
{
	struct hl_table_state *table = &emit->table;
	HL_FREED char *text = NULL;

	if (emit->form == HL_EMIT_JSON)
		hl_json_close(&emit->json, ']');
	if (table->scols && !emit->error &&
	    (table_fit(emit, hl_emit_width(emit)) < 0 ||
	     scols_print_table_to_string(table->scols, &text) < 0))
		hl_emit_fail(emit, -ENOMEM);
	/* libsmartcols pads the titles of columns that have none. */
	for (const char *line = text; line && *line;) {
		size_t length = strcspn(line, "\n"), used = length;
		while (used && line[used - 1] == ' ')
			used--;
		fwrite(line, 1, used, emit->out);
		putc('\n', emit->out);
		line += length + (line[length] == '\n');
	}
	scols_unref_table(table->scols);
	*table = (struct hl_table_state){0};
}

void hl_table_write(struct hl_emit *emit, const struct hl_table *table, const void *rows,
		    size_t count, size_t size)
{
	hl_table_begin(emit, table);
	for (size_t i = 0; i < count; i++)
		hl_table_row(emit, (const char *)rows + i * size, 0);
	hl_table_end(emit);
}
