/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call graph in graphviz' language, and its pictures by graphviz' program `dot`. Labels are its HTML-like ones, in which letters have sizes
 * and nothing but markup has a meaning; names come from outside and are escaped for each place.
 */
#include "base/text.h"
#include "view/format.h"
#include "view/pictures/graph.h"
#include "view/rows.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FONT_SMALLEST 9.0 /* points, of a function that allocates nothing itself */
#define FONT_GROWTH   17.0
#define FONT_DETAIL   9.0 /* of figures and places */
#define EDGE_GROWTH   6.0 /* points, of an edge that carries all */
#define EDGE_SPACE    2.5 /* points, of a space in a label */
#define NAME_COLUMNS  30  /* a longer name takes several lines, */
#define NAME_LINES    3	  /* and the tooltip has the rest */

/* What names are written into. */
enum place {
	IN_HTML,   /* an HTML-like label */
	IN_QUOTES, /* a string in quotes, where backslashes and entities have a meaning, too */
};

/* Writes one letter of ${text}; returns how many bytes it has. */
static size_t put_letter(FILE *out, const char *text, enum place place)
{
	const char *escape = NULL;
	int length = hl_utf8_length(text);

	switch (*text) {
	case '&':
		escape = "&amp;";
		break;
	case '<':
		escape = "&lt;";
		break;
	case '>':
		escape = "&gt;";
		break;
	case '"':
		escape = place == IN_QUOTES ? "\\\"" : "&quot;";
		break;
	case '\\':
		escape = place == IN_QUOTES ? "\\\\" : NULL;
		break;
	default:
		break;
	}
	if (length == 0)
		fputs("\xef\xbf\xbd", out); /* U+FFFD */
	else if (escape)
		fputs(escape, out);
	else if (hl_format_control(text))
		for (int i = 0; i < length; i++) /* like hl_format_put() does */
			fprintf(out, "%s\\x%02x", place == IN_QUOTES ? "\\" : "",
				(unsigned char)text[i]);
	else
		fwrite(text, 1, (size_t)length, out);
	return length ? (size_t)length : 1;
}

static void put_escaped(FILE *out, const char *text, enum place place)
{
	while (*text)
		text += put_letter(out, text, place);
}

/*
 * How many bytes of ${name} make the next line. It ends where a reader expects it, if not too much
 * of it stays empty, else within a word.
 */
static size_t line_length(const char *name)
{
	size_t at = 0, between_words = 0, within_word = 0;

	for (size_t columns = 0; name[at]; columns++) {
		if (columns == NAME_COLUMNS)
			return between_words > NAME_COLUMNS / 3 ? between_words
			       : within_word			? within_word
								: at;
		int length = hl_utf8_length(name + at);
		at += length ? (size_t)length : 1;
		if (strchr(" ,<(:", name[at - 1]) && name[at] != name[at - 1])
			between_words = at;
		else if (strchr("_-.+", name[at - 1]))
			within_word = at;
	}
	return at;
}

static void put_name(FILE *out, const char *name)
{
	for (int line = 1; *name; line++) {
		size_t length = line_length(name);
		for (size_t at = 0; at < length;)
			at += put_letter(out, name + at, IN_HTML);
		name += length;
		if (*name && line == NAME_LINES) {
			fputs("...", out);
			return;
		}
		if (*name)
			fputs("<BR/>", out);
	}
}

/* ---- figures ---- */

static double share_of(int64_t figure, int64_t total)
{
	double share = total > 0 ? (double)figure / (double)total : 0;

	return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* "1.5 MiB (12.3%)" */
static void put_figure(FILE *out, int64_t figure, int64_t total, enum hl_unit unit)
{
	char value[HL_FORMAT_MAX], percent[HL_FORMAT_MAX];

	fprintf(out, "%s (%s)", hl_format_figure(figure, unit == HL_UNIT_BYTES, value),
		hl_format_percent(figure, total, percent));
}

/* ---- nodes ---- */

/* Darker the more a function holds with all that it called; red if it is one of the heaviest. */
static void put_node(FILE *out, const struct hl_graph *graph, const struct hl_profile *profile,
		     enum hl_unit unit, size_t id)
{
	const struct hl_graph_node *node = &graph->nodes[id];
	const struct hl_profile_function *function = &profile->functions[node->function];
	int64_t total = hl_aggregate_figure(graph->total, unit);
	int64_t flat = hl_aggregate_figure(node->flat, unit);
	int64_t cum = hl_aggregate_figure(node->cum, unit);
	double flat_share = share_of(flat, total), cum_share = share_of(cum, total);
	const struct hl_keys_label *label = &node->label;
	char buffer[128];
	const char *place = hl_keys_place(label, buffer, sizeof(buffer));
	const char *fill = node->heaviest    ? "#f9c6bf"
			   : cum_share > 0.5 ? "#dde3ea"
			   : cum_share > 0.1 ? "#e9edf2"
					     : "#f6f8fa";

	fprintf(out,
		"n%zu [fillcolor=\"%s\" color=\"%s\" penwidth=%s label=<<FONT POINT-SIZE="
		"\"%.1f\">",
		id + 1, fill, node->heaviest ? "#cf222e" : "#8c959f", node->heaviest ? "2" : "1",
		FONT_SMALLEST + FONT_GROWTH * sqrt(flat_share));
	put_name(out, hl_profile_text(profile, function->name));
	fputs("</FONT>", out);
	if (*place && (label->file[0] || !hl_keys_names_module(label))) {
		fprintf(out, "<BR/><FONT POINT-SIZE=\"%.0f\" COLOR=\"#57606a\">", FONT_DETAIL);
		put_escaped(out, place, IN_HTML);
		fputs("</FONT>", out);
	}
	fprintf(out, "<BR/><FONT POINT-SIZE=\"%.0f\">", FONT_DETAIL);
	if (flat) {
		fputs("<B>", out);
		put_figure(out, flat, total, unit);
		fputs("</B>", out);
	}
	if (flat && flat != cum)
		fputs("<BR/>of ", out);
	if (flat != cum)
		put_figure(out, cum, total, unit);
	fputs("</FONT>", out);
	fputs("> tooltip=\"", out);
	put_escaped(out, label->name, IN_QUOTES);
	fputs("\\n", out);
	put_escaped(out, label->file, IN_QUOTES);
	if (label->file[0] && label->line)
		fprintf(out, ":%u%s", label->line, label->several_lines ? ",..." : "");
	if (label->file[0])
		fputs("\\n", out);
	put_escaped(out, label->module, IN_QUOTES);
	fputs("\"]\n", out);
}

/* ---- edges ---- */

static void put_edge_tooltip(FILE *out, const struct hl_graph *graph,
			     const struct hl_profile *profile, const struct hl_graph_edge *edge,
			     enum hl_unit unit)
{
	uint32_t from = graph->nodes[edge->from].function, to = graph->nodes[edge->to].function;

	fputs("\"", out);
	put_escaped(out, hl_profile_text(profile, profile->functions[from].name), IN_QUOTES);
	fputs(" &rarr; ", out);
	put_escaped(out, hl_profile_text(profile, profile->functions[to].name), IN_QUOTES);
	fputs(": ", out);
	put_figure(out, hl_aggregate_figure(edge->figures, unit),
		   hl_aggregate_figure(graph->total, unit), unit);
	fprintf(out, "%s\"", edge->residual ? ", some of it through functions left out" : "");
}

/* ---- all of it ---- */

/* A line of the legend, unless it is empty. */
static void put_legend_clause(FILE *out, const char *clause)
{
	if (!*clause)
		return;
	put_escaped(out, clause, IN_HTML);
	fputs("<BR ALIGN=\"LEFT\"/>", out);
}

static void put_legend(FILE *out, const struct hl_graph *graph, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	int64_t total = hl_aggregate_figure(graph->total, options->unit);
	char count[HL_FORMAT_MAX], all[HL_FORMAT_MAX], value[HL_FORMAT_MAX];
	bool bytes = options->unit == HL_UNIT_BYTES;

	fprintf(out,
		"legend [shape=note fillcolor=\"#ffffff\" color=\"#8c959f\" label=<"
		"<FONT POINT-SIZE=\"%.0f\">",
		FONT_DETAIL + 5);
	put_escaped(out, hl_profile_text(profile, profile->name), IN_HTML);
	fprintf(out,
		"</FONT><BR ALIGN=\"LEFT\"/>%s: %s%s in all<BR ALIGN=\"LEFT\"/>"
		"%s of %s functions",
		hl_value_names[options->value], hl_format_figure(total, bytes, value),
		bytes ? "" : " blocks", hl_format_count((int64_t)graph->node_count, count),
		hl_format_count((int64_t)(graph->node_count + graph->left_out_count), all));
	if (graph->left_out_count) {
		int64_t left_out = hl_aggregate_figure(graph->left_out_flat, options->unit);
		fputs(left_out < 0 ? "; the others have less than nothing: "
				   : "; the others allocated ",
		      out);
		put_figure(out, left_out, total, options->unit);
	}
	fputs("<BR ALIGN=\"LEFT\"/>", out);
	put_legend_clause(out, hl_profile_text(profile, profile->moment));
	put_legend_clause(out, hl_profile_text(profile, profile->filter));
	bool has_residual = false;
	for (size_t i = 0; i < graph->edge_count; i++)
		has_residual |= graph->edges[i].residual;
	if (has_residual)
		fputs("dashed: through functions left out<BR ALIGN=\"LEFT\"/>", out);
	fputs("> tooltip=\"what is shown\"]\n", out);
}

void hl_graph_dot_write(const struct hl_graph *graph, const struct hl_profile *profile,
			const struct hl_view_options *options, FILE *out)
{
	int64_t total = hl_aggregate_figure(graph->total, options->unit);
	bool has_rest = false;
	char value[HL_FORMAT_MAX];

	fputs("digraph \"", out);
	put_escaped(out, hl_profile_text(profile, profile->name), IN_QUOTES);
	fputs("\" {\n"
	      "graph [charset=\"UTF-8\" ranksep=0.5 nodesep=0.3 bgcolor=\"#ffffff\"]\n"
	      "node [shape=box style=filled margin=\"0.12,0.06\" fontname=\"Helvetica\" "
	      "fontsize=9]\n"
	      "edge [fontname=\"Helvetica\" fontsize=9 fontcolor=\"#57606a\" arrowsize=0.7]\n",
	      out);
	put_legend(out, graph, profile, options);
	for (size_t i = 0; i < graph->node_count; i++)
		put_node(out, graph, profile, options->unit, i);
	/* Heavy edges are wide and dark, and the layout keeps them short and straight. */
	for (size_t i = 0; i < graph->edge_count; i++) {
		const struct hl_graph_edge *edge = &graph->edges[i];
		int64_t figure = hl_aggregate_figure(edge->figures, options->unit);
		double share = share_of(figure, total), width = 1 + EDGE_GROWTH * share;
		/* graphviz keeps labels clear of an edge's middle, not of its width. */
		fprintf(out, "n%u -> n%u [label=\"%*s%s\" penwidth=%.1f weight=%d color=\"%s\"%s",
			edge->from + 1, edge->to + 1, 1 + (int)(width / EDGE_SPACE + 0.5), "",
			hl_format_figure(figure, options->unit == HL_UNIT_BYTES, value), width,
			1 + (int)(100 * share), share > 0.1 ? "#6e7781" : "#afb8c1",
			edge->residual ? " style=dashed" : "");
		fputs(" tooltip=", out);
		put_edge_tooltip(out, graph, profile, edge, options->unit);
		fputs(" labeltooltip=", out);
		put_edge_tooltip(out, graph, profile, edge, options->unit);
		fputs("]\n", out);
	}
	/* One node for the callers that were left out, so that no function stands alone. */
	for (size_t i = 0; i < graph->node_count; i++) {
		if (!graph->nodes[i].stray)
			continue;
		if (!has_rest)
			fputs("rest [shape=plaintext style=\"\" label=\"...\" fontsize=14 "
			      "tooltip=\"callers that were left out\"]\n",
			      out);
		has_rest = true;
		fprintf(out,
			"rest -> n%zu [color=\"#afb8c1\" style=dotted "
			"tooltip=\"from callers that were left out\"]\n",
			i + 1);
	}
	fputs("}\n", out);
}

/* ---- graphviz' program `dot` ---- */

#define PROGRAM		"dot"
#define COMPLAINT_BYTES 400 /* of its standard error are kept; the rest is read and forgotten */

/* Our ends, -1 when closed. */
struct drawing {
	pid_t pid;
	int input; /* a socket: a program that ends early gives EPIPE and no signal */
	int picture, complaints;
	const char *source;
	size_t left; /* of the source */
	FILE *buffer;
	char complaint[COMPLAINT_BYTES];
	size_t complaint_size;
};

static void close_end(int *end)
{
	if (*end >= 0)
		close(*end);
	*end = -1;
}

/* Closes our ends, and ends a program that is still at it. Returns how it ended, as waitpid(). */
static int release(struct drawing *drawing, bool failed)
{
	int status = 0;

	close_end(&drawing->input);
	close_end(&drawing->picture);
	close_end(&drawing->complaints);
	if (drawing->pid <= 0)
		return 0;
	if (failed)
		kill(drawing->pid, SIGKILL);
	while (waitpid(drawing->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* ---- start ---- */

/* The program's ends of the three connections, in the order of its descriptors. */
#define END_COUNT 3

static int start(struct drawing *drawing, const char *format)
{
	int *ours[END_COUNT] = {&drawing->input, &drawing->picture, &drawing->complaints};
	int theirs[END_COUNT] = {-1, -1, -1}, pair[2], r = 0;
	char option[16];
	char *argv[] = {(char *)PROGRAM, option, NULL};
	posix_spawn_file_actions_t actions;

	for (int i = 0; r == 0 && i < END_COUNT; i++) {
		if (i == 0 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0
			   : pipe2(pair, O_CLOEXEC) < 0) {
			r = -errno;
		} else {
			*ours[i] = pair[0];
			theirs[i] = pair[1];
		}
	}
	snprintf(option, sizeof(option), "-T%s", format);
	if (r == 0)
		r = -posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		for (int i = 0; r == 0 && i < END_COUNT; i++)
			r = -posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
		if (r == 0)
			r = -posix_spawnp(&drawing->pid, PROGRAM, &actions, NULL, argv, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	for (int i = 0; i < END_COUNT; i++)
		close_end(&theirs[i]);
	return r;
}

/* ---- exchange ---- */

static int feed(struct drawing *drawing)
{
	ssize_t sent =
		send(drawing->input, drawing->source, drawing->left, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (sent < 0 && errno != EPIPE) /* how it ended says more than that it ended */
		return -errno;
	if (sent >= 0) {
		drawing->source += sent;
		drawing->left -= (size_t)sent;
	}
	if (sent < 0 || !drawing->left)
		close_end(&drawing->input);
	return 0;
}

/* Reads what has come from ${end}, and closes it at the end. */
static int drain(struct drawing *drawing, int *end)
{
	char bytes[16384];
	ssize_t size = read(*end, bytes, sizeof(bytes));
	size_t room = COMPLAINT_BYTES - 1 - drawing->complaint_size;

	if (size < 0)
		return errno == EINTR ? 0 : -errno;
	if (size == 0) {
		close_end(end);
	} else if (end == &drawing->complaints) {
		room = (size_t)size < room ? (size_t)size : room;
		memcpy(drawing->complaint + drawing->complaint_size, bytes, room);
		drawing->complaint_size += room;
	} else if (fwrite(bytes, 1, (size_t)size, drawing->buffer) != (size_t)size) {
		return -ENOMEM;
	}
	return 0;
}

/* Until both outputs have ended; poll() passes over ends that are closed. */
static int exchange(struct drawing *drawing)
{
	int r = 0;

	while (r == 0 && (drawing->picture >= 0 || drawing->complaints >= 0)) {
		struct pollfd ends[] = {
			{.fd = drawing->input, .events = POLLOUT},
			{.fd = drawing->picture, .events = POLLIN},
			{.fd = drawing->complaints, .events = POLLIN},
		};
		if (poll(ends, HL_COUNT_OF(ends), -1) < 0) {
			r = errno == EINTR ? 0 : -errno;
			continue;
		}
		if (ends[0].revents)
			r = feed(drawing);
		if (r == 0 && ends[1].revents)
			r = drain(drawing, &drawing->picture);
		if (r == 0 && ends[2].revents)
			r = drain(drawing, &drawing->complaints);
	}
	return r;
}

/* ---- errors ---- */

/* Its first complaint, as a clause: names of functions may be in it. */
static const char *first_complaint(struct drawing *drawing)
{
	size_t size = 0;

	while (size < drawing->complaint_size && drawing->complaint[size] != '\n')
		size++;
	drawing->complaint[size] = '\0';
	for (size_t i = 0; i < size; i++)
		if (iscntrl((unsigned char)drawing->complaint[i]))
			drawing->complaint[i] = ' ';
	return size ? drawing->complaint : "no reason given";
}

int hl_graphviz_draw(const char *source, size_t size, const char *format, FILE *out,
		     struct hl_error *err)
{
	struct drawing drawing = {
		.input = -1, .picture = -1, .complaints = -1, .source = source, .left = size};
	char *picture = NULL;
	size_t picture_size = 0;

	drawing.buffer = open_memstream(&picture, &picture_size);
	int r = drawing.buffer ? start(&drawing, format) : -ENOMEM;
	if (r == 0)
		r = exchange(&drawing);
	int status = release(&drawing, r < 0);
	if (drawing.buffer && fclose(drawing.buffer) != 0 && r == 0)
		r = -ENOMEM;
	if (r == -ENOENT)
		hl_error_set(err, r,
			     "cannot draw: there is no program '" PROGRAM
			     "'; install graphviz, or use --format dot");
	else if (r < 0)
		hl_error_set(err, r,
			     "cannot draw with '" PROGRAM
			     "': %s; --format dot needs no other program",
			     strerror(-r));
	else if (WIFSIGNALED(status))
		r = hl_error_set(err, -EIO,
				 "cannot draw: '" PROGRAM
				 "' was killed by signal %d; try fewer --nodes",
				 WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0 || !picture_size)
		r = hl_error_set(err, -EIO,
				 "cannot draw: '" PROGRAM
				 "' failed: %s; --format dot writes what it was given",
				 first_complaint(&drawing));
	if (r == 0)
		fwrite(picture, 1, picture_size, out);
	free(picture);
	return r;
}
