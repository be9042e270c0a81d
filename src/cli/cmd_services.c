/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline services: the balance sheet of a process with services, or states of Lua. */
#include "cli/output.h"
#include "heap/owners/services.h"
#include "view/heap.h"

static uint64_t pid;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;

static int sort;

static const char *const sort_words[] = {"bytes", "waiting", NULL};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "a process that is being recorded", HL_OPTION_PID, &pid, NULL},
	{"comm", 0, "NAME", "the process whose program is called NAME", HL_OPTION_COMM, &pid, NULL},
	{"rows", 'n', "N", "at most N services; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"sort", 's', "KEY", "most bytes or most waiting messages first (default: bytes)",
	 HL_OPTION_CHOICE, &sort, sort_words},
	{0},
};

static int run_services(int argc, char **argv)
{
	struct hl_services *services = NULL;
	struct hl_report_output output;
	struct hl_error err = {0};
	enum hl_report_form form;

	if (argc > 0)
		return pid ? hl_cli_usage_error(&hl_verb_services, "unexpected argument '%s'",
						argv[0])
			   : hl_cli_unexpected_process(argv[0]);
	if (!pid)
		return hl_cli_usage_error(
			&hl_verb_services,
			"'services' needs a process; name it with -p PID or --comm NAME");
	int status = hl_report_output_choose_form(&hl_verb_services, false, false, &form);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(NULL, 0, &err);
	if (r == 0)
		r = hl_services_read((pid_t)pid, &services, &err);
	if (r == 0 && sort)
		hl_services_sort_by_waiting(services);
	if (r == 0)
		r = hl_report_output_open(&output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_report_output_close(&output, hl_services_view(services, &how), &err);
	}
	hl_services_free(services);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_services = {
	.name = "services",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID",
	.summary = "show what services, or states of Lua, have in Lua and C, and all else in RAM",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	.run = run_services,
};
