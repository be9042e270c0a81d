/* SPDX-License-Identifier: BSD-2-Clause */
/* The difference of two snapshots of a recording; see trace_run.h. */
#include "cli/trace_run.h"

#include "collector/control_ask.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct recorded_trace {
	const struct hl_trace_request *request;
	struct hl_control_peers peers;
	char directory[32]; /* for snapshots; "" when there is none */
	unsigned snapshot_count;
	struct hl_recording *last; /* the snapshot that the next one is compared with */
};

bool hl_trace_recorded_has(pid_t pid)
{
	struct hl_control_peers peers;
	bool is = hl_control_ask_search(pid, &peers) == 0 && peers.count &&
		  peers.peers[0].pid != pid; /* collectors are found, too */

	hl_control_ask_release(&peers);
	return is;
}

/* ---- snapshots ---- */

/* Makes a directory that the collector can write to, whose it may be. */
static int make_directory(struct recorded_trace *trace, struct hl_error *err)
{
	char path[32];
	struct stat collector;

	strcpy(trace->directory, "/tmp/heapline-stacks-XXXXXX");
	if (!mkdtemp(trace->directory)) {
		trace->directory[0] = '\0';
		return hl_error_set(err, -errno, "cannot make a directory in '/tmp': %s",
				    strerror(errno));
	}
	snprintf(path, sizeof(path), "/proc/%d", trace->peers.peers[0].pid);
	if (stat(path, &collector) == 0 && collector.st_uid != geteuid() &&
	    chown(trace->directory, collector.st_uid, (gid_t)-1) < 0)
		return hl_error_set(err, -errno, "cannot give '%s' to user %u: %s",
				    trace->directory, collector.st_uid, strerror(errno));
	return 0;
}

static int take_snapshot(struct recorded_trace *trace, struct hl_recording **ret_recording,
			 struct hl_error *err)
{
	static struct hl_control_request request; /* large */
	struct hl_directory directory;
	json_t *answer;

	request = (struct hl_control_request){.verb = HL_CONTROL_SNAPSHOT};
	snprintf(request.argument, sizeof(request.argument), "%s/%u.hl", trace->directory,
		 trace->snapshot_count++);
	int r = hl_control_protocol_check(&request, err);
	if (r == 0)
		r = hl_control_ask(&trace->peers.peers[0], &request, &answer, err);
	if (r < 0)
		return r;
	json_decref(answer);
	r = hl_recording_open(request.argument, ret_recording, err);
	if (hl_directory_init(&directory, request.argument, true, NULL) == 0) {
		hl_directory_keep(&directory);
		hl_directory_remove(&directory);
		hl_directory_release(&directory);
	}
	return r;
}

/* The program that ${pid} runs now is the last one. */
static struct hl_recording_process *find_process(const struct hl_recording *recording, pid_t pid)
{
	struct hl_recording_process *found = NULL;

	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].pid == (uint32_t)pid)
			found = &recording->processes[i];
	return found;
}

/* ---- the difference ---- */

/* Numbers below zero are those that wrap: sums are right in the end. */
static int add_values(struct hl_trace_result *result, const struct hl_recording_process *process,
		      bool is_before)
{
	uint64_t sign = is_before ? UINT64_MAX : 1;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < process->value_count; i++) {
		const struct hl_recording_value *from = &process->values[i];
		const struct hl_trace_value value = {
			.alloc_bytes = sign * from->alloc_bytes,
			.alloc_objects = sign * from->alloc_objects,
			.free_bytes = sign * from->free_bytes,
			.free_objects = sign * from->free_objects,
		};
		r = hl_trace_result_add(result, from->node, &value);
	}
	return r;
}

/* Nodes of a process keep their ids for as long as it runs; of the earlier snapshot only the figures are needed. */
static int compare(const struct recorded_trace *trace, const struct hl_recording *after,
		   struct hl_trace_result *result, struct hl_error *err)
{
	static const struct hl_recording_process none;
	pid_t pid = trace->request->facts->pid;
	struct hl_recording_process *now = find_process(after, pid);
	const struct hl_recording_process *before = find_process(trace->last, pid);

	if (!now)
		return hl_error_set(err, -ESRCH, "process '%d' is no longer in its recording",
				    (int)pid);
	if (!before || before->sequence != now->sequence) /* another program by now */
		before = &none;
	int r = add_values(result, now, false);
	if (r == 0)
		r = add_values(result, before, true);
	if (r == 0)
		r = hl_trace_result_stacks(result, now->nodes, now->node_count, now->modules,
					   now->module_count);
	if (r < 0)
		return hl_error_set(err, r, "out of memory");
	hl_trace_result_take_scripts(result, now);
	*hl_trace_result_lost(result) = hl_lost_since(&now->lost, &before->lost);
	hl_trace_result_set_sample(result, after->sample_bytes);
	return 0;
}

/* ---- the trace ---- */

static void free_trace(void *handle)
{
	struct recorded_trace *trace = handle;

	if (!trace)
		return;
	hl_recording_free(trace->last);
	if (trace->directory[0])
		rmdir(trace->directory);
	hl_control_ask_release(&trace->peers);
	free(trace);
}

/* In mode 'closed' there would be nothing to compare. */
static int check_mode(const struct hl_control_peer *peer, pid_t pid, struct hl_error *err)
{
	static struct hl_control_request request; /* large */
	json_t *answer, *process;
	bool is_closed = false;
	size_t i;

	request = (struct hl_control_request){.verb = HL_CONTROL_STATUS};
	int r = hl_control_protocol_check(&request, err);
	if (r == 0)
		r = hl_control_ask(peer, &request, &answer, err);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(answer, "processes"), i, process) {
		const char *mode = json_string_value(json_object_get(process, "mode"));
		if (json_integer_value(json_object_get(process, "pid")) == pid && mode)
			is_closed = !strcmp(mode, "closed");
	}
	json_decref(answer);
	if (!is_closed)
		return 0;
	return hl_error_set(err, -ENODATA,
			    "process '%d' is recorded in mode 'closed', which counts nothing; "
			    "'heapline ctl -p %d mode mem-fast' has it count",
			    pid, pid);
}

int hl_trace_recorded_check(pid_t pid, char ret_recording[PATH_MAX], struct hl_error *err)
{
	struct hl_control_peers peers;
	int r = hl_control_ask_search(pid, &peers);

	if (r == 0 && !peers.count)
		r = hl_ctl_explain(pid, peers.silent, "control", err);
	else if (r < 0)
		hl_error_set(err, r, "out of memory");
	if (r == 0)
		snprintf(ret_recording, PATH_MAX, "%s", peers.peers[0].recording);
	if (r == 0 && peers.peers[0].pid == pid)
		r = hl_error_set(err, -EALREADY, "it is heapline, which records others in '%.200s'",
				 ret_recording);
	else if (r == 0)
		r = check_mode(&peers.peers[0], pid, err);
	hl_control_ask_release(&peers);
	return r;
}

static int start(const struct hl_trace_request *request, void **ret_trace, struct hl_error *err)
{
	struct recorded_trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return hl_error_set(err, -ENOMEM, "cannot trace: out of memory");
	trace->request = request;
	int pid = (int)request->facts->pid;
	int r = hl_control_ask_search(pid, &trace->peers);
	if (r == 0 && !trace->peers.count)
		r = -ESRCH;
	if (r < 0)
		hl_error_set(err, r, "process '%d' is no longer recorded; try again", pid);
	else
		hl_cli_note("process %d is recorded in '%s': reading its recorder, without probes",
			    pid, trace->peers.peers[0].recording);
	if (r == 0)
		r = check_mode(&trace->peers.peers[0], pid, err);
	if (r == 0)
		r = make_directory(trace, err);
	if (r == 0)
		r = take_snapshot(trace, &trace->last, err);
	if (r == 0)
		*ret_trace = trace;
	else
		free_trace(trace);
	return r;
}

static int poll_trace(void *handle, int timeout_ms, struct hl_error *err)
{
	const struct timespec pause = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

	(void)handle;
	(void)err;
	nanosleep(&pause, NULL);
	return 0;
}

static int report(void *handle, struct hl_trace_result *result, struct hl_error *err)
{
	struct recorded_trace *trace = handle;
	struct hl_recording *after;
	int r = take_snapshot(trace, &after, err);

	if (r < 0)
		return r;
	r = compare(trace, after, result, err);
	hl_recording_free(trace->last);
	trace->last = after;
	return r;
}

/* When the process has ended, its collector may have, too: then the recording is finished. */
static int finish(void *handle, bool has_ended, struct hl_trace_result *result,
		  struct hl_error *err)
{
	struct recorded_trace *trace = handle;
	struct hl_recording *after;
	int r = report(trace, result, err);

	if (r == 0 || !has_ended)
		return r;
	*err = (struct hl_error){0};
	r = hl_recording_open(trace->peers.peers[0].recording, &after, err);
	if (r < 0)
		return r;
	r = compare(trace, after, result, err);
	hl_recording_free(after);
	return r;
}

const struct hl_trace_backend hl_recorded_trace = {
	.mode = "stacks-growth",
	.start = start,
	.poll = poll_trace,
	.report = report,
	.finish = finish,
	.free = free_trace,
};
