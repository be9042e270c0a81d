/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the lines above a flame graph into memory and breaks them; see flame.h. */
#include "base/array.h"
#include "profile/trace_kind.h"
#include "view/format.h"
#include "view/pictures/flame.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTINUATIONS_MAX 2 /* a command can be very long; what follows is cut off */

/* ---- texts ---- */

static void write_notes(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options, const struct hl_flame_layout *layout,
			size_t narrow_count)
{
	const struct hl_flame_frame *root = &layout->frames[0];
	char before[HL_FORMAT_MAX], after[HL_FORMAT_MAX], growth[HL_FORMAT_MAX];
	char count[HL_FORMAT_MAX], sum[HL_FORMAT_MAX];

	if (profile->base)
		hl_emit_line(emit, "%s before, %s now: %s%s",
			     hl_flame_head_figure(root->base, options, before),
			     hl_flame_head_figure(root->value, options, after),
			     root->value > root->base ? "+" : "",
			     hl_flame_head_figure(root->value - root->base, options, growth));
	if (profile->base && layout->vanished_count)
		hl_emit_line(emit, "nothing is left of %s frame%s that held %s before",
			     hl_format_count((int64_t)layout->vanished_count, count),
			     hl_format_plural(layout->vanished_count),
			     hl_flame_head_figure(layout->vanished_sum, options, sum));
	if (layout->negative_count)
		hl_emit_line(emit, "%s stack%s with less than nothing left out: %s in all",
			     hl_format_count((int64_t)layout->negative_count, count),
			     hl_format_plural(layout->negative_count),
			     hl_flame_head_figure(layout->negative_sum, options, sum));
	if (layout->light_count)
		hl_emit_line(emit, "%s frame%s of %s or less left out of this file",
			     hl_format_count((int64_t)layout->light_count, count),
			     hl_format_plural(layout->light_count),
			     hl_flame_head_figure(layout->light_max, options, sum));
	if (narrow_count)
		hl_emit_line(emit, "%s frame%s too narrow to draw; zoom in to see %s",
			     hl_format_count((int64_t)narrow_count, count),
			     narrow_count == 1 ? " is" : "s are",
			     narrow_count == 1 ? "it" : "them");
	hl_summary_names(emit, profile);
}

const char *hl_flame_head_unit(const struct hl_profile *profile, enum hl_unit unit)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);

	if (unit == HL_UNIT_BYTES)
		return "bytes";
	return kind ? kind->nouns : "blocks";
}

const char *hl_flame_head_figure(int64_t figure, const struct hl_view_options *options,
				 char buffer[HL_FORMAT_MAX])
{
	return hl_format_figure(figure, options->unit == HL_UNIT_BYTES && !options->flame.countname,
				buffer);
}

/* "after.hl compared with before.hl: allocated bytes, by callers"; to be freed. */
static char *default_title(const struct hl_profile *profile, const struct hl_view_options *options)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	const char *unit = hl_flame_head_unit(profile, options->unit);
	const char *before = "", *after = "";
	char *title;

	if (options->flame.countname)
		unit = options->flame.countname;
	else if (kind)
		after = kind->word;
	else
		before = hl_value_words[options->value];
	if (asprintf(&title, "%s%s%s: %s%s%s%s%s%s", hl_profile_text(profile, profile->name),
		     profile->base ? " compared with " : "",
		     profile->base ? hl_profile_text(profile, profile->base_name) : "", before,
		     *before ? " " : "", unit, *after ? " " : "", after,
		     options->reversed ? ", by callers" : "") < 0)
		return NULL;
	return title;
}

/* ---- lines ---- */

/* Adds the lines of ${text} and breaks them, in place. */
static int add_lines(struct hl_flame_head *head, char *text, bool is_warning)
{
	size_t capacity = head->line_count;

	for (char *line; (line = strsep(&text, "\n"));) {
		for (int i = 0; line && *line; i++) {
			char *space = NULL;
			if (i < CONTINUATIONS_MAX && strlen(line) > HL_FLAME_HEAD_CELLS)
				space = memrchr(line, ' ', HL_FLAME_HEAD_CELLS + 1);
			if (space)
				*space = '\0';
			if (hl_array_reserve(&head->lines, &capacity, head->line_count + 1,
					     sizeof(*head->lines)) < 0)
				return -ENOMEM;
			head->lines[head->line_count++] = (struct hl_flame_line){line, is_warning};
			line = space ? space + 1 : NULL;
		}
	}
	return 0;
}

/* Either warnings or what is merely worth knowing. */
static void write_notices(struct hl_emit *emit, const struct hl_notices *notices, bool warnings)
{
	for (size_t i = 0; i < notices->count; i++)
		if (notices->notices[i].is_warning == warnings)
			hl_emit_line(emit, "%s", notices->notices[i].text);
}

int hl_flame_head_init(struct hl_flame_head *head, const struct hl_profile *profile,
		       const struct hl_view_options *options, const struct hl_flame_layout *layout,
		       size_t narrow_count)
{
	struct hl_notices notices = {0};
	struct hl_emit *emit;
	size_t size, facts_end = 0, warnings_end = 0;

	*head = (struct hl_flame_head){
		.title = options->flame.title ? strdup(options->flame.title)
					      : default_title(profile, options),
	};
	FILE *out = head->title ? open_memstream(&head->text, &size) : NULL;
	if (!out)
		return -ENOMEM;
	int r = hl_emit_new(out, HL_EMIT_TABLE, false, NULL, &emit);
	if (r == 0) {
		if (!options->flame.countname)
			hl_summary_value_line(emit, profile, options);
		hl_summary_facts(emit, profile);
		putc('\0', out);
		facts_end = (size_t)ftello(out);
		hl_notices_of_profile(&notices, profile);
		write_notices(emit, &notices, true);
		putc('\0', out);
		warnings_end = (size_t)ftello(out);
		write_notices(emit, &notices, false);
		if (notices.error)
			hl_emit_fail(emit, notices.error);
		hl_notices_release(&notices);
		write_notes(emit, profile, options, layout, narrow_count);
		r = hl_emit_finish(emit);
	}
	if (fclose(out) != 0 || r < 0)
		return -ENOMEM;
	r = add_lines(head, head->text, false);
	if (r == 0)
		r = add_lines(head, head->text + facts_end, true);
	return r < 0 ? r : add_lines(head, head->text + warnings_end, false);
}

void hl_flame_head_release(struct hl_flame_head *head)
{
	free(head->title);
	free(head->lines);
	free(head->text);
	*head = (struct hl_flame_head){0};
}
