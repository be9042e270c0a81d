/* SPDX-License-Identifier: BSD-2-Clause */
/* Cells of a table, in each form of a report; see table.h. */
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

/* ---- texts ---- */

/* Puts ${text} as far as the terminal has room for it; nothing after a cell that it has no room
 * for. */
static void put_streamed(struct hl_emit *emit, const struct hl_column *column, const char *text)
{
	struct hl_table_state *table = &emit->table;
	size_t gap = table->line_has_cells ? STREAMED_GAP : 0, taken = table->line_width + gap;
	size_t room = table->width > taken ? table->width - taken : 0;
	bool is_number = hl_table_is_number(column);
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

void hl_cell_put(struct hl_emit *emit, const struct hl_column *column, const char *text)
{
	/* In CSV, keys and numbers stand for themselves. */
	bool has_quotes = emit->form == HL_EMIT_CSV && text != column->key &&
			  (text == column->title || !hl_table_is_number(column));

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
		hl_cell_put(emit, current_column(emit), readable(emit, text, buffer));
}

void hl_cell_unknown(struct hl_emit *emit)
{
	if (emit->form == HL_EMIT_JSON)
		hl_json_null(&emit->json, current_column(emit)->key);
	else
		hl_cell_put(emit, current_column(emit), emit->form == HL_EMIT_CSV ? "" : "-");
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

void hl_cell_bar(struct hl_emit *emit, uint64_t part, uint64_t whole)
{
	char text[HL_FORMAT_MAX];

	hl_cell_text(emit, hl_format_bar(part, whole, text));
}

void hl_cell_share(struct hl_emit *emit, int64_t part, int64_t whole)
{
	char text[HL_FORMAT_MAX];

	hl_cell_text(emit, hl_format_percent(part, whole, text));
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
		hl_cell_put(emit, current_column(emit), joined);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(joined);
}

void hl_cell_frames(struct hl_emit *emit, const struct hl_emit_frame *frames, size_t count)
{
	hl_emit_frames(emit, current_column(emit)->key, frames, count);
}
