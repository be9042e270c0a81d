/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows as text; see store.h. */
#include "fleet/store.h"

#include "base/array.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>

#define MAGIC	    "heapline window 2"
#define MAGIC_FIRST "heapline window 1" /* without base_ms */

const char *const hl_fleet_label_names[] = {"service",	"version",   "host", "command", "pid",
					    "build_id", "container", "pod",  NULL};

const char *const hl_fleet_balance_columns[] = {"host",
						"cgroup",
						"container",
						"pod",
						"ms",
						"usage_bytes",
						"limit_bytes",
						"working_set_bytes",
						"reclaimable_bytes",
						"unreclaimable_bytes",
						"anonymous_bytes",
						"shared_bytes",
						"cache_bytes",
						"kernel_bytes",
						"unknown_bytes",
						"swap_bytes",
						"recorder_bytes",
						"oom_kills",
						NULL};

char *hl_fleet_label_clean(const char *text)
{
	char *clean = hl_utf8_clean(text);

	for (char *c = clean; c && *c; c++)
		if (iscntrl((unsigned char)*c) && *c != '\t' && *c != '\n')
			*c = ' ';
	return clean;
}

void hl_fleet_window_release(struct hl_fleet_window *window)
{
	free(window->stacks);
	free(window->rows);
	*window = (struct hl_fleet_window){0};
}

/* ---- cells ---- */

/* Bytes at ${text} that are written as they are, most of which names consist of. */
static size_t plain_bytes(const char *text)
{
	size_t count = 0;

	while (text[count] >= ' ' && text[count] < 0x7f && text[count] != '\\')
		count++;
	return count;
}

void hl_fleet_put_cell(FILE *out, const char *text)
{
	while (*text) {
		size_t bytes = plain_bytes(text);
		if (!bytes && (unsigned char)*text >= 0x80)
			bytes = (size_t)hl_utf8_length(text);
		if (bytes)
			fwrite(text, 1, bytes, out);
		else if (*text == '\\' || *text == '\t' || *text == '\n')
			fputs(*text == '\\' ? "\\\\" : *text == '\t' ? "\\t" : "\\n", out);
		else
			fputs((unsigned char)*text < 0x80 ? " " : "\xef\xbf\xbd", out);
		text += bytes ? bytes : 1;
	}
}

char *hl_fleet_take_cell(char **line)
{
	char *cell = *line, *to = cell;

	if (!cell)
		return NULL;
	char *end = strchrnul(cell, '\t');
	*line = *end ? end + 1 : NULL;
	*end = '\0';
	for (const char *from = cell; *from; from++) {
		bool escaped = *from == '\\' && from[1];
		if (escaped)
			from++;
		*to++ = !escaped ? *from : *from == 't' ? '\t' : *from == 'n' ? '\n' : *from;
	}
	*to = '\0';
	return cell;
}

/* 0 or -EBADMSG. */
static int take_number(char **line, int64_t *ret_number)
{
	const char *cell = hl_fleet_take_cell(line);
	char *end;

	if (!cell || !*cell)
		return -EBADMSG;
	errno = 0;
	*ret_number = strtoll(cell, &end, 10);
	return *end || errno ? -EBADMSG : 0;
}

/* ---- windows ---- */

void hl_fleet_window_write(const struct hl_fleet_window *window, FILE *out)
{
	fprintf(out,
		MAGIC "\n%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64
		      "\t%zu\t%zu",
		window->session, window->began_ms, window->base_ms, window->ms, window->until_ms,
		window->ended_ms, window->stack_count, window->row_count);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++) {
		putc('\t', out);
		hl_fleet_put_cell(out, window->labels[i]);
	}
	putc('\n', out);
	for (size_t i = 0; i < window->stack_count; i++) {
		fprintf(out, "%" PRId64 "\t", window->stacks[i].stack);
		hl_fleet_put_cell(out, window->stacks[i].frames);
		putc('\n', out);
	}
	for (size_t i = 0; i < window->row_count; i++) {
		const struct hl_fleet_row *row = &window->rows[i];
		fprintf(out, "%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\n",
			row->stack, row->inuse_bytes, row->inuse_objects, row->alloc_bytes,
			row->alloc_objects);
	}
}

/* The next line of ${*text}, ended by NUL; NULL after the last one. */
static char *take_line(char **text)
{
	char *line = *text, *end = line ? strchr(line, '\n') : NULL;

	if (!end)
		return NULL;
	*end = '\0';
	*text = end + 1;
	return line;
}

static int read_head(char *line, bool has_base, struct hl_fleet_window *window, int64_t *ret_stacks,
		     int64_t *ret_rows)
{
	int64_t *const numbers[] = {&window->session, &window->began_ms, &window->base_ms,
				    &window->ms,      &window->until_ms, &window->ended_ms,
				    ret_stacks,	      ret_rows};
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(numbers); i++)
		if (has_base || numbers[i] != &window->base_ms)
			r = take_number(&line, numbers[i]);
	if (!has_base)
		window->base_ms = window->ms - 1;
	for (size_t i = 0; r == 0 && i < HL_FLEET_LABEL_COUNT; i++) {
		window->labels[i] = hl_fleet_take_cell(&line);
		r = window->labels[i] ? 0 : -EBADMSG;
	}
	return r == 0 && (line || *ret_stacks < 0 || *ret_rows < 0) ? -EBADMSG : r;
}

static int read_stack(char *line, struct hl_fleet_window *window)
{
	struct hl_fleet_stack stack = {0};

	int r = line ? take_number(&line, &stack.stack) : -EBADMSG;
	stack.frames = r == 0 ? hl_fleet_take_cell(&line) : NULL;
	if (!stack.frames || line)
		return -EBADMSG;
	return HL_ARRAY_APPEND(window->stacks, window->stack_count, window->stack_capacity, stack);
}

static int read_row(char *line, struct hl_fleet_window *window)
{
	struct hl_fleet_row row = {0};
	int64_t *const numbers[] = {&row.stack, &row.inuse_bytes, &row.inuse_objects,
				    &row.alloc_bytes, &row.alloc_objects};
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(numbers); i++)
		r = take_number(&line, numbers[i]);
	if (r < 0 || line)
		return -EBADMSG;
	return HL_ARRAY_APPEND(window->rows, window->row_count, window->row_capacity, row);
}

int hl_fleet_window_read(char *text, size_t size, struct hl_fleet_window *window)
{
	char *end = text + size, *line = take_line(&text);
	int64_t stacks = 0, rows = 0;

	*window = (struct hl_fleet_window){0};
	bool has_base = line && !strcmp(line, MAGIC);
	if (!line || (!has_base && strcmp(line, MAGIC_FIRST) != 0))
		return -EBADMSG;
	line = take_line(&text);
	int r = line ? read_head(line, has_base, window, &stacks, &rows) : -EBADMSG;
	for (int64_t i = 0; r == 0 && i < stacks; i++)
		r = read_stack(take_line(&text), window);
	for (int64_t i = 0; r == 0 && i < rows; i++)
		r = read_row(take_line(&text), window);
	return r == 0 && text != end ? -EBADMSG : r;
}
