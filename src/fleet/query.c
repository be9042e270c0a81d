/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds questions and reads answers, and makes a profile of these; see query.h. */
#include "fleet/query.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "import/importer.h"

#include <ctype.h>
#include <inttypes.h>
#include <time.h>

/* ---- SQL ---- */

/* A statement that is being built. */
struct statement {
	const struct hl_fleet_store *store;
	FILE *out;
	char *text;
	size_t size;
};

static int statement_begin(struct statement *statement, const struct hl_fleet_store *store,
			   struct hl_error *err)
{
	*statement = (struct statement){.store = store};
	statement->out = open_memstream(&statement->text, &statement->size);
	return statement->out ? 0 : hl_error_set(err, -ENOMEM, "out of memory");
}

/* Asks it, and releases it. */
static int statement_ask(struct statement *statement, struct hl_fleet_store *store,
			 hl_fleet_take_row *take, void *context, struct hl_error *err)
{
	int r = fclose(statement->out) == 0
			? hl_fleet_ask(store, statement->text, take, context, err)
			: -ENOMEM;

	free(statement->text);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

static void put_conditions(struct statement *sql, const struct hl_fleet_selection *selection)
{
	const char *word = " WHERE";

	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++) {
		if (!selection->labels[i])
			continue;
		fprintf(sql->out, "%s %s = ", word, hl_fleet_label_names[i]);
		HL_FREED char *stored = hl_fleet_label_clean(selection->labels[i]);
		hl_fleet_put_text(sql->store, sql->out, stored ? stored : selection->labels[i]);
		word = " AND";
	}
}

/* "session IN (...)": those that ${selection} chooses and, where ${alive}, that were watched at at_ms. */
static void put_sessions(struct statement *sql, const struct hl_fleet_selection *selection,
			 bool alive)
{
	int64_t at = selection->at_ms;

	fprintf(sql->out, "session IN (SELECT session FROM sessions");
	put_conditions(sql, selection);
	if (alive)
		fprintf(sql->out,
			" GROUP BY session HAVING MIN(began_ms) <= %" PRId64
			" AND MAX(until_ms) >= %" PRId64
			" AND (MAX(ended_ms) = 0 OR MAX(ended_ms) >= %" PRId64 ")",
			at, at, at);
	putc(')', sql->out);
}

static bool chooses_all(const struct hl_fleet_selection *selection)
{
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			return false;
	return true;
}

/* " WHERE ...": rows of the sessions and ${stacks} that are chosen, those after ${after_ms} where that is not 0. */
static void put_rows(struct statement *sql, const struct hl_fleet_selection *selection,
		     const char *stacks, int64_t after_ms)
{
	const char *word = " WHERE ";

	if (!chooses_all(selection)) {
		fputs(word, sql->out);
		put_sessions(sql, selection, false);
		word = " AND ";
	}
	if (after_ms) {
		fputs(word, sql->out);
		hl_fleet_put_after(sql->store, sql->out, after_ms);
		word = " AND ";
	}
	if (stacks)
		fprintf(sql->out, "%sstack IN (%s)", word, stacks);
}

/* "SELECT stack AS k, ... AS a, ... FROM ${table}": what was in use and allocated, each times a factor. */
static void put_figures(struct statement *sql, const char *inuse, const char *alloc,
			const char *table)
{
	fprintf(sql->out,
		"SELECT stack AS k, inuse_bytes * %s AS a, inuse_objects * %s AS b, "
		"alloc_bytes * %s AS c, alloc_objects * %s AS d FROM %s",
		inuse, inuse, alloc, alloc, table);
}

static int64_t number(const char *cell)
{
	return strtoll(cell, NULL, 10);
}

/* ---- sessions ---- */

static int take_session(void *context, char **cells, size_t count)
{
	struct hl_fleet_sessions *sessions = context;
	struct hl_fleet_session session = {0};
	int64_t *const numbers[] = {&session.session, &session.began_ms, &session.last_ms,
				    &session.until_ms, &session.ended_ms};
	int r = count == HL_COUNT_OF(numbers) + HL_FLEET_LABEL_COUNT ? 0 : -EBADMSG;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(numbers); i++)
		*numbers[i] = number(cells[i]);
	for (size_t i = 0; r == 0 && i < HL_FLEET_LABEL_COUNT; i++) {
		uint32_t id;
		r = hl_strings_intern(&sessions->texts, cells[HL_COUNT_OF(numbers) + i], &id);
		if (r == 0)
			session.labels[i] = hl_strings_text(&sessions->texts, id);
	}
	return r == 0 ? HL_ARRAY_APPEND(sessions->all, sessions->count, sessions->capacity, session)
		      : r;
}

int hl_fleet_sessions_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			   struct hl_fleet_sessions *sessions, struct hl_error *err)
{
	struct statement sql;

	*sessions = (struct hl_fleet_sessions){0};
	int r = statement_begin(&sql, store, err);
	if (r < 0)
		return r;
	fprintf(sql.out,
		"SELECT session, MIN(began_ms), MAX(last_ms), MAX(until_ms), MAX(ended_ms)");
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		fprintf(sql.out, ", MAX(%s)", hl_fleet_label_names[i]);
	fprintf(sql.out, " FROM sessions");
	put_conditions(&sql, selection);
	fprintf(sql.out, " GROUP BY session ORDER BY session");
	return statement_ask(&sql, store, take_session, sessions, err);
}

void hl_fleet_sessions_release(struct hl_fleet_sessions *sessions)
{
	free(sessions->all);
	hl_strings_release(&sessions->texts);
	*sessions = (struct hl_fleet_sessions){0};
}

bool hl_fleet_session_is_alive(const struct hl_fleet_session *session, int64_t ms)
{
	return session->began_ms <= ms && session->until_ms >= ms &&
	       (!session->ended_ms || session->ended_ms >= ms);
}

int64_t hl_fleet_sessions_last_ms(const struct hl_fleet_sessions *sessions)
{
	int64_t last_ms = 0;

	for (size_t i = 0; i < sessions->count; i++)
		if (sessions->all[i].last_ms > last_ms)
			last_ms = sessions->all[i].last_ms;
	return last_ms;
}

/* ---- sums ---- */

static int take_sum(void *context, char **cells, size_t count)
{
	struct hl_fleet_sums *sums = context;

	if (count != 5)
		return -EBADMSG;
	return HL_ARRAY_APPEND(sums->all, sums->count, sums->capacity,
			       (struct hl_fleet_sum){number(cells[0]), number(cells[1]),
						     number(cells[2]), number(cells[3]),
						     number(cells[4])});
}

/* "(session IN (...))" and the like, to be freed; NULL for want of memory. */
static char *factor_of(const struct hl_fleet_store *store,
		       const struct hl_fleet_selection *selection, const char *sign,
		       const char *condition)
{
	struct statement sql;

	if (statement_begin(&sql, store, NULL) < 0)
		return NULL;
	fprintf(sql.out, "(%s(", sign);
	put_sessions(&sql, selection, true);
	fprintf(sql.out, "%s))", condition);
	if (fclose(sql.out) == 0)
		return sql.text;
	free(sql.text);
	return NULL;
}

/*
 * What was in use at selection->at_ms (not 0) in the sessions that were watched then, and what all sessions allocated until
 * then: by stack. To be released in any case. As hl_fleet_ask().
 */
static int fleet_sums_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			   struct hl_fleet_sums *sums, struct hl_error *err)
{
	int64_t at = selection->at_ms;
	int64_t since = selection->since_ms < at ? selection->since_ms : at;
	char later[48] = "", allocated[96] = "-1";
	struct statement sql;

	*sums = (struct hl_fleet_sums){0};
	if (since) {
		snprintf(later, sizeof(later), " AND ms > %" PRId64, at);
		snprintf(allocated, sizeof(allocated), "(ms <= %" PRId64 ")", at);
	}
	HL_FREED char *now = factor_of(store, selection, "", "");
	HL_FREED char *not_yet = factor_of(store, selection, "-1 * ", later);
	int r = now && not_yet ? statement_begin(&sql, store, err)
			       : hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		return r;
	/* What is in use at a moment is all that ever was, but for what changed later: old deltas need not be kept. */
	fprintf(sql.out, "SELECT k, SUM(a), SUM(b), SUM(c), SUM(d) FROM (");
	put_figures(&sql, now, since ? "0" : "1", "totals");
	put_rows(&sql, selection, NULL, 0);
	fputs(" UNION ALL ", sql.out);
	put_figures(&sql, not_yet, allocated, "deltas");
	put_rows(&sql, selection, NULL, since ? since : at);
	fprintf(sql.out, ") GROUP BY k ORDER BY k");
	return statement_ask(&sql, store, take_sum, sums, err);
}

int hl_fleet_levels_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 const char *stacks, struct hl_fleet_sums *sums, struct hl_error *err)
{
	struct statement sql;

	*sums = (struct hl_fleet_sums){0};
	int r = statement_begin(&sql, store, err);
	if (r < 0)
		return r;
	fputs("SELECT k, SUM(a), 0, 0, 0 FROM (SELECT session AS k, inuse_bytes AS a FROM totals",
	      sql.out);
	put_rows(&sql, selection, stacks, 0);
	fputs(" UNION ALL SELECT session AS k, -1 * inuse_bytes AS a FROM deltas", sql.out);
	put_rows(&sql, selection, stacks, selection->at_ms);
	fputs(") GROUP BY k ORDER BY k", sql.out);
	return statement_ask(&sql, store, take_sum, sums, err);
}

int hl_fleet_changes_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			  const char *stacks, struct hl_fleet_sums *sums, struct hl_error *err)
{
	struct statement sql;

	*sums = (struct hl_fleet_sums){0};
	int r = statement_begin(&sql, store, err);
	if (r < 0)
		return r;
	fputs("SELECT session AS k, SUM(inuse_bytes), 0, SUM(alloc_bytes), 0 FROM deltas", sql.out);
	put_rows(&sql, selection, stacks, selection->since_ms);
	fprintf(sql.out, " AND ms <= %" PRId64 " GROUP BY k ORDER BY k", selection->at_ms);
	return statement_ask(&sql, store, take_sum, sums, err);
}

static int by_key(const void *left, const void *right)
{
	int64_t a = ((const struct hl_fleet_sum *)left)->key;
	int64_t b = ((const struct hl_fleet_sum *)right)->key;

	return (a > b) - (a < b);
}

const struct hl_fleet_sum *hl_fleet_sums_find(const struct hl_fleet_sums *sums, int64_t key)
{
	const struct hl_fleet_sum wanted = {.key = key};

	return sums->count ? bsearch(&wanted, sums->all, sums->count, sizeof(wanted), by_key)
			   : NULL;
}

void hl_fleet_sums_release(struct hl_fleet_sums *sums)
{
	free(sums->all);
	*sums = (struct hl_fleet_sums){0};
}

/* ---- steps ---- */

static int take_step(void *context, char **cells, size_t count)
{
	struct hl_fleet_steps *steps = context;

	if (count != 4)
		return -EBADMSG;
	return HL_ARRAY_APPEND(steps->all, steps->count, steps->capacity,
			       (struct hl_fleet_step){number(cells[0]), number(cells[1]),
						      number(cells[2]), number(cells[3])});
}

int hl_fleet_steps_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			int64_t step_ms, const char *stacks, struct hl_fleet_steps *steps,
			struct hl_error *err)
{
	struct statement sql;

	*steps = (struct hl_fleet_steps){0};
	int r = statement_begin(&sql, store, err);
	if (r < 0)
		return r;
	fprintf(sql.out, "SELECT session, ");
	hl_fleet_put_quotient(store, sql.out, "ms", step_ms);
	fprintf(sql.out, " AS step, SUM(inuse_bytes), SUM(alloc_bytes) FROM deltas");
	put_rows(&sql, selection, stacks, selection->since_ms);
	fprintf(sql.out, " AND ms <= %" PRId64 " GROUP BY session, step", selection->at_ms);
	return statement_ask(&sql, store, take_step, steps, err);
}

/* ---- stacks ---- */

int hl_fleet_stacks_ask(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			hl_fleet_take_row *take, void *context, struct hl_error *err)
{
	struct statement sql;

	int r = statement_begin(&sql, store, err);
	if (r < 0)
		return r;
	fputs("SELECT stack, MAX(frames) FROM stacks", sql.out);
	if (!chooses_all(selection)) {
		fputs(" WHERE stack IN (SELECT stack FROM totals", sql.out);
		put_rows(&sql, selection, NULL, 0);
		fputs(")", sql.out);
	}
	fputs(" GROUP BY stack", sql.out);
	return statement_ask(&sql, store, take, context, err);
}

/* ---- selections as the query of a URL ---- */

static void put_parameter(FILE *out, char *separator, const char *name, const char *value)
{
	fprintf(out, "%c%s=", *separator, name);
	*separator = '&';
	for (; *value; value++)
		if (isalnum((unsigned char)*value) || strchr("-_.~/", *value))
			putc(*value, out);
		else
			fprintf(out, "%%%02x", (unsigned char)*value);
}

static void put_number(FILE *out, char *separator, const char *name, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	if (value)
		put_parameter(out, separator, name, text);
}

char *hl_fleet_selection_write(const struct hl_fleet_selection *selection, const char *url)
{
	char *text = NULL, separator = strchr(url, '?') ? '&' : '?';
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs(url, out);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			put_parameter(out, &separator, hl_fleet_label_names[i],
				      selection->labels[i]);
	put_number(out, &separator, "at", selection->at_ms);
	put_number(out, &separator, "since", selection->since_ms);
	put_number(out, &separator, "mean", selection->mean);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* Decodes ${text} where it is. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		char digits[3] = "";
		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
		    isxdigit((unsigned char)text[2])) {
			memcpy(digits, text + 1, 2);
			*to++ = (char)strtol(digits, NULL, 16);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static int read_number(const char *name, const char *value, int64_t *ret_number,
		       struct hl_error *err)
{
	char *end;

	errno = 0;
	*ret_number = strtoll(value, &end, 10);
	if (!*value || *end || errno || *ret_number < 0)
		return hl_error_set(err, -EINVAL,
				    "'%s' takes a number of milliseconds since 1970, not '%s'",
				    name, value);
	return 0;
}

static int read_parameter(char *name, struct hl_fleet_selection *selection, struct hl_error *err)
{
	char *equals = strchr(name, '='), *value = equals ? equals + 1 : (char[]){""};
	int64_t number = 0;

	if (equals)
		*equals = '\0';
	decode(value);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (!strcmp(name, hl_fleet_label_names[i])) {
			selection->labels[i] = value;
			return 0;
		}
	if (!strcmp(name, "at"))
		return read_number(name, value, &selection->at_ms, err);
	if (!strcmp(name, "since"))
		return read_number(name, value, &selection->since_ms, err);
	if (strcmp(name, "mean") != 0)
		return hl_error_set(
			err, -EINVAL,
			"a store is asked by service, version, host, command, pid, build_id, "
			"container, pod, at, since and mean, not by '%s'",
			name);
	int r = read_number(name, value, &number, err);
	selection->mean = number != 0;
	return r;
}

int hl_fleet_selection_read(const char *url, struct hl_fleet_selection *ret_selection,
			    char **ret_storage, struct hl_error *err)
{
	const char *query = strchr(url, '?');
	HL_FREED char *storage = strdup(query ? query + 1 : "");
	struct hl_fleet_selection selection = {0};
	char *rest = storage;
	int r = storage ? 0 : -ENOMEM;

	while (r == 0 && rest && *rest)
		r = read_parameter(strsep(&rest, "&"), &selection, err);
	if (r < 0)
		return r;
	*ret_selection = selection;
	*ret_storage = HL_TAKE(storage);
	return 0;
}

void hl_fleet_selection_describe(const struct hl_fleet_selection *selection, FILE *out)
{
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			fprintf(out, "%s %s, ", hl_fleet_label_names[i], selection->labels[i]);
}

const char *hl_fleet_put_time(int64_t ms, char text[32])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm parts;

	localtime_r(&seconds, &parts);
	strftime(text, 32, "%Y-%m-%d %H:%M:%S", &parts);
	return text;
}

/* ---- the profile of what a store says ---- */

#define MODE "fleet"

HL_DEFINE_FREE_AT(struct hl_fleet_store, hl_fleet_free)

struct loader {
	const struct hl_fleet_sums *sums;
	int64_t divisor;
	struct hl_builder builder;
	struct hl_import_values values;
};

/* The node below ${node} for one frame, a line of struct hl_fleet_stack. */
static int add_frame(struct loader *loader, char *text, uint32_t *node)
{
	enum { FUNCTION, MODULE, FILE_NAME, LINE, FUNCTION_FILE, FUNCTION_LINE, SCRIPT, CELLS };
	char *cells[CELLS];
	uint32_t module = 0, frame;
	int r = 0;

	for (size_t i = 0; i < CELLS; i++)
		cells[i] = text ? strsep(&text, "\t") : (char[]){""};
	const struct hl_symbols_frame symbol = {
		.function = cells[FUNCTION],
		.function_file = *cells[FUNCTION_FILE] ? cells[FUNCTION_FILE] : cells[FILE_NAME],
		.function_line = (uint32_t)strtoul(cells[FUNCTION_LINE], NULL, 10),
		.file = cells[FILE_NAME],
		.line = (uint32_t)strtoul(cells[LINE], NULL, 10),
	};
	if (*cells[SCRIPT])
		r = hl_builder_runtime(&loader->builder, cells[MODULE], &module);
	else if (*cells[MODULE])
		r = hl_builder_module(&loader->builder, cells[MODULE], NULL, 0, NULL, &module);
	if (r == 0)
		r = hl_builder_frame(&loader->builder, &symbol, module, 0, &frame);
	return r == 0 ? hl_builder_child(&loader->builder, *node, frame, node) : r;
}

static int take_stack(void *context, char **cells, size_t count)
{
	struct loader *loader = context;
	const struct hl_fleet_sum *sum =
		count == 2 ? hl_fleet_sums_find(loader->sums, strtoll(cells[0], NULL, 10)) : NULL;
	uint32_t node = 0;
	int r = 0;

	if (!sum)
		return count == 2 ? 0 : -EBADMSG;
	for (char *rest = cells[1]; r == 0 && rest && *rest;)
		r = add_frame(loader, strsep(&rest, "\n"), &node);
	const struct hl_profile_counters counters = {
		.alloc_bytes = sum->alloc_bytes / loader->divisor,
		.alloc_objects = sum->alloc_objects / loader->divisor,
		.free_bytes = (sum->alloc_bytes - sum->inuse_bytes) / loader->divisor,
		.free_objects = (sum->alloc_objects - sum->inuse_objects) / loader->divisor,
	};
	if (r == 0 && node && hl_profile_counters_any(&counters))
		r = hl_import_values_add(
			&loader->values,
			&(struct hl_import_value){.node = node, .counters = counters});
	return r;
}

static int intern(struct hl_profile *profile, uint32_t *ret_id, const char *format, ...)
	HL_PRINTF(3, 4);

static int intern(struct hl_profile *profile, uint32_t *ret_id, const char *format, ...)
{
	HL_FREED char *text = NULL;
	va_list args;

	va_start(args, format);
	int r = vasprintf(&text, format, args) < 0 ? -ENOMEM : 0;
	va_end(args);
	return r == 0 ? hl_strings_intern(&profile->strings, text, ret_id) : r;
}

static int describe(struct hl_profile *profile, const char *name,
		    const struct hl_fleet_selection *selection, size_t alive)
{
	HL_FREED char *clause = NULL;
	char time[32];
	size_t size;
	FILE *out = open_memstream(&clause, &size);

	if (!out)
		return -ENOMEM;
	fprintf(out, "%s%zu process%s, ", selection->mean ? "mean of " : "", alive,
		alive == 1 ? "" : "es");
	hl_fleet_selection_describe(selection, out);
	fprintf(out, "at %s", hl_fleet_put_time(selection->at_ms, time));
	if (fclose(out) != 0)
		return -ENOMEM;
	profile->imported = true;
	profile->complete = profile->spliced = true;
	profile->unfiltered_total = profile->total;
	profile->start_realtime_ns = (uint64_t)selection->at_ms * 1000000;
	for (unsigned value = HL_VALUE_INUSE; value <= HL_VALUE_ALLOC; value++)
		for (unsigned unit = 0; unit < HL_UNIT_COUNT; unit++)
			profile->known[value][unit] = true;
	int r = intern(profile, &profile->name, "%s", name);
	if (r == 0)
		r = intern(profile, &profile->source, "%s", clause);
	return r == 0 ? intern(profile, &profile->mode, MODE) : r;
}

static int load(struct loader *loader, struct hl_fleet_store *store,
		const struct hl_fleet_selection *selection, size_t alive,
		struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	loader->divisor = selection->mean && alive ? (int64_t)alive : 1;
	int r = hl_builder_init(&loader->builder);
	if (r == 0)
		r = hl_fleet_stacks_ask(store, selection, take_stack, loader, err);
	if (r == 0)
		r = hl_import_values_finish(&loader->values, false, &loader->builder, &profile);
	if (r == 0)
		r = describe(profile, store->name, selection, alive);
	hl_builder_release(&loader->builder);
	hl_import_values_release(&loader->values);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

int hl_fleet_profile(const char *url, struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_free_at) struct hl_fleet_store *store = NULL;
	HL_CLEANUP(hl_fleet_sessions_release) struct hl_fleet_sessions sessions = {0};
	HL_CLEANUP(hl_fleet_sums_release) struct hl_fleet_sums sums = {0};
	struct hl_fleet_selection selection;
	HL_FREED char *storage = NULL;
	size_t alive = 0;

	int r = hl_fleet_selection_read(url, &selection, &storage, err);
	if (r == 0)
		r = hl_fleet_open(url, false, &store, err);
	if (r == 0)
		r = hl_fleet_sessions_read(store, &selection, &sessions, err);
	if (r == 0 && !sessions.count)
		r = hl_error_set(
			err, -ENODATA,
			"'%s' holds no process of that kind; 'heapline fleet hosts --db %s' "
			"lists what there is",
			store->name, store->name);
	if (r == 0 && !selection.at_ms)
		selection.at_ms = hl_fleet_sessions_last_ms(&sessions);
	for (size_t i = 0; r == 0 && i < sessions.count; i++)
		alive += hl_fleet_session_is_alive(&sessions.all[i], selection.at_ms);
	if (r == 0)
		r = fleet_sums_read(store, &selection, &sums, err);
	if (r == 0)
		r = load(&(struct loader){.sums = &sums}, store, &selection, alive, ret_profile,
			 err);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read '%s': out of memory", url) : r;
}
