/* SPDX-License-Identifier: BSD-2-Clause */
/* What a report is in memory: for emit.c and table.c alone. */
#pragma once

#include "view/emit.h"
#include "view/table.h"

#define HL_TABLE_COLUMNS_MAX 24 /* more than any view has */
#define HL_TABLE_KEY_MAX     32 /* bytes of the key of a figure in one unit */

struct libscols_table;
struct libscols_line;

/* The table that is being written. */
struct hl_table_state {
	struct hl_table table;
	const struct hl_column *columns[HL_TABLE_COLUMNS_MAX]; /* those that this form shows */
	char keys[HL_TABLE_COLUMNS_MAX][HL_UNIT_COUNT][HL_TABLE_KEY_MAX]; /* JSON: of figures */
	size_t column_count, column;  /* column: of the cell that is being written */
	struct libscols_table *scols; /* NULL: written as it comes */
	struct libscols_line *row;
	size_t row_depth; /* of a tree; 0 in tables without branches */
	/* Written as it comes: */
	bool streamed;	   /* in aligned columns */
	size_t width;	   /* of the terminal; 0: no limit */
	size_t line_width; /* of what the line has */
	bool line_has_cells;
};

struct hl_emit {
	FILE *out;
	enum hl_emit_form form;
	bool color;
	int error; /* the first one; then nothing more is written */
	struct hl_json json;
	/* Of columns with figures: */
	enum hl_unit unit;
	bool knows[HL_UNIT_COUNT];
	struct hl_table_state table;
};
