/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures columns, gives each a width, shortens what is longer; see emit_state.h. */
#include "view/emit_state.h"
#include "view/format.h"

#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <stdlib.h>
#include <string.h>

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
	size_t width = fitting->widths[i], title = strlen(hl_table_title(fitting->emit, column));
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

int hl_table_fit(struct hl_emit *emit, size_t width)
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
		fitting.widths[i] = strlen(hl_table_title(emit, table->columns[i]));
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
