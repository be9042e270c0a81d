/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of a report. A column is one line of one array: its key, its title, and where its cells
 * come from. The same array makes the table for people, plain lines, CSV and JSON.
 *
 *	static const struct hl_column columns[] = {
 *		{"flat", "flat", HL_COLUMN_FIGURE, HL_MEMBER(struct hl_row, flat)},
 *		{NULL, "where", HL_COLUMN_TEXT, .cell = place, .shown_if = HAS_PLACES},
 *	};
 *
 *	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
 *	hl_table_row(emit, row, 0) for each row
 *	hl_table_end(emit);
 *
 * Text shows columns in the order of the array; in JSON, figures come after all other members.
 */
#pragma once

#include "profile/calltree.h"
#include "view/emit.h"

enum hl_column_kind {
	HL_COLUMN_TEXT,
	HL_COLUMN_BYTES,   /* table: 1.5 MiB; else an integer */
	HL_COLUMN_COUNT,   /* table: 1,234; else an integer */
	HL_COLUMN_NUMBER,  /* an integer without commas, such as a PID */
	HL_COLUMN_ADDRESS, /* 0x7f00 */
	HL_COLUMN_FIGURE,  /* text: in the chosen unit; JSON: KEY_bytes and KEY_objects, if known */
	HL_COLUMN_OTHER, /* text: a figure in the other unit, if known; titled "other" it has that unit's name */
	HL_COLUMN_BAR,	   /* text: the share of a number as "####............" */
	HL_COLUMN_SHARE,   /* text: 12.3 %, of the table's whole or sum */
	HL_COLUMN_STACK,   /* text: frames joined by ';'; JSON: an array of names */
	HL_COLUMN_FRAMES,  /* JSON: an array of objects */
	HL_COLUMN_MEMBERS, /* JSON: .cell writes members of the row by hl_emit_X() */
};

enum hl_column_flag {
	HL_COLUMN_SHORTENED = 1,   /* cut off, with "...", where a terminal is too narrow */
	HL_COLUMN_PATH = 2,	   /* cut off in front, because its end says most */
	HL_COLUMN_KEY = 4,	   /* names the row: cut off after all others */
	HL_COLUMN_OMITTED = 8,	   /* left out where a terminal is too narrow */
	HL_COLUMN_BLANK_ZERO = 16, /* in tables, 0 is left blank */
	HL_COLUMN_TREE = 32,	   /* in tables, draws the branches of hl_table_row_below() */
	HL_COLUMN_NAMES = 64,	   /* names of functions: see hl_format_templates() */
	HL_COLUMN_ESSENTIAL = 128, /* left out after all others but the key and the first column */
};

/* Writes one cell of ${row} by one call of hl_cell_X(). ${context} is that of the table. */
typedef void hl_cell(struct hl_emit *emit, const void *row, const void *context);

enum hl_member_type {
	HL_MEMBER_NONE,
	HL_MEMBER_TEXT,	    /* const char * */
	HL_MEMBER_CHARS,    /* char[] */
	HL_MEMBER_SIGNED,   /* int64_t */
	HL_MEMBER_UNSIGNED, /* uint64_t */
	HL_MEMBER_SHORT,    /* uint32_t */
	HL_MEMBER_FIGURES,  /* struct hl_aggregate_figures */
	HL_MEMBER_PART,	    /* uint64_t, beside another one that is its whole */
};

struct hl_column {
	const char *key;   /* in JSON and CSV; NULL: not in JSON */
	const char *title; /* in tables, and in CSV where there is no key; NULL: not there */
	enum hl_column_kind kind;
	/* Where cells come from: a function, or a member of the row. The function is given the row
	 * from that member on. */
	hl_cell *cell;
	size_t offset, whole;
	enum hl_member_type member;
	unsigned flags;	   /* enum hl_column_flag */
	unsigned shown_if; /* facts of the table, of which one must hold; 0: always shown */
};

/* Initializes the cells of a column with the member ${name} of rows of ${type}. */
#define HL_MEMBER(type, name) \
	.offset = offsetof(type, name),                                                            \
	.member = _Generic(&((type *)0)->name,                                                     \
		const char **: HL_MEMBER_TEXT,                                                     \
		int64_t *: HL_MEMBER_SIGNED,                                                       \
		uint64_t *: HL_MEMBER_UNSIGNED,                                                    \
		uint32_t *: HL_MEMBER_SHORT,                                                       \
		struct hl_aggregate_figures *: HL_MEMBER_FIGURES)

/* The same for a HL_COLUMN_SHARE or HL_COLUMN_BAR: ${part} as a share of ${of}, both uint64_t. */
#define HL_MEMBER_SHARE(type, part, of) \
	.offset = offsetof(type, part), .whole = offsetof(type, of), .member = HL_MEMBER_PART

/* The same for ${function}, which is given the member. */
#define HL_MEMBER_CELL(type, name, function) .cell = function, .offset = offsetof(type, name)

/* The same for a member that is an array of char. */
#define HL_MEMBER_ARRAY(type, name) .offset = offsetof(type, name), .member = HL_MEMBER_CHARS

struct hl_table {
	const char *key; /* in JSON */
	const struct hl_column *columns;
	size_t column_count;
	const void *context;		   /* for functions of cells */
	unsigned facts;			   /* bits that the view chooses, for hl_column.shown_if */
	struct hl_aggregate_figures whole; /* of which figures have shares */
	int64_t sum;			   /* of which numbers have shares */
};

/* Initializes the first members of a struct hl_table. */
#define HL_TABLE(name, array) .key = name, .columns = array, .column_count = HL_COUNT_OF(array)

/* From now on columns show figures of ${value}, as far as ${profile} knows it, in ${unit} in text.
 */
void hl_table_figures(struct hl_emit *emit, const struct hl_profile *profile, enum hl_value value,
		      enum hl_unit unit);

/* Begins a list of rows. What ${table} points to must live until its end. */
void hl_table_begin(struct hl_emit *emit, const struct hl_table *table);

/*
 * The same for any number of rows: a table is written as it comes, in columns of a width that is
 * fixed, without emphasis. Only its last column may hold text.
 */
void hl_table_begin_streamed(struct hl_emit *emit, const struct hl_table *table);

void hl_table_row(struct hl_emit *emit, const void *row, unsigned emphasis);

/* A row of a tree: below the last one of ${depth} - 1; of depth 1 it is below none. */
void hl_table_row_below(struct hl_emit *emit, size_t depth, const void *row, unsigned emphasis);

void hl_table_end(struct hl_emit *emit);

/* All of it at once: a table of ${count} rows that lie in an array, ${size} bytes each. */
void hl_table_write(struct hl_emit *emit, const struct hl_table *table, const void *rows,
		    size_t count, size_t size);

void hl_cell_text(struct hl_emit *emit, const char *text);
void hl_cell_integer(struct hl_emit *emit, int64_t number);
void hl_cell_unsigned(struct hl_emit *emit, uint64_t number); /* INT64_MAX at most, or an address */
void hl_cell_unknown(struct hl_emit *emit);		      /* "-", or null */

void hl_cell_share(struct hl_emit *emit, int64_t part, int64_t whole);

void hl_cell_stack(struct hl_emit *emit, const char *const *frames, size_t count);
void hl_cell_frames(struct hl_emit *emit, const struct hl_emit_frame *frames, size_t count);

/* ---- what a report is in memory: for emit.c and table.c alone ---- */

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
	/* For "next": */
	const char *schema; /* the caller's */
	char *about;	    /* the recording, quoted for a shell; NULL: there is no file */
	int64_t pid;	    /* 0: unknown */
	bool has_next, is_untraceable;
};
