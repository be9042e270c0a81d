/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline leaks: live blocks that nobody can free any more. */
#include "bpf/sleepers.h"
#include "bpf/trace.h"
#include "cli/families.h"
#include "cli/trace_run.h"
#include "heap/graph/leaks.h"
#include "recording/recording.h"
#include "view/format.h"
#include "view/heap.h"

#include <errno.h>
#include <string.h>

#define SHOW_MAX 100000u

struct request {
	struct hl_heap_target target;
	uint64_t show;
	uint64_t fail_above;
	const char *ignore;
	bool at_exit, no_stop;
};

static const struct request defaults = {
	.target.output.row_limit = HL_EMIT_ROWS_DEFAULT,
	.fail_above = UINT64_MAX,
};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(target.output.row_limit), NULL},
	{"show", 0, "N", "list the N lost blocks that take most, with their first words",
	 HL_OPTION_COUNT, HL_AT(show), HL_BOUNDS(0, SHOW_MAX)},
	{"ignore", 0, "FILE",
	 "leave out what FILE names, in the format of LeakSanitizer's suppressions", HL_OPTION_TEXT,
	 HL_AT(ignore), NULL},
	{"no-stop", 0, NULL, "never stop a thread: what is lost may then be in a register alone",
	 HL_OPTION_FLAG, HL_AT(no_stop), NULL},
	{"fail-above", 0, "BYTES", "exit with status 3 if more than BYTES are lost",
	 HL_OPTION_BYTES, HL_AT(fail_above), NULL},
	{"at-exit", 0, NULL, "the process is about to end: a recording says that it has",
	 HL_OPTION_FLAG, HL_AT(at_exit), NULL},
	{0},
};

/* HL_EXIT_DONE or HL_EXIT_LIMIT. */
static int check_limit(const struct hl_leaks *leaks, uint64_t fail_above)
{
	char number[HL_FORMAT_MAX], most[HL_FORMAT_MAX];
	uint64_t lost = leaks->lost.bytes + leaks->indirect.bytes;

	if (lost <= fail_above)
		return HL_EXIT_DONE;
	hl_cli_note("%s are lost, more than %s", hl_format_bytes(hl_heap_number(lost), number),
		    hl_format_bytes(hl_heap_number(fail_above), most));
	return HL_EXIT_LIMIT;
}

/* ---- as a recording ---- */

static bool is_recording(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	return length > 3 && strcmp(path + length - 3, ".hl") == 0;
}

/* What is lost counts as in use, by the stacks of the blocks that nothing leads to. */
static int make_recording(const struct hl_leaks *leaks, bool at_exit,
			  struct hl_recording **ret_recording)
{
	struct hl_recording_process *stacks = leaks->stacks;
	struct hl_trace_result *result;

	int r = hl_trace_result_new(&leaks->heap->process, "leaks", &result);
	if (r == 0)
		r = hl_trace_result_stacks(result, stacks->nodes, stacks->node_count,
					   stacks->modules, stacks->module_count);
	if (r == 0)
		hl_trace_result_take_scripts(result, stacks);
	for (size_t i = 0; i < leaks->row_count && r == 0; i++) {
		const struct hl_leak_row *row = &leaks->rows[i];
		const struct hl_trace_value value = {
			.alloc_bytes = row->lost.bytes + row->indirect.bytes,
			.alloc_objects = row->lost.blocks + row->indirect.blocks,
		};
		r = hl_trace_result_add(result, (uint32_t)row->owner, &value);
	}
	for (size_t i = 0; i < leaks->heap->note_count && r == 0; i++)
		r = hl_trace_result_warn(result, "%s", leaks->heap->notes[i].text);
	if (r == 0)
		r = hl_trace_result_recording(result, at_exit ? HL_END_UNKNOWN : HL_END_RUNNING,
					      ret_recording);
	hl_trace_result_free(result);
	return r;
}

static int write_recording(const struct request *request, const struct hl_leaks *leaks,
			   const struct hl_directory *directory, struct hl_error *err)
{
	const char *path = request->target.output.path;
	struct hl_recording *recording = NULL;

	if (!leaks->stacks)
		return hl_error_set(
			err, -ENODATA,
			"cannot write '%s': a recording is of stacks, and process %d has "
			"no recorder that knows them; name a file that ends in .json",
			path, leaks->heap->process.pid);
	int r = make_recording(leaks, request->at_exit, &recording);
	if (r < 0)
		return hl_error_set(err, r, "cannot write '%s': %s", path, strerror(-r));
	r = hl_recording_write_process(directory->fd, &recording->processes[0], err);
	if (r == 0)
		r = hl_recording_write_meta(directory->fd, recording, err);
	if (r == 0) {
		hl_directory_sync(directory);
		hl_cli_note("%s are lost; see 'heapline top %s'",
			    HL_HEAP_BYTES(leaks->lost.bytes + leaks->indirect.bytes), path);
	}
	hl_recording_free(recording);
	return r;
}

/* ---- all ---- */

static int write_report(const struct hl_heap_target *target, const struct hl_leaks *leaks,
			struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_open(&output, &target->output, true, err);
	if (r < 0)
		return r;
	const struct hl_emit_options how = hl_report_output_emit(&output);
	return hl_report_output_close(&output, hl_leaks_view(leaks, &how), err);
}

static int run_leaks(void *parsed, int argc, char **argv)
{
	HL_CLEANUP(hl_leak_ignore_release) struct hl_leak_ignore ignore = {0};
	struct request *request = parsed;
	struct hl_heap_target *target = &request->target;
	const struct hl_view_output *to = &target->output;
	struct hl_leaks_settings settings = {.stop = target->stop,
					     .never_stop = request->no_stop,
					     .reads_swapped = target->swapped,
					     .reads_unaligned = target->unaligned,
					     .show = request->show,
					     .ignore = &ignore,
					     .want_stacks = is_recording(to->path)};
	struct hl_directory directory = {.fd = -1};
	struct hl_sleepers *sleepers = NULL;
	struct hl_sleeper_source source;
	struct hl_leaks *leaks = NULL;
	struct hl_error err = {0};

	int status = hl_heap_target_check(&hl_verb_leaks, argc, argv, target);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(&hl_verb_leaks, &target->output, NULL, false);
	if (status == HL_EXIT_DONE && settings.want_stacks && to->json)
		status = hl_cli_usage_error(&hl_verb_leaks,
					    "--json writes no recording; name another output");
	if (status == HL_EXIT_DONE && request->no_stop && settings.stop)
		status = hl_cli_usage_error(&hl_verb_leaks,
					    "--stop and --no-stop exclude each other");
	if (status != HL_EXIT_DONE)
		return status;
	int r = settings.want_stacks ? hl_trace_output_open(to->path, to->force, &directory, &err)
				     : hl_report_output_check(to, NULL, 0, &err);
	if (r == 0 && request->ignore)
		r = hl_leak_ignore_read(&ignore, request->ignore, &err);
	if (r == 0 && !target->core && hl_sleepers_new((pid_t)target->pid, &sleepers) == 0) {
		source = hl_sleepers_source(sleepers);
		settings.sleepers = &source;
	}
	if (r == 0)
		r = hl_leaks_read((pid_t)target->pid, target->core, &settings, &leaks, &err);
	if (r == 0)
		r = settings.want_stacks ? write_recording(request, leaks, &directory, &err)
					 : write_report(target, leaks, &err);
	if (directory.fd >= 0)
		hl_trace_output_close(&directory, r == 0);
	if (r == 0)
		status = check_limit(leaks, request->fail_above);
	hl_leaks_free(leaks);
	hl_sleepers_free(sleepers);
	return r < 0 ? hl_cli_error("%s", err.text) : status;
}

const struct hl_verb hl_verb_leaks = {
	.name = "leaks",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "show live blocks that nothing leads to any more",
	.options = options,
	.shared_options = {HL_HEAP_TARGET_OPTIONS, hl_heap_graph_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_leaks,
};
