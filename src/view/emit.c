/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables by libsmartcols, lines and JSON as a stream; see emit.h. */
#include "view/emit.h"

#include "base/text.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a stream of JSON (RFC 8259) ---- */

#define LINES_DEPTH 2 /* members of the report and of its lists get a line each */

/* Controls are, because JSON may go to a terminal, too; and what XML cannot hold. */
static bool is_escaped(const struct hl_json *json, uint32_t code_point)
{
	if (code_point == '<' || code_point == '>' || code_point == '&')
		return json->is_in_markup;
	return code_point == '"' || code_point == '\\' || code_point == 0xfffe ||
	       code_point == 0xffff || hl_utf8_is_control(code_point);
}

static void put_string(const struct hl_json *json, const char *text)
{
	const char *plain = text, *at = text;

	putc('"', json->out);
	while (*at) {
		uint32_t code_point = 0xfffd;
		int length = hl_utf8_decode(at, &code_point);
		if (length && !is_escaped(json, code_point)) {
			at += length;
			continue;
		}
		fwrite(plain, 1, (size_t)(at - plain), json->out);
		if (code_point == '"' || code_point == '\\')
			fprintf(json->out, "\\%c", *at);
		else
			fprintf(json->out, "\\u%04x", code_point);
		at += length ? length : 1;
		plain = at;
	}
	fwrite(plain, 1, (size_t)(at - plain), json->out);
	putc('"', json->out);
}

static void begin_member(struct hl_json *json, const char *key)
{
	if (json->has_members)
		putc(',', json->out);
	if (json->depth && json->depth <= LINES_DEPTH)
		fprintf(json->out, "\n%*s", 2 * (int)json->depth, "");
	else if (json->has_members)
		putc(' ', json->out);
	json->has_members = true;
	if (key) {
		put_string(json, key);
		fputs(": ", json->out);
	}
}

void hl_json_open(struct hl_json *json, const char *key, char bracket)
{
	begin_member(json, key);
	putc(bracket, json->out);
	json->depth++;
	json->has_members = false;
}

void hl_json_close(struct hl_json *json, char bracket)
{
	json->depth--;
	if (json->has_members && json->depth < LINES_DEPTH)
		fprintf(json->out, "\n%*s", 2 * (int)json->depth, "");
	putc(bracket, json->out);
	json->has_members = true;
	if (json->depth == 0)
		putc('\n', json->out);
}

void hl_json_integer(struct hl_json *json, const char *key, int64_t number)
{
	begin_member(json, key);
	fprintf(json->out, "%" PRId64, number);
}

void hl_json_null(struct hl_json *json, const char *key)
{
	begin_member(json, key);
	fputs("null", json->out);
}

void hl_json_boolean(struct hl_json *json, const char *key, bool truth)
{
	begin_member(json, key);
	fputs(truth ? "true" : "false", json->out);
}

void hl_json_text(struct hl_json *json, const char *key, const char *text)
{
	begin_member(json, key);
	put_string(json, text);
}

/* ---- reports ---- */

#define INDENT	      2 /* of a line that goes on */
#define WARNING_COLOR "\033[1;31m"
#define PLAIN_COLOR   "\033[0m"

int hl_emit_new(FILE *out, enum hl_emit_form form, bool color, const char *schema,
		struct hl_emit **ret_emit)
{
	struct hl_emit *emit = calloc(1, sizeof(*emit));
	char text[64];

	if (!emit)
		return -ENOMEM;
	emit->out = out;
	emit->form = form;
	emit->color = color;
	emit->json.out = out;
	emit->schema = schema;
	if (form == HL_EMIT_JSON) {
		snprintf(text, sizeof(text), "heapline/%s", schema);
		hl_json_open(&emit->json, NULL, '{');
		hl_json_text(&emit->json, "schema", text);
	}
	*ret_emit = emit;
	return 0;
}

int hl_emit_open(const struct hl_emit_options *options, const char *schema,
		 struct hl_emit **ret_emit)
{
	return hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			   options->color, schema, ret_emit);
}

void hl_emit_fail(struct hl_emit *emit, int error)
{
	if (!emit->error)
		emit->error = error;
}

static bool is_json(const struct hl_emit *emit)
{
	return emit->form == HL_EMIT_JSON;
}

bool hl_emit_is_json(const struct hl_emit *emit)
{
	return is_json(emit);
}

/*
 * Of the terminal; 0 unless standard output is one, and what is written gets there, through a pager
 * perhaps.
 */
static size_t terminal_width(const struct hl_emit *emit)
{
	struct stat status;
	int fd = fileno(emit->out); /* -1 where the file is in memory */

	return isatty(STDOUT_FILENO) && fd >= 0 && fstat(fd, &status) == 0 &&
			       !S_ISREG(status.st_mode)
		       ? hl_format_terminal_width(STDOUT_FILENO)
		       : 0;
}

size_t hl_emit_width(const struct hl_emit *emit)
{
	return isatty(fileno(emit->out)) ? terminal_width(emit) : 0;
}

static void put_line(struct hl_emit *emit, const char *format, va_list args)
{
	char *line;

	if (vasprintf(&line, format, args) < 0) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	hl_format_put_wrapped(emit->out, line, 0, INDENT, terminal_width(emit));
	free(line);
}

void hl_emit_line(struct hl_emit *emit, const char *format, ...)
{
	va_list args;

	if (emit->form != HL_EMIT_TABLE)
		return;
	va_start(args, format);
	put_line(emit, format, args);
	va_end(args);
	putc('\n', emit->out);
}

void hl_emit_warning(struct hl_emit *emit, const char *format, ...)
{
	va_list args;

	if (emit->form != HL_EMIT_TABLE)
		return;
	fputs(emit->color ? WARNING_COLOR : "", emit->out);
	va_start(args, format);
	put_line(emit, format, args);
	va_end(args);
	fputs(emit->color ? PLAIN_COLOR : "", emit->out);
	putc('\n', emit->out);
}

void hl_emit_blank(struct hl_emit *emit)
{
	hl_emit_line(emit, "%s", "");
}

size_t hl_emit_shown(const struct hl_emit *emit, uint64_t limit, uint64_t usual, size_t count)
{
	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = is_json(emit) ? 0 : usual;
	return limit && limit < count ? limit : count;
}

void hl_emit_more(struct hl_emit *emit, size_t count, const char *option)
{
	char more[HL_FORMAT_MAX];

	if (count)
		hl_emit_line(emit, "... and %s more; %s 0 shows all", hl_format_count(count, more),
			     option);
}

void hl_emit_object(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_open(&emit->json, key, '{');
}

void hl_emit_object_end(struct hl_emit *emit)
{
	if (is_json(emit))
		hl_json_close(&emit->json, '}');
}

void hl_emit_array(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_open(&emit->json, key, '[');
}

void hl_emit_array_end(struct hl_emit *emit)
{
	if (is_json(emit))
		hl_json_close(&emit->json, ']');
}

void hl_emit_text(struct hl_emit *emit, const char *key, const char *text)
{
	if (is_json(emit))
		hl_json_text(&emit->json, key, text);
}

void hl_emit_integer(struct hl_emit *emit, const char *key, int64_t number)
{
	if (is_json(emit))
		hl_json_integer(&emit->json, key, number);
}

void hl_emit_unsigned(struct hl_emit *emit, const char *key, uint64_t number)
{
	hl_emit_integer(emit, key, number < INT64_MAX ? (int64_t)number : INT64_MAX);
}

void hl_emit_boolean(struct hl_emit *emit, const char *key, bool truth)
{
	if (is_json(emit))
		hl_json_boolean(&emit->json, key, truth);
}

void hl_emit_unknown(struct hl_emit *emit, const char *key)
{
	if (is_json(emit))
		hl_json_null(&emit->json, key);
}

void hl_emit_frames(struct hl_emit *emit, const char *key, const struct hl_emit_frame *frames,
		    size_t count)
{
	hl_emit_array(emit, key);
	for (size_t i = 0; i < count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "function", frames[i].function);
		hl_emit_text(emit, "module", frames[i].module);
		hl_emit_text(emit, "file", frames[i].file);
		hl_emit_integer(emit, "line", frames[i].line);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

/* ---- what goes on from a report ---- */

#define TRACED \
	"heapline growth -p %d 10" /* calls of functions that allocate, where these can be found */

/* "%s": the recording; "%d": the process. */
static const struct {
	const char *schema; /* without its version */
	const char *of_recording, *of_process;
} nexts[] = {
	{"info", "heapline lines %s", NULL},
	{"top", "heapline lines %s", NULL},
	{"lines", "heapline tree %s", NULL},
	{"tree", "heapline lines %s", NULL},
	{"flame", "heapline lines %s", NULL},
	{"graph", "heapline lines %s", NULL},
	{"sizes", "heapline lines %s", NULL},
	{"folded", "heapline lines %s", NULL},
	{"export", "heapline lines %s", NULL},
	{"annotate", "heapline tree %s", NULL},
	{"diff", "heapline lines %s", NULL},
	{"check", "heapline lines %s", NULL},
	{"timeline", "heapline peaks %s", NULL},
	{"peaks", "heapline growth %s", NULL},
	{"events", "heapline growth %s", NULL},
	{"growth", "heapline lines %s", "heapline holders -p %d"},
	{"stacks", "heapline lines %s", "heapline holders -p %d"},
	{"pgfault", "heapline lines %s", "heapline heap -p %d"},
	{"page-events", "heapline lines %s", "heapline heap -p %d"},
	{"heap", NULL, "heapline leaks -p %d"},
	{"leaks", NULL, "heapline holders -p %d"},
	{"holders", NULL, TRACED},
	{"pins", NULL, "heapline holders -p %d"},
	{"carriers", NULL, "heapline pins -p %d"},
	{"slabs", NULL, "heapline heap -p %d"},
	{"allocations", NULL, TRACED},
	{"services", NULL, "heapline heap -p %d"},
	{"ctl-status", NULL, "heapline growth -p %d"},
};

void hl_emit_next(struct hl_emit *emit, const char *command)
{
	emit->has_next = true;
	if (!command)
		return;
	hl_emit_text(emit, "next", command);
	hl_emit_line(emit, "next: %s", command);
}

void hl_emit_about(struct hl_emit *emit, const char *name, int64_t pid)
{
	size_t size;

	emit->pid = pid;
	free(emit->about);
	emit->about = NULL;
	/* Words that a shell reads as they are can be read back. */
	FILE *out = name && !hl_words_has_control(name) && access(name, F_OK) == 0
			    ? open_memstream(&emit->about, &size)
			    : NULL;
	if (!out)
		return;
	hl_words_put(out, name);
	if (fclose(out) != 0)
		hl_emit_fail(emit, -ENOMEM);
}

void hl_emit_untraceable(struct hl_emit *emit, bool is_untraceable)
{
	emit->is_untraceable = is_untraceable;
}

static void put_usual_next(struct hl_emit *emit)
{
	char *command = NULL;

	for (size_t i = 0; i < HL_COUNT_OF(nexts) && emit->schema; i++) {
		size_t name_length = strlen(nexts[i].schema);
		if (strncmp(nexts[i].schema, emit->schema, name_length) != 0 ||
		    emit->schema[name_length] != '/')
			continue;
		int length = 0;
		if (emit->about && nexts[i].of_recording)
			length = asprintf(&command, nexts[i].of_recording, emit->about);
		else if (emit->pid && nexts[i].of_process)
			length = asprintf(&command,
					  emit->is_untraceable &&
							  strcmp(nexts[i].of_process, TRACED) == 0
						  ? "heapline pgfault -p %d 60"
						  : nexts[i].of_process,
					  (int)emit->pid);
		if (length < 0)
			hl_emit_fail(emit, -ENOMEM);
		else if (length > 0)
			hl_emit_text(emit, "next", command);
		if (length > 0)
			free(command);
	}
}

int hl_emit_finish(struct hl_emit *emit)
{
	if (is_json(emit) && !emit->has_next)
		put_usual_next(emit);
	if (is_json(emit))
		hl_json_close(&emit->json, '}');
	int error = emit->error;
	if (!error && ferror(emit->out))
		error = -EIO;
	scols_unref_table(emit->table.scols);
	free(emit->about);
	free(emit);
	return error;
}
