/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that say whose heap is read; see families.h. */
#include "cli/families.h"

#include "process/process.h"
#include "view/format.h"

#include <inttypes.h>
#include <unistd.h>

const struct hl_option hl_heap_process_options[] = {
	{"pid", 'p', "PID", "the process", HL_OPTION_PID, HL_HEAP_TARGET_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_HEAP_TARGET_AT(pid)),
	{0},
};

const struct hl_option hl_heap_core_options[] = {
	{"core", 0, "FILE", "read a core file instead of a process", HL_OPTION_TEXT,
	 HL_HEAP_TARGET_AT(core), NULL},
	{0},
};

const struct hl_option hl_heap_stop_options[] = {
	{"stop", 0, NULL, "stop the threads while the heap is read, so that all figures are exact",
	 HL_OPTION_FLAG, HL_HEAP_TARGET_AT(stop), NULL},
	{0},
};

const struct hl_option hl_heap_graph_options[] = {
	{"swapped", 0, NULL, "read what is on swap, too, which brings it back into RAM",
	 HL_OPTION_FLAG, HL_HEAP_TARGET_AT(swapped), NULL},
	{"unaligned", 0, NULL, "look for pointers at addresses that 8 does not divide, too",
	 HL_OPTION_FLAG, HL_HEAP_TARGET_AT(unaligned), NULL},
	{0},
};

/* Before it, since who waits at the terminal may want to end it: seconds for each GiB are possible. */
static void say_stop(uint64_t pid)
{
	char rss[HL_FORMAT_MAX];
	int64_t bytes = hl_process_status_read((pid_t)pid).rss_bytes;

	if (bytes && isatty(STDERR_FILENO))
		hl_cli_note("process %" PRIu64 " is stopped from here on, while its memory is "
			    "read, %s in RAM; Ctrl-C lets it go on",
			    pid, hl_format_bytes(bytes, rss));
}

int hl_heap_target_check(const struct hl_verb *verb, int argc, char **argv,
			 const struct hl_heap_target *target)
{
	if (argc > 0)
		return target->pid || target->core
			       ? hl_cli_usage_error(verb, "unexpected argument '%s'", argv[0])
			       : hl_cli_unexpected_process(argv[0]);
	if (!target->pid && !target->core)
		return hl_cli_usage_error(
			verb, "'%s' needs a process; name it with -p PID or --comm NAME",
			verb->name);
	if (target->pid && target->core)
		return hl_cli_usage_error(verb, "--pid and --core exclude each other");
	if (target->core && target->stop)
		return hl_cli_usage_error(verb, "a core file cannot be stopped");
	if (target->core && target->swapped)
		return hl_cli_usage_error(verb, "a core file has nothing on swap");
	if (target->stop)
		say_stop(target->pid);
	return HL_EXIT_DONE;
}

int hl_heap_target_read(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			struct hl_heap **ret_heap, struct hl_error *err)
{
	settings->stop = target->stop;
	return target->core ? hl_heap_read_core(target->core, settings, ret_heap, err)
			    : hl_heap_read((pid_t)target->pid, settings, ret_heap, err);
}

int hl_heap_target_report(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			  enum hl_report_form form,
			  int (*write)(const struct hl_heap_target *target,
				       const struct hl_heap *heap,
				       const struct hl_emit_options *how))
{
	struct hl_report_output output;
	struct hl_error err = {0};
	struct hl_heap *heap = NULL;

	int r = hl_report_output_check(&target->output, NULL, 0, &err);
	if (r == 0)
		r = hl_heap_target_read(target, settings, &heap, &err);
	if (r == 0)
		r = hl_report_output_open(&output, &target->output, form != HL_REPORT_GUEST, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_report_output_close(&output, write(target, heap, &how), &err);
	}
	hl_heap_free(heap);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}
