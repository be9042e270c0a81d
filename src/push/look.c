/* SPDX-License-Identifier: BSD-2-Clause */
/* What changed in a process since the last look; see session.h. */
#include "push/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/utf8.h"

#define XXH_INLINE_ALL
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#define SLACK_MS 5000 /* a look may be late by as much */

/* ---- numbers of stacks ---- */

static uint64_t hash_text(const char *text, uint64_t seed)
{
	return XXH3_64bits_withSeed(text, strlen(text), seed);
}

static uint64_t hash_frame(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const char *module = hl_profile_text(profile, profile->modules[function->module].path);
	uint64_t hash = hash_text(hl_profile_text(profile, function->name), frame->line);

	hash = hash_text(hl_path_basename(module), hash);
	hash = hash_text(hl_profile_text(profile, function->file), hash);
	return hash_text(hl_profile_text(profile, frame->file), hash);
}

int64_t *hl_push_number_stacks(const struct hl_profile *profile)
{
	HL_FREED uint64_t *frames = calloc(profile->frame_count + 1, sizeof(*frames));
	int64_t *stacks = calloc(profile->node_count + 1, sizeof(*stacks));

	if (!frames || !stacks) {
		free(stacks);
		return NULL;
	}
	for (size_t i = 0; i < profile->frame_count; i++)
		frames[i] = hash_frame(profile, &profile->frames[i]);
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		const uint64_t pair[] = {(uint64_t)stacks[node->parent], frames[node->frame]};
		stacks[i] = (int64_t)(XXH3_64bits(pair, sizeof(pair)) & INT64_MAX);
	}
	return stacks;
}

/* ---- frames ---- */

void hl_push_stacks_release(struct hl_push_stacks *stacks)
{
	free(stacks->all);
	hl_index_release(&stacks->index);
	*stacks = (struct hl_push_stacks){0};
}

/* 1; 0 when it was there; -ENOMEM. */
static int add_stack(struct hl_push_stacks *stacks, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&stacks->index, hash, &at)))
		if (stacks->all[id - 1] == stack)
			return 0;
	if (HL_ARRAY_APPEND(stacks->all, stacks->count, stacks->capacity, stack) < 0)
		return -ENOMEM;
	return hl_index_add(&stacks->index, hash, (uint32_t)stacks->count) < 0 ? -ENOMEM : 1;
}

static void put_name(FILE *out, const char *name)
{
	for (int length; *name; name += length ? length : 1) {
		length = hl_utf8_length(name);
		if (!length)
			fputs("\uFFFD", out);
		else if (length == 1)
			putc(iscntrl((unsigned char)*name) ? ' ' : *name, out);
		else
			fwrite(name, 1, (size_t)length, out);
	}
}

/* A line of struct hl_fleet_stack. */
static void put_frame(FILE *out, const struct hl_profile *profile,
		      const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const struct hl_profile_module *module = &profile->modules[function->module];

	put_name(out, hl_profile_text(profile, function->name));
	putc('\t', out);
	put_name(out, hl_path_basename(hl_profile_text(profile, module->path)));
	putc('\t', out);
	put_name(out, hl_profile_text(profile, frame->file));
	fprintf(out, "\t%u\t", frame->line);
	if (function->file != frame->file)
		put_name(out, hl_profile_text(profile, function->file));
	fprintf(out, "\t%u%s\n", function->line, module->script ? "\tscript" : "");
}

/* The lines of all frames: that of frame i is at ends[i - 1] .. ends[i]. */
struct lines {
	char *text;
	size_t *ends;
};

static void lines_release(struct lines *lines)
{
	free(lines->text);
	free(lines->ends);
}

static int lines_make(struct lines *lines, const struct hl_profile *profile)
{
	size_t size;
	FILE *out;

	lines->ends = calloc(profile->frame_count + 1, sizeof(*lines->ends));
	out = lines->ends ? open_memstream(&lines->text, &size) : NULL;
	if (!out)
		return -ENOMEM;
	for (size_t i = 1; i < profile->frame_count; i++) {
		put_frame(out, profile, &profile->frames[i]);
		lines->ends[i] = (size_t)ftell(out);
	}
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

static void put_frames(FILE *out, const struct hl_profile *profile, const struct lines *lines,
		       uint32_t node)
{
	uint32_t frame = profile->nodes[node].frame;

	if (profile->nodes[node].parent)
		put_frames(out, profile, lines, profile->nodes[node].parent);
	fwrite(lines->text + lines->ends[frame - 1], 1, lines->ends[frame] - lines->ends[frame - 1],
	       out);
}

/* Writes the frames of stacks that ${told} does not have, out of those from number ${first} on, which are new to the session. */
static int add_stacks(struct hl_push_session *session, size_t first, struct hl_push_stacks *told,
		      struct hl_push_look *look)
{
	HL_CLEANUP(lines_release) struct lines lines = {0};
	struct hl_fleet_window *window = &look->window;
	size_t size;
	FILE *out = NULL;
	int r = 0;

	for (size_t i = first; r >= 0 && i < session->count; i++) {
		const struct hl_push_figures *figures = &session->figures[i];
		r = add_stack(told, figures->stack);
		if (r <= 0)
			continue;
		if (!out) {
			r = lines_make(&lines, look->profile);
			out = r == 0 ? open_memstream(&look->texts, &size) : NULL;
		}
		if (!out)
			return -ENOMEM;
		r = HL_ARRAY_APPEND(window->stacks, window->stack_count, window->stack_capacity,
				    (struct hl_fleet_stack){figures->stack, NULL});
		put_frames(out, look->profile, &lines, session->now[i].node);
		putc('\0', out);
	}
	if (out && fclose(out) != 0)
		r = -ENOMEM;
	char *text = look->texts;
	for (size_t i = 0; i < window->stack_count; i++) {
		window->stacks[i].frames = r >= 0 ? text : "";
		text += r >= 0 ? strlen(text) + 1 : 0;
	}
	return r < 0 ? r : 0;
}

/* ---- looks ---- */

/* Sums up what each stack has now. Nodes with the same names count at the first of them. */
static int take_figures(struct hl_push_session *session, struct hl_profile *profile,
			const int64_t *stacks)
{
	for (uint32_t i = 1; i < profile->node_count; i++) {
		struct hl_profile_counters *counters = &profile->counters[i];
		size_t index;
		if (!hl_profile_counters_any(counters))
			continue;
		if (hl_push_figures_add(session, stacks[i], &index) < 0)
			return -ENOMEM;
		struct hl_push_now *now = &session->now[index];
		if (!now->node)
			now->node = i;
		now->figures[0] += counters->alloc_bytes - counters->free_bytes;
		now->figures[1] += counters->alloc_objects - counters->free_objects;
		now->figures[2] += counters->alloc_bytes;
		now->figures[3] += counters->alloc_objects;
		*counters = (struct hl_profile_counters){0};
	}
	return 0;
}

/* From nodes of the profile to figures, so that the next look needs none. Stacks without figures are not known yet. */
static int follow_nodes(struct hl_push_session *session, const struct hl_profile *profile,
			const int64_t *stacks)
{
	HL_FREED uint32_t *figures = calloc(profile->node_count + 1, sizeof(*figures));

	if (!figures)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->node_count; i++)
		figures[i] = hl_push_figures_find(session, stacks[i]);
	for (size_t i = 1; session->nodes && i < session->node_count; i++)
		session->nodes[i] =
			session->nodes[i] < profile->node_count ? figures[session->nodes[i]] : 0;
	return 0;
}

/* What was allocated since: after 'ctl reset' figures begin at 0 again. */
static int64_t grown(int64_t before, int64_t now)
{
	return now >= before ? now - before : now;
}

/* Adds the row of one stack, and makes its figures those that were taken. */
static int add_row(struct hl_push_look *look, struct hl_push_figures *figures,
		   const struct hl_push_now *looked)
{
	const int64_t *now = looked->figures;
	const struct hl_fleet_row row = {
		.stack = figures->stack,
		.inuse_bytes = now[0] - figures->taken[0],
		.inuse_objects = now[1] - figures->taken[1],
		.alloc_bytes = grown(figures->taken[2], now[2]),
		.alloc_objects = grown(figures->taken[3], now[3]),
	};
	struct hl_fleet_window *window = &look->window;

	if (looked->node)
		look->profile->counters[looked->node] = (struct hl_profile_counters){
			.alloc_bytes = row.alloc_bytes,
			.alloc_objects = row.alloc_objects,
			.free_bytes = row.alloc_bytes - now[0],
			.free_objects = row.alloc_objects - now[1],
		};
	memcpy(figures->taken, now, sizeof(figures->taken));
	return row.inuse_bytes || row.inuse_objects || row.alloc_bytes || row.alloc_objects
		       ? HL_ARRAY_APPEND(window->rows, window->row_count, window->row_capacity, row)
		       : 0;
}

static int by_stack(const void *left, const void *right)
{
	const struct hl_fleet_row *a = left, *b = right;

	return (a->stack > b->stack) - (a->stack < b->stack);
}

/* Processes are read one at a time; the memory that all others keep between reads adds up. */
static void keep_little(struct hl_push_session *session)
{
	struct hl_push_figures *fitting =
		session->capacity > session->count
			? realloc(session->figures, (session->count + 1) * sizeof(*fitting))
			: NULL;

	if (fitting) {
		session->figures = fitting;
		session->capacity = session->count + 1;
	}
	hl_index_release(&session->index);
	free(session->now);
	session->now = NULL;
	session->now_count = session->now_capacity = 0;
}

int hl_push_session_look(struct hl_push_session *session, struct hl_profile *profile,
			 struct hl_push_stacks *told, int64_t now_ms, int64_t every_ms, bool ended,
			 struct hl_push_look *ret_look)
{
	HL_FREED int64_t *stacks = NULL;
	size_t known = session->count;

	*ret_look = (struct hl_push_look){
		.profile = profile,
		.window = {.session = session->id,
			   .began_ms = session->began_ms,
			   .base_ms = session->look_ms,
			   .ms = now_ms,
			   .until_ms = now_ms + 2 * every_ms + SLACK_MS,
			   .ended_ms = ended ? now_ms : 0},
	};
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		ret_look->window.labels[i] = session->labels[i];
	session->look_ms = now_ms;
	int r = hl_push_figures_begin(session);
	if (r == 0 && profile)
		stacks = hl_push_number_stacks(profile);
	if (profile && !stacks)
		r = -ENOMEM;
	if (r == 0 && profile)
		r = take_figures(session, profile, stacks);
	if (r == 0 && profile)
		r = follow_nodes(session, profile, stacks);
	if (r == 0 && profile)
		r = add_stacks(session, known, told, ret_look);
	for (size_t i = 0; r == 0 && i < session->count; i++)
		r = add_row(ret_look, &session->figures[i], &session->now[i]);
	/* As stores have them: rows that follow each other are in the same pages. */
	if (ret_look->window.row_count)
		qsort(ret_look->window.rows, ret_look->window.row_count,
		      sizeof(*ret_look->window.rows), by_stack);
	keep_little(session);
	return r;
}

void hl_push_look_release(struct hl_push_look *look)
{
	hl_fleet_window_release(&look->window);
	hl_profile_free(look->profile);
	free(look->texts);
	*look = (struct hl_push_look){0};
}
