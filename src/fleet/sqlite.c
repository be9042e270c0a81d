/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store in a file of SQLite; see store.h. "stacks" is a view: a frame is stored once, in "frames", and a stack as the list of its frames' numbers, in
 * "stack_frames". "totals" is a view, too: what is summed up, and the deltas that are not yet. The sums of a process are spread over all
 * of its pages, which each window would write again. Stores from before have tables of these names; they are converted when windows are added.
 */
#include "fleet/store.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/library.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <sys/stat.h>

#define LIBRARY	       "libsqlite3.so.0"
#define WAIT_MS	       5000	    /* for another process that writes */
#define CACHE_PAGES    "1024"	    /* 4 MiB, of 4 KiB each */
#define APPLICATION_ID "1212966508" /* "HLfl" */
#define MS_PER_DAY     INT64_C(86400000)
#define LOG_BYTES      (8 << 20)
#define PRUNE_EVERY_MS INT64_C(3600000)

#define FUNCTIONS(FUNCTION)    \
	FUNCTION(open_v2)      \
	FUNCTION(close)        \
	FUNCTION(busy_timeout) \
	FUNCTION(exec)         \
	FUNCTION(prepare_v2)   \
	FUNCTION(finalize)     \
	FUNCTION(bind_int64)   \
	FUNCTION(bind_null)    \
	FUNCTION(bind_text)    \
	FUNCTION(step)         \
	FUNCTION(reset)        \
	FUNCTION(column_count) \
	FUNCTION(column_text)  \
	FUNCTION(column_int64) \
	FUNCTION(errmsg)       \
	FUNCTION(extended_errcode)

/* sqlite3_open_v2() and so on. */
static struct {
#define MEMBER(name) __typeof__(&sqlite3_##name) name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} library;

/* The stack that was added last: the next one mostly has the same first frames. */
struct last_stack {
	const char *frames; /* the caller's; NULL: none */
	int64_t *numbers;
	size_t count, capacity;
};

struct sqlite_store {
	struct hl_fleet_store store;
	sqlite3 *db;
	sqlite3_stmt *find_session, *add_session, *add_delta, *add_waiting, *sum_up, *note_sums;
	sqlite3_stmt *find_stack, *add_stack, *find_frame, *add_frame, *add_balance;
	struct last_stack last;
	int64_t pruned_ms;
};

/*
 * For a connection that writes. A power cut may take the last windows, but damages nothing: push asks what the store has of a process
 * before it sends more. What undoes one statement stays in memory: a service may have no other place to write to than the store.
 */
static const char writing[] = "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; "
			      "PRAGMA cache_size = " CACHE_PAGES;

/* Elements of a list that JSON would take come in their order. */
#define STACKS                                                                               \
	"CREATE TABLE IF NOT EXISTS frames (frame INTEGER PRIMARY KEY, text TEXT NOT NULL "  \
	"UNIQUE);"                                                                           \
	"CREATE TABLE IF NOT EXISTS stack_frames (stack INTEGER PRIMARY KEY, frames TEXT "   \
	"NOT NULL);"                                                                         \
	"CREATE VIEW IF NOT EXISTS stacks AS SELECT stack, (SELECT group_concat(text, "      \
	"char(10)) || char(10) FROM (SELECT text FROM json_each('[' || "                     \
	"stack_frames.frames || ']') JOIN frames ON frame = value ORDER BY key)) AS frames " \
	"FROM stack_frames;"

/* A session has a row in "sums" once it has deltas: up to when they are in "summed", how many are not, and how many stacks it has there. */
#define SUMS                                                                                  \
	"CREATE TABLE IF NOT EXISTS summed (session INTEGER NOT NULL, stack INTEGER NOT "     \
	"NULL, inuse_bytes INTEGER NOT NULL, inuse_objects INTEGER NOT NULL, alloc_bytes "    \
	"INTEGER NOT NULL, alloc_objects INTEGER NOT NULL, PRIMARY KEY (session, stack)) "    \
	"WITHOUT ROWID;"                                                                      \
	"CREATE TABLE IF NOT EXISTS sums (session INTEGER PRIMARY KEY, ms INTEGER NOT NULL, " \
	"waiting INTEGER NOT NULL, stacks INTEGER NOT NULL);"                                 \
	"CREATE VIEW IF NOT EXISTS totals AS SELECT session, stack, inuse_bytes, "            \
	"inuse_objects, alloc_bytes, alloc_objects FROM summed UNION ALL SELECT "             \
	"deltas.session, stack, inuse_bytes, inuse_objects, alloc_bytes, alloc_objects "      \
	"FROM sums CROSS JOIN deltas ON deltas.session = sums.session AND deltas.ms > "       \
	"sums.ms;"

/* Deltas are summed up when a session has more that wait than this, and twice as many as stacks. */
#define WAITING_MIN  1024
#define WAITING_EACH 2

#define SUM_UP                                                                           \
	"INSERT INTO summed SELECT deltas.session, stack, SUM(inuse_bytes), "            \
	"SUM(inuse_objects), SUM(alloc_bytes), SUM(alloc_objects) FROM sums CROSS JOIN " \
	"deltas ON deltas.session = sums.session AND deltas.ms > sums.ms WHERE "

#define SUM_UP_END                                                   \
	" GROUP BY deltas.session, stack ON CONFLICT DO UPDATE SET " \
	"inuse_bytes = inuse_bytes + excluded.inuse_bytes, "         \
	"inuse_objects = inuse_objects + excluded.inuse_objects, "   \
	"alloc_bytes = alloc_bytes + excluded.alloc_bytes, "         \
	"alloc_objects = alloc_objects + excluded.alloc_objects"

/* As hl_fleet_balance_columns has them. Old stores lack it until one is added. */
#define BALANCES                                                                            \
	"CREATE TABLE IF NOT EXISTS balances (host TEXT NOT NULL, cgroup TEXT NOT NULL, "   \
	"container TEXT NOT NULL, pod TEXT NOT NULL, ms INTEGER NOT NULL, "                 \
	"usage_bytes INTEGER, limit_bytes INTEGER, working_set_bytes INTEGER, "             \
	"reclaimable_bytes INTEGER, unreclaimable_bytes INTEGER, anonymous_bytes INTEGER, " \
	"shared_bytes INTEGER, cache_bytes INTEGER, kernel_bytes INTEGER, "                 \
	"unknown_bytes INTEGER, swap_bytes INTEGER, recorder_bytes INTEGER, "               \
	"oom_kills INTEGER, PRIMARY KEY (host, cgroup, ms)) WITHOUT ROWID;"

/* The file is known as a store before it has a table. */
static const char schema[] =
	"PRAGMA application_id = " APPLICATION_ID ";"
	"PRAGMA journal_mode = WAL;"
	"BEGIN IMMEDIATE;"
	"CREATE TABLE IF NOT EXISTS sessions (session INTEGER PRIMARY KEY, began_ms INTEGER NOT "
	"NULL,"
	" last_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
	" service TEXT NOT NULL, version TEXT NOT NULL, host TEXT NOT NULL, command TEXT NOT NULL,"
	" pid TEXT NOT NULL, build_id TEXT NOT NULL, container TEXT NOT NULL, pod TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS deltas (session INTEGER NOT NULL, ms INTEGER NOT NULL, stack "
	"INTEGER NOT NULL,"
	" inuse_bytes INTEGER NOT NULL, inuse_objects INTEGER NOT NULL, alloc_bytes INTEGER NOT "
	"NULL,"
	" alloc_objects INTEGER NOT NULL, PRIMARY KEY (session, ms, stack)) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, number INTEGER NOT "
	"NULL);" STACKS SUMS BALANCES "COMMIT";

/* Old stores keep their table. */
static const char converting[] = "ALTER TABLE stacks RENAME TO old_stacks;" STACKS;

/* What 'fleet init' may have made beside the old table has nothing in it. */
static const char converting_totals[] =
	"DROP TABLE IF EXISTS summed; ALTER TABLE totals RENAME TO summed;" SUMS
	"INSERT OR REPLACE INTO sums SELECT session, last_ms, 0, 0 FROM sessions;";

static struct sqlite_store *of(struct hl_fleet_store *store)
{
	return (struct sqlite_store *)store;
}

/* Sets the sentence for ${code} of the library. A full disk may have room again. */
static int fail(struct sqlite_store *sqlite, int code, const char *what, struct hl_error *err)
{
	int primary = code & 0xff;
	bool passes = primary == SQLITE_BUSY || primary == SQLITE_LOCKED ||
		      primary == SQLITE_FULL || primary == SQLITE_IOERR || primary == SQLITE_NOMEM;

	bool has_no_place = library.extended_errcode(sqlite->db) == SQLITE_IOERR_GETTEMPPATH;

	return hl_error_set(err, passes ? -EAGAIN : -EIO, "cannot %s '%s': %s", what,
			    sqlite->store.name,
			    has_no_place ? "no directory for temporary files can be written to; "
					   "name one by TMPDIR"
					 : library.errmsg(sqlite->db));
}

static int execute(struct sqlite_store *sqlite, const char *sql, const char *what,
		   struct hl_error *err)
{
	int code = library.exec(sqlite->db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : fail(sqlite, code, what, err);
}

/* ---- opening ---- */

static void sqlite_free(struct hl_fleet_store *store)
{
	struct sqlite_store *sqlite = of(store);

	library.finalize(sqlite->find_session);
	library.finalize(sqlite->add_session);
	library.finalize(sqlite->find_stack);
	library.finalize(sqlite->add_stack);
	library.finalize(sqlite->find_frame);
	library.finalize(sqlite->add_frame);
	library.finalize(sqlite->add_balance);
	free(sqlite->last.numbers);
	library.finalize(sqlite->add_delta);
	library.finalize(sqlite->add_waiting);
	library.finalize(sqlite->sum_up);
	library.finalize(sqlite->note_sums);
	library.close(sqlite->db);
	free(sqlite);
}

/* Takes the first cell of an answer, a number. */
static int take_number(void *context, char **cells, size_t count)
{
	(void)count;
	*(int64_t *)context = strtoll(cells[0], NULL, 10);
	return 0;
}

static int sqlite_ask(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		      void *context, struct hl_error *err);

/* Whether it is a store, and no database of somebody else. */
static int check_owner(struct sqlite_store *sqlite, struct hl_error *err)
{
	int64_t id = 0, tables = 0;

	/* In this order: somebody else may make the tables meanwhile, and the id comes before them. */
	int r = sqlite_ask(&sqlite->store, "SELECT COUNT(*) FROM sqlite_master", take_number,
			   &tables, err);
	if (r == 0)
		r = sqlite_ask(&sqlite->store, "PRAGMA application_id", take_number, &id, err);
	if (r == 0 && tables && id != strtoll(APPLICATION_ID, NULL, 10))
		r = hl_error_set(err, -EINVAL,
				 "cannot use '%s': it is another program's database; name a new "
				 "file",
				 sqlite->store.name);
	return r;
}

/*
 * Opens a file that is not ours to write. Where somebody writes to it, his log is there and is read too; where nobody does, SQLite
 * would have to make one, unless it is told that nothing changes.
 */
static int open_read_only(struct sqlite_store *sqlite, const char *path)
{
	HL_FREED char *log = NULL, *uri = NULL;

	if (asprintf(&log, "%s-wal", path) < 0 || asprintf(&uri, "file:%s?immutable=1", path) < 0)
		return SQLITE_NOMEM;
	if (access(log, F_OK) == 0 || strpbrk(path, "?#%"))
		return library.open_v2(path, &sqlite->db, SQLITE_OPEN_READONLY, NULL);
	return library.open_v2(uri, &sqlite->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
}

static int sqlite_open(const char *path, bool creates, struct hl_fleet_store **ret_store,
		       struct hl_error *err)
{
	static const char *const names[] = {FUNCTIONS(HL_LIBRARY_NAME)};
	int flags = SQLITE_OPEN_READWRITE | (creates ? SQLITE_OPEN_CREATE : 0);
	struct stat status;

	int r = hl_library_load(LIBRARY, "sqlite3_", names, HL_COUNT_OF(names), &library,
				"open the store", "libsqlite3-0", err);
	if (r < 0)
		return r;
	if (!creates && stat(path, &status) < 0)
		return hl_error_set(err, -errno,
				    "cannot open the store '%s': %s; 'heapline push --to %s' fills "
				    "one",
				    path, strerror(errno), path);
	struct sqlite_store *sqlite = calloc(1, sizeof(*sqlite));
	if (!sqlite)
		return -ENOMEM;
	sqlite->store = (struct hl_fleet_store){.backend = &hl_fleet_sqlite, .name = strdup(path)};
	int code = SQLITE_NOMEM;
	if (sqlite->store.name)
		code = !creates && access(path, W_OK) < 0
			       ? open_read_only(sqlite, path)
			       : library.open_v2(path, &sqlite->db, flags, NULL);
	if (code != SQLITE_OK)
		r = sqlite->store.name ? fail(sqlite, code, "open the store", err) : -ENOMEM;
	else
		library.busy_timeout(sqlite->db, WAIT_MS);
	if (r == 0)
		r = check_owner(sqlite, err);
	if (r == 0 && creates)
		r = execute(sqlite, writing, "write to", err);
	if (r < 0)
		hl_fleet_free(&sqlite->store);
	else
		*ret_store = &sqlite->store;
	return r;
}

static int sqlite_init(struct hl_fleet_store *store, unsigned keep_days, struct hl_error *err)
{
	char sql[100];

	snprintf(sql, sizeof(sql), "INSERT OR REPLACE INTO settings VALUES ('keep_days', %u)",
		 keep_days);
	int r = execute(of(store), schema, "make the tables of", err);
	return r == 0 ? execute(of(store), sql, "make the tables of", err) : r;
}

/* ---- inserting ---- */

static int prepare(struct sqlite_store *sqlite, const char *sql, sqlite3_stmt **statement,
		   struct hl_error *err)
{
	if (*statement)
		return 0;
	int code = library.prepare_v2(sqlite->db, sql, -1, statement, NULL);
	if (code == SQLITE_OK)
		return 0;
	return strstr(library.errmsg(sqlite->db), "no such table")
		       ? hl_error_set(err, -ENODATA, "cannot use '%s': it has no tables yet",
				      sqlite->store.name)
		       : fail(sqlite, code, "use", err);
}

static int prepare_stacks(struct sqlite_store *sqlite, struct hl_error *err)
{
	int r = prepare(sqlite, "SELECT stack FROM stack_frames WHERE stack = ?1",
			&sqlite->find_stack, err);

	if (r == 0)
		r = prepare(sqlite, "INSERT INTO stack_frames VALUES (?1, ?2)", &sqlite->add_stack,
			    err);
	if (r == 0)
		r = prepare(sqlite, "SELECT frame FROM frames WHERE text = ?1", &sqlite->find_frame,
			    err);
	if (r == 0)
		r = prepare(sqlite, "INSERT INTO frames (text) VALUES (?1) RETURNING frame",
			    &sqlite->add_frame, err);
	return r;
}

/* The number that ${statement} says for ${bytes} of ${text}, or says when it adds it. 1; 0 when it says none; or a negative errno. */
static int ask_frame(struct sqlite_store *sqlite, sqlite3_stmt *statement, const char *text,
		     size_t bytes, int64_t *ret_number, struct hl_error *err)
{
	library.bind_text(statement, 1, text, (int)bytes, SQLITE_STATIC);
	int code = library.step(statement);
	if (code == SQLITE_ROW)
		*ret_number = library.column_int64(statement, 0);
	library.reset(statement);
	return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : fail(sqlite, code, "use", err);
}

/* Numbers the frames of a stack, lines of ${frames}, in last.numbers. */
static int number_frames(struct sqlite_store *sqlite, const char *frames, struct hl_error *err)
{
	struct last_stack *last = &sqlite->last;
	const char *before = last->frames;
	size_t count = 0;
	int r = 1;

	last->frames = NULL; /* until it is numbered */
	for (const char *line = frames; r > 0 && *line; count++) {
		size_t bytes = strcspn(line, "\n"), size = bytes + (line[bytes] == '\n');
		if (before && (count >= last->count || strncmp(before, line, size) != 0))
			before = NULL;
		if (HL_ARRAY_RESERVE(last->numbers, last->capacity, count + 1) < 0)
			return hl_error_set(err, -ENOMEM, "out of memory");
		int64_t *number = &last->numbers[count];
		if (!before)
			r = ask_frame(sqlite, sqlite->find_frame, line, bytes, number, err);
		if (r == 0)
			r = ask_frame(sqlite, sqlite->add_frame, line, bytes, number, err);
		before = before ? before + size : NULL;
		line += size;
	}
	last->frames = r > 0 ? frames : NULL;
	last->count = count;
	return r > 0 ? 0 : r == 0 ? -EIO : r;
}

static int run(struct sqlite_store *sqlite, sqlite3_stmt *statement, struct hl_error *err)
{
	int code = library.step(statement);

	library.reset(statement);
	return code == SQLITE_DONE ? 0 : fail(sqlite, code, "write to", err);
}

static int add_stack(struct sqlite_store *sqlite, const struct hl_fleet_stack *stack,
		     struct hl_error *err)
{
	HL_FREED char *list = NULL;
	size_t size;

	library.bind_int64(sqlite->find_stack, 1, stack->stack);
	int code = library.step(sqlite->find_stack);
	library.reset(sqlite->find_stack);
	if (code != SQLITE_DONE)
		return code == SQLITE_ROW ? 0 : fail(sqlite, code, "read", err);
	int r = number_frames(sqlite, stack->frames, err);
	FILE *out = r == 0 ? open_memstream(&list, &size) : NULL;
	for (size_t i = 0; out && i < sqlite->last.count; i++)
		fprintf(out, "%s%" PRId64, i ? "," : "", sqlite->last.numbers[i]);
	if (r == 0 && (!out || fclose(out) != 0))
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		return r;
	library.bind_int64(sqlite->add_stack, 1, stack->stack);
	library.bind_text(sqlite->add_stack, 2, list, -1, SQLITE_STATIC);
	return run(sqlite, sqlite->add_stack, err);
}

static int take_old_stack(void *context, char **cells, size_t count)
{
	struct sqlite_store *sqlite = context;
	const struct hl_fleet_stack stack = {strtoll(cells[0], NULL, 10), cells[1]};
	struct hl_error err = {0};

	(void)count;
	int r = add_stack(sqlite, &stack, &err);
	sqlite->last.frames = NULL; /* the cells do not last */
	return r;
}

/* Whether there is the table ${name} of old stores, now a view. */
static int find_old(struct sqlite_store *sqlite, const char *name, int64_t *ret_count,
		    struct hl_error *err)
{
	char sql[100];

	snprintf(sql, sizeof(sql),
		 "SELECT COUNT(*) FROM sqlite_master WHERE name = '%s' AND type = 'table'", name);
	return sqlite_ask(&sqlite->store, sql, take_number, ret_count, err);
}

static int convert_totals(struct sqlite_store *sqlite, struct hl_error *err)
{
	return execute(sqlite, converting_totals, "convert", err);
}

/* Makes the tables of stacks out of the one that old stores have. */
static int convert_stacks(struct sqlite_store *sqlite, struct hl_error *err)
{
	int r = execute(sqlite, converting, "convert", err);

	if (r == 0)
		r = prepare_stacks(sqlite, err);
	if (r == 0)
		r = sqlite_ask(&sqlite->store, "SELECT stack, frames FROM old_stacks",
			       take_old_stack, sqlite, err);
	if (r == 0)
		r = execute(sqlite, "DROP TABLE old_stacks", "convert", err);
	if (r < 0) {
		library.finalize(sqlite->find_stack);
		sqlite->find_stack = NULL;
	}
	return r;
}

/* Has ${change} convert the table ${name} of old stores, where there is one, as a whole or not at all. */
static int convert(struct sqlite_store *sqlite, const char *name,
		   int (*change)(struct sqlite_store *sqlite, struct hl_error *err),
		   struct hl_error *err)
{
	int64_t old = 0;

	int r = find_old(sqlite, name, &old, err);
	if (r == 0 && old)
		r = execute(sqlite, "BEGIN IMMEDIATE", "convert", err);
	if (r < 0 || !old)
		return r;
	r = find_old(sqlite, name, &old, err); /* somebody else may have been faster */
	if (r == 0 && old)
		r = change(sqlite, err);
	if (r == 0)
		r = execute(sqlite, "COMMIT", "convert", err);
	if (r < 0)
		library.exec(sqlite->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

static int prepare_all(struct sqlite_store *sqlite, struct hl_error *err)
{
	static const char add_session[] =
		"INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
		"?13) "
		"ON CONFLICT DO UPDATE SET last_ms = ?3, until_ms = ?4, ended_ms = ?5";
	int r = prepare(sqlite, add_session, &sqlite->add_session, err);

	if (r == 0)
		r = sqlite->find_stack ? 0 : convert(sqlite, "stacks", convert_stacks, err);
	if (r == 0)
		r = prepare_stacks(sqlite, err);
	if (r == 0)
		r = sqlite->sum_up ? 0 : convert(sqlite, "totals", convert_totals, err);
	if (r == 0)
		r = prepare(sqlite, "SELECT last_ms FROM sessions WHERE session = ?1",
			    &sqlite->find_session, err);
	if (r == 0)
		r = prepare(sqlite, "INSERT INTO deltas VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
			    &sqlite->add_delta, err);
	if (r == 0)
		r = prepare(sqlite,
			    "INSERT INTO sums VALUES (?1, 0, ?2, 0) ON CONFLICT DO UPDATE SET "
			    "waiting = waiting + excluded.waiting RETURNING waiting, stacks",
			    &sqlite->add_waiting, err);
	if (r == 0)
		r = prepare(sqlite, SUM_UP "sums.session = ?1" SUM_UP_END, &sqlite->sum_up, err);
	if (r == 0)
		r = prepare(sqlite,
			    "UPDATE sums SET ms = ?2, waiting = 0, stacks = (SELECT COUNT(*) FROM "
			    "summed WHERE session = ?1) WHERE session = ?1",
			    &sqlite->note_sums, err);
	return r;
}

static int add_session(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		       struct hl_error *err)
{
	const int64_t numbers[] = {window->session, window->began_ms, window->ms, window->until_ms,
				   window->ended_ms};
	int at = 0;

	for (size_t i = 0; i < HL_COUNT_OF(numbers); i++)
		library.bind_int64(sqlite->add_session, ++at, numbers[i]);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		library.bind_text(sqlite->add_session, ++at, window->labels[i], -1, SQLITE_STATIC);
	return run(sqlite, sqlite->add_session, err);
}

/* Within the transaction: what the store has cannot change between this and the insert. */
static int check_base(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		      struct hl_error *err)
{
	int64_t last_ms = 0;

	library.bind_int64(sqlite->find_session, 1, window->session);
	int code = library.step(sqlite->find_session);
	if (code == SQLITE_ROW)
		last_ms = library.column_int64(sqlite->find_session, 0);
	library.reset(sqlite->find_session);
	return code == SQLITE_ROW || code == SQLITE_DONE
		       ? hl_fleet_check_base(&sqlite->store, window, last_ms, err)
		       : fail(sqlite, code, "read", err);
}

/* Counts the rows of ${window} as waiting; ${ret_many}: they are to be summed up. */
static int add_waiting(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		       bool *ret_many, struct hl_error *err)
{
	library.bind_int64(sqlite->add_waiting, 1, window->session);
	library.bind_int64(sqlite->add_waiting, 2, (int64_t)window->row_count);
	int code = library.step(sqlite->add_waiting);
	if (code == SQLITE_ROW) {
		int64_t waiting = library.column_int64(sqlite->add_waiting, 0);
		int64_t stacks = library.column_int64(sqlite->add_waiting, 1);
		*ret_many = waiting > WAITING_MIN && waiting > WAITING_EACH * stacks;
		code = library.step(sqlite->add_waiting);
	}
	library.reset(sqlite->add_waiting);
	return code == SQLITE_DONE ? 0 : fail(sqlite, code, "write to", err);
}

static int sum_up(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		  struct hl_error *err)
{
	library.bind_int64(sqlite->sum_up, 1, window->session);
	library.bind_int64(sqlite->note_sums, 1, window->session);
	library.bind_int64(sqlite->note_sums, 2, window->ms);
	int r = run(sqlite, sqlite->sum_up, err);
	return r == 0 ? run(sqlite, sqlite->note_sums, err) : r;
}

static int add_rows(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		    struct hl_error *err)
{
	bool is_many = false;
	int r = 0;

	library.bind_int64(sqlite->add_delta, 1, window->session);
	library.bind_int64(sqlite->add_delta, 2, window->ms);
	for (size_t i = 0; r == 0 && i < window->row_count; i++) {
		const struct hl_fleet_row *row = &window->rows[i];
		const int64_t numbers[] = {row->stack, row->inuse_bytes, row->inuse_objects,
					   row->alloc_bytes, row->alloc_objects};
		for (size_t k = 0; k < HL_COUNT_OF(numbers); k++)
			library.bind_int64(sqlite->add_delta, (int)k + 3, numbers[k]);
		r = run(sqlite, sqlite->add_delta, err);
	}
	if (r == 0)
		r = add_waiting(sqlite, window, &is_many, err);
	return r == 0 && is_many ? sum_up(sqlite, window, err) : r;
}

/* Deletes what is older than is kept, once an hour. Stacks stay: whoever pushes has sent their frames, and does not again. */
static int prune(struct sqlite_store *sqlite, int64_t now_ms, struct hl_error *err)
{
	int64_t days = 0;
	char sql[2048];

	if (now_ms < sqlite->pruned_ms + PRUNE_EVERY_MS)
		return 0;
	sqlite->pruned_ms = now_ms;
	int r = sqlite_ask(&sqlite->store, "SELECT number FROM settings WHERE name = 'keep_days'",
			   take_number, &days, err);
	if (r < 0 || !days)
		return r;
	int64_t oldest_ms = now_ms - days * MS_PER_DAY;
	snprintf(
		sql, sizeof(sql),
		SUM_UP
		"sums.ms < %" PRId64 SUM_UP_END ";"
		"UPDATE sums SET ms = (SELECT last_ms FROM sessions WHERE session = sums.session), "
		"waiting = 0 WHERE ms < %" PRId64 ";"
		"DELETE FROM deltas WHERE ms < %" PRId64 ";"
		"DELETE FROM summed WHERE session IN (SELECT session FROM sessions WHERE until_ms "
		"< %" PRId64 ");"
		"DELETE FROM sums WHERE session IN (SELECT session FROM sessions WHERE until_ms "
		"< %" PRId64 ");"
		"DELETE FROM sessions WHERE until_ms < %" PRId64 ";" BALANCES
		"DELETE FROM balances WHERE ms < %" PRId64,
		oldest_ms, oldest_ms, oldest_ms, oldest_ms, oldest_ms, oldest_ms, oldest_ms);
	return execute(sqlite, sql, "write to", err);
}

static int add_window(struct sqlite_store *sqlite, const struct hl_fleet_window *window,
		      struct hl_error *err)
{
	int r = check_base(sqlite, window, err);

	if (r == 0)
		r = add_session(sqlite, window, err);
	for (size_t i = 0; r == 0 && i < window->stack_count; i++)
		r = add_stack(sqlite, &window->stacks[i], err);
	sqlite->last.frames = NULL;
	return r == 0 && window->row_count ? add_rows(sqlite, window, err) : r;
}

/* The log keeps its largest size, and grows further while somebody reads, unless it is emptied, which does not wait for them. */
static void truncate_log(struct sqlite_store *sqlite)
{
	HL_FREED char *log = NULL;
	struct stat status;

	if (asprintf(&log, "%s-wal", sqlite->store.name) >= 0 && stat(log, &status) == 0 &&
	    status.st_size > LOG_BYTES) {
		library.busy_timeout(sqlite->db, 0);
		library.exec(sqlite->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
		library.busy_timeout(sqlite->db, WAIT_MS);
	}
}

static int sqlite_insert(struct hl_fleet_store *store, const struct hl_fleet_window *const *windows,
			 size_t count, bool repeated, struct hl_error *err)
{
	struct sqlite_store *sqlite = of(store);

	(void)repeated; /* check_base() finds it */
	int r = prepare_all(sqlite, err);
	if (r == 0)
		r = execute(sqlite, "BEGIN IMMEDIATE", "write to", err);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_window(sqlite, windows[i], err);
	if (r == 0 && count)
		r = prune(sqlite, windows[count - 1]->ms, err);
	if (r == 0)
		r = execute(sqlite, "COMMIT", "write to", err);
	if (r < 0)
		library.exec(sqlite->db, "ROLLBACK", NULL, NULL, NULL);
	else
		truncate_log(sqlite);
	return r;
}

static int add_balance(struct sqlite_store *sqlite, char *line, struct hl_error *err)
{
	sqlite3_stmt *statement = sqlite->add_balance;

	for (int i = 0; i < HL_FLEET_BALANCE_COUNT; i++) {
		bool is_known = line && strncmp(line, HL_FLEET_BALANCE_UNKNOWN, 2) != 0;
		const char *cell = hl_fleet_take_cell(&line);
		if (!cell)
			return hl_error_set(err, -EBADMSG, "cannot read a balance: it is damaged");
		if (i < HL_FLEET_BALANCE_TEXTS)
			library.bind_text(statement, i + 1, cell, -1, SQLITE_STATIC);
		else if (is_known)
			library.bind_int64(statement, i + 1, strtoll(cell, NULL, 10));
		else
			library.bind_null(statement, i + 1);
	}
	return run(sqlite, statement, err);
}

static int sqlite_insert_balances(struct hl_fleet_store *store, char *text, struct hl_error *err)
{
	struct sqlite_store *sqlite = of(store);
	sqlite3_stmt *settings = NULL;

	/* Whether it is a store by now. */
	int r = prepare(sqlite, "SELECT number FROM settings", &settings, err);
	library.finalize(settings);
	if (r == 0)
		r = execute(sqlite, BALANCES, "make the tables of", err);
	if (r == 0)
		r = prepare(sqlite,
			    "INSERT OR IGNORE INTO balances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
			    "?, ?, ?, ?, ?, ?, ?, ?)",
			    &sqlite->add_balance, err);
	if (r == 0)
		r = execute(sqlite, "BEGIN IMMEDIATE", "write to", err);
	if (r < 0)
		return r;
	for (char *line; r == 0 && text && *text && (line = strsep(&text, "\n"));)
		r = add_balance(sqlite, line, err);
	if (r == 0)
		r = execute(sqlite, "COMMIT", "write to", err);
	if (r < 0)
		library.exec(sqlite->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

/* ---- asking ---- */

static int sqlite_ask(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		      void *context, struct hl_error *err)
{
	struct sqlite_store *sqlite = of(store);
	sqlite3_stmt *statement = NULL;
	int code = SQLITE_DONE;

	int r = prepare(sqlite, sql, &statement, err);
	if (r < 0)
		return r;
	size_t count = (size_t)library.column_count(statement);
	HL_FREED char **cells = calloc(count + 1, sizeof(*cells));
	r = cells ? 0 : -ENOMEM;
	while (r == 0 && (code = library.step(statement)) == SQLITE_ROW) {
		for (size_t i = 0; i < count; i++) {
			const unsigned char *cell = library.column_text(statement, (int)i);
			cells[i] = cell ? (char *)cell : (char[]){""};
		}
		r = take(context, cells, count);
	}
	library.finalize(statement);
	return r == 0 && code != SQLITE_DONE ? fail(sqlite, code, "read", err) : r;
}

const struct hl_fleet_backend hl_fleet_sqlite = {
	.scheme = "sqlite:",
	.open = sqlite_open,
	.free = sqlite_free,
	.init = sqlite_init,
	.insert = sqlite_insert,
	.insert_balances = sqlite_insert_balances,
	.ask = sqlite_ask,
};
