/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the backend of a store; see store.h. */
#include "fleet/store.h"

#include "base/cleanup.h"

#include <inttypes.h>

#define MS_PER_DAY 86400000

static const struct hl_fleet_backend *const backends[] = {&hl_fleet_sqlite, &hl_fleet_clickhouse};

static const struct hl_fleet_backend *find_backend(const char *url)
{
	for (size_t i = 0; i < HL_COUNT_OF(backends); i++)
		if (!strncmp(url, backends[i]->scheme, strlen(backends[i]->scheme)))
			return backends[i];
	return NULL;
}

bool hl_fleet_is_url(const char *url)
{
	return find_backend(url) != NULL;
}

char *hl_fleet_url(const char *given)
{
	char *url;

	if (hl_fleet_is_url(given) || strstr(given, "://"))
		return strdup(given);
	return asprintf(&url, "%s%s", hl_fleet_sqlite.scheme, given) < 0 ? NULL : url;
}

const char *hl_fleet_file(const char *url)
{
	return find_backend(url) == &hl_fleet_sqlite ? url + strlen(hl_fleet_sqlite.scheme) : NULL;
}

int hl_fleet_open(const char *url, bool creates, struct hl_fleet_store **ret_store,
		  struct hl_error *err)
{
	const struct hl_fleet_backend *backend = find_backend(url);

	if (!backend)
		return hl_error_set(err, -EINVAL,
				    "cannot open the store '%s': it is neither a file of SQLite "
				    "nor clickhouse://HOST/DATABASE",
				    url);
	const char *rest = url + strlen(backend->scheme);
	HL_FREED char *place = strndup(rest, strcspn(rest, "?"));
	int r = place ? backend->open(place, creates, ret_store, err) : -ENOMEM;
	return r == -ENOMEM ? hl_error_set(err, r, "cannot open the store: out of memory") : r;
}

void hl_fleet_free(struct hl_fleet_store *store)
{
	if (!store)
		return;
	free(store->name);
	store->backend->free(store);
}

int hl_fleet_init(struct hl_fleet_store *store, unsigned keep_days, struct hl_error *err)
{
	return store->backend->init(store, keep_days, err);
}

int hl_fleet_insert(struct hl_fleet_store *store, const struct hl_fleet_window *const *windows,
		    size_t count, bool repeated, struct hl_error *err)
{
	return store->backend->insert(store, windows, count, repeated, err);
}

int hl_fleet_insert_balances(struct hl_fleet_store *store, char *text, struct hl_error *err)
{
	return store->backend->insert_balances(store, text, err);
}

int hl_fleet_check_base(const struct hl_fleet_store *store, const struct hl_fleet_window *window,
			int64_t last_ms, struct hl_error *err)
{
	if (last_ms <= window->base_ms)
		return 0;
	return hl_error_set(err, last_ms >= window->ms ? -EEXIST : -ESTALE,
			    "'%s' has later figures of process %s, from another 'heapline push'",
			    store->name, window->labels[HL_FLEET_PID]);
}

int hl_fleet_ask(struct hl_fleet_store *store, const char *sql, hl_fleet_take_row *take,
		 void *context, struct hl_error *err)
{
	int r = store->backend->ask(store, sql, take, context, err);

	return r == -EBADMSG
		       ? hl_error_set(err, r,
				      "cannot understand what '%s' answered: it is not a row of "
				      "a store",
				      store->name)
		       : r;
}

void hl_fleet_put_text(const struct hl_fleet_store *store, FILE *sql, const char *text)
{
	putc('\'', sql);
	for (; *text; text++) {
		if (store->backend->escapes_by_backslash && (*text == '\'' || *text == '\\'))
			putc('\\', sql);
		else if (*text == '\'')
			putc('\'', sql);
		putc(*text, sql);
	}
	putc('\'', sql);
}

void hl_fleet_put_quotient(const struct hl_fleet_store *store, FILE *sql, const char *column,
			   int64_t divisor)
{
	if (store->backend->divides)
		fprintf(sql, "%s(%s, %" PRId64 ")", store->backend->divides, column, divisor);
	else
		fprintf(sql, "%s / %" PRId64, column, divisor);
}

void hl_fleet_put_after(const struct hl_fleet_store *store, FILE *sql, int64_t ms)
{
	if (store->backend->has_days)
		fprintf(sql, "day >= toDate(%" PRId64 ") AND ", ms / MS_PER_DAY);
	fprintf(sql, "ms > %" PRId64, ms);
}
