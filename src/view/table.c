/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows from columns: tables by libsmartcols, all other forms as a stream; see table.h. */
#include "view/table.h"

#include "base/cleanup.h"
#include "view/emit_state.h"

#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <stdlib.h>
#include <string.h>

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
	return column->kind == HL_COLUMN_OTHER && !strcmp(column->title, "other")
		       ? hl_unit_names[hl_unit_other(emit->unit)]
		       : column->title;
}

bool hl_table_is_number(const struct hl_column *column)
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
			hl_cell_put(emit, column, column->key ? column->key : column->title);
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
	scols_table_set_termforce(state->scols, SCOLS_TERMFORCE_NEVER); /* hl_table_fit() cuts */
	scols_table_set_column_separator(state->scols, "  ");
	for (size_t i = 0; i < state->column_count; i++) {
		const struct hl_column *column = state->columns[i];
		int flags = (hl_table_is_number(column) ? SCOLS_FL_RIGHT : 0) |
			    (column->flags & HL_COLUMN_TREE ? SCOLS_FL_TREE : 0);
		if (!scols_table_new_column(state->scols, hl_table_title(emit, column), 0, flags))
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
		hl_cell_put(emit, state->columns[i], hl_table_title(emit, state->columns[i]));
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
		hl_cell_figures(emit, *(const struct hl_aggregate_figures *)member);
		break;
	case HL_MEMBER_PART:
		part = *(const uint64_t *)member;
		whole = *(const uint64_t *)((const char *)row + column->whole);
		if (column->kind == HL_COLUMN_BAR)
			hl_cell_bar(emit, part, whole);
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
	    (hl_table_fit(emit, hl_emit_width(emit)) < 0 ||
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
