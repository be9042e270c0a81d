/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where windows are kept: a file of SQLite, or ClickHouse over HTTP. Both have these tables, so that one query serves both:
 *
 *	sessions  session, began_ms, last_ms, until_ms, ended_ms, and the labels; in ClickHouse a session has
 *		  several rows, of which the largest numbers count
 *	stacks	  stack, frames; in SQLite a view
 *	deltas	  session, ms, stack, inuse_bytes, inuse_objects, alloc_bytes, alloc_objects; kept for some days
 *	totals	  session, stack and the sums of all deltas, those that are not kept any more too
 *
 * A store is used by one thread.
 */
#pragma once

#include "fleet/window.h"

#include <stdbool.h>

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
	int (*ask)(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		   void *context, struct hl_error *err);
	bool escapes_by_backslash;
	const char *divides; /* a function of two numbers; NULL: the operator does */
	bool has_days;	     /* deltas are parted by a column 'day' */
};

extern const struct hl_fleet_backend hl_fleet_sqlite, hl_fleet_clickhouse;
