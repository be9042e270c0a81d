/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads folded text: a line for each stack, frames from the root joined by ';', a blank, the
 * number; or two numbers, the earlier one first. Other lines are skipped, as long as they are
 * the minority. docs/formats-import.md says what is accepted.
 */
#include "import/importer.h"

#include "base/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UNKNOWN_FRAME "[unknown]"
#define FIRST_COLUMN  "first column"

/* Enough lines to distinguish another kind of file from folded text with a few bad lines. */
#define LINES_LOOKED_AT 1000u

/* A frame of the line before, and its node: neighbouring lines share most of their frames. */
struct step {
	const char *text; /* in the input */
	size_t length;
	uint32_t node;
};

struct folded {
	const struct hl_import_input *input;
	bool two_columns;
	struct hl_builder builder;
	struct hl_index frames; /* by their texts */
	struct hl_import_values values;
	struct step *path;
	size_t depth, path_capacity;
	uint64_t stack_lines, junk_lines, first_junk; /* line number */
	char *name;				      /* a frame's text with a NUL after it */
	size_t name_capacity;
};

/* ---- lines ---- */

static bool is_skipped(const struct hl_import_line *line)
{
	return line->text == line->end || *line->text == '#';
}

/*
 * Takes the number that ends ${text} .. *${end}, after a blank; *${end} is then the end of the text
 * before it. Fractions are rounded. -EINVAL when there is no number, -ERANGE when it is too large.
 */
static int take_number(const char *text, const char **end, int64_t *ret_number)
{
	const char *begin = *end, *rest;
	int64_t number;

	while (begin > text && !hl_import_text_is_blank(begin[-1]))
		begin--;
	int r = begin > text ? hl_import_text_number(begin, *end, &number, &rest) : -EINVAL;
	if (r < 0)
		return r;
	if (rest < *end && *rest == '.') {
		bool up = rest + 1 < *end && rest[1] >= '5';
		for (rest++; rest < *end && *rest >= '0' && *rest <= '9';)
			rest++;
		if (__builtin_add_overflow(number, *begin == '-' ? -up : up, &number))
			return -ERANGE;
	}
	if (rest < *end)
		return -EINVAL;
	*ret_number = number;
	*end = hl_import_text_trim(text, begin);
	return 0;
}

/* A line that does not end in a number. A number that is too large still is one. */
static bool is_junk(const struct hl_import_line *line)
{
	const char *end = line->end;
	int64_t number;

	return take_number(line->text, &end, &number) == -EINVAL;
}

/* Whether every line ends in two numbers, with a stack before them: a frame may end in a number,
 * too, so one line alone does not show it. */
static bool has_two_columns(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;
	bool any = false;

	while (hl_import_text_next(&lines, &line)) {
		const char *end = line.end;
		int64_t number;
		if (is_skipped(&line) || is_junk(&line))
			continue;
		if (take_number(line.text, &end, &number) < 0 ||
		    take_number(line.text, &end, &number) < 0 || end == line.text)
			return false;
		any = true;
	}
	return any;
}

/*
 * Whether of the lines at the beginning that say something no fewer are stacks with a number,
 * however large, than are not. The last one may be cut off, and then says nothing.
 */
static bool detects(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;
	unsigned stacks = 0, junk = 0;

	while (stacks + junk < LINES_LOOKED_AT && hl_import_text_next(&lines, &line)) {
		if (memchr(line.text, '\0', (size_t)(line.end - line.text)))
			return false;
		if (is_skipped(&line))
			continue;
		if (input->partial && lines.next == lines.end)
			return stacks >= junk;
		junk += is_junk(&line);
		stacks += !is_junk(&line); /* reading says what is wrong with it */
	}
	return stacks && stacks >= junk;
}

/* ---- frames ---- */

static int intern_frame(struct folded *folded, const char *text, size_t length, uint32_t *ret_frame)
{
	const struct hl_profile *profile = folded->builder.profile;

	if (!length) {
		text = UNKNOWN_FRAME;
		length = strlen(UNKNOWN_FRAME);
	}
	uint32_t hash = hl_hash_bytes(text, length), at = hash, frame;
	while ((frame = hl_index_next(&folded->frames, hash, &at))) {
		uint32_t name = profile->functions[profile->frames[frame].function].name;
		const char *known = hl_profile_text(profile, name);
		if (!strncmp(known, text, length) && !known[length]) {
			*ret_frame = frame;
			return 0;
		}
	}
	if (HL_ARRAY_RESERVE(folded->name, folded->name_capacity, length + 1) < 0)
		return -ENOMEM;
	memcpy(folded->name, text, length);
	folded->name[length] = '\0';
	const struct hl_symbols_frame symbol = {
		.function = folded->name, .function_file = "", .file = ""};
	int r = hl_builder_frame(&folded->builder, &symbol, 0, 0, &frame);
	if (r == 0)
		r = hl_index_add(&folded->frames, hash, frame);
	if (r == 0)
		*ret_frame = frame;
	return r;
}

/* Makes the path that of the stack ${text} .. ${end}. */
static int walk_stack(struct folded *folded, const char *text, const char *end)
{
	bool is_shared = true;
	size_t depth = 0;
	uint32_t node = 0, frame;

	while (end > text && end[-1] == ';') /* some tools end every frame with it */
		end--;
	for (bool more = true; more; depth++) {
		const char *stop = memchr(text, ';', (size_t)(end - text));
		more = stop != NULL;
		size_t length = (size_t)((more ? stop : end) - text);
		is_shared = is_shared && depth < folded->depth &&
			    folded->path[depth].length == length &&
			    !memcmp(folded->path[depth].text, text, length);
		if (is_shared) {
			node = folded->path[depth].node;
		} else {
			int r = intern_frame(folded, text, length, &frame);
			if (r == 0)
				r = hl_builder_child(&folded->builder, node, frame, &node);
			if (r == 0)
				r = HL_ARRAY_RESERVE(folded->path, folded->path_capacity,
						     depth + 1);
			if (r < 0)
				return r;
			folded->path[depth] = (struct step){text, length, node};
		}
		text += length + more;
	}
	folded->depth = depth;
	return 0;
}

/* ---- all of it ---- */

static int read_line(struct folded *folded, const struct hl_import_line *line, struct hl_error *err)
{
	struct hl_import_value value = {0};
	const char *end = line->end;

	if (memchr(line->text, '\0', (size_t)(end - line->text)))
		return hl_error_set(err, -EBADMSG,
				    "cannot read '%s': line %" PRIu64
				    " holds a NUL byte, so it is not text",
				    folded->input->name, line->number);
	int r = take_number(line->text, &end, &value.counters.alloc_bytes);
	if (r == 0 && folded->two_columns)
		r = take_number(line->text, &end, &value.base_bytes);
	if (r == -EINVAL && !folded->junk_lines++)
		folded->first_junk = line->number;
	if (r == -EINVAL)
		return 0;
	if (r < 0)
		return hl_error_set(err, -EBADMSG,
				    "cannot read '%s': the number in line %" PRIu64 " is too large",
				    folded->input->name, line->number);
	folded->stack_lines++;
	r = walk_stack(folded, line->text, end);
	if (r < 0)
		return r;
	value.node = folded->path[folded->depth - 1].node;
	return hl_import_values_add(&folded->values, &value);
}

static int finish(struct folded *folded, struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	int r = hl_import_values_finish(&folded->values, folded->two_columns, &folded->builder,
					&profile);
	if (r < 0)
		return r;
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	if (folded->two_columns)
		r = hl_strings_intern(&profile->strings, FIRST_COLUMN, &profile->base_name);
	if (r == 0 && folded->junk_lines)
		r = hl_profile_warn(profile,
				    "%" PRIu64
				    " line%s without a number at the end %s skipped, the "
				    "first of them line %" PRIu64,
				    folded->junk_lines, folded->junk_lines == 1 ? "" : "s",
				    folded->junk_lines == 1 ? "was" : "were", folded->first_junk);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

static int read_folded(const struct hl_import_input *input, struct hl_profile **ret_profile,
		       struct hl_error *err)
{
	struct folded folded = {.input = input, .two_columns = has_two_columns(input)};
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	int r = hl_builder_init(&folded.builder);
	while (r == 0 && hl_import_text_next(&lines, &line))
		if (!is_skipped(&line))
			r = read_line(&folded, &line, err);
	if (r == 0 && folded.junk_lines > folded.stack_lines)
		r = hl_error_set(err, -EBADMSG,
				 "cannot read '%s': line %" PRIu64 " does not end in a number, and "
				 "most lines do not; folded text has 'a;b;c 123' in every line",
				 input->name, folded.first_junk);
	if (r == 0)
		r = finish(&folded, ret_profile);
	hl_builder_release(&folded.builder);
	hl_index_release(&folded.frames);
	hl_import_values_release(&folded.values);
	free(folded.path);
	free(folded.name);
	return hl_importer_fail(input, r, err);
}

const struct hl_importer hl_importer_folded = {
	.name = "folded",
	.detects = detects,
	.read = read_folded,
};

/* ---- what the numbers mean ---- */

static void reinterpret(struct hl_profile_counters *counters, size_t count, enum hl_value value,
			enum hl_unit unit)
{
	for (size_t i = 0; i < count; i++) {
		int64_t figure = counters[i].alloc_bytes;
		counters[i] = (struct hl_profile_counters){0};
		if (value == HL_VALUE_PEAK)
			*(unit == HL_UNIT_BYTES ? &counters[i].peak_bytes
						: &counters[i].peak_objects) = figure;
		else
			*(unit == HL_UNIT_BYTES ? &counters[i].alloc_bytes
						: &counters[i].alloc_objects) = figure;
	}
}

void hl_import_folded_as(struct hl_profile *profile, enum hl_value value, enum hl_unit unit)
{
	reinterpret(profile->counters, profile->node_count, value, unit);
	reinterpret(&profile->total, 1, value, unit);
	reinterpret(&profile->unfiltered_total, 1, value, unit);
	if (profile->base)
		reinterpret(profile->base, profile->node_count, value, unit);
	reinterpret(&profile->base_total, 1, value, unit);
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = false;
	profile->known[value][unit] = true;
}
