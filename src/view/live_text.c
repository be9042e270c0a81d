/* SPDX-License-Identifier: BSD-2-Clause */
/* One screen of a recording that is watched, as lines of text, or one line of JSON; see live.h. */
#include "view/emit.h"
#include "view/format.h"
#include "view/live.h"
#include "view/summary.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <stdarg.h>
#include <string.h>

#define NS_PER_MS	UINT64_C(1000000)
#define HEAVY_SHARE	10 /* a row from a tenth of the total on stands out */
#define NAME_COLUMNS	18 /* that names have at least */
#define FIGURE_COLUMNS	11
#define SHARE_COLUMNS	6
#define GRAPH_LABEL	18
#define GRAPH_MAX	100 /* where there is no terminal */
#define LINE_MAX_BYTES	4096
#define TALL_LINES	30 /* from here on graphs have several lines */
#define HELP_INDENT	11
#define TALL_GRAPH	3
#define WIDTH_UNLIMITED 2000

/* ---- lines ---- */

struct canvas {
	const struct hl_live *live;
	struct hl_live_page *page;
	size_t width, lines;
	size_t height; /* lines that there is room for */
};

static void put(struct canvas *canvas, unsigned emphasis, const char *text)
{
	char line[LINE_MAX_BYTES];

	if (canvas->lines >= canvas->height)
		return;
	hl_format_shortened(text, canvas->width, line, sizeof(line));
	size_t length = strlen(line);
	while (length && line[length - 1] == ' ')
		line[--length] = '\0';
	canvas->page->line(canvas->page->context, line, emphasis);
	canvas->lines++;
}

HL_PRINTF(3, 4)
static void put_line(struct canvas *canvas, unsigned emphasis, const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put(canvas, emphasis, text);
}

/* A sentence that must not be cut off, in as many lines as it takes. */
static int put_wrapped(struct canvas *canvas, unsigned emphasis, const char *sentence,
		       size_t indent)
{
	HL_FREED char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	hl_format_put_wrapped(out, sentence, 0, indent, canvas->width);
	if (fclose(out) != 0)
		return -ENOMEM;
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));)
		put(canvas, emphasis, line);
	return 0;
}

/* What a terminal would obey is written as in hl_format_put(). */
static void clean(const char *text, char *buffer, size_t size)
{
	FILE *out = fmemopen(buffer, size, "w");

	buffer[0] = '\0';
	if (!out)
		return;
	hl_format_put(out, text);
	fclose(out);
	buffer[size - 1] = '\0';
}

/* ---- graphs ---- */

static int64_t of_sample(const struct hl_live_sample *sample, bool rss)
{
	return rss ? sample->rss_bytes : sample->inuse_bytes;
}

/* The highest of the samples that column ${at} of ${width} stands for. */
static int64_t column_of(const struct hl_live *live, bool rss, size_t at, size_t width)
{
	size_t kept =
		live->sample_count < HL_LIVE_SAMPLES_MAX ? live->sample_count : HL_LIVE_SAMPLES_MAX;
	size_t each = (kept + width - 1) / width;
	size_t used = each ? (kept + each - 1) / each : 0;
	int64_t highest = -1;

	if (at >= used)
		return -1;
	for (size_t i = at * each; i < (at + 1) * each && i < kept; i++) {
		size_t place = (live->sample_count - kept + i) % HL_LIVE_SAMPLES_MAX;
		int64_t one = of_sample(&live->samples[place], rss);
		highest = one > highest ? one : highest;
	}
	return highest;
}

static void put_graph(struct canvas *canvas, const char *title, bool rss)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const letters[] = {" ", "_", "_", ".", ".", "-", "-", "#", "#"};
	const struct hl_live *live = canvas->live;

	const char *const *steps = strcmp(nl_langinfo(CODESET), "UTF-8") ? letters : blocks;
	size_t height = canvas->page->height >= TALL_LINES ? TALL_GRAPH : 1;
	size_t width = canvas->width > GRAPH_LABEL ? canvas->width - GRAPH_LABEL : 1;
	char text[LINE_MAX_BYTES], figure[HL_FORMAT_MAX];
	int64_t most = 1;

	width = width > GRAPH_MAX && !canvas->page->height ? GRAPH_MAX : width;
	for (size_t i = 0; i < width; i++) {
		int64_t column = column_of(live, rss, i, width);
		most = column > most ? column : most;
	}
	if (rss && !hl_live_last(live)->rss_bytes)
		strcpy(figure, "-"); /* the process is gone */
	else
		hl_format_bytes(of_sample(hl_live_last(live), rss), figure);
	for (size_t line = height; line-- > 0;) {
		size_t used = (size_t)snprintf(text, sizeof(text), "%-6s%10s  ",
					       line == height - 1 ? title : "",
					       line == height - 1 ? figure : "");
		for (size_t i = 0; i < width && used + 4 < sizeof(text); i++) {
			int64_t column = column_of(live, rss, i, width);
			int64_t level = column < 0 ? 0
						   : (int64_t)((double)column * (double)height * 8 /
							       (double)most) -
							     (int64_t)line * 8;
			level = level < 0 ? 0 : level > 8 ? 8 : level;
			/* What is there at all is seen. */
			if (column >= 0 && line == 0 && level == 0)
				level = 1;
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
						 steps[level]);
		}
		put(canvas, 0, text);
	}
}

/* ---- the head ---- */

/* That figures are estimates, and the first of the warnings. */
static int put_doubts(struct canvas *canvas, const struct hl_profile *profile)
{
	struct hl_profile going_on = *profile;
	HL_CLEANUP(hl_notices_release) struct hl_notices notices = {0};
	const char *first = NULL;
	size_t count = 0;
	char figure[HL_FORMAT_MAX];
	HL_FREED char *text = NULL;

	if (profile->sample_bytes)
		put_line(canvas, 0, "sampled about every %s: figures are estimates",
			 hl_format_bytes(profile->sample_bytes, figure));
	going_on.running = true; /* how it ended is said already */
	hl_notices_of_profile(&notices, &going_on);
	if (profile->attached && notices.count &&
	    put_wrapped(canvas, 0, notices.notices[0].text, 0) < 0)
		return -ENOMEM;
	for (size_t i = notices.count; i-- > 0;)
		if (notices.notices[i].is_warning) {
			first = notices.notices[i].text;
			count++;
		}
	if (!first || notices.error)
		return notices.error;
	if (count == 1)
		return put_wrapped(canvas, HL_LIVE_WARNING, first, 0);
	if (asprintf(&text, "%s; and %zu more, see 'heapline info %s'", first, count - 1,
		     canvas->live->path) < 0)
		return -ENOMEM;
	return put_wrapped(canvas, HL_LIVE_WARNING, text, 0);
}

static int put_notes(struct canvas *canvas)
{
	const struct hl_live *live = canvas->live;
	const struct hl_live_sample *last = hl_live_last(live);
	const struct hl_profile *profile = live->shots[HL_LIVE_NOW].profile;
	char text[sizeof(live->end) + 512], name[256];
	int r = 0;

	if (live->end[0]) {
		r = put_wrapped(canvas, HL_LIVE_WARNING, live->end, 0);
	} else if (live->silence[0]) {
		r = put_wrapped(canvas, HL_LIVE_WARNING, live->silence, 0);
	} else if (!profile) {
		r = put_wrapped(canvas, 0, "nothing has been saved yet", 0);
	} else if (!strcmp(last->mode, "closed")) {
		r = put_wrapped(canvas, HL_LIVE_WARNING,
				"mode 'closed': allocations are not counted; see 'heapline ctl'",
				0);
	}
	if (r == 0 && profile)
		r = put_doubts(canvas, profile);
	if (r == 0 && canvas->page->paused)
		put(canvas, HL_LIVE_WARNING, "paused; space goes on");
	if (r == 0 && live->filter[0]) {
		clean(live->filter, name, sizeof(name));
		put_line(canvas, 0, "only rows with '%s'", name);
	}
	if (r == 0 && live->depth) {
		clean(hl_strings_text(&live->texts, live->drilled[live->depth - 1]) + 1, text,
		      sizeof(text));
		/* The name ends where the module begins, whose newline is escaped by now. */
		char *end = strstr(text, "\\x0a");
		if (end)
			*end = '\0';
		put_line(canvas, 0, "callers (<) and callees (>) of %s", text);
	}
	return r;
}

static int put_head(struct canvas *canvas)
{
	const struct hl_live *live = canvas->live;
	const struct hl_live_sample *last = hl_live_last(live);
	const struct hl_live_pair *total = live->total;
	char name[1024], command[1024], since[HL_FORMAT_MAX], peak[HL_FORMAT_MAX];
	char blocks[HL_FORMAT_MAX], alloc[HL_FORMAT_MAX], figure[HL_FORMAT_MAX],
		rate[48] = "", threads[96] = "", text[256];
	int64_t a_second = hl_live_rate(live, total[HL_LIVE_NOW].alloc, total[HL_LIVE_BEFORE].alloc,
					HL_UNIT_BYTES);

	clean(live->name, name, sizeof(name));
	clean(live->command, command, sizeof(command));
	hl_format_duration(last->ms * NS_PER_MS, since);
	put_line(canvas, HL_LIVE_HEAD, "%s  %s  %s%s%s%s  %s", hl_live_state(live), name,
		 live->pid[0] ? "pid " : "", live->pid, live->pid[0] ? "  " : "", since, command);
	put_graph(canvas, "in use", false);
	if (column_of(live, true, 0, 1) > 0) /* it was known at some time */
		put_graph(canvas, "Rss", true);
	if (last->threads)
		snprintf(threads, sizeof(threads), "  %" PRId64 " thread%s%s%s", last->threads,
			 hl_format_plural((uint64_t)last->threads),
			 last->recorder_bytes ? "  Rss without heapline's " : "",
			 last->recorder_bytes ? hl_format_bytes(last->recorder_bytes, figure) : "");
	if (live->shots[HL_LIVE_BEFORE].profile)
		snprintf(rate, sizeof(rate), ", %s/s", hl_format_bytes(a_second, figure));
	snprintf(text, sizeof(text), "peak %s  %s blocks  allocated %s%s%s",
		 hl_format_bytes(last->peak_bytes, peak),
		 hl_format_count(last->inuse_objects, blocks),
		 hl_format_bytes(total[HL_LIVE_NOW].alloc.bytes, alloc), rate, threads);
	int r = put_wrapped(canvas, 0, text, 0);
	return r < 0 ? r : put_notes(canvas);
}

/* ---- the table ---- */

/* In the order in which they stand; those with the lowest worth go first where there is no room. */
static const struct {
	enum hl_live_column column;
	const char *title;
	size_t width, worth;
	bool is_share;
} columns[] = {
	{HL_LIVE_INUSE, "in use", FIGURE_COLUMNS, 4, false},
	{HL_LIVE_INUSE, "", SHARE_COLUMNS, 0, true},
	{HL_LIVE_ALLOC, "allocated", FIGURE_COLUMNS, 1, false},
	{HL_LIVE_RATE, "per second", FIGURE_COLUMNS, 2, false},
	{HL_LIVE_DELTA, "since mark", FIGURE_COLUMNS, 3, false},
};

/* Which columns there is room for beside the names, as bits. */
static unsigned choose_columns(const struct canvas *canvas)
{
	unsigned chosen = (1u << HL_COUNT_OF(columns)) - 1;
	size_t used = 0;

	for (size_t i = 0; i < HL_COUNT_OF(columns); i++)
		used += columns[i].width;
	for (size_t worth = 0; worth < HL_COUNT_OF(columns); worth++)
		for (size_t i = 0; i < HL_COUNT_OF(columns); i++)
			if (columns[i].worth == worth && used + NAME_COLUMNS > canvas->width &&
			    (columns[i].is_share || columns[i].column != canvas->live->sort)) {
				chosen &= ~(1u << i);
				used -= columns[i].width;
			}
	return chosen;
}

static const char *figure_text(const struct hl_live *live, const struct hl_live_row *row,
			       size_t column, char buffer[HL_FORMAT_MAX])
{
	int64_t figure = hl_live_figure(live, row, live->cum, live->unit, columns[column].column);

	if (columns[column].column == HL_LIVE_RATE && !live->shots[HL_LIVE_BEFORE].profile)
		return "-"; /* not known before the second save */
	if (!columns[column].is_share)
		return hl_format_figure(figure, live->unit == HL_UNIT_BYTES, buffer);
	return hl_format_percent(
		figure, hl_aggregate_figure(live->total[HL_LIVE_NOW].inuse, live->unit), buffer);
}

static void put_titles(struct canvas *canvas, unsigned chosen)
{
	const struct hl_live *live = canvas->live;
	char text[LINE_MAX_BYTES], title[32];
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < HL_COUNT_OF(columns); i++) {
		bool sorts = !columns[i].is_share && columns[i].column == live->sort;
		if (!(chosen & 1u << i))
			continue;
		snprintf(title, sizeof(title), "%s%s", columns[i].title, sorts ? "*" : "");
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%*s",
					 (int)columns[i].width - 1, title);
		used += (size_t)snprintf(text + used, sizeof(text) - used, " ");
	}
	snprintf(text + used, sizeof(text) - used, "%s%s, %s, %s", hl_keys_by_names[live->by],
		 live->sort == HL_LIVE_NAME ? "*" : "", live->cum ? "cum" : "flat",
		 hl_unit_names[live->unit]);
	put(canvas, HL_LIVE_HEAD, text);
}

/* "malloc file.c:12"; the place first by line. */
static void name_row(const struct hl_live *live, const struct hl_live_row *row, char *text,
		     size_t size)
{
	static const char marks[] = {' ', '<', '=', '>'};
	char name[1024], buffer[512], place[512];
	size_t used = 0;

	clean(row->label.name, name, sizeof(name));
	hl_format_templates(name);
	clean(hl_keys_place(&row->label, buffer, sizeof(buffer)), place, sizeof(place));
	if (live->depth)
		used = (size_t)snprintf(text, size, "%c ", marks[row->role]);
	if (live->by == HL_VIEW_BY_LINE && row->label.line)
		snprintf(text + used, size - used, "%s  %s", place, name);
	else
		snprintf(text + used, size - used, "%s  %s", name,
			 hl_keys_names_module(&row->label) || live->by != HL_VIEW_BY_FUNCTION
				 ? ""
				 : place);
}

static void put_row(struct canvas *canvas, size_t number, unsigned chosen)
{
	const struct hl_live *live = canvas->live;
	const struct hl_live_row *row = &live->rows[number];
	int64_t whole = hl_aggregate_figure(live->total[HL_LIVE_NOW].inuse, live->unit);
	int64_t own = hl_live_figure(live, row, live->cum, live->unit, HL_LIVE_INUSE);
	char text[LINE_MAX_BYTES], name[LINE_MAX_BYTES / 2], figure[HL_FORMAT_MAX];
	unsigned emphasis = whole > 0 && own > (whole - 1) / HEAVY_SHARE ? HL_LIVE_HEAVY : 0;
	size_t used = 0;

	for (size_t i = 0; i < HL_COUNT_OF(columns); i++)
		if (chosen & 1u << i)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%*s ",
						 (int)columns[i].width - 1,
						 figure_text(live, row, i, figure));
	name_row(live, row, name, sizeof(name));
	snprintf(text + used, sizeof(text) - used, "%s", name);
	if (canvas->page->keys && number == canvas->page->selected)
		emphasis |= HL_LIVE_SELECTED;
	put(canvas, emphasis, text);
}

static const char *const help_lines[] = {
	"q          quit",
	"Up Down    choose a row; Page Up, Page Down, Home, End",
	"Enter      its callers and callees; Esc goes back",
	"Left Right sort by another column, the one with the *",
	"c          flat (own) or cum (with callees)",
	"b          by function, line, module or thread",
	"u          bytes or objects (blocks)",
	"/          only rows with a text; Esc shows all",
	"m          mark: growth counts from now on",
	"Space      pause",
	"",
	"in use     allocated and not freed",
	"allocated  ever, freed or not",
	"per second allocated, between the last two saves",
	"since mark what is in use now, less what was",
	"Graphs begin at zero and show what was seen so far.",
};

static int put_table(struct canvas *canvas)
{
	struct hl_live_page *page = canvas->page;
	const struct hl_live *live = canvas->live;
	unsigned chosen = choose_columns(canvas);

	for (size_t i = 0; page->help && i < HL_COUNT_OF(help_lines); i++)
		if (put_wrapped(canvas, 0, help_lines[i], HELP_INDENT) < 0)
			return -ENOMEM;
	if (page->help)
		return 0;
	put_titles(canvas, chosen);
	size_t room = canvas->height - canvas->lines;
	if (page->row_limit && page->row_limit < room)
		room = page->row_limit;
	page->shown = 0;
	for (size_t i = page->first; i < live->row_count && page->shown < room; i++, page->shown++)
		put_row(canvas, i, chosen);
	if (!live->row_count && room)
		put(canvas, 0, live->filter[0] ? "no row matches" : "nothing was allocated so far");
	return 0;
}

int hl_live_paint(const struct hl_live *live, struct hl_live_page *page)
{
	struct canvas canvas = {.live = live,
				.page = page,
				.width = page->width ? page->width : WIDTH_UNLIMITED,
				.height = page->height ? page->height - page->keys : SIZE_MAX};

	int r = put_head(&canvas);
	if (r == 0)
		r = put_table(&canvas);
	while (page->keys && canvas.lines < canvas.height)
		put(&canvas, 0, "");
	canvas.height++; /* the last line is for the keys */
	if (page->prompt)
		put_line(&canvas, HL_LIVE_HEAD, "/%s", page->prompt);
	else if (page->keys)
		put(&canvas, HL_LIVE_HEAD,
		    "q quit  ? help  Enter callers  / filter  m mark  c cum  b by  Space pause");
	return r;
}

/* ---- JSON ---- */

static void write_figures(struct hl_json *json, const char *prefix,
			  struct hl_aggregate_figures figures)
{
	char key[64];

	snprintf(key, sizeof(key), "%s_bytes", prefix);
	hl_json_integer(json, key, figures.bytes);
	snprintf(key, sizeof(key), "%s_objects", prefix);
	hl_json_integer(json, key, figures.objects);
}

static struct hl_aggregate_figures
both_units(const struct hl_live *live, const struct hl_live_row *row, enum hl_live_column column)
{
	return (struct hl_aggregate_figures){
		hl_live_figure(live, row, HL_LIVE_FLAT, HL_UNIT_BYTES, column),
		hl_live_figure(live, row, HL_LIVE_FLAT, HL_UNIT_OBJECTS, column)};
}

static void write_row(struct hl_json *json, const struct hl_live *live,
		      const struct hl_live_row *row)
{
	hl_json_open(json, NULL, '{');
	hl_json_text(json, "name", row->label.name);
	hl_json_text(json, "file", row->label.file);
	hl_json_integer(json, "line", row->label.line);
	hl_json_text(json, "module", row->label.module);
	write_figures(json, "flat", row->figures[HL_LIVE_NOW][HL_LIVE_FLAT].inuse);
	write_figures(json, "cum", row->figures[HL_LIVE_NOW][HL_LIVE_CUM].inuse);
	write_figures(json, "alloc", row->figures[HL_LIVE_NOW][HL_LIVE_FLAT].alloc);
	write_figures(json, "alloc_cum", row->figures[HL_LIVE_NOW][HL_LIVE_CUM].alloc);
	if (live->shots[HL_LIVE_BEFORE].profile)
		write_figures(json, "rate", both_units(live, row, HL_LIVE_RATE));
	write_figures(json, "delta", both_units(live, row, HL_LIVE_DELTA));
	hl_json_close(json, '}');
}

static void write_object(struct hl_json *json, const struct hl_live *live, size_t row_limit)
{
	const struct hl_live_sample *last = hl_live_last(live);
	const struct hl_live_pair *now = &live->total[HL_LIVE_NOW];
	const struct hl_live_pair *before = &live->total[HL_LIVE_BEFORE];
	const struct hl_profile *profile = live->shots[HL_LIVE_NOW].profile;

	hl_json_open(json, NULL, '{');
	hl_json_text(json, "schema", "heapline/live/1");
	hl_json_text(json, "recording", live->name);
	hl_json_text(json, "command", live->command);
	hl_json_text(json, "state", hl_live_state(live));
	if (live->end[0])
		hl_json_text(json, "end", live->end);
	else if (live->silence[0])
		hl_json_text(json, "silence", live->silence);
	if (last->mode[0])
		hl_json_text(json, "mode", last->mode);
	if (profile)
		hl_json_integer(json, "sample_bytes", (int64_t)profile->sample_bytes);
	hl_json_open(json, "warnings", '[');
	for (size_t i = 0; profile && i < profile->warning_count; i++)
		hl_json_text(json, NULL, hl_profile_text(profile, profile->warnings[i]));
	hl_json_close(json, ']');
	hl_json_integer(json, "ms", (int64_t)last->ms);
	hl_json_open(json, "total", '{');
	hl_json_integer(json, "inuse_bytes", last->inuse_bytes);
	hl_json_integer(json, "inuse_blocks", last->inuse_objects);
	hl_json_integer(json, "peak_bytes", last->peak_bytes);
	if (last->rss_bytes) {
		hl_json_integer(json, "rss_bytes", last->rss_bytes);
		hl_json_integer(json, "recorder_bytes", last->recorder_bytes);
		hl_json_integer(json, "threads", last->threads);
	}
	write_figures(json, "alloc", now->alloc);
	if (live->shots[HL_LIVE_BEFORE].profile)
		write_figures(
			json, "rate",
			(struct hl_aggregate_figures){
				hl_live_rate(live, now->alloc, before->alloc, HL_UNIT_BYTES),
				hl_live_rate(live, now->alloc, before->alloc, HL_UNIT_OBJECTS)});
	hl_json_close(json, '}');
	hl_json_text(json, "by", hl_keys_by_names[live->by]);
	hl_json_open(json, "rows", '[');
	for (size_t i = 0; i < live->row_count && (!row_limit || i < row_limit); i++)
		write_row(json, live, &live->rows[i]);
	hl_json_close(json, ']');
	hl_json_close(json, '}');
}

int hl_live_json(const struct hl_live *live, size_t row_limit, FILE *out)
{
	/* From this depth on, members do not begin lines. */
	struct hl_json json = {.out = out, .depth = 3};

	write_object(&json, live, row_limit);
	fputc('\n', out);
	return fflush(out) == 0 ? 0 : -errno;
}
