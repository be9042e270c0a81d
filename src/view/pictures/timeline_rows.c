/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses points for rows and keys for columns; see timeline.h. */
#include "view/pictures/timeline.h"

#include "base/cleanup.h"
#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Chooses the highest point of each row. */
static int choose_points(struct hl_timeline *timeline, size_t row_max)
{
	const struct hl_history *history = timeline->history;

	timeline->row_count =
		row_max && row_max < history->point_count ? row_max : history->point_count;
	timeline->points = calloc(timeline->row_count, sizeof(*timeline->points));
	if (!timeline->points)
		return -ENOMEM;
	for (size_t row = 0; row < timeline->row_count; row++) {
		size_t highest = hl_timeline_first_point(timeline, row);
		size_t end = hl_timeline_first_point(timeline, row + 1);
		for (size_t i = highest + 1; i < end; i++)
			if (history->points[i].max_bytes > history->points[highest].max_bytes)
				highest = i;
		timeline->points[row] = highest;
	}
	return 0;
}

/* ---- keys ---- */

struct area {
	double area;
	uint32_t key;
};

static int largest_first(const void *left, const void *right)
{
	const struct area *a = left, *b = right;

	if (a->area != b->area)
		return a->area < b->area ? 1 : -1;
	return (a->key > b->key) - (a->key < b->key);
}

/* Areas of all keys, largest first; to be freed. */
static struct area *sort_areas(const struct hl_timeline *timeline,
			       const struct hl_history_survey *survey)
{
	size_t count = timeline->frame_keys.count;
	struct area *areas = calloc(count, sizeof(*areas));

	if (!areas)
		return NULL;
	for (uint32_t i = 0; i < count; i++)
		areas[i].key = i;
	for (uint32_t i = 0; i < survey->sum_count; i++)
		areas[hl_keys_of_node(&timeline->frame_keys, timeline->history->profile, i)].area +=
			survey->sums[i].area;
	qsort(areas, count, sizeof(*areas), largest_first);
	return areas;
}

/* Gives the largest keys a column each, in ${column_of}, and all others one together. */
static void choose_columns(struct hl_timeline *timeline, const struct area *areas, size_t limit,
			   uint32_t *column_of)
{
	const struct hl_profile *profile = timeline->history->profile;
	size_t count = timeline->frame_keys.count, chosen = 0;

	while (chosen < limit && chosen < count && areas[chosen].area > 0)
		chosen++;
	for (size_t i = 0; i < chosen; i++)
		timeline->keys[i].label =
			hl_keys_label(&timeline->frame_keys, profile, areas[i].key);
	timeline->key_count = chosen;
	if (!chosen || (chosen < count && areas[chosen].area > 0))
		timeline->keys[timeline->key_count++] = (struct hl_timeline_key){
			.label = {.name = "", .file = "", .module = ""}, .is_rest = true};
	/* What comes after the last column holds nothing ever. */
	for (size_t i = 0; i < count; i++)
		column_of[areas[i].key] =
			(uint32_t)(i < timeline->key_count ? i : timeline->key_count - 1);
}

static int fill_columns(struct hl_timeline *timeline, const struct hl_history_survey *survey,
			size_t limit, struct hl_error *err)
{
	const size_t count = timeline->history->profile->node_count;
	HL_FREED uint32_t *column_of = calloc(timeline->frame_keys.count, sizeof(*column_of));
	HL_FREED uint32_t *columns = calloc(count, sizeof(*columns)); /* by node of the profile */
	HL_FREED struct area *areas = sort_areas(timeline, survey);

	if (!column_of || !columns || !areas)
		return -ENOMEM;
	choose_columns(timeline, areas, limit, column_of);
	for (uint32_t i = 0; i < count; i++)
		columns[i] = column_of[hl_keys_of_node(&timeline->frame_keys,
						       timeline->history->profile, i)];
	return hl_history_series(timeline->history, timeline->points, timeline->row_count, columns,
				 timeline->key_count, &timeline->bytes, err);
}

static int split_by_keys(struct hl_timeline *timeline, struct hl_history *history,
			 const struct hl_view_options *options, struct hl_error *err)
{
	size_t limit = options->key_limit < HL_TIMELINE_KEYS_MAX ? (size_t)options->key_limit
								 : HL_TIMELINE_KEYS_MAX;
	HL_CLEANUP(hl_history_survey_release) struct hl_history_survey survey = {0};

	int r = hl_history_survey_init(&survey, history, 1, err);
	if (r < 0)
		return r;
	r = hl_keys_init(&timeline->frame_keys, history->profile, options->by, HL_VALUE_INUSE,
			 HL_UNIT_BYTES, true);
	return r < 0 ? r : fill_columns(timeline, &survey, limit, err);
}

/* ---- all of it ---- */

int hl_timeline_init(struct hl_timeline *timeline, struct hl_history *history,
		     const struct hl_view_options *options, size_t row_max, struct hl_error *err)
{
	*timeline = (struct hl_timeline){.history = history};
	int r = choose_points(timeline, row_max);
	if (r == 0 && options->by != HL_VIEW_BY_TOTAL)
		r = split_by_keys(timeline, history, options, err);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot show '%s': out of memory", history->path)
			    : r;
}

void hl_timeline_release(struct hl_timeline *timeline)
{
	hl_keys_release(&timeline->frame_keys);
	free(timeline->points);
	free(timeline->bytes);
	*timeline = (struct hl_timeline){0};
}

const char *hl_timeline_key_text(const struct hl_timeline_key *key, char *buffer, size_t size)
{
	char place[256];

	if (key->is_rest)
		snprintf(buffer, size, "the rest");
	else if (hl_keys_names_module(&key->label) || !strcmp(key->label.name, key->label.module))
		snprintf(buffer, size, "%s", hl_path_basename(key->label.name));
	else if (!key->label.file[0] && !key->label.module[0])
		snprintf(buffer, size, "%s", key->label.name);
	else
		snprintf(buffer, size, "%s (%s)", key->label.name,
			 hl_keys_place(&key->label, place, sizeof(place)));
	return buffer;
}
