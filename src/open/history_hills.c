/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds hills in time that is linear in the points; see history.h. */
#include "open/history.h"

#include "base/array.h"
#include "base/cleanup.h"

#define NO_HIGHER_GROUND INT64_MIN

/* A point with no higher one after it so far, and the least bytes between it and the one before. */
struct summit {
	int64_t bytes, lowest;
};

struct summits {
	struct summit *items;
	size_t count, capacity;
};

/*
 * Takes the next point, of ${bytes}; ${lowest} is the least that was in use since the point before.
 * ${equal_hides}: an equal point counts as higher ground. Returns the deepest valley on the
 * way back to higher ground in ${ret_valley}. 0 or -ENOMEM.
 */
static int take_point(struct summits *summits, int64_t bytes, int64_t lowest, bool equal_hides,
		      int64_t *ret_valley)
{
	while (summits->count) {
		const struct summit *last = &summits->items[summits->count - 1];
		if (last->bytes > bytes || (equal_hides && last->bytes == bytes))
			break;
		if (last->lowest < lowest)
			lowest = last->lowest;
		summits->count--;
	}
	*ret_valley = summits->count ? lowest : NO_HIGHER_GROUND;
	return HL_ARRAY_APPEND(summits->items, summits->count, summits->capacity,
			       (struct summit){bytes, lowest});
}

/*
 * Finds the deepest valley on the way from each point to higher ground, before or after it,
 * whichever is less deep. Between two neighbours only the bytes at the end of the earlier one are
 * known.
 */
static int find_valleys(const struct hl_history *history, int64_t *valleys)
{
	const struct hl_log_point *points = history->points;
	size_t count = history->point_count;
	struct summits summits = {0};
	int64_t valley;
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = take_point(&summits, points[i].max_bytes,
			       i ? points[i - 1].end_bytes : INT64_MAX, true, &valleys[i]);
	summits.count = 0;
	for (size_t i = count; r == 0 && i-- > 0;) {
		r = take_point(&summits, points[i].max_bytes,
			       i + 1 < count ? points[i].end_bytes : INT64_MAX, false, &valley);
		if (r == 0 && valley > valleys[i])
			valleys[i] = valley;
	}
	free(summits.items);
	return r;
}

/* Notes where it was lowest from the end of point ${first} to the end of the one before ${hill}. */
static void set_valley(const struct hl_history *history, size_t first, struct hl_history_hill *hill)
{
	hill->valley = SIZE_MAX;
	hill->valley_is_known = false;
	hill->valley_bytes = 0;
	if (first == SIZE_MAX) {
		first = 0;
		/* Before the range: nothing when the process began, else the log may say. */
		if (history->points > history->log->points)
			hill->valley_bytes = history->points[-1].end_bytes;
		hill->valley_is_known =
			history->points > history->log->points || history->points[0].number == 0;
	}
	for (size_t i = first; i < hill->point; i++)
		if (!hill->valley_is_known || history->points[i].end_bytes < hill->valley_bytes) {
			hill->valley = i;
			hill->valley_bytes = history->points[i].end_bytes;
			hill->valley_is_known = true;
		}
}

int hl_history_hills(const struct hl_history *history, double percent,
		     struct hl_history_hill **ret_hills, size_t *ret_count)
{
	HL_FREED int64_t *valleys = reallocarray(NULL, history->point_count, sizeof(*valleys));
	struct hl_history_hill *hills = NULL;
	size_t count = 0, capacity = 0;

	if (!valleys || find_valleys(history, valleys) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < history->point_count; i++) {
		const struct hl_log_point *point = &history->points[i];
		int64_t fall = valleys[i] == NO_HIGHER_GROUND ? 0 : point->max_bytes - valleys[i];
		if (valleys[i] != NO_HIGHER_GROUND &&
		    (fall <= 0 || (double)fall < percent / 100 * (double)point->max_bytes))
			continue;
		if (HL_ARRAY_RESERVE(hills, capacity, count + 1) < 0) {
			free(hills);
			return -ENOMEM;
		}
		hills[count].point = i;
		set_valley(history, count ? hills[count - 1].point : SIZE_MAX, &hills[count]);
		count++;
	}
	*ret_hills = hills;
	*ret_count = count;
	return 0;
}
