/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes a profile of what a store says; see query.h. */
#include "fleet/query.h"

#include "base/cleanup.h"
#include "import/import_stacks.h"

#include <inttypes.h>

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

/* ---- its head ---- */

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

/* ---- all of it ---- */

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
		r = hl_fleet_sums_read(store, &selection, &sums, err);
	if (r == 0)
		r = load(&(struct loader){.sums = &sums}, store, &selection, alive, ret_profile,
			 err);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read '%s': out of memory", url) : r;
}
