/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of three shots of one recording: now, before and at the mark; see live.h. */
#include "view/live.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* Saves come once a second. */
#define IDLE_NS (3 * HL_NS_PER_SECOND / 2)

/* ---- samples and shots ---- */

void hl_live_add_sample(struct hl_live *live, struct hl_live_sample sample)
{
	live->samples[live->sample_count++ % HL_LIVE_SAMPLES_MAX] = sample;
}

const struct hl_live_sample *hl_live_last(const struct hl_live *live)
{
	return &live->samples[(live->sample_count + HL_LIVE_SAMPLES_MAX - 1) % HL_LIVE_SAMPLES_MAX];
}

const char *hl_live_state(const struct hl_live *live)
{
	return live->end[0] ? "ended" : live->silence[0] ? "silent" : "running";
}

/* A profile can be several shots at once. */
static void set_shot(struct hl_live *live, int which, struct hl_live_shot shot)
{
	struct hl_profile *old = live->shots[which].profile;

	live->shots[which] = shot;
	for (int i = 0; i < HL_LIVE_SHOTS; i++)
		if (live->shots[i].profile == old)
			return;
	hl_profile_free(old);
}

void hl_live_take(struct hl_live *live, struct hl_profile *profile, uint64_t saved_ns)
{
	const struct hl_live_shot shot = {profile, saved_ns, hl_clock_ns(CLOCK_MONOTONIC)};

	set_shot(live, HL_LIVE_BEFORE, live->shots[HL_LIVE_NOW]);
	set_shot(live, HL_LIVE_NOW, shot);
	if (!live->shots[HL_LIVE_MARK].profile)
		set_shot(live, HL_LIVE_MARK, shot);
}

void hl_live_forget(struct hl_live *live)
{
	for (int i = 0; i < HL_LIVE_SHOTS; i++)
		set_shot(live, i, (struct hl_live_shot){0});
	live->samples[HL_LIVE_SAMPLES_MAX - 1] = (struct hl_live_sample){0};
	live->sample_count = live->depth = live->row_count = 0;
}

void hl_live_mark(struct hl_live *live)
{
	set_shot(live, HL_LIVE_MARK, live->shots[HL_LIVE_NOW]);
}

void hl_live_release(struct hl_live *live)
{
	hl_live_forget(live);
	hl_strings_release(&live->texts);
	free(live->rows);
}

/* ---- figures ---- */

int64_t hl_live_rate(const struct hl_live *live, struct hl_aggregate_figures now,
		     struct hl_aggregate_figures before, enum hl_unit unit)
{
	uint64_t from = live->shots[HL_LIVE_BEFORE].saved_ns;
	uint64_t to = live->shots[HL_LIVE_NOW].saved_ns;
	size_t count = live->sample_count;
	struct hl_aggregate_figures more = hl_aggregate_difference(before, now);

	const struct hl_live_sample *last = hl_live_last(live);
	/* Nothing is saved while nothing changes: the last two shots may be old. */
	bool is_idle = count > 1 && last->ns > live->shots[HL_LIVE_NOW].taken_ns + IDLE_NS &&
		       last->events == live->samples[(count - 2) % HL_LIVE_SAMPLES_MAX].events;
	if (live->end[0] || is_idle || !live->shots[HL_LIVE_BEFORE].profile || to <= from)
		return 0;
	double allocated = (double)hl_aggregate_figure(more, unit);
	/* Less: they were reset meanwhile. */
	return allocated < 0 ? 0 : (int64_t)(allocated * HL_NS_PER_SECOND / (double)(to - from));
}

int64_t hl_live_figure(const struct hl_live *live, const struct hl_live_row *row, int cum,
		       enum hl_unit unit, enum hl_live_column column)
{
	const struct hl_live_pair *now = &row->figures[HL_LIVE_NOW][cum];

	switch (column) {
	case HL_LIVE_ALLOC:
		return hl_aggregate_figure(now->alloc, unit);
	case HL_LIVE_RATE:
		return hl_live_rate(live, now->alloc, row->figures[HL_LIVE_BEFORE][cum].alloc,
				    unit);
	case HL_LIVE_DELTA:
		return hl_aggregate_figure(
			hl_aggregate_difference(row->figures[HL_LIVE_MARK][cum].inuse, now->inuse),
			unit);
	default:
		return hl_aggregate_figure(now->inuse, unit);
	}
}

static struct hl_live_pair pair_of(const struct hl_profile_counters *counters)
{
	return (struct hl_live_pair){hl_aggregate_figures_of(counters, HL_VALUE_INUSE),
				     hl_aggregate_figures_of(counters, HL_VALUE_ALLOC)};
}

static void add_pair(struct hl_live_pair *sum, const struct hl_live_pair *more)
{
	hl_aggregate_add(&sum->inuse, more->inuse);
	hl_aggregate_add(&sum->alloc, more->alloc);
}

/* ---- rows ---- */

/* One shot while rows are made of it. */
struct shot {
	struct hl_live *live;
	const struct hl_profile *profile;
	int which;
	struct hl_keys keys;
	struct hl_live_pair *sums;	   /* by node: with what it calls */
	struct hl_live_pair (*figures)[2]; /* by role and key: flat and cum */
	uint32_t *covered_until;	   /* by role and key, as in calltree.c */
};

/* The text that a row has in every shot, with its role in front. */
static int intern(struct shot *shot, const struct hl_keys_label *label, enum hl_live_role role,
		  uint32_t *ret_id)
{
	bool by_line = shot->live->by == HL_VIEW_BY_LINE;
	const char *file = by_line ? label->file : label->source;
	HL_FREED char *text = NULL;

	if (asprintf(&text, "%d%s\n%s\n%s:%u", (int)role, label->name, label->module,
		     file ? file : "", by_line ? label->line : 0) < 0)
		return -ENOMEM;
	return hl_strings_intern(&shot->live->texts, text, ret_id);
}

static int add_row(struct shot *shot, struct hl_keys_label label, enum hl_live_role role,
		   const struct hl_live_pair figures[2])
{
	struct hl_live *live = shot->live;
	uint32_t id;

	int r = intern(shot, &label, role, &id);
	if (r == 0)
		r = hl_array_reserve_zeroed(&live->rows, &live->row_capacity, live->texts.count + 1,
					    sizeof(*live->rows));
	if (r < 0)
		return r;
	struct hl_live_row *row = &live->rows[id];
	if (shot->which == HL_LIVE_NOW) {
		row->id = id;
		row->role = role;
		row->label = label;
	}
	/* Functions of one name in one module, or source of a script, are one row. */
	add_pair(&row->figures[shot->which][HL_LIVE_FLAT], &figures[HL_LIVE_FLAT]);
	add_pair(&row->figures[shot->which][HL_LIVE_CUM], &figures[HL_LIVE_CUM]);
	return 0;
}

static int add_threads(struct shot *shot)
{
	const struct hl_profile *profile = shot->profile;
	int r = 0;

	for (size_t i = 0; r == 0 && i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		const struct hl_live_pair own = pair_of(&thread->total), both[2] = {own, own};
		const char *name = hl_profile_text(profile, thread->name);
		HL_FREED char *text = NULL;
		uint32_t id;
		if (!hl_aggregate_any(own.alloc) && !hl_aggregate_any(own.inuse))
			continue;
		if (asprintf(&text, "%s (%u)", name[0] ? name : "[thread]", thread->tid) < 0)
			return -ENOMEM;
		r = hl_strings_intern(&shot->live->texts, text, &id);
		if (r == 0)
			r = add_row(shot,
				    (struct hl_keys_label){
					    .name = hl_strings_text(&shot->live->texts, id),
					    .file = "",
					    .module = ""},
				    HL_LIVE_PLAIN, both);
	}
	return r;
}

static void add_node(struct shot *shot, enum hl_live_role role, uint32_t key, uint32_t node)
{
	size_t at = role * shot->keys.count + key;
	const struct hl_live_pair own = pair_of(&shot->profile->counters[node]);

	add_pair(&shot->figures[at][HL_LIVE_FLAT], &own);
	if (node && node < shot->covered_until[at])
		return; /* recursion counts once */
	shot->covered_until[at] = shot->profile->nodes[node].end;
	add_pair(&shot->figures[at][HL_LIVE_CUM], node ? &shot->sums[node] : &own);
}

/* Adds what calls the drilled key and what it calls, each once for a stack. */
static void add_edge(struct shot *shot, uint32_t node, uint32_t key, uint32_t drilled)
{
	uint32_t caller =
		hl_keys_of_node(&shot->keys, shot->profile, shot->profile->nodes[node].parent);

	if (key == drilled && caller)
		add_node(shot, HL_LIVE_CALLER, caller, node);
	if (key == drilled)
		add_node(shot, HL_LIVE_ITSELF, key, node);
	if (caller == drilled)
		add_node(shot, HL_LIVE_CALLEE, key, node);
}

/* The key whose row was drilled into; 0: this shot has none. */
static int find_drilled(struct shot *shot, uint32_t *ret_key)
{
	const struct hl_live *live = shot->live;
	uint32_t id, wanted = live->drilled[live->depth - 1];
	int r = 0;

	*ret_key = 0;
	for (uint32_t key = 1; r == 0 && !*ret_key && key < shot->keys.count; key++) {
		struct hl_keys_label label = hl_keys_label(&shot->keys, shot->profile, key);
		r = intern(shot, &label, HL_LIVE_PLAIN, &id);
		if (r == 0 && id == wanted)
			*ret_key = key;
	}
	return r;
}

static int sum_nodes(struct shot *shot)
{
	const struct hl_profile *profile = shot->profile;
	uint32_t drilled = 0;

	size_t count = shot->keys.count * HL_LIVE_ROLES;
	shot->sums = calloc(profile->node_count, sizeof(*shot->sums));
	shot->figures = calloc(count, sizeof(*shot->figures));
	shot->covered_until = calloc(count, sizeof(*shot->covered_until));
	if (!shot->sums || !shot->figures || !shot->covered_until)
		return -ENOMEM;
	for (size_t i = profile->node_count; i-- > 0;) {
		const struct hl_live_pair own = pair_of(&profile->counters[i]);
		add_pair(&shot->sums[i], &own);
		if (i)
			add_pair(&shot->sums[profile->nodes[i].parent], &shot->sums[i]);
	}
	shot->live->total[shot->which] = shot->sums[0];
	int r = shot->live->depth ? find_drilled(shot, &drilled) : 0;
	for (uint32_t i = 0; r == 0 && i < profile->node_count; i++) {
		uint32_t key = hl_keys_of_node(&shot->keys, profile, i);
		if (!shot->live->depth)
			add_node(shot, HL_LIVE_PLAIN, key, i);
		else if (i && drilled)
			add_edge(shot, i, key, drilled);
	}
	return r;
}

static int add_keys(struct shot *shot)
{
	size_t count = shot->keys.count;
	int r = sum_nodes(shot);

	for (size_t at = 0; r == 0 && at < count * HL_LIVE_ROLES; at++)
		if (hl_aggregate_any(shot->figures[at][HL_LIVE_CUM].alloc) ||
		    hl_aggregate_any(shot->figures[at][HL_LIVE_CUM].inuse))
			r = add_row(
				shot,
				hl_keys_label(&shot->keys, shot->profile, (uint32_t)(at % count)),
				(enum hl_live_role)(at / count), shot->figures[at]);
	return r;
}

static void release_shot(struct shot *shot)
{
	hl_keys_release(&shot->keys);
	free(shot->sums);
	free(shot->figures);
	free(shot->covered_until);
}

static int read_shot(struct hl_live *live, int which)
{
	HL_CLEANUP(release_shot)
	struct shot shot = {.live = live, .profile = live->shots[which].profile, .which = which};

	if (!shot.profile) /* as now, so that nothing has changed */
		shot.profile = live->shots[HL_LIVE_NOW].profile;
	live->total[which] = pair_of(&shot.profile->total);
	if (live->by == HL_VIEW_BY_THREAD)
		return add_threads(&shot);
	int r = hl_keys_init(&shot.keys, shot.profile, live->by, HL_VALUE_INUSE, HL_UNIT_BYTES,
			     live->cum == HL_LIVE_FLAT);
	return r < 0 ? r : add_keys(&shot);
}

/* ---- what is shown, in which order ---- */

static bool is_chosen(const struct hl_live *live, const struct hl_live_row *row)
{
	return strcasestr(row->label.name, live->filter) ||
	       strcasestr(row->label.file, live->filter) ||
	       strcasestr(row->label.module, live->filter);
}

static int by_column(const void *left, const void *right, void *context)
{
	const struct hl_live_row *a = left, *b = right;
	const struct hl_live *live = context;

	if (a->role != b->role)
		return a->role < b->role ? -1 : 1;
	for (int pass = 0; pass < 2 && live->sort != HL_LIVE_NAME; pass++) {
		enum hl_live_column column = pass ? HL_LIVE_ALLOC : live->sort;
		int64_t x = hl_live_figure(live, a, live->cum, live->unit, column);
		int64_t y = hl_live_figure(live, b, live->cum, live->unit, column);
		if (x != y)
			return x > y ? -1 : 1;
	}
	int order = strcmp(a->label.name, b->label.name);
	return order ? order : (a->id > b->id) - (a->id < b->id);
}

int hl_live_update(struct hl_live *live)
{
	int r = 0;

	if (live->rows)
		memset(live->rows, 0, live->row_capacity * sizeof(*live->rows));
	live->row_count = 0;
	if (!live->shots[HL_LIVE_NOW].profile)
		return 0;
	for (int which = 0; r == 0 && which < HL_LIVE_SHOTS; which++)
		r = read_shot(live, which);
	if (r < 0)
		return r;
	for (size_t i = 0; i < live->row_capacity; i++) {
		struct hl_live_row row = live->rows[i];
		const struct hl_live_pair *own = &row.figures[HL_LIVE_NOW][HL_LIVE_FLAT];
		bool counts = live->cum || row.role || hl_aggregate_any(own->alloc) ||
			      hl_aggregate_any(own->inuse);
		if (row.id && counts && is_chosen(live, &row))
			live->rows[live->row_count++] = row;
	}
	if (live->row_count)
		qsort_r(live->rows, live->row_count, sizeof(*live->rows), by_column, live);
	return 0;
}

/* ---- callers and callees ---- */

void hl_live_drill(struct hl_live *live, const struct hl_live_row *row)
{
	HL_FREED char *text = strdup(hl_strings_text(&live->texts, row->id));
	uint32_t id;

	if (!text || live->depth == HL_LIVE_DEPTH_MAX || live->by == HL_VIEW_BY_THREAD ||
	    row->role == HL_LIVE_ITSELF)
		return;
	text[0] = '0' + HL_LIVE_PLAIN;
	if (hl_strings_intern(&live->texts, text, &id) == 0)
		live->drilled[live->depth++] = id;
}

void hl_live_rise(struct hl_live *live)
{
	if (live->depth)
		live->depth--;
}
