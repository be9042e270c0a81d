/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pod: what a container is charged with, and what made that grow. */
#include "base/cleanup.h"
#include "bpf/growth.h"
#include "cli/output.h"
#include "cli/trace_run.h"
#include "heap/pod.h"
#include "heap/pod_pages.h"
#include "view/heap.h"

#include <time.h>

#define INTERVAL_MAX_S 86400

struct request {
	struct hl_trace_target target; /* a process of the group, if any; what is shown, and how */
	uint64_t interval_s, growth_s;
	bool with_parts, is_quick;
	const char *path; /* of the group; NULL: of the process */
};

static const struct request defaults = {
	.target = {HL_TRACE_DEFAULTS, .view.output.row_limit = HL_EMIT_ROWS_DEFAULT}};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the group of this process", HL_OPTION_PID, HL_AT(target.pid), NULL},
	{"comm", 0, "NAME", "the group of the process whose program is called NAME", HL_OPTION_COMM,
	 HL_AT(target.pid), NULL},
	{"cgroup", 0, "PATH", "the group of this directory, or of this path in /proc/PID/cgroup",
	 HL_OPTION_TEXT, HL_AT(path), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(target.view.output.row_limit), NULL},
	{"parts", 0, NULL, "split the memory of processes as 'heap' does, which reads their heaps",
	 HL_OPTION_FLAG, HL_AT(with_parts), NULL},
	{"quick", 0, NULL,
	 "do not read the kernel's pages: page cache in one row, within milliseconds",
	 HL_OPTION_FLAG, HL_AT(is_quick), NULL},
	{"growth", 'g', "SECONDS",
	 "show what the group gains in SECONDS, by stack and file (root, BPF); -o NAME.hl keeps it",
	 HL_OPTION_COUNT, HL_AT(growth_s), HL_BOUNDS(1, INTERVAL_MAX_S)},
	{"folded", 0, NULL, "with --growth: write folded lines, for flame graph programs",
	 HL_OPTION_FLAG, HL_AT(target.folded), NULL},
	{"verbose", 0, NULL, "with --growth: report each step, and the kernel's messages",
	 HL_OPTION_FLAG, HL_AT(target.verbose), NULL},
	{"interval", 'i', "SECONDS", "repeat every SECONDS, until the group is gone or Ctrl-C",
	 HL_OPTION_COUNT, HL_AT(interval_s), HL_BOUNDS(0, INTERVAL_MAX_S)},
	{0},
};

static int write_pod(const void *pod, const struct hl_emit_options *how)
{
	return hl_pod_view(pod, how);
}

static int read_pod(const struct request *request, const struct hl_cgroup *group,
		    struct hl_pod **ret_pod, struct hl_error *err)
{
	int r = hl_pod_read(group, request->is_quick ? HL_POD_FILES : HL_POD_PAGES, ret_pod, err);

	if (r == 0 && request->with_parts && hl_pod_read_parts(*ret_pod) < 0)
		r = hl_error_set(err, -ENOMEM, "out of memory");
	return r;
}

static int run_once(const struct request *request, const struct hl_cgroup *group,
		    struct hl_error *err)
{
	struct hl_report_output output;
	struct hl_pod *pod = NULL;

	int r = read_pod(request, group, &pod, err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->target.view.output, true, err);
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
		r = read_pod(request, group, &pod, err);
		if (r == -ENOENT && !is_first)
			return 0;
		if (r == 0)
			r = hl_report_output_screen(&request->target.view.output, write_pod, pod);
		if (r < 0)
			hl_error_set(err, r, "cannot write the report");
		hl_pod_free(pod);
	}
	return r;
}

/* ---- growth ---- */

static void name_file(void *context, const struct hl_group_file *file, char *name, size_t size)
{
	char whole[HL_POD_NAME_MAX];

	hl_pod_name_file(context, file, whole);
	snprintf(name, size, "%s", whole);
}

static bool is_recording(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	return length > 3 && !strcmp(path + length - 3, ".hl");
}

static int run_growth(struct request *request, const struct hl_cgroup *group)
{
	struct hl_view_output *output = &request->target.view.output;
	struct hl_pod_mounts mounts = {0};
	const struct hl_growth_settings settings = {group, name_file, &mounts};
	const struct hl_trace_command command = {.backend = &hl_growth_trace,
						 .settings = &settings};
	HL_FREED pid_t *pids = NULL;
	size_t count, strangers, length;

	if (is_recording(output->path)) {
		request->target.path = HL_TAKE(output->path);
		request->target.force = output->force;
	}
	request->target.view.options.row_limit = output->row_limit;
	hl_proc_read_all(getpid(), "mountinfo", &mounts.own, &length);
	if (hl_cgroup_processes(group, &pids, &count, &strangers) == 0 && count)
		hl_proc_read_all(pids[0], "mountinfo", &mounts.process, &length);
	int status = hl_trace_run_group(hl_cgroup_name(group), (double)request->growth_s,
					&request->target, &command);
	free(mounts.own);
	free(mounts.process);
	return status;
}

/* ---- all of it ---- */

static int check_usage(const struct request *request)
{
	const struct hl_view_output *output = &request->target.view.output;

	if (!request->target.pid == !request->path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "'pod' needs one group; name it with -p PID, --comm NAME "
					  "or --cgroup PATH");
	if (request->interval_s && output->path)
		return hl_cli_usage_error(&hl_verb_pod,
					  "--interval repeats its report; leave out --output");
	if (request->interval_s && request->growth_s)
		return hl_cli_usage_error(&hl_verb_pod,
					  "--growth and --interval exclude each other");
	if (request->target.folded && (!request->growth_s || output->json))
		return hl_cli_usage_error(&hl_verb_pod,
					  request->growth_s
						  ? "--folded and --json exclude each other"
						  : "--folded writes stacks; it needs --growth");
	if (is_recording(output->path) && !request->growth_s)
		return hl_cli_usage_error(&hl_verb_pod,
					  "'%s' would be a recording; that needs --growth SECONDS",
					  output->path);
	return HL_EXIT_DONE;
}

static int run_pod(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_error err = {0};
	struct hl_cgroup group;

	if (argc > 0)
		return request->target.pid || request->path
			       ? hl_cli_usage_error(&hl_verb_pod, "unexpected argument '%s'",
						    argv[0])
			       : hl_cli_unexpected_process(argv[0]);
	int status = check_usage(request);
	if (status == HL_EXIT_DONE && !is_recording(request->target.view.output.path))
		status = hl_view_output_obey_name(&hl_verb_pod, &request->target.view.output, NULL,
						  false);
	if (status != HL_EXIT_DONE)
		return status;
	int r = is_recording(request->target.view.output.path)
			? 0
			: hl_report_output_check(&request->target.view.output, NULL, 0, &err);
	if (r == 0)
		r = request->path ? hl_cgroup_open(request->path, &group, &err)
				  : hl_cgroup_open_of((pid_t)request->target.pid, &group, &err);
	if (r == 0 && request->growth_s) {
		status = run_growth(request, &group);
		hl_cgroup_release(&group);
		return status;
	}
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
