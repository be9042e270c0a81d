/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline carriers: the segments that a process' allocator got from the system. */
#include "cli/families.h"
#include "heap/owners/owners.h"
#include "view/heap.h"

#define STRIP_PARTS 512 /* as fine as a picture shows */

struct request {
	struct hl_heap_target target;
	uint64_t histogram_start, histogram_width;
	bool ask;
	enum hl_report_form form; /* chosen by the output's name and --term */
};

static const struct request defaults = {
	.target.output.row_limit = HL_EMIT_ROWS_DEFAULT,
	.histogram_start = 512,
	.histogram_width = 14,
};

static const struct hl_option options[] = {
	{"histogram-start", 0, "BYTES", "where histograms begin (default: 512)", HL_OPTION_BYTES,
	 HL_AT(histogram_start), HL_BOUNDS(1, HL_LOG2_START_MAX)},
	{"histogram-width", 0, "N", "slots of histograms (default: 14)", HL_OPTION_COUNT,
	 HL_AT(histogram_width), HL_BOUNDS(1, HL_LOG2_WIDTH_MAX)},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(target.output.row_limit), NULL},
	{"ask", 0, NULL,
	 "ask " HL_ALLOCATORS_THAT_ANSWER("or") " itself, through the recorder in the process",
	 HL_OPTION_FLAG, HL_AT(ask), NULL},
	{0},
};

static int write_carriers(const struct hl_heap_target *target, const struct hl_heap *heap,
			  const struct hl_emit_options *how)
{
	const struct request *request = (const struct request *)target;
	struct hl_emit *emit;
	char title[128];

	if (request->form == HL_REPORT_GUEST) {
		hl_guests_form(target->guests)->form.put_carriers(how->out, &heap->carriers);
		return 0;
	}
	if (request->form == HL_REPORT_SVG) {
		snprintf(title, sizeof(title), "%s (pid %d), %s", heap->process.comm,
			 heap->process.pid, heap->allocator);
		return hl_carriers_svg_write(how->out, &heap->carriers, title);
	}
	int r = hl_emit_open(how, "carriers/1", &emit);
	if (r < 0)
		return r;
	hl_heap_emit_head(emit, heap);
	r = hl_carriers_emit(emit, &heap->carriers, target->output.row_limit);
	hl_heap_classes_emit(emit, heap);
	hl_heap_emit_notes(emit, heap);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

static int run_carriers(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_heap_target *target = &request->target;
	struct hl_heap_settings settings = {
		.free_shape = {.start = request->histogram_start,
			       .width = (uint32_t)request->histogram_width}};
	struct hl_report_output output;
	struct hl_error err = {0};
	struct hl_slabs slabs;

	int status = hl_heap_target_check(&hl_verb_carriers, argc, argv, target);
	if (status == HL_EXIT_DONE)
		status = hl_report_output_choose_form(&hl_verb_carriers, &target->output,
						      hl_guests_form(target->guests) != NULL, true,
						      &request->form);
	if (status != HL_EXIT_DONE)
		return status;
	if (request->ask && (request->form != HL_REPORT_TABLE || !target->pid))
		return hl_cli_usage_error(
			&hl_verb_carriers,
			"--ask cannot be combined with --term, --core or a picture");
	if (!request->ask) {
		settings.strip_count = request->form == HL_REPORT_SVG ? STRIP_PARTS : 0;
		return hl_heap_target_report(target, &settings, request->form, write_carriers);
	}
	int r = hl_report_output_check(&target->output, NULL, 0, &err);
	if (r == 0)
		r = hl_slabs_ask((pid_t)target->pid, &slabs, &err);
	if (r == 0)
		r = hl_report_output_open(&output, &target->output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_slabs_view(&slabs, (pid_t)target->pid, &how);
		r = hl_report_output_close(&output, r, &err);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_carriers = {
	.name = "carriers",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "list an allocator's segments (carriers) and their free blocks",
	.options = options,
	.guest_options = HL_GUEST_OPTIONS_FORM,
	.guests_at = HL_AT(target.guests),
	.shared_options = {HL_HEAP_TARGET_OPTIONS, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_carriers,
	.entering = (const char *const[]){"ask", NULL},
};
