/* SPDX-License-Identifier: BSD-2-Clause */
/* The pages / and /metrics; see pages.h. */
#include "serve/pages.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/text.h"
#include "view/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the page / ---- */

#define REFRESH_S     5
#define COMMAND_BYTES 120 /* of a command that are shown */

static const char head[] =
	"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	"<meta http-equiv=\"refresh\" content=\"%d\">"
	"<meta name=\"viewport\" content=\"width=device-width\">"
	"<title>heapline on this host</title><style>\n"
	"body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;"
	"color:#1b1f24;background:#fff}\n"
	"h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}\n"
	"table{border-collapse:collapse;width:100%%}\n"
	"th{text-align:left;font-weight:600;border-bottom:1px solid #888}\n"
	"td,th{padding:.3rem .8rem .3rem 0;vertical-align:top}\n"
	"td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
	"td.c{font-family:ui-monospace,monospace;overflow-wrap:anywhere}\n"
	"a{color:#0b5cad}\n"
	"@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181b}a{color:#7fb8f0}}\n"
	"</style></head><body><h1>heapline on this host</h1>\n";

static void put_text(FILE *out, const char *text)
{
	while (*text) {
		int length = hl_utf8_length(text);
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(out, "&#%d;", *text);
		else if (length && (unsigned char)*text >= ' ')
			fwrite(text, 1, (size_t)length, out);
		else
			fputs("&#xfffd;", out);
		text += length ? length : 1;
	}
}

static void put_in_address(FILE *out, const char *text)
{
	for (; *text; text++)
		if (isalnum((unsigned char)*text) || strchr("-._~", *text))
			putc(*text, out);
		else
			fprintf(out, "%%%02X", (unsigned char)*text);
}

static void put_bytes(FILE *out, int64_t bytes)
{
	char text[HL_FORMAT_MAX];

	fprintf(out, "<td class=\"n\">%s</td>", hl_format_bytes(bytes, text));
}

/* A command line as one line that is not too long. */
static void put_command(FILE *out, const char *command)
{
	char text[COMMAND_BYTES + 1];
	size_t length = strlen(command), cut = length < COMMAND_BYTES ? length : COMMAND_BYTES;

	while (cut < length && ((unsigned char)command[cut] & 0xc0) == 0x80)
		cut--; /* not within a letter */
	for (size_t i = 0; i < cut; i++)
		text[i] = (char)(isspace((unsigned char)command[i]) ? ' ' : command[i]);
	text[cut] = '\0';
	put_text(out, text);
	fputs(cut < length ? "\xe2\x80\xa6" : "", out); /* U+2026 */
}

static void put_process(FILE *out, const struct hl_catalog_process *process)
{
	static const char *const links[][2] = {{"/report?pid=%d", "report"},
					       {"/report?pid=%d&amp;refresh=15", "refreshed"},
					       {"/text/top?pid=%d", "top"},
					       {"/api/top?pid=%d", "(json)"},
					       {"/text/heap?pid=%d", "heap"},
					       {"/api/heap?pid=%d", "(json)"},
					       {"/debug/pprof/heap?pid=%d", "pprof"}};
	char text[HL_FORMAT_MAX], user[HL_USER_NAME_MAX];

	fprintf(out, "<tr><td class=\"n\">%d</td><td>", process->pid);
	put_text(out, hl_user_name(process->uid, user));
	fputs("</td><td class=\"c\">", out);
	put_command(out, process->command);
	fputs("</td>", out);
	put_bytes(out, process->growth_bytes);
	put_bytes(out, process->inuse_bytes);
	put_bytes(out, process->peak_bytes);
	put_bytes(out, process->rss_bytes);
	fprintf(out, "<td class=\"n\">%s</td>",
		hl_format_count(process->lost_events + process->lost_log_events, text));
	fprintf(out, "<td class=\"n\">%s</td><td>",
		hl_format_duration((uint64_t)process->ms * 1000000, text));
	put_text(out, process->mode);
	fputs("</td><td>", out);
	for (size_t i = 0; i < HL_COUNT_OF(links); i++) {
		snprintf(text, sizeof(text), "%d", process->pid);
		size_t before = strcspn(links[i][0], "%");
		fprintf(out, "<a href=\"%.*s%s%s\">%s</a> ", (int)before, links[i][0], text,
			links[i][0] + before + strlen("%d"), links[i][1]);
	}
	fputs("</td></tr>\n", out);
}

static int by_growth(const void *left, const void *right)
{
	const struct hl_catalog_process *const *a = left, *const *b = right;

	return ((*a)->growth_bytes < (*b)->growth_bytes) -
	       ((*a)->growth_bytes > (*b)->growth_bytes);
}

/* What grows fastest comes first. 0 or -ENOMEM. */
static int put_processes(FILE *out, const struct hl_catalog *catalog)
{
	size_t count = catalog->process_count;
	HL_FREED const struct hl_catalog_process **sorted = calloc(count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		sorted[i] = &catalog->processes[i];
	qsort(sorted, count, sizeof(*sorted), by_growth);
	fputs(count ? "<table><tr><th class=\"n\">pid</th><th>user</th><th>command</th>"
		      "<th class=\"n\">per minute</th><th class=\"n\">in use</th>"
		      "<th class=\"n\">peak</th><th class=\"n\">Rss</th>"
		      "<th class=\"n\">lost events</th><th class=\"n\">recorded for</th>"
		      "<th>mode</th><th></th></tr>\n"
		    : "<p>No process is being recorded. <code>heapline attach -p PID</code> "
		      "records "
		      "one that runs.</p>\n",
	      out);
	for (size_t i = 0; i < count; i++)
		put_process(out, sorted[i]);
	fputs(count ? "</table>\n" : "", out);
	return 0;
}

/* What there may be, and is not listed. */
static void put_hidden(FILE *out, const struct hl_catalog *catalog)
{
	char sentence[HL_CATALOG_HIDDEN_MAX];

	if (geteuid() != 0)
		fputs("<p>These are the processes of this user; root's server shows those of all "
		      "users.</p>\n",
		      out);
	if (hl_catalog_hidden(catalog, sentence))
		fprintf(out, "<p>%s.</p>\n", sentence);
}

static void put_recording(FILE *out, const struct hl_catalog_recording *recording)
{
	static const char *const links[][2] = {{"/report?recording=", "report"},
					       {"/api/info?recording=", "info"},
					       {"/text/top?recording=", "top"},
					       {"/debug/pprof/heap?recording=", "pprof"}};
	char text[HL_FORMAT_MAX];

	fputs("<tr><td class=\"c\">", out);
	put_text(out, recording->name);
	fprintf(out, "</td><td class=\"n\">%s</td><td>%s</td><td>",
		hl_format_time((uint64_t)recording->changed_s * 1000000000, text),
		recording->collector ? "goes on" : "");
	for (size_t i = 0; i < HL_COUNT_OF(links); i++) {
		fprintf(out, "<a href=\"%s", links[i][0]);
		put_in_address(out, recording->name);
		fprintf(out, "\">%s</a> ", links[i][1]);
	}
	fputs("</td></tr>\n", out);
}

int hl_serve_index(const struct hl_catalog *catalog, FILE *out)
{
	fprintf(out, head, REFRESH_S);
	fputs("<p>Figures for <a href=\"/metrics\">Prometheus</a>.</p><h2>Processes</h2>\n", out);
	int r = put_processes(out, catalog);
	put_hidden(out, catalog);
	fputs("<h2>Recordings</h2>\n", out);
	fputs(catalog->recording_count ? "<table><tr><th>name</th><th "
					 "class=\"n\">changed</th><th></th><th></th></tr>\n"
				       : "<p>None.</p>\n",
	      out);
	for (size_t i = 0; i < catalog->recording_count; i++)
		put_recording(out, &catalog->recordings[i]);
	fputs(catalog->recording_count ? "</table>\n" : "", out);
	if (catalog->left_out)
		fprintf(out,
			"<p>%zu older recordings are not listed. Serve fewer directories to see "
			"them.</p>\n",
			catalog->left_out);
	fputs("</body></html>\n", out);
	return r;
}

/* ---- the page /metrics ---- */

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

static void put_groups(FILE *out, const struct hl_groups *groups)
{
	for (size_t k = 0; k < HL_GROUP_FIGURES; k++) {
		const struct hl_group_figure_name *figure = &hl_group_figure_names[k];
		const char *suffix = k == HL_GROUP_OOM_KILLS ? "_total" : "";
		const char *kind = k == HL_GROUP_OOM_KILLS ? "counter" : "gauge";
		fprintf(out, "# HELP heapline_cgroup_%s%s %s\n# TYPE heapline_cgroup_%s%s %s\n",
			figure->name, suffix, figure->help, figure->name, suffix, kind);
		for (size_t i = 0; i < groups->count; i++) {
			const struct hl_group *group = &groups->groups[i];
			if (group->figures[k] < 0)
				continue;
			fprintf(out, "heapline_cgroup_%s%s{cgroup=\"", figure->name, suffix);
			put_value(out, group->name);
			fputc('"', out);
			put_label(out, "container", group->container);
			put_label(out, "pod", group->pod);
			fprintf(out, "} %" PRId64 "\n", group->figures[k]);
		}
	}
	fprintf(out,
		"# HELP heapline_cgroups_left_out Groups beyond the %d that are shown.\n"
		"# TYPE heapline_cgroups_left_out gauge\nheapline_cgroups_left_out %zu\n",
		HL_GROUPS_MAX, groups->left_out);
}

int hl_serve_metrics(const struct hl_catalog *catalog, const struct hl_groups *groups, FILE *out)
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
	put_groups(out, groups);
	return 0;
}
