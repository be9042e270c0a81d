/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline services: the balance sheet of a process with services, or states of Lua. */
#include "cli/output.h"
#include "guests/outside.h"
#include "guests/skynet/balance.h"
#include "guests/traits.h"
#include "view/heap.h"

#include <errno.h>
#include <time.h>

extern const struct hl_verb hl_verb_services;

#define WATCH_MAX_S 86400 /* a day */

struct request {
	struct hl_view_output output;
	uint64_t pid, watch_s;
	int sort;
};

static const struct request defaults = {.output.row_limit = HL_EMIT_ROWS_DEFAULT};

static const char *const sort_words[] = {"bytes", "waiting", NULL};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "a process that is being recorded", HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{"rows", 'n', "N", "at most N services; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(output.row_limit), NULL},
	{"sort", 's', "KEY", "most bytes or most waiting messages first (default: bytes)",
	 HL_OPTION_CHOICE, HL_AT(sort), sort_words},
	{"watch", 'w', "SECONDS", "repeat every SECONDS, until the process ends or Ctrl-C",
	 HL_OPTION_COUNT, HL_AT(watch_s), HL_BOUNDS(0, WATCH_MAX_S)},
	{0},
};

static int read_services(const struct request *request, struct hl_services **ret_services,
			 struct hl_error *err)
{
	int r = hl_services_read((pid_t)request->pid, ret_services, err);

	if (r == 0 && request->sort)
		hl_services_sort_by_waiting(*ret_services);
	return r;
}

static int run_once(const struct request *request)
{
	struct hl_services *services = NULL;
	struct hl_report_output output;
	struct hl_error err = {0};

	int r = hl_report_output_check(&request->output, NULL, 0, &err);
	if (r == 0)
		r = read_services(request, &services, &err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_report_output_close(&output, hl_services_view(services, &how), &err);
	}
	hl_services_free(services);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

static int write_services(const void *services, const struct hl_emit_options *how)
{
	return hl_services_view(services, how);
}

/* Until the process has ended, or its number is another's. */
static int run_watch(const struct request *request)
{
	uint64_t start_ticks = 0; /* of the process that was read first */

	for (;;) {
		struct hl_services *services = NULL;
		struct hl_error err = {0};
		int r = read_services(request, &services, &err);
		uint64_t ticks = r == 0 ? services->process.start_ticks : 0;
		bool has_ended = start_ticks && (r == -ESRCH || (r == 0 && ticks != start_ticks));
		start_ticks = ticks;
		if (r == 0 && !has_ended)
			r = hl_report_output_screen(&request->output, write_services, services);
		hl_services_free(services);
		if (has_ended)
			return HL_EXIT_DONE;
		if (r < 0)
			return hl_cli_error("%s",
					    err.text[0] ? err.text : "cannot write the report");
		nanosleep(&(struct timespec){.tv_sec = (time_t)request->watch_s}, NULL);
	}
}

static int run_services(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;

	if (argc > 0)
		return request->pid ? hl_cli_usage_error(&hl_verb_services,
							 "unexpected argument '%s'", argv[0])
				    : hl_cli_unexpected_process(argv[0]);
	if (!request->pid)
		return hl_cli_usage_error(
			&hl_verb_services,
			"'services' needs a process; name it with -p PID or --comm NAME");
	if (request->watch_s && request->output.path)
		return hl_cli_usage_error(&hl_verb_services,
					  "--watch repeats its report; leave out --output");
	int status = hl_view_output_obey_name(&hl_verb_services, &request->output, NULL, false);
	if (status != HL_EXIT_DONE)
		return status;
	return request->watch_s ? run_watch(request) : run_once(request);
}

const struct hl_verb hl_verb_services = {
	.name = "services",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID",
	.summary = "show what services, or states of Lua, have in Lua and C, and all else in RAM",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_services,
};

const struct hl_guest_tool hl_guest_tool_skynet = {
	.traits = &hl_guest_traits_skynet,
	.verb = &hl_verb_services,
};
