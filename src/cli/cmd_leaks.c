/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline leaks: live blocks that nobody can free any more. */
#include "cli/heap_target.h"
#include "heap/graph/leak_ignore.h"
#include "heap/graph/leaks.h"
#include "view/format.h"
#include "view/heap.h"

#define SHOW_MAX 100000u

static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;
static uint64_t show_count;
static uint64_t fail_above = UINT64_MAX;
static const char *ignore_path;

static const struct hl_option options[] = {
	{"rows", 'n', "N", "at most N rows; 0: all (default: 30, in JSON all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"show", 0, "N", "list the N lost blocks that take most, with their first words",
	 HL_OPTION_COUNT, &show_count, HL_BOUNDS(0, SHOW_MAX)},
	{"ignore", 0, "FILE",
	 "leave out what FILE names, in the format of LeakSanitizer's suppressions", HL_OPTION_TEXT,
	 &ignore_path, NULL},
	{"fail-above", 0, "BYTES", "exit with status 3 if more than BYTES are lost",
	 HL_OPTION_BYTES, &fail_above, NULL},
	{0},
};

/* HL_EXIT_DONE or HL_EXIT_LIMIT. */
static int check_limit(const struct hl_leaks *leaks)
{
	char number[HL_FORMAT_MAX], most[HL_FORMAT_MAX];
	uint64_t lost = leaks->lost.bytes + leaks->indirect.bytes;

	if (lost <= fail_above)
		return HL_EXIT_DONE;
	hl_cli_note("%s are lost, more than %s", hl_format_bytes(hl_heap_number(lost), number),
		    hl_format_bytes(hl_heap_number(fail_above), most));
	return HL_EXIT_LIMIT;
}

static int run_leaks(int argc, char **argv)
{
	HL_CLEANUP(hl_leak_ignore_release) struct hl_leak_ignore ignore = {0};
	const struct hl_leaks_settings settings = {
		.stop = hl_heap_target_stops(), .show = show_count, .ignore = &ignore};
	struct hl_report_output output;
	struct hl_leaks *leaks = NULL;
	struct hl_error err = {0};
	enum hl_report_form form;

	int status = hl_heap_target_check(&hl_verb_leaks, argc, argv);
	if (status == HL_EXIT_DONE)
		status = hl_report_output_choose_form(&hl_verb_leaks, false, false, &form);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(NULL, 0, &err);
	if (r == 0 && ignore_path)
		r = hl_leak_ignore_read(&ignore, ignore_path, &err);
	if (r == 0)
		r = hl_leaks_read(hl_heap_target_pid(), hl_heap_target_core(), &settings, &leaks,
				  &err);
	if (r == 0)
		r = hl_report_output_open(&output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_report_output_close(&output, hl_leaks_view(leaks, &how), &err);
	}
	if (r == 0)
		status = check_limit(leaks);
	hl_leaks_free(leaks);
	return r < 0 ? hl_cli_error("%s", err.text) : status;
}

const struct hl_verb hl_verb_leaks = {
	.name = "leaks",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "show live blocks that nothing leads to any more",
	.options = options,
	.shared_options = {hl_heap_target_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_leaks,
};
