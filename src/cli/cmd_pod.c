/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pod: what a container is charged with. */
#include "cli/output.h"
#include "view/pod.h"

#include <time.h>

#define INTERVAL_MAX_S 86400

static uint64_t pid, interval_s;
static const char *path;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the group of this process", HL_OPTION_PID, &pid, NULL},
	{"comm", 0, "NAME", "the group of the process whose program is called NAME", HL_OPTION_COMM,
	 &pid, NULL},
	{"cgroup", 0, "PATH", "the group of this directory, or of this path in /proc/PID/cgroup",
	 HL_OPTION_TEXT, &path, NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"interval", 'i', "SECONDS", "repeat every SECONDS, until the group is gone or Ctrl-C",
	 HL_OPTION_COUNT, &interval_s, HL_BOUNDS(0, INTERVAL_MAX_S)},
	{0},
};

static int write_pod(const void *pod, const struct hl_emit_options *how)
{
	return hl_pod_view(pod, how);
}

static int run_once(const struct hl_cgroup *group, struct hl_error *err)
{
	struct hl_report_output output;
	struct hl_pod *pod = NULL;

	int r = hl_pod_read(group, &pod, err);
	if (r == 0)
		r = hl_report_output_open(&output, true, err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_report_output_close(&output, hl_pod_view(pod, &how), err);
	}
	hl_pod_free(pod);
	return r;
}

static int run_repeatedly(const struct hl_cgroup *group, struct hl_error *err)
{
	int r = 0;

	for (bool is_first = true; r == 0; is_first = false) {
		struct hl_pod *pod = NULL;
		if (!is_first)
			nanosleep(&(struct timespec){.tv_sec = (time_t)interval_s}, NULL);
		r = hl_pod_read(group, &pod, err);
		if (r == -ENOENT && !is_first)
			return 0;
		if (r == 0)
			r = hl_report_output_screen(row_limit, write_pod, pod);
		if (r < 0)
			hl_error_set(err, r, "cannot write the report");
		hl_pod_free(pod);
	}
	return r;
}

static int run_pod(int argc, char **argv)
{
	struct hl_error err = {0};
	enum hl_report_form form;
	struct hl_cgroup group;

	if (argc > 0)
		return pid || path ? hl_cli_usage_error(&hl_verb_pod, "unexpected argument '%s'",
							argv[0])
				   : hl_cli_unexpected_process(argv[0]);
	if (!pid == !path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "'pod' needs one group; name it with -p PID, --comm NAME "
					  "or --cgroup PATH");
	if (interval_s && hl_view_options_parse_output().path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "--interval repeats its report; leave out --output");
	int status = hl_report_output_choose_form(&hl_verb_pod, false, false, &form);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(NULL, 0, &err);
	if (r == 0)
		r = path ? hl_cgroup_open(path, &group, &err)
			 : hl_cgroup_open_of((pid_t)pid, &group, &err);
	if (r == 0) {
		r = interval_s ? run_repeatedly(&group, &err) : run_once(&group, &err);
		hl_cgroup_release(&group);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_pod = {
	.name = "pod",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --cgroup PATH",
	.summary = "show what a container (control group) is charged with, in rows that add up",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	.run = run_pod,
};
