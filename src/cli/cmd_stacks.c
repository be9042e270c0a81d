/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline stacks: what a running process allocates and does not free, with nothing put into it. */
#include "bpf/heap_trace.h"
#include "cli/trace_recorded.h"
#include "cli/trace_run.h"
#include "cli/view_options.h"

#include <errno.h>
#include <inttypes.h>

static struct hl_heap_settings settings = {
	.max_overhead = HL_HEAP_MAX_OVERHEAD_DEFAULT,
	.max_blocks = HL_HEAP_MAX_BLOCKS_DEFAULT,
};
static const char *older, *interval;
static int probes;

static const char *const probe_words[] = {"best", "session", "multi", "perf", NULL};
static const enum hl_probe_way probe_ways[] = {HL_PROBE_SESSION, HL_PROBE_SESSION, HL_PROBE_MULTI,
					       HL_PROBE_PERF};

/* Distances between samples are drawn in 64 bits, some 30 times the mean at most. */
#define SAMPLE_BYTES_MAX (UINT64_C(1) << 40)

static const struct hl_option options[] = {
	{"all", 'a', NULL, "count every allocation, freed or not (half the cost)", HL_OPTION_FLAG,
	 &settings.all, NULL},
	{"object", 'O', "OBJECT", "only allocators in files whose path contains OBJECT",
	 HL_OPTION_TEXT, &settings.object, NULL},
	{"sample", 0, "BYTES", "sample on average one allocation every BYTES", HL_OPTION_BYTES,
	 &settings.sample_bytes, NULL},
	{"older", 0, "SECONDS", "only blocks older than SECONDS at the end", HL_OPTION_TEXT, &older,
	 NULL},
	{"interval", 'i', "SECONDS", "report growth every SECONDS", HL_OPTION_TEXT, &interval,
	 NULL},
	{"max-overhead", 0, "PERCENT",
	 "stop if tracing costs the target more than PERCENT of one core (default: 30)",
	 HL_OPTION_COUNT, &settings.max_overhead, NULL},
	{"max-blocks", 0, "N", "track at most N live blocks (default: 2097152)", HL_OPTION_COUNT,
	 &settings.max_blocks, NULL},
	{"probes", 0, "WAY", "how probes are set: best, session, multi or perf (default: best)",
	 HL_OPTION_CHOICE, &probes, probe_words},
	{0},
};

static int run_stacks(int argc, char **argv)
{
	struct hl_trace_command command = {
		.backend = &hl_heap_trace,
		.settings = &settings,
		.mode = settings.all ? "stacks-all"
			: interval   ? "stacks-growth"
				     : "stacks",
	};
	settings.growth = interval != NULL;
	command.recorded_backend = &hl_recorded_trace;
	command.recorded_mode = settings.all ? "stacks-all" : "stacks-growth";
	command.needs_probes = older		       ? "--older"
			       : settings.object       ? "--object"
			       : probes		       ? "--probes"
			       : settings.sample_bytes ? "--sample"
						       : NULL;
	settings.choose_way = probes != 0;
	settings.way = probe_ways[probes];
	if (older && hl_trace_run_parse_seconds(older, &settings.older_seconds) < 0)
		return hl_cli_usage_error(&hl_verb_stacks,
					  "bad value '%s' of option '--older': not a possible "
					  "number of seconds",
					  older);
	if (interval && hl_trace_run_parse_seconds(interval, &command.interval_seconds) < 0)
		return hl_cli_usage_error(&hl_verb_stacks,
					  "bad value '%s' of option '--interval': not a possible "
					  "number of seconds",
					  interval);
	if (settings.all && older)
		return hl_cli_usage_error(
			&hl_verb_stacks,
			"'--older' selects blocks that were kept; leave out '--all'");
	if (settings.max_blocks < 1 || settings.max_blocks > HL_HEAP_MAX_BLOCKS_MAX)
		return hl_cli_usage_error(&hl_verb_stacks,
					  "bad value '%" PRIu64
					  "' of option '--max-blocks': not from 1 to %" PRIu64,
					  settings.max_blocks, HL_HEAP_MAX_BLOCKS_MAX);
	if (settings.sample_bytes > SAMPLE_BYTES_MAX)
		return hl_cli_usage_error(&hl_verb_stacks,
					  "bad value '%" PRIu64
					  "' of option '--sample': more than 1T",
					  settings.sample_bytes);
	return hl_trace_run(&hl_verb_stacks, argc, argv, &command);
}

const struct hl_verb hl_verb_stacks = {
	.name = "stacks",
	.group = HL_GROUP_LIVE,
	.arguments = "-p PID [SECONDS]",
	.summary = "show what a running process allocates and keeps, from outside",
	.options = options,
	.shared_options = {hl_trace_options, hl_view_unit_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options},
	.run = run_stacks,
};
