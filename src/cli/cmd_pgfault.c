/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pgfault: which stacks brought in the pages by which a running process has grown. */
#include "bpf/page_trace.h"
#include "cli/trace_run.h"
#include "cli/view_options.h"

struct request {
	struct hl_trace_target target;
	int kind; /* -1: all */
};

static const struct request defaults = {.target = {HL_TRACE_DEFAULTS}, .kind = -1};

/* In the order of enum hl_page_class. */
static const char *const kind_words[] = {"anon", "file", "shmem", NULL};

static const struct hl_option options[] = {
	{"kind", 'k', "KIND", "only pages of this kind: anon, file or shmem", HL_OPTION_CHOICE,
	 HL_AT(kind), kind_words},
	{0},
};

static int run_pgfault(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	const struct hl_page_settings settings = {
		.classes = request->kind < 0 ? 0 : 1u << request->kind};
	const struct hl_trace_command command = {.backend = &hl_page_trace, .settings = &settings};

	return hl_trace_run(&hl_verb_pgfault, argc, argv, &request->target, &command);
}

const struct hl_verb hl_verb_pgfault = {
	.name = "pgfault",
	.group = HL_GROUP_LIVE,
	.arguments = "-p PID [SECONDS]",
	.summary = "show what made the memory of a running process grow, from outside",
	.options = options,
	.shared_options = {hl_trace_options, hl_view_unit_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options},
	HL_REQUEST(defaults),
	.run = run_pgfault,
};
