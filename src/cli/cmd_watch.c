/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline watch: keeps what a container had before it was killed. */
#include "cli/output.h"
#include "watch/watch.h"

#include <string.h>

#define KEEP_DEFAULT  20
#define KEEP_MAX      100000
#define DISK_DEFAULT  (UINT64_C(256) << 20)
#define DISK_MIN      (UINT64_C(64) << 10)
#define SHARE_DEFAULT 90

struct request {
	struct hl_view_output output;
	struct hl_option_texts groups;
	const char *directory;
	uint64_t keep, bytes_max;
	double share;
	bool attach_sample, allow_stop;
};

static const struct request defaults = {
	.output.row_limit = HL_EMIT_ROWS_DEFAULT,
	.directory = HL_WATCH_DIRECTORY,
	.keep = KEEP_DEFAULT,
	.bytes_max = DISK_DEFAULT,
	.share = SHARE_DEFAULT,
};

static const struct hl_option options[] = {
	{"cgroup", 0, "PATH",
	 "watch this control group (default: all that have a limit; may be given more than once)",
	 HL_OPTION_TEXTS, HL_AT(groups), NULL},
	{"dir", 0, "DIR", "keep what happens in DIR (default: " HL_WATCH_DIRECTORY ")",
	 HL_OPTION_TEXT, HL_AT(directory), NULL},
	{"keep", 0, "K",
	 "keep the newest K kills, and as many snapshots and recordings (default: 20)",
	 HL_OPTION_COUNT, HL_AT(keep), HL_BOUNDS(1, KEEP_MAX)},
	{"max-disk", 0, "BYTES", "keep at most BYTES, the newest (default: 256M)", HL_OPTION_BYTES,
	 HL_AT(bytes_max), HL_BOUNDS(DISK_MIN, INT64_MAX)},
	{"share", 0, "PERCENT",
	 "make a snapshot when the group uses PERCENT of its limit, without page cache (default: "
	 "90)",
	 HL_OPTION_PERCENT, HL_AT(share), NULL},
	{"attach-sample", 0, NULL, "record the largest process from then on, by samples",
	 HL_OPTION_FLAG, HL_AT(attach_sample), NULL},
	{"allow-stop", 0, NULL,
	 "stop processes while their heaps are read, so that figures are exact", HL_OPTION_FLAG,
	 HL_AT(allow_stop), NULL},
	{"rows", 'n', "N", "last: at most N rows; 0: all (default: 10, in JSON all)",
	 HL_OPTION_COUNT, HL_AT(output.row_limit), NULL},
	{0},
};

enum action { LAST, LIST };

static const char *const words[] = {"last", "list", NULL};

static void say(const char *sentence)
{
	hl_cli_note("%s", sentence);
}

static int run_service(const struct request *request, struct hl_error *err)
{
	const char *groups[HL_OPTION_TEXTS_MAX + 1] = {NULL};
	const struct hl_watch_settings settings = {
		.groups = request->groups.count ? groups : NULL,
		.directory = request->directory,
		.keep = request->keep,
		.bytes_max = request->bytes_max,
		.share = request->share / 100,
		.attach_sample = request->attach_sample,
		.allow_stop = request->allow_stop,
		.say = say,
	};

	memcpy(groups, request->groups.texts, sizeof(request->groups.texts));
	return hl_watch_run(&settings, err);
}

static int tell(const struct request *request, enum action action, struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_check(&request->output, NULL, 0, err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->output, true, err);
	if (r < 0)
		return r;
	const struct hl_emit_options how = hl_report_output_emit(&output);
	r = action == LAST ? hl_watch_tell_last(request->directory, &how, err)
			   : hl_watch_tell_list(request->directory, &how, err);
	return hl_report_output_close(&output, r, err);
}

static int run_watch(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_error err = {0};
	int r, action = 0;

	while (argc && words[action] && strcmp(argv[0], words[action]) != 0)
		action++;
	if (argc && !words[action])
		return hl_cli_usage_error(&hl_verb_watch, "'watch' answers last and list, not '%s'",
					  argv[0]);
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_watch, "unexpected argument '%s'", argv[1]);
	if (request->groups.count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(&hl_verb_watch,
					  "at most %d groups can be named; leave out --cgroup to "
					  "watch all that have a limit",
					  HL_OPTION_TEXTS_MAX);
	if (argc) {
		int status =
			hl_view_output_obey_name(&hl_verb_watch, &request->output, NULL, false);
		if (status != HL_EXIT_DONE)
			return status;
		r = tell(request, action, &err);
	} else {
		r = run_service(request, &err);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_watch = {
	.name = "watch",
	.group = HL_GROUP_LIVE,
	.arguments = "[last | list]",
	.summary = "keep what a container had when it came near its limit, and why it was killed",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_watch,
	.words = words,
	.effect = HL_VERB_STAYS,
};
