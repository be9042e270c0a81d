/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pod: what a container is charged with. */
#include "cli/output.h"
#include "heap/pod.h"
#include "view/heap.h"

#include <time.h>

#define INTERVAL_MAX_S 86400

struct request {
	struct hl_view_output output;
	uint64_t pid, interval_s;
	const char *path; /* of the group; NULL: of the process */
};

static const struct request defaults = {.output.row_limit = HL_EMIT_ROWS_DEFAULT};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the group of this process", HL_OPTION_PID, HL_AT(pid), NULL},
	{"comm", 0, "NAME", "the group of the process whose program is called NAME", HL_OPTION_COMM,
	 HL_AT(pid), NULL},
	{"cgroup", 0, "PATH", "the group of this directory, or of this path in /proc/PID/cgroup",
	 HL_OPTION_TEXT, HL_AT(path), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(output.row_limit), NULL},
	{"interval", 'i', "SECONDS", "repeat every SECONDS, until the group is gone or Ctrl-C",
	 HL_OPTION_COUNT, HL_AT(interval_s), HL_BOUNDS(0, INTERVAL_MAX_S)},
	{0},
};

static int write_pod(const void *pod, const struct hl_emit_options *how)
{
	return hl_pod_view(pod, how);
}

static int run_once(const struct request *request, const struct hl_cgroup *group,
		    struct hl_error *err)
{
	struct hl_report_output output;
	struct hl_pod *pod = NULL;

	int r = hl_pod_read(group, &pod, err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->output, true, err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_report_output_close(&output, hl_pod_view(pod, &how), err);
	}
	hl_pod_free(pod);
	return r;
}

static int run_repeatedly(const struct request *request, const struct hl_cgroup *group,
			  struct hl_error *err)
{
	int r = 0;

	for (bool is_first = true; r == 0; is_first = false) {
		struct hl_pod *pod = NULL;
		if (!is_first)
			nanosleep(&(struct timespec){.tv_sec = (time_t)request->interval_s}, NULL);
		r = hl_pod_read(group, &pod, err);
		if (r == -ENOENT && !is_first)
			return 0;
		if (r == 0)
			r = hl_report_output_screen(&request->output, write_pod, pod);
		if (r < 0)
			hl_error_set(err, r, "cannot write the report");
		hl_pod_free(pod);
	}
	return r;
}

static int run_pod(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_error err = {0};
	struct hl_cgroup group;

	if (argc > 0)
		return request->pid || request->path
			       ? hl_cli_usage_error(&hl_verb_pod, "unexpected argument '%s'",
						    argv[0])
			       : hl_cli_unexpected_process(argv[0]);
	if (!request->pid == !request->path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "'pod' needs one group; name it with -p PID, --comm NAME "
					  "or --cgroup PATH");
	if (request->interval_s && request->output.path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "--interval repeats its report; leave out --output");
	int status = hl_view_output_obey_name(&hl_verb_pod, &request->output, NULL, false);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(&request->output, NULL, 0, &err);
	if (r == 0)
		r = request->path ? hl_cgroup_open(request->path, &group, &err)
				  : hl_cgroup_open_of((pid_t)request->pid, &group, &err);
	if (r == 0) {
		r = request->interval_s ? run_repeatedly(request, &group, &err)
					: run_once(request, &group, &err);
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
	HL_REQUEST(defaults),
	.run = run_pod,
};
