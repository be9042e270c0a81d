/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline stacks: what a running process allocates and does not free, with nothing put into it. */
#include "bpf/heap_trace.h"
#include "cli/trace_run.h"
#include "cli/view_options.h"

struct request {
	struct hl_trace_target target;
	struct hl_heap_settings settings;
	double interval_seconds;
	int probes;
};

static const struct request defaults = {
	.target = {HL_TRACE_DEFAULTS},
	.settings = {.max_overhead = HL_HEAP_MAX_OVERHEAD_DEFAULT,
		     .max_blocks = HL_HEAP_MAX_BLOCKS_DEFAULT},
};

static const char *const probe_words[] = {"best", "session", "multi", "perf", NULL};
static const enum hl_probe_way probe_ways[] = {HL_PROBE_SESSION, HL_PROBE_SESSION, HL_PROBE_MULTI,
					       HL_PROBE_PERF};

/* Distances between samples are drawn in 64 bits, about 30 times the mean at most. */
#define SAMPLE_BYTES_MAX (UINT64_C(1) << 40)

static const struct hl_option options[] = {
	{"all", 'a', NULL, "count every allocation, freed or not (half the cost)", HL_OPTION_FLAG,
	 HL_AT(settings.all), NULL},
	{"object", 'O', "OBJECT", "only allocators in files whose path contains OBJECT",
	 HL_OPTION_TEXT, HL_AT(settings.object), NULL},
	{"sample", 0, "BYTES", "sample on average one allocation every BYTES", HL_OPTION_BYTES,
	 HL_AT(settings.sample_bytes), HL_BOUNDS(0, SAMPLE_BYTES_MAX)},
	{"older", 0, "SECONDS", "only blocks older than SECONDS at the end", HL_OPTION_SECONDS,
	 HL_AT(settings.older_seconds), NULL},
	{"interval", 'i', "SECONDS", "report growth every SECONDS", HL_OPTION_SECONDS,
	 HL_AT(interval_seconds), NULL},
	{"max-overhead", 0, "PERCENT",
	 "stop if tracing costs the target more than PERCENT of one core (default: 30)",
	 HL_OPTION_COUNT, HL_AT(settings.max_overhead), NULL},
	{"max-blocks", 0, "N", "track at most N live blocks (default: 2097152)", HL_OPTION_COUNT,
	 HL_AT(settings.max_blocks), HL_BOUNDS(1, HL_HEAP_MAX_BLOCKS_MAX)},
	{"probes", 0, "WAY", "how probes are set: best, session, multi or perf (default: best)",
	 HL_OPTION_CHOICE, HL_AT(probes), probe_words},
	{0},
};

static int run_stacks(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_heap_settings *settings = &request->settings;

	settings->growth = request->interval_seconds > 0;
	settings->choose_way = request->probes != 0;
	settings->way = probe_ways[request->probes];
	if (settings->all && settings->older_seconds > 0)
		return hl_cli_usage_error(
			&hl_verb_stacks,
			"'--older' selects blocks that were kept; leave out '--all'");
	const struct hl_trace_command command = {
		.backend = &hl_heap_trace,
		.settings = settings,
		.mode = settings->all	   ? "stacks-all"
			: settings->growth ? "stacks-growth"
					   : "stacks",
		.interval_seconds = request->interval_seconds,
		.measures_rss = true,
		.recorded_backend = &hl_recorded_trace,
		.recorded_mode = settings->all ? "stacks-all" : "stacks-growth",
		.needs_probes = settings->older_seconds > 0 ? "--older"
				: settings->object	    ? "--object"
				: request->probes	    ? "--probes"
				: settings->sample_bytes    ? "--sample"
							    : NULL,
	};
	return hl_trace_run(&hl_verb_stacks, argc, argv, &request->target, &command);
}

const struct hl_verb hl_verb_stacks = {
	.name = "stacks",
	.group = HL_GROUP_LIVE,
	.arguments = "-p PID [SECONDS]",
	.summary = "show what a running process allocates and keeps, from outside",
	.options = options,
	.shared_options = {hl_trace_options, hl_view_unit_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options},
	HL_REQUEST(defaults),
	.run = run_stacks,
};
