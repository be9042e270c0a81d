/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline fleet: the questions that need many processes and hosts, to the store that 'heapline push' fills. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/output.h"
#include "cli/view_options.h"
#include "fleet/store.h"
#include "fleet/web.h"
#include "open/open.h"
#include "view/fleet.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- passwords ---- */

/* What stands between a user and '@' becomes asterisks. */
static void hide(char *url)
{
	char *user = strstr(url, "://");

	user = user ? user + strlen("://") : url;
	char *at = memrchr(user, '@', strcspn(user, "/"));
	char *colon = at ? memchr(user, ':', (size_t)(at - user)) : NULL;
	if (colon)
		memset(colon + 1, '*', (size_t)(at - colon - 1));
}

int hl_store_password_read(const char *file, char *url, struct hl_error *err)
{
	HL_FREED char *line = NULL;
	size_t capacity = 0;

	hide(url);
	FILE *stream = file ? fopen(file, "re") : NULL;
	if (!file)
		return 0;
	if (!stream)
		return hl_error_set(err, -errno, "cannot read the password from '%s': %s", file,
				    strerror(errno));
	ssize_t length = getline(&line, &capacity, stream);
	fclose(stream);
	if (length > 0)
		line[strcspn(line, "\r\n")] = '\0';
	if (length <= 0 || !*line)
		return hl_error_set(err, -ENODATA,
				    "cannot read the password from '%s': its first line is empty",
				    file);
	return setenv(HL_WEB_PASSWORD, line, 1) < 0 ? hl_error_set(err, -ENOMEM, "out of memory")
						    : 0;
}

#define MS_PER_NS	1000000
#define SINCE_DEFAULT_S 86400.0
#define STEPS_DEFAULT	24
#define STEP_LEAST_MS	1000
#define KEEP_MOST_DAYS	3650

enum question { INIT, TOP, DIFF, GROWTH, HOSTS, WHEN };

static const char *const words[] = {"init", "top", "diff", "growth", "hosts", "when", NULL};

struct request {
	struct hl_view_request view;
	const char *db, *password_file, *service, *version, *host, *since, *until, *against, *by;
	uint64_t keep_days;
	double step_s;
};

static const struct request defaults = {
	.view = {HL_VIEW_DEFAULTS, .output.row_limit = HL_EMIT_ROWS_DEFAULT},
};

static const struct hl_option options[] = {
	{"db", 0, "URL", "FILE.db (SQLite) or clickhouse://HOST/DATABASE", HL_OPTION_TEXT,
	 HL_AT(db), NULL},
	HL_STORE_PASSWORD_OPTION(HL_AT(password_file)),
	{"service", 0, "NAME", "only processes of this service", HL_OPTION_TEXT, HL_AT(service),
	 NULL},
	{"version", 0, "TEXT", "only processes of this version", HL_OPTION_TEXT, HL_AT(version),
	 NULL},
	{"host", 0, "NAME", "only processes on this host", HL_OPTION_TEXT, HL_AT(host), NULL},
	{"since", 0, "TIME",
	 "compare with TIME: 24h, 7d, 30m before --until, or '2026-11-24 12:00' (default: 24h)",
	 HL_OPTION_TEXT, HL_AT(since), NULL},
	{"until", 0, "TIME", "as it was at TIME (default: when a process was last looked at)",
	 HL_OPTION_TEXT, HL_AT(until), NULL},
	{"against", 0, "VERSION", "diff: compare --version with VERSION, per process",
	 HL_OPTION_TEXT, HL_AT(against), NULL},
	{"by", 'b', "KEY",
	 "top, diff: function, line, module or stack; growth: service, version, host, command, "
	 "container or pod",
	 HL_OPTION_TEXT, HL_AT(by), NULL},
	{"step", 0, "SECONDS",
	 "when: a row for every SECONDS (default: as many as -n allows, or 24)", HL_OPTION_SECONDS,
	 HL_AT(step_s), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(view.output.row_limit), NULL},
	{"keep", 0, "DAYS", "init: delete what is older than DAYS (default: keep all)",
	 HL_OPTION_COUNT, HL_AT(keep_days), HL_BOUNDS(1, KEEP_MOST_DAYS)},
	{0},
};

/* ---- times ---- */

static int64_t now_ms(void)
{
	return (int64_t)(hl_clock_ns(CLOCK_REALTIME) / MS_PER_NS);
}

/* Milliseconds since 1970 of "24h" (that long before ${from_ms}) or of a date. 0 or -EINVAL. */
static int parse_time(const char *text, int64_t from_ms, int64_t *ret_ms)
{
	static const char *const forms[] = {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S",
					    "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {{"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
	char *end;

	for (size_t i = 0; i < HL_COUNT_OF(forms); i++) {
		struct tm parts = {.tm_isdst = -1};
		const char *rest = strptime(text, forms[i], &parts);
		if (rest && !*rest) {
			*ret_ms = (int64_t)mktime(&parts) * 1000;
			return *ret_ms > 0 ? 0 : -EINVAL;
		}
	}
	double number = strtod(text, &end);
	for (size_t i = 0; end > text && i < HL_COUNT_OF(units); i++)
		if (!strcmp(end, units[i].name) && number >= 0 && number < 1e6) {
			*ret_ms = from_ms - llround(number * (double)units[i].ms);
			return 0;
		}
	return -EINVAL;
}

static int parse_option(const char *name, const char *text, int64_t from_ms, int64_t *ret_ms)
{
	if (text && parse_time(text, from_ms, ret_ms) < 0)
		return hl_cli_usage_error(
			&hl_verb_fleet,
			"--%s takes a time such as 24h, 7d or '2026-11-24 12:00', not '%s'", name,
			text);
	return HL_EXIT_DONE;
}

/* ---- by stack: views of profiles ---- */

static int choose_key(const char *by, enum hl_view_key *ret_key)
{
	static const char *const keys[] = {"function", "line", "module", "stack"};
	static const enum hl_view_key values[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE,
						  HL_VIEW_BY_MODULE, HL_VIEW_BY_STACK};

	for (size_t i = 0; i < HL_COUNT_OF(keys); i++)
		if (!by || !strcmp(by, keys[i])) {
			*ret_key = values[i];
			return HL_EXIT_DONE;
		}
	return hl_cli_usage_error(&hl_verb_fleet,
				  "--by takes function, line, module or stack here, not '%s'", by);
}

/* Whether the output is named as what ends in ${suffix}. */
static bool is_named(const char *path, const char *suffix)
{
	size_t length = path ? strlen(path) : 0, most = strlen(suffix);

	return length > most && !strcmp(path + length - most, suffix);
}

/* The profile of one question as a packed recording, which every view opens. */
static int write_packed(const struct hl_view_output *output, const char *url)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	int r = hl_output_file_check_regular(output->path, output->force, NULL, 0, &err);
	if (r == 0)
		r = hl_open_profile(url, NULL, &profile, &err);
	if (r == 0)
		r = hl_output_file_write_packed(profile, NULL, output->path, &err);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

static int show_profiles(struct request *request, bool compares, char *const *urls)
{
	struct hl_view_request *view = &request->view;
	static const char *const pictures[] = {"svg", NULL};
	char *operands[] = {urls[0], compares ? urls[1] : NULL, NULL};

	int status = choose_key(request->by, &view->options.by);
	if (status != HL_EXIT_DONE)
		return status;
	if (is_named(view->output.path, ".hl") && !compares)
		return write_packed(&view->output, urls[0]);
	view->profiles_max = 2;
	view->compares = compares;
	if (is_named(view->output.path, ".svg")) {
		view->view = hl_flame_view;
		view->formats = pictures;
	} else {
		view->view = compares ? hl_diff_view : hl_top_view;
		view->pages = true;
		view->options.row_limit = request->view.output.row_limit;
		view->options.sort = compares ? HL_VIEW_SORT_GROWTH : HL_VIEW_SORT_FLAT;
	}
	return hl_view_run(&hl_verb_fleet, compares ? 2 : 1, operands, view);
}

/* Asks for ${selection}, and for what it was at ${before_ms} or in another version. */
static int ask_profiles(struct request *request, enum question question, const char *url,
			const struct hl_fleet_selection *selection, int64_t before_ms)
{
	struct hl_fleet_selection now = *selection, before = *selection;
	char *urls[2];

	if (question == DIFF && request->against) {
		before.labels[HL_FLEET_VERSION] = request->against;
		now.mean = before.mean = true;
	} else if (question == DIFF) {
		before.at_ms = before_ms;
		before.since_ms = 0;
	} else if (request->since) {
		now.since_ms = before_ms;
	}
	urls[0] = hl_fleet_selection_write(question == DIFF ? &before : &now, url);
	urls[1] = hl_fleet_selection_write(&now, url);
	int status = urls[0] && urls[1] ? show_profiles(request, question == DIFF, urls)
					: hl_cli_error("out of memory");
	free(urls[0]);
	free(urls[1]);
	return status;
}

/* ---- by label and by time ---- */

static int choose_label(const char *by, enum question question, enum hl_fleet_label *ret_label)
{
	const char *wanted = question == HOSTS ? "host" : by ? by : "service";

	if (question == HOSTS && by)
		return hl_cli_usage_error(&hl_verb_fleet,
					  "'fleet hosts' is by host; 'fleet growth' has --by");
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (!strcmp(wanted, hl_fleet_label_names[i])) {
			*ret_label = (enum hl_fleet_label)i;
			return HL_EXIT_DONE;
		}
	return hl_cli_usage_error(
		&hl_verb_fleet,
		"--by takes service, version, host, command, container or pod here, "
		"not '%s'",
		by);
}

static int write_groups(struct hl_fleet_store *store, const struct hl_fleet_head *head,
			enum hl_fleet_label label, bool by_size, const char *stacks,
			const struct hl_emit_options *how, struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_groups_release) struct hl_fleet_groups groups = {0};

	int r = hl_fleet_groups_read(store, head->selection, label, stacks, by_size, &groups, err);
	return r == 0 ? hl_fleet_groups_view(head, &groups, label, how) : r;
}

static int write_moments(const struct request *request, struct hl_fleet_store *store,
			 const struct hl_fleet_head *head, const char *stacks,
			 const struct hl_emit_options *how, struct hl_error *err)
{
	const struct hl_fleet_selection *selection = head->selection;
	bool has_limit = request->view.output.row_limit &&
			 request->view.output.row_limit != HL_EMIT_ROWS_DEFAULT;
	int64_t steps = has_limit && request->view.output.row_limit < HL_FLEET_STEPS_MAX
				? (int64_t)request->view.output.row_limit
				: STEPS_DEFAULT;
	/* Rounded up, lest a row be left for the rest. */
	int64_t step_ms = request->step_s > 0
				  ? llround(request->step_s * 1000)
				  : (selection->at_ms - selection->since_ms + steps - 1) / steps;
	struct hl_fleet_moments moments;

	if (step_ms < STEP_LEAST_MS)
		step_ms = STEP_LEAST_MS;
	int r = hl_fleet_moments_read(store, selection, step_ms, stacks, &moments, err);
	if (r == 0)
		r = hl_fleet_moments_view(head, &moments, how);
	free(moments.all);
	return r;
}

/* The latest look where --until is not given, and what --focus says of stacks. */
static int complete(bool is_since_given, struct hl_fleet_store *store,
		    struct hl_fleet_selection *selection, const char *focus, char **ret_stacks,
		    struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_sessions_release) struct hl_fleet_sessions sessions = {0};

	int r = hl_fleet_sessions_read(store, selection, &sessions, err);
	if (r == 0 && !selection->at_ms)
		selection->at_ms = hl_fleet_sessions_last_ms(&sessions);
	if (r == 0 && !selection->at_ms)
		r = hl_error_set(err, -ENODATA, "'%s' holds no process of that kind", store->name);
	if (r == 0 && !is_since_given && selection->since_ms >= selection->at_ms)
		selection->since_ms = selection->at_ms - (int64_t)(SINCE_DEFAULT_S * 1000);
	if (r == 0 && selection->since_ms >= selection->at_ms)
		r = hl_error_set(err, -EINVAL, "--since is not before --until or the latest look");
	return r == 0 && focus ? hl_fleet_stacks_find(store, selection, focus, ret_stacks, err) : r;
}

HL_DEFINE_FREE_AT(struct hl_fleet_store, hl_fleet_free)

static int ask_sums(struct request *request, enum question question, const char *url,
		    struct hl_fleet_selection *selection)
{
	HL_CLEANUP(hl_fleet_free_at) struct hl_fleet_store *store = NULL;
	HL_FREED char *stacks = NULL;
	enum hl_fleet_label label = HL_FLEET_SERVICE;
	struct hl_report_output output;
	struct hl_filter filter = {0};
	struct hl_error err = {0};

	int status = question == WHEN ? HL_EXIT_DONE : choose_label(request->by, question, &label);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(&hl_verb_fleet, &request->view.output, NULL,
						  false);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_filter(&hl_verb_fleet, &request->view, &filter);
	if (status == HL_EXIT_DONE && (filter.ignore[0] || filter.hide[0] || filter.focus[1]))
		status = hl_cli_usage_error(
			&hl_verb_fleet, "'fleet %s' takes one --focus, no --ignore and no --hide",
			words[question]);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(&request->view.output, NULL, 0, &err);
	if (r == 0)
		r = hl_fleet_open(url, false, &store, &err);
	if (r == 0)
		r = complete(request->since != NULL, store, selection, filter.focus[0], &stacks,
			     &err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->view.output, true, &err);
	if (r == 0) {
		const struct hl_fleet_head head = {store->name, selection, filter.focus[0]};
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = question == WHEN ? write_moments(request, store, &head, stacks, &how, &err)
				     : write_groups(store, &head, label, question == HOSTS, stacks,
						    &how, &err);
		r = hl_report_output_close(&output, r, &err);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

/* ---- all ---- */

static int init(const char *url, uint64_t keep_days)
{
	HL_CLEANUP(hl_fleet_free_at) struct hl_fleet_store *store = NULL;
	struct hl_error err = {0};

	int r = hl_fleet_open(url, true, &store, &err);
	if (r == 0)
		r = hl_fleet_init(store, (unsigned)keep_days, &err);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

static int run_fleet(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_fleet_selection selection = {.labels = {[HL_FLEET_SERVICE] = request->service,
							  [HL_FLEET_VERSION] = request->version,
							  [HL_FLEET_HOST] = request->host}};
	const int64_t asked_ms = now_ms();
	enum question question = INIT;

	if (argc == 0)
		return hl_cli_usage_error(
			&hl_verb_fleet,
			"'fleet' needs one of init, top, diff, growth, hosts and when");
	while (words[question] && strcmp(argv[0], words[question]) != 0)
		question++;
	if (!words[question])
		return hl_cli_usage_error(
			&hl_verb_fleet,
			"'fleet' answers init, top, diff, growth, hosts and when, not '%s'",
			argv[0]);
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_fleet, "unexpected argument '%s'", argv[1]);
	if (!request->db)
		return hl_cli_usage_error(&hl_verb_fleet, "'fleet' needs --db");
	if (request->against && (question != DIFF || !request->version))
		return hl_cli_usage_error(&hl_verb_fleet,
					  "--against is for 'fleet diff --version VERSION'");
	if (request->step_s > 0 && question != WHEN)
		return hl_cli_usage_error(&hl_verb_fleet, "--step is for 'fleet when'");
	if (request->keep_days && question != INIT)
		return hl_cli_usage_error(&hl_verb_fleet, "--keep is for 'fleet init'");
	int status = parse_option("until", request->until, asked_ms, &selection.at_ms);
	const int64_t end_ms = request->until ? selection.at_ms : asked_ms;
	int64_t before_ms = end_ms - (int64_t)(SINCE_DEFAULT_S * 1000);
	if (status == HL_EXIT_DONE)
		status = parse_option("since", request->since, end_ms, &before_ms);
	if (status == HL_EXIT_DONE && request->until && before_ms >= end_ms)
		status = hl_cli_usage_error(&hl_verb_fleet, "--since is not before --until");
	if (status != HL_EXIT_DONE)
		return status;
	HL_FREED char *url = hl_fleet_url(request->db);
	struct hl_error err = {0};
	if (!url)
		return hl_cli_error("out of memory");
	if (hl_store_password_read(request->password_file, (char *)request->db, &err) < 0)
		return hl_cli_error("%s", err.text);
	if (question == INIT || !hl_fleet_is_url(url)) /* which then says what is wrong with it */
		return init(url, request->keep_days);
	if (question == TOP || question == DIFF)
		return ask_profiles(request, question, url, &selection, before_ms);
	selection.since_ms = before_ms;
	return ask_sums(request, question, url, &selection);
}

const struct hl_verb hl_verb_fleet = {
	.name = "fleet",
	.group = HL_GROUP_LIVE,
	.arguments = "init | top | diff | growth | hosts | when",
	.summary = "show what grew where on many hosts, from what 'push' stored",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_filter_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_fleet,
	.words = words,
	.effect = HL_VERB_STAYS,
};
