/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where windows are kept: a file of SQLite, or ClickHouse over HTTP. Both have these tables, so that one query serves both:
 *
 *	sessions  session, began_ms, last_ms, until_ms, ended_ms, and the labels; in ClickHouse a session has
 *		  several rows, of which the largest numbers count
 *	stacks	  stack, frames; in SQLite a view
 *	deltas	  session, ms, stack, inuse_bytes, inuse_objects, alloc_bytes, alloc_objects; kept for some days
 *	totals	  session, stack and the sums of all deltas, those that are not kept any more too
 *	balances  what control groups were charged with at a moment: hl_fleet_balance_columns; kept for as many days
 *
 * A store is used by one thread.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- window ---- */

/*
 * What is stored of a fleet, and how it travels.
 *
 *	session  one recorded process, from the start of its recording to its end
 *	window	 what a session allocated and freed between two looks at it, by stack
 *	stack	 a number made of the frames' names, so that it is the same in every process and on
 *		 every host; beside it, once, the names themselves
 */

/* The labels of a session are texts; they are columns of the store under these names. */
enum hl_fleet_label {
	HL_FLEET_SERVICE,
	HL_FLEET_VERSION,
	HL_FLEET_HOST,
	HL_FLEET_COMMAND,
	HL_FLEET_PID,
	HL_FLEET_BUILD_ID,
	HL_FLEET_CONTAINER,
	HL_FLEET_POD,
};

#define HL_FLEET_LABEL_COUNT 8
#define HL_FLEET_LABEL_BYTES 4096 /* at most */

/* "service", "version", ..., NULL. */
extern const char *const hl_fleet_label_names[];

/* Changes; those of what is in use may be negative. */
struct hl_fleet_row {
	int64_t stack;
	int64_t inuse_bytes, inuse_objects;
	int64_t alloc_bytes, alloc_objects;
};

/* In UTF-8. A line for each frame, the root first, with cells separated by tabs: function, module, file and line, and where the function
 * begins: file ("": the same) and line; where the module is a runtime of scripts, "script" follows. */
struct hl_fleet_stack {
	int64_t stack;
	const char *frames;
};

/* Times are milliseconds of CLOCK_REALTIME. */
struct hl_fleet_window {
	int64_t session;
	int64_t began_ms; /* the recording */
	int64_t base_ms;  /* of the look that began the window; 0: it is the first of the session */
	int64_t ms;	  /* of the look that ended the window */
	int64_t until_ms; /* without another look by then, nobody watches the process any more */
	int64_t ended_ms; /* the process; 0: it had not */
	const char *labels[HL_FLEET_LABEL_COUNT]; /* in UTF-8; "" when unknown */
	struct hl_fleet_stack *stacks;		  /* that were not in an earlier window */
	struct hl_fleet_row *rows;		  /* of the stacks that changed */
	size_t stack_count, stack_capacity, row_count, row_capacity;
};

/*
 * What a control group is charged with at one moment travels as text: a line HL_FLEET_BALANCES, then a line for each group, with a cell for
 * each of hl_fleet_balance_columns, "\N" where it is not known. The first ones are texts, the others numbers; NULL ends them.
 */
#define HL_FLEET_BALANCES	 "heapline balances 1\n"
#define HL_FLEET_BALANCE_TEXTS	 4
#define HL_FLEET_BALANCE_COUNT	 18
#define HL_FLEET_BALANCE_UNKNOWN "\\N"
extern const char *const hl_fleet_balance_columns[];

/* How a label is stored that is any bytes: in UTF-8 and without control characters other than tabs and newlines. To be freed; NULL for want of memory. */
char *hl_fleet_label_clean(const char *text);

/* Frees both arrays; the texts are the caller's. */
void hl_fleet_window_release(struct hl_fleet_window *window);

/*
 * Writes ${text} as a cell of tab-separated values: backslash, tab and newline as \\, \t and \n, other control characters as blanks,
 * and what is not UTF-8 as U+FFFD.
 */
void hl_fleet_put_cell(FILE *out, const char *text);

/* Takes the next cell of ${line}, which it changes to what hl_fleet_put_cell() was given; NULL after the last one. */
char *hl_fleet_take_cell(char **line);

/* Writes ${window} as text. Errors are those of ${out}. */
void hl_fleet_window_write(const struct hl_fleet_window *window, FILE *out);

/*
 * Reads that text from ${text}, ${size} bytes with a NUL after them, which it changes and the window's texts then lie in. 0;
 * -EBADMSG; -ENOMEM. To be released in any case.
 */
int hl_fleet_window_read(char *text, size_t size, struct hl_fleet_window *window);

/* ---- store ---- */

struct hl_fleet_store;

/* Whether ${url} names a store: "sqlite:PATH" or "clickhouse://...". */
bool hl_fleet_is_url(const char *url);

/* What people may write for a store is a URL or the path of a file. The URL, to be freed; NULL for want of memory. */
char *hl_fleet_url(const char *given);

/* The path in the URL of a file; NULL for another URL. */
const char *hl_fleet_file(const char *url);

/*
 * Opens the store at ${url}: sqlite:PATH, clickhouse://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]. What follows a question mark is
 * not looked at. ${creates}: a file that does not exist is created, empty. 0 or a negative errno with a sentence.
 */
int hl_fleet_open(const char *url, bool creates, struct hl_fleet_store **ret_store,
		  struct hl_error *err);
void hl_fleet_free(struct hl_fleet_store *store); /* NULL is fine */

/*
 * Makes the tables where they are missing. Deltas older than ${keep_days} are not kept (0: all are). 0; -EAGAIN when trying again
 * may help; another negative errno. With a sentence.
 */
int hl_fleet_init(struct hl_fleet_store *store, unsigned keep_days, struct hl_error *err);

/*
 * Adds ${count} windows together. ${repeated}: the one window may be there already. As hl_fleet_init(); -ENODATA where there are no tables yet.
 * A window is refused where the store has its session's figures of a later look than the window began with, as from somebody else who sends the same process:
 * -EEXIST when of a look as late as the window's end, -ESTALE when of one before it. The store is then to be asked what it has. After a failure some
 * windows may be there, each as a whole.
 */
int hl_fleet_insert(struct hl_fleet_store *store, const struct hl_fleet_window *const *windows,
		    size_t count, bool repeated, struct hl_error *err);

/* Adds the lines of balances, ${text}, which it changes; what is there already stays as it is. As hl_fleet_insert(). */
int hl_fleet_insert_balances(struct hl_fleet_store *store, char *text, struct hl_error *err);

/* Checks a window that begins with the look at ${base_ms} against ${last_ms}, the session's last one in the store (0: none). 0, -EEXIST or
 * -ESTALE, as hl_fleet_insert(). */
int hl_fleet_check_base(const struct hl_fleet_store *store, const struct hl_fleet_window *window,
			int64_t last_ms, struct hl_error *err);

/* Takes one row of an answer, as texts; 0 or a negative errno, which ends the query. */
typedef int hl_fleet_take_row(void *context, char **cells, size_t count);

/* Asks ${sql}. As hl_fleet_insert(), or what ${take} returns. */
int hl_fleet_ask(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		 void *context, struct hl_error *err);

/* What the dialects write differently. */
void hl_fleet_put_text(const struct hl_fleet_store *store, FILE *sql, const char *text);

/* "ms / 60000" as a whole number. */
void hl_fleet_put_quotient(const struct hl_fleet_store *store, FILE *sql, const char *column,
			   int64_t divisor);

/* "ms > 1700000000000". */
void hl_fleet_put_after(const struct hl_fleet_store *store, FILE *sql, int64_t ms);

/* ---- for the backends ---- */

/* A store begins with this. */
struct hl_fleet_store {
	const struct hl_fleet_backend *backend;
	char *name; /* the URL without a password, for messages */
};

struct hl_fleet_backend {
	const char *scheme;
	int (*open)(const char *rest, bool creates, struct hl_fleet_store **ret_store,
		    struct hl_error *err);
	void (*free)(struct hl_fleet_store *store);
	int (*init)(struct hl_fleet_store *store, unsigned keep_days, struct hl_error *err);
	int (*insert)(struct hl_fleet_store *store, const struct hl_fleet_window *const *windows,
		      size_t count, bool repeated, struct hl_error *err);
	int (*insert_balances)(struct hl_fleet_store *store, char *text, struct hl_error *err);
	int (*ask)(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		   void *context, struct hl_error *err);
	bool escapes_by_backslash;
	const char *divides; /* a function of two numbers; NULL: the operator does */
	bool has_days;	     /* deltas are parted by a column 'day' */
};

extern const struct hl_fleet_backend hl_fleet_sqlite, hl_fleet_clickhouse;
