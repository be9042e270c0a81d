/* SPDX-License-Identifier: BSD-2-Clause */
/* The page /; see pages.h. */
#include "serve/pages.h"

#include "base/utf8.h"
#include "view/format.h"

#include <ctype.h>
#include <string.h>

#define REFRESH_S 5

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

/* ---- text in HTML and in addresses ---- */

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

/* ---- tables ---- */

static void put_bytes(FILE *out, int64_t bytes)
{
	char text[HL_FORMAT_MAX];

	fprintf(out, "<td class=\"n\">%s</td>", hl_format_bytes(bytes, text));
}

static void put_process(FILE *out, const struct hl_catalog_process *process)
{
	char text[HL_FORMAT_MAX];
	int pid = process->pid;

	fprintf(out, "<tr><td class=\"n\">%d</td><td class=\"c\">", pid);
	put_text(out, process->command);
	fputs("</td>", out);
	put_bytes(out, process->inuse_bytes);
	put_bytes(out, process->peak_bytes);
	put_bytes(out, process->rss_bytes);
	fprintf(out, "<td class=\"n\">%s</td>",
		hl_format_count(process->lost_events + process->lost_log_events, text));
	fprintf(out, "<td class=\"n\">%s</td><td>",
		hl_format_duration((uint64_t)process->ms * 1000000, text));
	put_text(out, process->mode);
	fprintf(out,
		"</td><td><a href=\"/report?pid=%d\">report</a> "
		"<a href=\"/report?pid=%d&amp;refresh=15\">refreshed</a> "
		"<a href=\"/api/top?pid=%d\">top</a> <a href=\"/api/heap?pid=%d\">heap</a> "
		"<a href=\"/debug/pprof/heap?pid=%d\">pprof</a></td></tr>\n",
		pid, pid, pid, pid, pid);
}

static void put_recording(FILE *out, const struct hl_catalog_recording *recording)
{
	static const char *const links[][2] = {{"/report?recording=", "report"},
					       {"/api/info?recording=", "info"},
					       {"/api/top?recording=", "top"},
					       {"/debug/pprof/heap?recording=", "pprof"}};
	char text[HL_FORMAT_MAX];

	fputs("<tr><td class=\"c\">", out);
	put_text(out, recording->name);
	fprintf(out, "</td><td class=\"n\">%s</td><td>%s</td><td>",
		hl_format_time((uint64_t)recording->changed_s * 1000000000, text),
		recording->collector ? "goes on" : "");
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		fprintf(out, "<a href=\"%s", links[i][0]);
		put_in_address(out, recording->name);
		fprintf(out, "\">%s</a> ", links[i][1]);
	}
	fputs("</td></tr>\n", out);
}

void hl_serve_index(const struct hl_catalog *catalog, FILE *out)
{
	fprintf(out, head, REFRESH_S);
	fputs("<p>Figures for <a href=\"/metrics\">Prometheus</a>.</p><h2>Processes</h2>\n", out);
	if (catalog->process_count)
		fputs("<table><tr><th class=\"n\">pid</th><th>command</th><th class=\"n\">in "
		      "use</th>"
		      "<th class=\"n\">peak</th><th class=\"n\">Rss</th><th class=\"n\">lost "
		      "events</th>"
		      "<th class=\"n\">recorded for</th><th>mode</th><th></th></tr>\n",
		      out);
	else
		fputs("<p>No process is being recorded. <code>heapline attach -p PID</code> "
		      "records "
		      "one that runs.</p>\n",
		      out);
	for (size_t i = 0; i < catalog->process_count; i++)
		put_process(out, &catalog->processes[i]);
	fputs(catalog->process_count ? "</table>\n<h2>Recordings</h2>\n" : "<h2>Recordings</h2>\n",
	      out);
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
}
