/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums by label and by time; see query.h. */
#include "fleet/query.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/filter.h"

#include <inttypes.h>

/* ---- by label ---- */

static struct hl_fleet_group *find_group(struct hl_fleet_groups *groups, const char *name)
{
	for (size_t i = 0; i < groups->count; i++)
		if (groups->all[i].name == name) /* equal texts are one */
			return &groups->all[i];
	if (HL_ARRAY_APPEND(groups->all, groups->count, groups->capacity,
			    (struct hl_fleet_group){.name = name}) < 0)
		return NULL;
	return &groups->all[groups->count - 1];
}

/* Adds what one session has at the end, ${inuse} bytes where it is ${alive}, and had, ${earlier} bytes, at the beginning. */
static void add(struct hl_fleet_group *group, bool alive, int64_t inuse, int64_t earlier,
		int64_t alloc)
{
	group->processes += alive;
	group->inuse_bytes += inuse;
	group->before_bytes += earlier;
	group->growth_bytes += inuse - earlier;
	group->alloc_bytes += alloc;
}

static int by_growth(const void *left, const void *right)
{
	const struct hl_fleet_group *a = left, *b = right;

	if (a->growth_bytes != b->growth_bytes)
		return a->growth_bytes < b->growth_bytes ? 1 : -1;
	return strcmp(a->name, b->name);
}

static int largest_first(const void *left, const void *right)
{
	const struct hl_fleet_group *a = left, *b = right;

	if (a->inuse_bytes != b->inuse_bytes)
		return a->inuse_bytes < b->inuse_bytes ? 1 : -1;
	return strcmp(a->name, b->name);
}

int hl_fleet_groups_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 enum hl_fleet_label label, const char *stacks, bool by_size,
			 struct hl_fleet_groups *groups, struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_sums_release) struct hl_fleet_sums levels = {0}, changes = {0};

	*groups = (struct hl_fleet_groups){.total = {.name = "sum"}};
	int r = hl_fleet_sessions_read(store, selection, &groups->sessions, err);
	if (r == 0)
		r = hl_fleet_levels_read(store, selection, stacks, &levels, err);
	if (r == 0)
		r = hl_fleet_changes_read(store, selection, stacks, &changes, err);
	for (size_t i = 0; r == 0 && i < groups->sessions.count; i++) {
		const struct hl_fleet_session *session = &groups->sessions.all[i];
		const struct hl_fleet_sum *level = hl_fleet_sums_find(&levels, session->session);
		const struct hl_fleet_sum *change = hl_fleet_sums_find(&changes, session->session);
		bool alive = hl_fleet_session_is_alive(session, selection->at_ms);
		bool was_alive = hl_fleet_session_is_alive(session, selection->since_ms);
		int64_t bytes = level ? level->inuse_bytes : 0;
		int64_t alloc = change ? change->alloc_bytes : 0;
		int64_t earlier = was_alive ? bytes - (change ? change->inuse_bytes : 0) : 0;
		if (!alive && !was_alive && !alloc)
			continue;
		struct hl_fleet_group *group = find_group(groups, session->labels[label]);
		if (!group)
			return hl_error_set(err, -ENOMEM, "out of memory");
		add(group, alive, alive ? bytes : 0, earlier, alloc);
		add(&groups->total, alive, alive ? bytes : 0, earlier, alloc);
	}
	if (groups->count)
		qsort(groups->all, groups->count, sizeof(*groups->all),
		      by_size ? largest_first : by_growth);
	return r;
}

void hl_fleet_groups_release(struct hl_fleet_groups *groups)
{
	hl_fleet_sessions_release(&groups->sessions);
	free(groups->all);
}

/* ---- by time ---- */

static int by_session_backwards(const void *left, const void *right)
{
	const struct hl_fleet_step *a = left, *b = right;

	if (a->session != b->session)
		return a->session > b->session ? 1 : -1;
	return (a->step < b->step) - (a->step > b->step);
}

/* Goes back in time from what one session has at the end, ${inuse}; ${steps} are its own, the latest first. */
static void add_session(struct hl_fleet_moments *moments, const struct hl_fleet_session *session,
			int64_t inuse, const struct hl_fleet_step *steps, size_t count,
			int64_t step_ms)
{
	size_t at = 0;

	for (size_t i = moments->count; i-- > 0;) {
		struct hl_fleet_moment *moment = &moments->all[i];
		int64_t step = (moment->ms - 1) / step_ms;
		if (hl_fleet_session_is_alive(session, moment->ms)) {
			moment->processes++;
			moment->inuse_bytes += inuse;
		}
		for (; at < count && steps[at].step >= step; at++) {
			moment->alloc_bytes += steps[at].alloc_bytes;
			inuse -= steps[at].inuse_bytes;
		}
	}
}

int hl_fleet_moments_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			  int64_t step_ms, const char *stacks, struct hl_fleet_moments *moments,
			  struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_sessions_release) struct hl_fleet_sessions sessions = {0};
	HL_CLEANUP(hl_fleet_sums_release) struct hl_fleet_sums sums = {0};
	struct hl_fleet_steps steps = {0};
	int64_t first_ms = (selection->since_ms / step_ms + 1) * step_ms;
	size_t at = 0;

	*moments = (struct hl_fleet_moments){0};
	int r = 0;
	for (int64_t ms = first_ms; r == 0; ms += step_ms) {
		struct hl_fleet_moment moment = {.ms = ms < selection->at_ms ? ms
									     : selection->at_ms};
		hl_fleet_put_time(moment.ms, moment.time);
		r = moments->count < HL_FLEET_STEPS_MAX
			    ? HL_ARRAY_APPEND(moments->all, moments->count, moments->capacity,
					      moment)
			    : hl_error_set(err, -E2BIG,
					   "there would be more than %d steps; name longer ones "
					   "with --step",
					   HL_FLEET_STEPS_MAX);
		if (ms >= selection->at_ms)
			break;
	}
	if (r == 0)
		r = hl_fleet_sessions_read(store, selection, &sessions, err);
	/* All that changed, of sessions that had ended by then too. */
	if (r == 0)
		r = hl_fleet_steps_read(store, selection, step_ms, stacks, &steps, err);
	if (r == 0)
		r = hl_fleet_levels_read(store, selection, stacks, &sums, err);
	if (r == 0 && steps.count)
		qsort(steps.all, steps.count, sizeof(*steps.all), by_session_backwards);
	for (size_t i = 0; r == 0 && i < sessions.count; i++) {
		const struct hl_fleet_sum *sum = hl_fleet_sums_find(&sums, sessions.all[i].session);
		size_t first = at;
		while (at < steps.count && steps.all[at].session == sessions.all[i].session)
			at++;
		add_session(moments, &sessions.all[i], sum ? sum->inuse_bytes : 0,
			    steps.all + first, at - first, step_ms);
	}
	free(steps.all);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

/* ---- stacks by a frame ---- */

struct finder {
	regex_t expression;
	FILE *out;
	size_t count;
};

static int take_stack(void *context, char **cells, size_t count)
{
	struct finder *finder = context;

	if (count != 2)
		return -EBADMSG;
	for (char *rest = cells[1], *line; rest && *rest;) {
		line = strsep(&rest, "\n");
		line[strcspn(line, "\t")] = '\0';
		if (regexec(&finder->expression, line, 0, NULL, 0) != 0)
			continue;
		fprintf(finder->out, "%s%s", finder->count++ ? ", " : "", cells[0]);
		break;
	}
	return 0;
}

int hl_fleet_stacks_find(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 const char *expression, char **ret_stacks, struct hl_error *err)
{
	struct finder finder = {0};
	char *stacks = NULL;
	size_t size;

	int r = hl_expression_compile(expression, " of --focus", &finder.expression, err);
	if (r < 0)
		return r;
	finder.out = open_memstream(&stacks, &size);
	r = finder.out ? hl_fleet_stacks_ask(store, selection, take_stack, &finder, err) : -ENOMEM;
	if (finder.out && !finder.count)
		fputs("0", finder.out);
	if (finder.out && fclose(finder.out) != 0 && r == 0)
		r = -ENOMEM;
	regfree(&finder.expression);
	if (r == 0)
		*ret_stacks = stacks;
	else
		free(stacks);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}
