/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline allocations: live blocks of a process by who allocated them, and of which sizes. */
#include "cli/families.h"
#include "heap/owners/owners.h"
#include "view/heap.h"

struct request {
	struct hl_heap_target target;
	uint64_t histogram_start, histogram_width;
	bool plumbing;
};

static const struct request defaults = {
	.target.output.row_limit = HL_EMIT_ROWS_DEFAULT,
	.histogram_start = 128,
	.histogram_width = 18,
};

static const struct hl_option options[] = {
	{"histogram-start", 0, "BYTES", "where histograms begin (default: 128)", HL_OPTION_BYTES,
	 HL_AT(histogram_start), HL_BOUNDS(1, HL_LOG2_START_MAX)},
	{"histogram-width", 0, "N", "slots of histograms (default: 18)", HL_OPTION_COUNT,
	 HL_AT(histogram_width), HL_BOUNDS(1, HL_LOG2_WIDTH_MAX)},
	{"plumbing", 0, NULL,
	 "name allocation plumbing (operator new, xmalloc, ...), not its callers", HL_OPTION_FLAG,
	 HL_AT(plumbing), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_COUNT,
	 HL_AT(target.output.row_limit), NULL},
	{0},
};

static int run_allocations(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_heap_target *target = &request->target;
	struct hl_owners_settings settings = {
		.shape = {.start = request->histogram_start,
			  .width = (uint32_t)request->histogram_width},
		.stop = target->stop,
		.plumbing = request->plumbing,
	};
	struct hl_report_output output;
	struct hl_owners *owners = NULL;
	struct hl_error err = {0};
	const struct hl_guest_outside *guest = hl_guests_form(target->guests);
	enum hl_report_form form;

	int status = hl_heap_target_check(&hl_verb_allocations, argc, argv, target);
	if (status == HL_EXIT_DONE)
		status = hl_report_output_choose_form(&hl_verb_allocations, &target->output,
						      guest != NULL, false, &form);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(&target->output, NULL, 0, &err);
	if (r == 0)
		r = hl_owners_read((pid_t)target->pid, &settings, &owners, &err);
	if (r == 0)
		r = hl_report_output_open(&output, &target->output, !guest, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = guest ? guest->form.put_allocations(output.out, &owners->allocations)
			  : hl_owners_view(owners, (pid_t)target->pid, &how);
		r = hl_report_output_close(&output, r, &err);
	}
	hl_owners_free(owners);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_allocations = {
	.name = "allocations",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID",
	.summary = "show live blocks by library and function, with their sizes",
	.options = options,
	.guest_options = HL_GUEST_OPTIONS_FORM,
	.guests_at = HL_AT(target.guests),
	.shared_options = {hl_heap_process_options, hl_heap_stop_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_allocations,
};
