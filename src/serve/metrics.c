/* SPDX-License-Identifier: BSD-2-Clause */
/* The page /metrics; see pages.h. */
#include "serve/pages.h"

#include "base/compiler.h"
#include "base/names.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define COMMAND_MAX 64 /* bytes of the label */

static const struct metric {
	const char *name, *kind, *help;
	size_t member;
} metrics[] = {
#define METRIC(name, kind, member, help)                                      \
	{                                                                     \
		name, kind, help, offsetof(struct hl_catalog_process, member) \
	}
	METRIC("heapline_inuse_bytes", "gauge", inuse_bytes, "Bytes allocated and not freed."),
	METRIC("heapline_inuse_objects", "gauge", inuse_objects, "Blocks allocated and not freed."),
	METRIC("heapline_peak_bytes", "gauge", peak_bytes,
	       "Most bytes that were in use at once, within 1 %."),
	METRIC("heapline_allocated_bytes_total", "counter", alloc_bytes,
	       "Bytes allocated since the recording began."),
	METRIC("heapline_allocated_objects_total", "counter", alloc_objects,
	       "Blocks allocated since the recording began."),
	METRIC("heapline_freed_bytes_total", "counter", free_bytes,
	       "Bytes freed since the recording began."),
	METRIC("heapline_freed_objects_total", "counter", free_objects,
	       "Blocks freed since the recording began."),
	METRIC("heapline_resident_bytes", "gauge", rss_bytes, "Rss of the process."),
	METRIC("heapline_cached_bytes", "gauge", cached_bytes,
	       "Freed bytes in malloc's caches of threads and fastbins; at most a minute old."),
	METRIC("heapline_retained_bytes", "gauge", retained_bytes,
	       "Free bytes in RAM that malloc has not given back; at most a minute old."),
	METRIC("heapline_recorder_bytes", "gauge", region_bytes,
	       "Memory that the recorder shares with its collector."),
	METRIC("heapline_lost_events_total", "counter", lost_events,
	       "Allocations and frees that could not be counted."),
	METRIC("heapline_lost_log_events_total", "counter", lost_log_events,
	       "Allocations and frees that were counted and are not in the log."),
#undef METRIC
};

/* Writes the name of the program in ${command} as a label's value: escaped, and UTF-8. */
static void put_command(FILE *out, const char *command)
{
	char program[COMMAND_MAX + 1];

	snprintf(program, sizeof(program), "%.*s", (int)strcspn(command, " "), command);
	for (const char *at = hl_path_basename(program); *at;) {
		int length = hl_utf8_length(at);
		if (*at == '\\' || *at == '"')
			fprintf(out, "\\%c", *at);
		else if (*at == '\n')
			fputs("\\n", out);
		else if (length)
			fwrite(at, 1, (size_t)length, out);
		else
			fputs("\xef\xbf\xbd", out); /* U+FFFD */
		at += length ? length : 1;
	}
}

void hl_serve_metrics(const struct hl_catalog *catalog, FILE *out)
{
	for (size_t m = 0; m < HL_COUNT_OF(metrics); m++) {
		const struct metric *metric = &metrics[m];
		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help,
			metric->name, metric->kind);
		for (size_t i = 0; i < catalog->process_count; i++) {
			const struct hl_catalog_process *process = &catalog->processes[i];
			int64_t value;
			memcpy(&value, (const char *)process + metric->member, sizeof(value));
			if (value < 0) /* not known */
				continue;
			fprintf(out, "%s{pid=\"%d\",command=\"", metric->name, process->pid);
			put_command(out, process->command);
			fprintf(out, "\"} %" PRId64 "\n", value);
		}
	}
	fprintf(out,
		"# HELP heapline_processes Processes that are being recorded.\n"
		"# TYPE heapline_processes gauge\nheapline_processes %zu\n",
		catalog->process_count);
}
