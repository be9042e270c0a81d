/* SPDX-License-Identifier: BSD-2-Clause */
/* The page: as text, as JSON of 4 KiB at most, and as HTML with pictures; see why.h. */
#include "why/why.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "process/ask.h"
#include "view/emit.h"
#include "view/format.h"
#include "view/pictures/svg.h"

#include <string.h>

#define LABEL_COLUMNS 10

/* ---- what the page says ---- */

static void put_title(const struct hl_why *why, char *text, size_t size)
{
	const struct hl_why_facts *facts = &why->facts;

	snprintf(text, size, "process %d (%.120s), watched for %.3g s from %s", why->pid,
		 facts->command[0] ? facts->command : facts->program, facts->seconds,
		 hl_format_time(why->begun_ns, (char[HL_FORMAT_MAX]){""}));
}

static void put_done(const struct hl_why_done *done, char *text, size_t size)
{
	snprintf(text, size, "%s: %s, %s of processor time%s%.180s", done->command,
		 hl_format_duration(done->wall_ns, (char[HL_FORMAT_MAX]){""}),
		 hl_format_duration(done->cpu_ns, (char[HL_FORMAT_MAX]){""}),
		 done->said[0] ? "; " : "", done->said);
}

static const char *how_it_was_seen(const struct hl_why *why)
{
	for (size_t i = 0; i < why->done_count; i++)
		if (!strncmp(why->done[i].command, "heapline attach", 15))
			return !why->done[i].wall_ns ? "it could not be entered"
			       : why->done[i].has_failed
				       ? (why->done[i].stays
						  ? "it was entered, and the recorder may be in "
						    "it still: 'heapline attach' on it once more "
						    "takes it out"
					  : why->done[i].has_entered
						  ? "it was entered, and left as it was; the "
						    "recording is not whole, as 'not seen' says"
						  : "it was not entered, as 'not seen' and "
						    "'commands' say")
				       : "it was entered, recorded, and left as it was";
		else if (!strncmp(why->done[i].command, "heapline stacks", 15))
			return "it was traced by the kernel; nothing was put into it";
	return "it was read from outside; nothing was put into it";
}

/* What was done to the process itself. */
static const char *what_was_done(const struct hl_why *why, char text[HL_WHY_TEXT_MAX])
{
	snprintf(text, HL_WHY_TEXT_MAX, "%s%s", how_it_was_seen(why),
		 why->facts.cold_seconds > 0 ? "; the kernel's marks of touched pages were cleared"
					     : "");
	return text;
}

/* Each line of the page, by label. */
typedef void put_line_fn(void *context, const char *label, const char *text);

static void each_line(const struct hl_why *why, put_line_fn *put, void *context)
{
	const struct hl_why_facts *facts = &why->facts;
	char text[4 * HL_WHY_TEXT_MAX], line[2 * HL_WHY_TEXT_MAX];

	snprintf(text, sizeof(text), "%s (%s): %s", hl_why_cause_keys[why->cause],
		 hl_why_certainty_keys[why->certainty], why->sentence);
	put(context, "verdict", text);
	if (hl_why_line_text(facts, line)[0])
		put(context, "line", line);
	for (size_t i = 0; i < HL_WHY_STACK_MAX && facts->stack[i][0]; i++)
		put(context, i ? "" : "stack", facts->stack[i]);
	if (facts->holder[0]) {
		snprintf(text, sizeof(text), "%s%s%s, %s", facts->holder,
			 facts->held_path[0] ? " -> " : "", facts->held_path,
			 hl_format_bytes(facts->held_bytes, (char[HL_FORMAT_MAX]){""}));
		put(context, facts->source ? "held by" : "holds most", text);
	}
	for (size_t i = 0; i < why->evidence_count; i++) {
		snprintf(text, sizeof(text), "%s (%s)", why->evidence[i], why->errors[i]);
		put(context, i ? "" : "evidence", text);
	}
	put(context, "do", why->remedy);
	if (why->next[0])
		put(context, "next", why->next);
	for (size_t i = 0; i < why->unseen_count; i++)
		put(context, i ? "" : "not seen", why->unseen[i]);
	put(context, "done to it", what_was_done(why, text));
	for (size_t i = 0; i < why->done_count; i++) {
		put_done(&why->done[i], text, sizeof(text));
		put(context, i ? "" : "commands", text);
	}
}

/* ---- text ---- */

struct text_page {
	FILE *out;
	size_t width;
};

static void put_text_line(void *context, const char *label, const char *text)
{
	const struct text_page *page = context;

	fprintf(page->out, "%-*s  ", LABEL_COLUMNS, label);
	hl_format_put_wrapped(page->out, text, LABEL_COLUMNS + 2, LABEL_COLUMNS + 2, page->width);
	fputc('\n', page->out);
}

void hl_why_write_text(const struct hl_why *why, FILE *out, size_t width)
{
	struct text_page page = {out, width};
	char title[2 * HL_WHY_TEXT_MAX];

	put_title(why, title, sizeof(title));
	hl_format_put_wrapped(out, title, 0, 2, width);
	fputs("\n\n", out);
	each_line(why, put_text_line, &page);
}

/* ---- JSON ---- */

static void put_cut(struct hl_json *json, const char *key, const char *text, size_t most)
{
	char cut[2 * HL_WHY_TEXT_MAX];

	hl_json_text(json, key,
		     hl_format_shortened(text, 0, cut, most < sizeof(cut) ? most : sizeof(cut)));
}

static void put_line_json(struct hl_json *json, const struct hl_why_facts *facts, size_t most)
{
	if (!facts->source) {
		hl_json_null(json, "line");
		return;
	}
	hl_json_open(json, "line", '{');
	put_cut(json, "function", facts->line.function, most);
	put_cut(json, "file", facts->line.file, most);
	hl_json_integer(json, "line", facts->line.line > 0 ? facts->line.line : 0);
	put_cut(json, "module", facts->line.module, most);
	put_cut(json, "found_by", facts->source, most);
	hl_json_integer(json, "grown_bytes", facts->grown_bytes);
	hl_json_integer(json, "grown_ms", (int64_t)(facts->grown_seconds * 1000));
	hl_json_close(json, '}');
}

/* All of it, with texts of ${most} bytes. */
static void put_json(const struct hl_why *why, FILE *out, size_t most)
{
	const struct hl_why_facts *facts = &why->facts;
	struct hl_json json = {.out = out};

	hl_json_open(&json, NULL, '{');
	hl_json_text(&json, "schema", "heapline/why/1");
	hl_json_integer(&json, "pid", why->pid);
	put_cut(&json, "command", facts->command[0] ? facts->command : facts->program, most);
	hl_json_text(&json, "taken", hl_format_time(why->begun_ns, (char[HL_FORMAT_MAX]){""}));
	hl_json_integer(&json, "watched_ms", (int64_t)(facts->seconds * 1000));
	hl_json_open(&json, "verdict", '{');
	hl_json_text(&json, "cause", hl_why_cause_keys[why->cause]);
	hl_json_text(&json, "certainty", hl_why_certainty_keys[why->certainty]);
	put_cut(&json, "sentence", why->sentence, 2 * most);
	hl_json_close(&json, '}');
	put_line_json(&json, facts, most);
	hl_json_open(&json, "stack", '[');
	for (size_t i = 0; i < HL_WHY_STACK_MAX && facts->stack[i][0]; i++)
		put_cut(&json, NULL, facts->stack[i], most);
	hl_json_close(&json, ']');
	put_cut(&json, "holder", facts->holder, most);
	put_cut(&json, "held_path", facts->held_path, most);
	hl_json_integer(&json, "held_bytes", facts->held_bytes);
	hl_json_open(&json, "evidence", '[');
	for (size_t i = 0; i < why->evidence_count; i++) {
		hl_json_open(&json, NULL, '{');
		put_cut(&json, "text", why->evidence[i], most);
		put_cut(&json, "error", why->errors[i], most);
		hl_json_close(&json, '}');
	}
	hl_json_close(&json, ']');
	put_cut(&json, "remedy", why->remedy, 2 * most);
	put_cut(&json, "next", why->next, most);
	hl_json_open(&json, "not_looked_at", '[');
	for (size_t i = 0; i < why->unseen_count; i++)
		put_cut(&json, NULL, why->unseen[i], most);
	hl_json_close(&json, ']');
	hl_json_text(&json, "done_to_process", what_was_done(why, (char[HL_WHY_TEXT_MAX]){""}));
	hl_json_open(&json, "done", '[');
	for (size_t i = 0; i < why->done_count; i++) {
		hl_json_open(&json, NULL, '{');
		put_cut(&json, "command", why->done[i].command, most);
		hl_json_integer(&json, "ms", (int64_t)(why->done[i].wall_ns / 1000000));
		hl_json_integer(&json, "cpu_ms", (int64_t)(why->done[i].cpu_ns / 1000000));
		put_cut(&json, "said", why->done[i].said, most);
		hl_json_close(&json, '}');
	}
	hl_json_close(&json, ']');
	hl_json_close(&json, '}');
	fputc('\n', out);
}

int hl_why_write_json(const struct hl_why *why, FILE *out)
{
	for (size_t most = HL_WHY_TEXT_MAX;; most = most * 3 / 4) {
		HL_FREED char *text = NULL;
		size_t length = 0;
		FILE *memory = open_memstream(&text, &length);
		if (!memory)
			return -ENOMEM;
		put_json(why, memory, most);
		if (fclose(memory) != 0)
			return -ENOMEM;
		if (length <= HL_WHY_JSON_BYTES || most < 8) {
			fwrite(text, 1, length, out);
			return 0;
		}
	}
}

/* ---- HTML ---- */

static void put_html_line(void *context, const char *label, const char *text)
{
	FILE *out = context;
	bool is_code = !strncmp(text, "heapline ", 9);

	fprintf(out, "<dt>%s</dt><dd%s>", label,
		!strcmp(label, "verdict") ? " class=\"verdict\""
		: is_code		  ? " class=\"code\""
					  : "");
	hl_svg_put(out, text, SIZE_MAX);
	fputs("</dd>\n", out);
}

/* A picture that a verb draws of the recording; nothing where it draws none. */
static void put_picture(const struct hl_why *why, FILE *out, const char *const *arguments)
{
	const struct hl_ask asked = {.arguments = arguments,
				     .is_text = true,
				     .seconds = 30,
				     .stop_fd = why->request.stop_fd};
	HL_CLEANUP(hl_answer_release) struct hl_answer answer = {0};
	struct hl_error err = {0};

	if (hl_ask_verb(&asked, &answer, &err) < 0)
		return;
	const char *picture = strstr(answer.text, "<svg");
	if (picture)
		fprintf(out, "<figure>%s</figure>\n", picture);
}

#define BAR_COLUMNS 60.0

static void put_bar(FILE *out, const char *name, const struct hl_why_pair *pair, int64_t whole)
{
	if (pair->after <= 0 || whole <= 0)
		return;
	fprintf(out,
		"<tr><td>%s</td><td>%s</td><td>%s</td><td><span class=\"bar\" "
		"style=\"width:%.1fem\"></span></td></tr>\n",
		name, hl_format_bytes(pair->before, (char[HL_FORMAT_MAX]){""}),
		hl_format_bytes(pair->after, (char[HL_FORMAT_MAX]){""}),
		BAR_COLUMNS / 2 * (double)pair->after / (double)whole);
}

static void put_parts(FILE *out, const struct hl_why_facts *facts)
{
	if (!facts->has_heap)
		return;
	fputs("<table><tr><th>in RAM</th><th>before</th><th>after</th><th></th></tr>\n", out);
	put_bar(out, "live blocks", &facts->live, facts->rss.after);
	put_bar(out, "free", &facts->free, facts->rss.after);
	put_bar(out, "files", &facts->files, facts->rss.after);
	put_bar(out, "shared memory", &facts->shared, facts->rss.after);
	put_bar(out, "all else", &facts->other, facts->rss.after);
	fputs("</table>\n", out);
}

void hl_why_write_html(const struct hl_why *why, FILE *out)
{
	char title[2 * HL_WHY_TEXT_MAX];

	put_title(why, title, sizeof(title));
	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>heapline "
	      "why</title>\n"
	      "<style>body{font:15px/1.45 sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
	      "dl{display:grid;grid-template-columns:7em 1fr;gap:.3em "
	      "1em}dt{color:#666}dd{margin:0}"
	      ".verdict{font-size:1.25em;font-weight:bold}.code{font-family:monospace}"
	      "td,th{padding:.1em 1em .1em "
	      "0;text-align:left}.bar{display:inline-block;height:.8em;background:#4a7ab5}"
	      "figure{margin:1.5em 0;overflow:auto}</style></head><body>\n<h1>",
	      out);
	hl_svg_put(out, title, SIZE_MAX);
	fputs("</h1>\n<dl>\n", out);
	each_line(why, put_html_line, out);
	fputs("</dl>\n", out);
	put_parts(out, &why->facts);
	if (why->facts.source && !strcmp(why->facts.source, "attach")) {
		put_picture(
			why, out,
			(const char *const[]){"timeline", "--format", "svg", why->recording, NULL});
		put_picture(
			why, out,
			(const char *const[]){"flame", "--value", "inuse", why->recording, NULL});
	}
	fputs("</body></html>\n", out);
}
