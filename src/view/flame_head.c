/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the lines above a flame graph into memory and breaks them; see flame_head.h. */
#include "view/flame_head.h"

#include "base/array.h"
#include "profile/trace_kind.h"
#include "view/format.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTINUATIONS_MAX 2 /* a command can be very long; what follows is cut off */

/* ---- texts ---- */

struct head_source {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_flame_layout *layout;
	size_t narrow_count;
};

typedef void write_lines(struct hl_emit *emit, const struct head_source *source);

static void write_plain(struct hl_emit *emit, const struct head_source *source)
{
	if (!source->options->countname)
		hl_summary_value_line(emit, source->profile, source->options);
	hl_summary_lines(emit, source->profile);
}

static void write_warnings(struct hl_emit *emit, const struct head_source *source)
{
	hl_summary_warnings(emit, source->profile);
}

static const char *format_figure(int64_t figure, const struct hl_view_options *options,
				 char buffer[HL_FORMAT_MAX])
{
	return options->unit == HL_UNIT_BYTES && !options->countname
		       ? hl_format_bytes(figure, buffer)
		       : hl_format_count(figure, buffer);
}

static void write_growth(struct hl_emit *emit, const struct head_source *source)
{
	const struct hl_flame_layout *layout = source->layout;
	const struct hl_flame_frame *root = &layout->frames[0];
	char before[HL_FORMAT_MAX], after[HL_FORMAT_MAX], growth[HL_FORMAT_MAX];
	char gone[HL_FORMAT_MAX], gone_count[HL_FORMAT_MAX];

	hl_emit_line(emit, "%s before, %s now: %s%s",
		     format_figure(root->base, source->options, before),
		     format_figure(root->value, source->options, after),
		     root->value > root->base ? "+" : "",
		     format_figure(root->value - root->base, source->options, growth));
	if (layout->vanished_count)
		hl_emit_line(emit, "nothing is left of %s frame%s that held %s before",
			     hl_format_count((int64_t)layout->vanished_count, gone_count),
			     hl_format_plural(layout->vanished_count),
			     format_figure(layout->vanished_sum, source->options, gone));
}

static void write_notes(struct hl_emit *emit, const struct head_source *source)
{
	const struct hl_flame_layout *layout = source->layout;
	char count[HL_FORMAT_MAX], sum[HL_FORMAT_MAX];

	if (source->profile->base)
		write_growth(emit, source);
	if (layout->negative_count)
		hl_emit_line(emit, "%s stack%s with less than nothing left out: %s in all",
			     hl_format_count((int64_t)layout->negative_count, count),
			     hl_format_plural(layout->negative_count),
			     format_figure(layout->negative_sum, source->options, sum));
	if (layout->light_count)
		hl_emit_line(emit, "%s frame%s of %s or less left out of this file",
			     hl_format_count((int64_t)layout->light_count, count),
			     hl_format_plural(layout->light_count),
			     format_figure(layout->light_max, source->options, sum));
	if (source->narrow_count)
		hl_emit_line(emit, "%s frame%s too narrow to draw; zoom in to see %s",
			     hl_format_count((int64_t)source->narrow_count, count),
			     source->narrow_count == 1 ? " is" : "s are",
			     source->narrow_count == 1 ? "it" : "them");
	hl_summary_names_line(emit, source->profile);
}

/* What ${write} writes, in ${ret_text}, which is to be freed. */
static int text_of(const struct head_source *source, write_lines *write, char **ret_text)
{
	struct hl_emit *emit;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	int r = hl_emit_new(out, HL_EMIT_TABLE, false, &emit);
	if (r == 0) {
		write(emit, source);
		r = hl_emit_finish(emit);
	}
	if (fclose(out) != 0 && r == 0)
		r = -ENOMEM;
	if (r < 0)
		free(text);
	else
		*ret_text = text;
	return r;
}

/* ---- lines ---- */

struct line_list {
	struct hl_flame_line *lines;
	size_t count, capacity;
};

static int add_line(struct line_list *list, enum hl_flame_line_kind kind, const char *text)
{
	if (HL_ARRAY_RESERVE(list->lines, list->capacity, list->count + 1) < 0)
		return -ENOMEM;
	list->lines[list->count++] = (struct hl_flame_line){kind, text};
	return 0;
}

/* Where to break ${text}, or NULL when it fits or has no fitting space. */
static char *break_of(char *text)
{
	if (strlen(text) <= HL_FLAME_LINE_CELLS)
		return NULL;
	for (char *at = text + HL_FLAME_LINE_CELLS; at > text; at--)
		if (*at == ' ')
			return at;
	return NULL;
}

/* Breaks the lines of ${text} in place. */
static int add_lines(struct line_list *list, enum hl_flame_line_kind kind, char *text)
{
	for (char *line; (line = strsep(&text, "\n"));) {
		if (!*line)
			continue;
		for (int i = 0; line; i++) {
			char *space = i < CONTINUATIONS_MAX ? break_of(line) : NULL;
			if (space)
				*space = '\0';
			int r = add_line(list, kind, line);
			if (r < 0)
				return r;
			line = space ? space + 1 : NULL;
		}
	}
	return 0;
}

const char *hl_flame_unit(const struct hl_profile *profile, enum hl_unit unit)
{
	const struct hl_trace_kind *kind = hl_profile_trace_kind(profile);

	if (unit == HL_UNIT_BYTES)
		return "bytes";
	return kind ? kind->nouns : "blocks";
}

/* "after.hl compared with before.hl: allocated bytes, by callers", in ${ret_title}. */
static int default_title(const struct head_source *source, char **ret_title)
{
	const struct hl_profile *profile = source->profile;
	const struct hl_view_options *options = source->options;
	const struct hl_trace_kind *kind = hl_profile_trace_kind(profile);
	const char *unit = hl_flame_unit(profile, options->unit);
	const char *before = "", *after = "";
	char *title;

	if (options->countname)
		unit = options->countname;
	else if (kind)
		after = kind->word;
	else
		before = hl_value_words[options->value];
	if (asprintf(&title, "%s%s%s: %s%s%s%s%s%s", hl_profile_text(profile, profile->name),
		     profile->base ? " compared with " : "",
		     profile->base ? hl_profile_text(profile, profile->base_name) : "", before,
		     *before ? " " : "", unit, *after ? " " : "", after,
		     options->reversed ? ", by callers" : "") < 0)
		return -ENOMEM;
	*ret_title = title;
	return 0;
}

static int set_title(struct hl_flame_head *head, const struct head_source *source)
{
	if (!source->options->title)
		return default_title(source, &head->title);
	head->title = strdup(source->options->title);
	return head->title ? 0 : -ENOMEM;
}

/* The summary ends with the warnings, which are to stand out. */
static void cut_warnings_off(char *plain, const char *warnings)
{
	size_t length = strlen(plain), warnings_length = strlen(warnings);

	if (warnings_length <= length && !strcmp(plain + length - warnings_length, warnings))
		plain[length - warnings_length] = '\0';
}

int hl_flame_head_init(struct hl_flame_head *head, const struct hl_profile *profile,
		       const struct hl_view_options *options, const struct hl_flame_layout *layout,
		       size_t narrow_count)
{
	static write_lines *const writers[HL_FLAME_LINE_KINDS] = {
		[HL_FLAME_LINE_PLAIN] = write_plain,
		[HL_FLAME_LINE_WARNING] = write_warnings,
		[HL_FLAME_LINE_NOTE] = write_notes,
	};
	const struct head_source source = {profile, options, layout, narrow_count};
	struct line_list list = {0};

	*head = (struct hl_flame_head){0};
	int r = set_title(head, &source);
	for (int i = 0; r == 0 && i < HL_FLAME_LINE_KINDS; i++)
		r = text_of(&source, writers[i], &head->texts[i]);
	if (r == 0)
		cut_warnings_off(head->texts[HL_FLAME_LINE_PLAIN],
				 head->texts[HL_FLAME_LINE_WARNING]);
	for (int i = 0; r == 0 && i < HL_FLAME_LINE_KINDS; i++)
		r = add_lines(&list, (enum hl_flame_line_kind)i, head->texts[i]);
	head->lines = list.lines;
	head->line_count = list.count;
	if (r < 0)
		hl_flame_head_release(head);
	return r;
}

void hl_flame_head_release(struct hl_flame_head *head)
{
	free(head->title);
	free(head->lines);
	for (int i = 0; i < HL_FLAME_LINE_KINDS; i++)
		free(head->texts[i]);
	*head = (struct hl_flame_head){0};
}
