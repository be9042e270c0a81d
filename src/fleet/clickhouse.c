/* SPDX-License-Identifier: BSD-2-Clause */
/* A store in ClickHouse, over its HTTP interface; see store.h. */
#include "fleet/store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/index.h"
#include "fleet/web.h"

#include <ctype.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT		  "8123"
#define TLS_PORT	  "8443"
#define DATABASE	  "heapline"
#define NAME_MAX_BYTES	  64
#define HAS_CODECS	  20 /* major versions from this one on have LowCardinality, CODEC and TTL */
#define QUERY_BYTES_USUAL 200000 /* servers take 256 KiB */
#define TURN_MS		  UINT64_C(2000)
#define NS_PER_MS	  UINT64_C(1000000)
#define TURN_POLL_US	  5000
#define UNKNOWN_TABLE	  60
#define UNKNOWN_DATABASE  81

struct clickhouse {
	struct hl_fleet_store store;
	struct hl_web *web;
	char *url;  /* "http://HOST:PORT/" */
	char *user; /* NULL: none */
	char database[NAME_MAX_BYTES + 1];
	int major; /* of its version; 0: it was not asked yet */
};

static struct clickhouse *of(struct hl_fleet_store *store)
{
	return (struct clickhouse *)store;
}

/* ---- opening ---- */

static void clickhouse_free(struct hl_fleet_store *store)
{
	struct clickhouse *server = of(store);

	hl_web_free(server->web);
	free(server->url);
	free(server->user);
	free(server);
}

/* Parts of [USER[:PASSWORD]@]HOST[:PORT][/DATABASE], which is changed. 0, -EINVAL or -ENOMEM. */
static int parse(struct clickhouse *server, char *place)
{
	char *at = strrchr(place, '@'), *host = at ? at + 1 : place;
	char *slash = strchr(host, '/');
	const char *database = slash && slash[1] ? slash + 1 : DATABASE;

	if (at)
		*at = '\0';
	if (slash)
		*slash = '\0';
	char *end = strchr(host, ']'), *colon = strrchr(end ? end : host, ':');
	const char *port = colon ? colon + 1 : PORT;
	if (colon)
		*colon = '\0';
	if (!*host || strspn(port, "0123456789") != strlen(port) || !*port ||
	    strlen(database) > NAME_MAX_BYTES)
		return -EINVAL;
	for (const char *c = database; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return -EINVAL;
	strcpy(server->database, database);
	server->user = at ? hl_web_user(place, strlen(place)) : NULL;
	if ((at && !server->user) ||
	    asprintf(&server->url, "http%s://%s:%s/", strcmp(port, TLS_PORT) == 0 ? "s" : "", host,
		     port) < 0 ||
	    asprintf(&server->store.name, "%s%s:%s/%s", hl_fleet_clickhouse.scheme, host, port,
		     database) < 0)
		return -ENOMEM;
	return 0;
}

static int clickhouse_open(const char *rest, bool creates, struct hl_fleet_store **ret_store,
			   struct hl_error *err)
{
	struct clickhouse *server = calloc(1, sizeof(*server));
	HL_FREED char *place = strdup(rest);

	(void)creates;
	if (!server || !place) {
		free(server);
		return -ENOMEM;
	}
	server->store.backend = &hl_fleet_clickhouse;
	int r = parse(server, place);
	if (r == -EINVAL)
		hl_error_set(err, r,
			     "cannot open the store: ClickHouse is named as "
			     "clickhouse://HOST:PORT/DATABASE, "
			     "the database by letters, digits and '_'");
	if (r == 0)
		r = hl_web_new(&server->web, err);
	if (r < 0)
		hl_fleet_free(&server->store);
	else
		*ret_store = &server->store;
	return r;
}

/* ---- requests ---- */

/* What its errors mean: all begin with "Code: 60", and old servers answer them all with status 500. The first two come where a table that changes
 * are to go on to is another one than init() makes: the table before it has them then, so they have to wait until that is mended. */
static int judge(struct clickhouse *server, int r, const char *answer, struct hl_error *err)
{
	static const int may_pass[] = {10, 16, 159, 164, 202, 209, 210, 241, 242, 252, 319};
	int code = 0;

	if (r >= 0 || r == -ENOMEM || !answer || sscanf(answer, "Code: %d", &code) != 1)
		return r;
	if (code == UNKNOWN_TABLE || code == UNKNOWN_DATABASE) {
		*err = (struct hl_error){0};
		return hl_error_set(err, -ENODATA,
				    "cannot use '%s': it has no tables yet; 'heapline fleet init "
				    "--db %s' makes them",
				    server->store.name, server->store.name);
	}
	for (size_t i = 0; i < HL_COUNT_OF(may_pass); i++)
		if (code == may_pass[i])
			return -EAGAIN;
	return -EREMOTEIO;
}

/* For a statement longer than the server's default limit; shorter ones do without, since users who may only read may set nothing. */
static const char *size_setting(size_t size)
{
	return size > QUERY_BYTES_USUAL ? "&max_query_size=1073741824&max_ast_elements=100000000"
					  "&max_expanded_ast_elements=100000000"
					: "";
}

/*
 * Sends ${body}, ${size} bytes; ${statement}: what is to be done with it, NULL when it is the statement. ${in}: within the database. The answer
 * comes when it is complete: else an error in its middle would be a part of it, under status 200.
 */
static int post(struct clickhouse *server, bool in, const char *statement, const char *body,
		size_t size, struct hl_web_answer *ret_answer, struct hl_error *err)
{
	HL_FREED char *url = NULL;

	if (asprintf(&url, "%s?database=%s&wait_end_of_query=1%s%s%s", server->url,
		     in ? server->database : "default", statement ? "" : size_setting(size),
		     statement ? "&query=" : "", statement ? statement : "") < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	const struct hl_web_request request = {.url = url,
					       .name = server->store.name,
					       .user = server->user,
					       .body = body,
					       .size = size,
					       .is_sent_once = statement != NULL};
	int r = hl_web_post(server->web, &request, ret_answer, err);
	return judge(server, r, ret_answer->text, err);
}

static int execute(struct clickhouse *server, bool in, const char *sql, struct hl_error *err)
{
	struct hl_web_answer answer = {0};

	int r = post(server, in, NULL, sql, strlen(sql), &answer, err);
	free(answer.text);
	return r;
}

static int ask(struct clickhouse *server, bool in, const char *sql, hl_fleet_take_row *take,
	       void *context, struct hl_error *err)
{
	struct hl_web_answer answer = {0};
	char *cells[32];

	int r = post(server, in, NULL, sql, strlen(sql), &answer, err);
	char *line = answer.text;
	while (r == 0 && *line) {
		char *end = strchrnul(line, '\n'), *next = *end ? end + 1 : end, *cell;
		size_t count = 0;
		*end = '\0';
		while (count < HL_COUNT_OF(cells) && (cell = hl_fleet_take_cell(&line)))
			cells[count++] = cell;
		r = take(context, cells, count);
		line = next;
	}
	free(answer.text);
	return r;
}

static int take_major(void *context, char **cells, size_t count)
{
	int minor;

	return count == 1 && sscanf(cells[0], "%d.%d", (int *)context, &minor) == 2 ? 0 : -EBADMSG;
}

/* Whether it is ClickHouse: there are servers that answer everything with status 200. */
static int check_server(struct clickhouse *server, struct hl_error *err)
{
	if (server->major)
		return 0;
	int r = ask(server, false, "SELECT version()", take_major, &server->major, err);
	if (r == -EBADMSG || (r == 0 && !server->major))
		r = hl_error_set(err, -EPROTO,
				 "cannot use '%s': what answers there is not ClickHouse; name its "
				 "HTTP port, which is " PORT " or " TLS_PORT " by default",
				 server->store.name);
	return r;
}

static int clickhouse_ask(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
			  void *context, struct hl_error *err)
{
	int r = check_server(of(store), err);

	return r == 0 ? ask(of(store), true, sql, take, context, err) : r;
}

/* ---- tables ---- */

/* The names of labels, each after a comma and with ${type}. */
static void put_labels(FILE *sql, const char *type)
{
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		fprintf(sql, ", %s%s", hl_fleet_label_names[i], type);
}

/*
 * What is inserted into "changes" goes into "deltas" and "totals"; it is kept by neither name. The columns of deltas hold the same in fewer bytes, since
 * old servers pack columns by LZ4 alone, to which a number of 64 bits costs about 3 bytes however small it is:
 *
 *	day		a partition, so that questions about the last hours read little
 *	stack		comes first in the order, so that it makes long runs
 *	tick, late_ms	2 s of the day, and what is left: mostly nothing
 *	x_low, x_high	x_low + 256 * x_high, the high one 0 for small numbers of objects
 *	size		of an object; x_rest are bytes beyond x_objects * size, 0 where all have one size
 */
static const char deltas[] =
	"CREATE TABLE IF NOT EXISTS deltas (stack Int64%1$s, day Date%1$s, session Int64%1$s, tick "
	"UInt16%1$s, late_ms Int16%1$s, inuse_low Int8%1$s, inuse_high Int64%1$s, alloc_low "
	"Int8%1$s, alloc_high Int64%1$s, size Int64%1$s, inuse_rest Int64%1$s, alloc_rest "
	"Int64%1$s, "
	"ms Int64 ALIAS toInt64(toUInt16(day)) * 86400000 + tick * 2000 + late_ms, "
	"inuse_bytes Int64 ALIAS (inuse_low + 256 * inuse_high) * size + inuse_rest, "
	"inuse_objects Int64 ALIAS inuse_low + 256 * inuse_high, "
	"alloc_bytes Int64 ALIAS (alloc_low + 256 * alloc_high) * size + alloc_rest, "
	"alloc_objects Int64 ALIAS alloc_low + 256 * alloc_high) "
	"ENGINE = MergeTree PARTITION BY day ORDER BY (stack, session, tick)";

static const char deltas_of_changes[] =
	"CREATE MATERIALIZED VIEW IF NOT EXISTS deltas_of_changes TO deltas AS SELECT stack, "
	"toDate(toUInt16(intDiv(ms, 86400000))) AS day, session, "
	"toUInt16(intDiv(ms % 86400000, 2000)) AS tick, toInt16(ms % 2000) AS late_ms, "
	"toInt8(inuse_objects) AS inuse_low, intDiv(inuse_objects - inuse_low, 256) AS inuse_high, "
	"toInt8(alloc_objects) AS alloc_low, intDiv(alloc_objects - alloc_low, 256) AS alloc_high, "
	"if(alloc_objects = 0, intDivOrZero(inuse_bytes, inuse_objects), "
	"intDivOrZero(alloc_bytes, alloc_objects)) AS size, "
	"inuse_bytes - inuse_objects * size AS inuse_rest, "
	"alloc_bytes - alloc_objects * size AS alloc_rest FROM changes";

static int create(struct clickhouse *server, int table, bool has_codecs, unsigned keep_days,
		  struct hl_error *err)
{
	static const char figures[] = "session Int64, %sstack Int64, inuse_bytes Int64, "
				      "inuse_objects Int64, alloc_bytes Int64, alloc_objects Int64";
	const char *packed = has_codecs ? " CODEC(ZSTD(1))" : "";
	HL_FREED char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	if (!out)
		return hl_error_set(err, -ENOMEM, "out of memory");
	switch (table) {
	case 0:
		fprintf(out, "CREATE TABLE IF NOT EXISTS sessions (session Int64, began_ms Int64, "
			     "last_ms Int64, until_ms Int64, ended_ms Int64");
		put_labels(out, has_codecs ? " LowCardinality(String)" : " String");
		fprintf(out, ") ENGINE = ReplacingMergeTree(last_ms) ORDER BY session");
		break;
	case 1:
		fprintf(out,
			"CREATE TABLE IF NOT EXISTS stacks (stack Int64, frames String%s) ENGINE = "
			"ReplacingMergeTree ORDER BY stack",
			packed);
		break;
	case 2:
		fprintf(out, deltas, packed);
		break;
	case 3:
		fprintf(out, "CREATE TABLE IF NOT EXISTS totals (");
		fprintf(out, figures, "");
		fprintf(out, ") ENGINE = SummingMergeTree ORDER BY (session, stack)");
		break;
	case 4:
		fprintf(out, "CREATE TABLE IF NOT EXISTS changes (");
		fprintf(out, figures, "ms Int64, ");
		fprintf(out, ") ENGINE = Null");
		break;
	case 5:
		fputs(deltas_of_changes, out);
		break;
	case 6:
		fprintf(out,
			"CREATE MATERIALIZED VIEW IF NOT EXISTS totals_of_changes TO totals AS "
			"SELECT session, stack, inuse_bytes, inuse_objects, alloc_bytes, "
			"alloc_objects FROM changes");
		break;
	case 7:
		fprintf(out, "CREATE TABLE IF NOT EXISTS balances (");
		for (size_t i = 0; i < HL_FLEET_BALANCE_COUNT; i++)
			fprintf(out, "%s %s%s, ", hl_fleet_balance_columns[i],
				i > HL_FLEET_BALANCE_TEXTS    ? "Nullable(Int64)"
				: i == HL_FLEET_BALANCE_TEXTS ? "Int64" /* the time */
				: has_codecs		      ? "LowCardinality(String)"
							      : "String",
				i < HL_FLEET_BALANCE_TEXTS ? "" : packed);
		fprintf(out, "day Date MATERIALIZED toDate(toUInt16(intDiv(ms, 86400000)))) ENGINE "
			     "= ReplacingMergeTree PARTITION BY day ORDER BY (host, cgroup, ms)");
		break;
	default:
		fprintf(out, "ALTER TABLE %s MODIFY TTL day + INTERVAL %u DAY",
			table == 8 ? "deltas" : "balances", keep_days);
	}
	int r = fclose(out) == 0 ? execute(server, true, sql, err)
				 : hl_error_set(err, -ENOMEM, "out of memory");
	return r;
}

static int clickhouse_init(struct hl_fleet_store *store, unsigned keep_days, struct hl_error *err)
{
	struct clickhouse *server = of(store);
	char sql[128];

	snprintf(sql, sizeof(sql), "CREATE DATABASE IF NOT EXISTS %s", server->database);
	int r = check_server(server, err);
	if (r == 0)
		r = execute(server, false, sql, err);
	bool has_codecs = server->major >= HAS_CODECS;
	for (int table = 0; r == 0 && table < (has_codecs && keep_days ? 10 : 8); table++)
		r = create(server, table, has_codecs, keep_days, err);
	if (r == 0 && keep_days && !has_codecs)
		r = hl_error_set(
			err, -EOPNOTSUPP,
			"'%s' (version %d) cannot delete old rows by itself; leave out --keep, and "
			"drop partitions of 'deltas', which are days",
			store->name, server->major);
	return r;
}

/* ---- inserting ---- */

static void put_stacks(const struct hl_fleet_window *window, FILE *out)
{
	for (size_t i = 0; i < window->stack_count; i++) {
		fprintf(out, "%" PRId64 "\t", window->stacks[i].stack);
		hl_fleet_put_cell(out, window->stacks[i].frames);
		putc('\n', out);
	}
}

static void put_changes(const struct hl_fleet_window *window, FILE *out)
{
	for (size_t i = 0; i < window->row_count; i++) {
		const struct hl_fleet_row *row = &window->rows[i];
		fprintf(out,
			"%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64
			"\t%" PRId64 "\n",
			window->session, window->ms, row->stack, row->inuse_bytes,
			row->inuse_objects, row->alloc_bytes, row->alloc_objects);
	}
}

static void put_totals(const struct hl_fleet_window *window, FILE *out)
{
	for (size_t i = 0; i < window->row_count; i++) {
		const struct hl_fleet_row *row = &window->rows[i];
		fprintf(out,
			"%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64
			"\n",
			window->session, row->stack, row->inuse_bytes, row->inuse_objects,
			row->alloc_bytes, row->alloc_objects);
	}
}

static void put_session(const struct hl_fleet_window *window, FILE *out)
{
	fprintf(out, "%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64,
		window->session, window->began_ms, window->ms, window->until_ms, window->ended_ms);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++) {
		putc('\t', out);
		hl_fleet_put_cell(out, window->labels[i]);
	}
	putc('\n', out);
}

/* Many small inserts are what a server copes with least: one has the rows of all windows. */
static int insert_into(struct clickhouse *server, const char *statement,
		       void (*put)(const struct hl_fleet_window *window, FILE *out),
		       const struct hl_fleet_window *const *windows, size_t count,
		       struct hl_error *err)
{
	struct hl_web_answer answer = {0};
	HL_FREED char *body = NULL;
	size_t size;
	FILE *out = open_memstream(&body, &size);

	for (size_t i = 0; out && i < count; i++)
		put(windows[i], out);
	if (!out || fclose(out) != 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!size)
		return 0;
	int r = post(server, true, statement, body, size, &answer, err);
	free(answer.text);
	return r;
}

static int take_count(void *context, char **cells, size_t count)
{
	(void)count;
	*(bool *)context = strcmp(cells[0], "0") != 0;
	return 0;
}

static int take_sums(void *context, char **cells, size_t count)
{
	int64_t *sums = context;

	if (count != 4)
		return -EBADMSG;
	for (size_t i = 0; i < count; i++)
		sums[i] = strtoll(cells[i], NULL, 10);
	return 0;
}

/* What ${table} has of the stack of ${window}'s first row. */
static int ask_sums(struct clickhouse *server, const char *table,
		    const struct hl_fleet_window *window, int64_t sums[4], struct hl_error *err)
{
	char sql[240];

	snprintf(sql, sizeof(sql),
		 "SELECT SUM(inuse_bytes), SUM(inuse_objects), SUM(alloc_bytes), "
		 "SUM(alloc_objects) FROM %s WHERE session = %" PRId64 " AND stack = %" PRId64,
		 table, window->session, window->rows[0].stack);
	return clickhouse_ask(&server->store, sql, take_sums, sums, err);
}

/*
 * Of a window that deltas have: whether totals do not, as where the server wrote the first table and failed to write the second one. Windows of a session come one
 * after the other, so totals lack this one or none. They are told by sums of all deltas; where old ones have been deleted, nothing is found to be lacking.
 */
static int lacks_totals(struct clickhouse *server, const struct hl_fleet_window *window,
			bool *ret_lacks, struct hl_error *err)
{
	const struct hl_fleet_row *row = &window->rows[0];
	const int64_t figures[4] = {row->inuse_bytes, row->inuse_objects, row->alloc_bytes,
				    row->alloc_objects};
	int64_t changed[4] = {0}, total[4] = {0};
	bool lacks = true;

	int r = ask_sums(server, "deltas", window, changed, err);
	if (r == 0)
		r = ask_sums(server, "totals", window, total, err);
	for (size_t i = 0; i < HL_COUNT_OF(total); i++)
		lacks &= changed[i] - total[i] == figures[i];
	if (r == 0)
		*ret_lacks = lacks;
	return r;
}

/* Checks one row of sessions against the window of that session. */
struct base_check {
	const struct clickhouse *server;
	const struct hl_fleet_window *const *windows;
	size_t count;
	struct hl_error *err;
};

static int take_last(void *context, char **cells, size_t count)
{
	const struct base_check *check = context;
	int r = count == 2 ? 0 : -EBADMSG;

	for (size_t i = 0; r == 0 && i < check->count; i++)
		if (check->windows[i]->session == strtoll(cells[0], NULL, 10))
			r = hl_fleet_check_base(&check->server->store, check->windows[i],
						strtoll(cells[1], NULL, 10), check->err);
	return r;
}

static int check_bases(struct clickhouse *server, const struct hl_fleet_window *const *windows,
		       size_t count, struct hl_error *err)
{
	struct base_check check = {server, windows, count, err};
	HL_FREED char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	if (!out)
		return hl_error_set(err, -ENOMEM, "out of memory");
	fputs("SELECT session, MAX(last_ms) FROM sessions WHERE session IN (", out);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s%" PRId64, i ? ", " : "", windows[i]->session);
	fputs(") GROUP BY session", out);
	return fclose(out) == 0 ? clickhouse_ask(&server->store, sql, take_last, &check, err)
				: hl_error_set(err, -ENOMEM, "out of memory");
}

/*
 * Waits until no other process of this host inserts into the store, since a server without transactions lets two of them check the same window at once. Sessions are
 * pushed where their recordings are, so one host is enough. The name in the kernel goes with its process. -1 after TURN_MS: whoever has
 * it that long shall not stop others. To be closed.
 */
static int wait_for_turn(const struct clickhouse *server)
{
	const uint64_t until_ns = hl_clock_ns(CLOCK_MONOTONIC) + TURN_MS * NS_PER_MS;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "heapline-store-%08x",
		 hl_hash_bytes(server->store.name, strlen(server->store.name)));
	while (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EADDRINUSE || hl_clock_ns(CLOCK_MONOTONIC) > until_ns) {
			close(fd);
			return -1;
		}
		usleep(TURN_POLL_US);
	}
	return fd;
}

/* A block of rows is in a table as a whole or not at all. */
static int clickhouse_insert(struct hl_fleet_store *store,
			     const struct hl_fleet_window *const *windows, size_t count,
			     bool repeated, struct hl_error *err)
{
	struct clickhouse *server = of(store);
	HL_CLOSED int turn_fd = wait_for_turn(server);
	bool is_there = false, lacks = false;
	char sql[160];
	int r = check_bases(server, windows, count, err);

	(void)turn_fd;
	if (r == 0 && repeated && windows[0]->row_count) {
		snprintf(sql, sizeof(sql),
			 "SELECT COUNT(*) FROM deltas WHERE session = %" PRId64
			 " AND ms = %" PRId64,
			 windows[0]->session, windows[0]->ms);
		r = clickhouse_ask(store, sql, take_count, &is_there, err);
	}
	if (r == 0 && is_there)
		r = lacks_totals(server, windows[0], &lacks, err);
	if (r == 0)
		r = insert_into(server, "INSERT%20INTO%20stacks%20FORMAT%20TabSeparated",
				put_stacks, windows, count, err);
	if (r == 0 && !is_there)
		r = insert_into(server, "INSERT%20INTO%20changes%20FORMAT%20TabSeparated",
				put_changes, windows, count, err);
	if (r == 0 && lacks) {
		r = insert_into(server, "INSERT%20INTO%20totals%20FORMAT%20TabSeparated",
				put_totals, windows, count, err);
		/* Who forgot a window that deltas have would send what it changed once more. */
		r = r < 0 && r != -ENOMEM ? -EAGAIN : r;
	}
	if (r == 0)
		r = insert_into(server, "INSERT%20INTO%20sessions%20FORMAT%20TabSeparated",
				put_session, windows, count, err);
	return r;
}

/* Rows of one group and moment count once, when they are merged. */
static int clickhouse_insert_balances(struct hl_fleet_store *store, char *text,
				      struct hl_error *err)
{
	static const char statement[] = "INSERT%20INTO%20balances%20FORMAT%20TabSeparated";
	struct clickhouse *server = of(store);
	struct hl_web_answer answer = {0};

	int r = check_server(server, err);
	if (r == 0)
		r = post(server, true, statement, text, strlen(text), &answer, err);
	free(answer.text);
	return r;
}

const struct hl_fleet_backend hl_fleet_clickhouse = {
	.scheme = "clickhouse://",
	.open = clickhouse_open,
	.free = clickhouse_free,
	.init = clickhouse_init,
	.insert = clickhouse_insert,
	.insert_balances = clickhouse_insert_balances,
	.ask = clickhouse_ask,
	.escapes_by_backslash = true,
	.divides = "intDiv",
	.has_days = true,
};
