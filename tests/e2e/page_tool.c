/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `heapline pgfault` would do on other kernels, or at just the right moment: traces the pages
 * of a process in the way that its arguments demand, from "started" on standard output until
 * standard input ends, and keeps a recording. For each line it reads it looks at the process as if
 * it were time for that, and says "looked".
 *
 *	page_tool PID NAME.hl [events] [typed|tracepoint|perf] [no-calls] [no-scan] [ring=BYTES]
 */
#include "bpf/page_trace.h"
#include "bpf/privilege.h"
#include "collector/directory.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hl_trace_backend *backend = &hl_page_trace;

/* Exits with a sentence when ${r} is an error. */
static void require(int r, const struct hl_error *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "page_tool: %s (%s)\n", err->text, strerror(-r));
	exit(1);
}

static void take_argument(struct hl_page_settings *settings, const char *argument)
{
	if (!strcmp(argument, "events"))
		backend = &hl_page_event_trace;
	else if (!strcmp(argument, "typed"))
		settings->source = HL_PAGE_SOURCE_TYPED_TRACEPOINT;
	else if (!strcmp(argument, "tracepoint"))
		settings->source = HL_PAGE_SOURCE_TRACEPOINT;
	else if (!strcmp(argument, "perf"))
		settings->source = HL_PAGE_SOURCE_PERF_EVENT;
	else if (!strcmp(argument, "no-calls"))
		settings->without_calls = true;
	else if (!strcmp(argument, "no-scan"))
		settings->without_scan = true;
	else if (!strncmp(argument, "ring=", 5))
		settings->ring_bytes = (uint32_t)strtoul(argument + 5, NULL, 10);
	else
		require(hl_error_set(NULL, -EINVAL, "x"), &(struct hl_error){"no such argument"});
}

static void note(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static void trace(const struct hl_trace_request *request, struct hl_trace_result *result)
{
	struct hl_error err = {0};
	void *trace;
	int r = backend->start(request, &trace, &err);

	require(r, &err);
	puts("started");
	fflush(stdout);
	for (char line[2]; r == 0 && fgets(line, sizeof(line), stdin);) {
		r = backend->poll(trace, 0, &err);
		puts("looked");
		fflush(stdout);
	}
	bool has_ended = kill(request->facts->pid, 0) != 0;
	require(backend->finish(trace, has_ended, result, &err), &err);
	backend->free(trace);
}

static void keep(struct hl_trace_result *result, const char *path)
{
	struct hl_recording *recording;
	struct hl_directory directory;
	struct hl_error err = {0};

	require(hl_trace_result_recording(result, HL_END_RUNNING, &recording), &err);
	require(hl_directory_init(&directory, path, false, &err), &err);
	require(hl_recording_write_process(directory.fd, recording->processes, &err), &err);
	require(hl_recording_write_meta(directory.fd, recording, &err), &err);
	hl_directory_release(&directory);
	hl_recording_free(recording);
}

int main(int argc, char **argv)
{
	struct hl_page_settings settings = {.checkpoint_pause_ns = 1};
	struct hl_process_facts facts;
	struct hl_trace_result *result;
	struct hl_error err = {0};

	if (argc < 3)
		return 2;
	for (int i = 3; i < argc; i++)
		take_argument(&settings, argv[i]);
	hl_privilege_log_start(NULL);
	require(hl_process_facts_read((pid_t)atoi(argv[1]), &facts, &err), &err);
	require(hl_trace_result_new(&facts, backend->mode, &result), &err);
	const struct hl_trace_request request = {
		.facts = &facts, .settings = &settings, .note = note, .detail = note};
	trace(&request, result);
	keep(result, argv[2]);
	hl_trace_result_free(result);
	hl_process_facts_release(&facts);
	return 0;
}
