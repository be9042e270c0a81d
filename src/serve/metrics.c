/* SPDX-License-Identifier: BSD-2-Clause */
/* The page /metrics; see pages.h. */
#include "serve/pages.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
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
	       "Freed bytes in malloc's caches of threads and fastbins, when its heap was read "
	       "last."),
	METRIC("heapline_retained_bytes", "gauge", retained_bytes,
	       "Free bytes in RAM that malloc has not given back, when its heap was read last."),
	METRIC("heapline_heap_age_seconds", "gauge", heap_age_s,
	       "Time since the heap was read for heapline_cached_bytes and "
	       "heapline_retained_bytes."),
	METRIC("heapline_recorder_bytes", "gauge", recorder_bytes,
	       "Memory of the recorder in RAM, within Rss, when the heap was read last."),
	METRIC("heapline_lost_events_total", "counter", lost_events,
	       "Allocations and frees that could not be counted."),
	METRIC("heapline_lost_log_events_total", "counter", lost_log_events,
	       "Allocations and frees that were counted and are not in the log."),
#undef METRIC
};

/* ---- labels ---- */

/* Writes ${text} as a label's value: escaped, and UTF-8. */
static void put_value(FILE *out, const char *text)
{
	while (*text) {
		int length = hl_utf8_length(text);
		if (*text == '\\' || *text == '"')
			fprintf(out, "\\%c", *text);
		else if (*text == '\n')
			fputs("\\n", out);
		else if (length)
			fwrite(text, 1, (size_t)length, out);
		else
			fputs("\xef\xbf\xbd", out); /* U+FFFD */
		text += length ? length : 1;
	}
}

/* An empty label is the same as none. */
static void put_label(FILE *out, const char *name, const char *value)
{
	if (!value[0])
		return;
	fprintf(out, ",%s=\"", name);
	put_value(out, value);
	fputc('"', out);
}

/* The label command was there first; it has the beginning of what service has. */
static void put_labels(FILE *out, const struct hl_catalog_process *process)
{
	char command[COMMAND_MAX + 1], user[HL_USER_NAME_MAX];

	snprintf(command, sizeof(command), "%.*s", COMMAND_MAX, process->service.name);
	fprintf(out, "{pid=\"%d\"", process->pid);
	put_label(out, "command", command);
	put_label(out, "service", process->service.name);
	put_label(out, "script", process->service.script);
	put_label(out, "container", process->container);
	put_label(out, "user", hl_user_name(process->uid, user));
	fputc('}', out);
}

/* The labels of all processes, one after the other, each ending with a NUL, to be freed; NULL for want of memory. */
static char *all_labels(const struct hl_catalog *catalog)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i < catalog->process_count; i++) {
		put_labels(out, &catalog->processes[i]);
		fputc('\0', out);
	}
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- figures ---- */

int hl_serve_metrics(const struct hl_catalog *catalog, FILE *out)
{
	HL_FREED char *all = all_labels(catalog);

	if (!all)
		return -ENOMEM;
	for (size_t m = 0; m < HL_COUNT_OF(metrics); m++) {
		const struct metric *metric = &metrics[m];
		const char *labels = all;
		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help,
			metric->name, metric->kind);
		for (size_t i = 0; i < catalog->process_count; i++, labels += strlen(labels) + 1) {
			const struct hl_catalog_process *process = &catalog->processes[i];
			int64_t value;
			memcpy(&value, (const char *)process + metric->member, sizeof(value));
			if (value >= 0) /* else not known */
				fprintf(out, "%s%s %" PRId64 "\n", metric->name, labels, value);
		}
	}
	fprintf(out,
		"# HELP heapline_processes Processes that are being recorded.\n"
		"# TYPE heapline_processes gauge\nheapline_processes %zu\n"
		"# HELP heapline_hidden Collectors and processes of other users that are not "
		"shown.\n"
		"# TYPE heapline_hidden gauge\nheapline_hidden %zu\n",
		catalog->process_count,
		catalog->others_left_out + catalog->foreign + catalog->denied);
	return 0;
}
