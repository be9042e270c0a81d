/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds hills in time that is linear in the points; see history_hills.h. */
#include "open/history_hills.h"

#include "base/array.h"

#define NO_HIGHER_GROUND INT64_MIN

/* A point with none as high after it so far, and the lowest between it and the one before. */
struct summit {
	int64_t bytes, lowest;
};

struct summits {
	struct summit *items;
	size_t count, capacity;
};

/*
 * Takes the next point, of ${bytes}, what was in use having been ${lowest} at least since the point
 * before. ${equal_hides}: an equal point counts as higher ground. Returns the deepest valley on the
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

/* Between two neighbours the only thing known is what was in use where the earlier one ended. */
static int find_valleys_before(const struct hl_history *history, int64_t *valleys)
{
	struct summits summits = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < history->point_count; i++)
		r = take_point(&summits, history->points[i].max_bytes,
			       i ? history->points[i - 1].end_bytes : INT64_MAX, true, &valleys[i]);
	free(summits.items);
	return r;
}

/* Raises ${valleys} to those on the way to higher ground after each point. */
static int find_valleys_after(const struct hl_history *history, int64_t *valleys)
{
	struct summits summits = {0};
	int r = 0;

	for (size_t i = history->point_count; r == 0 && i-- > 0;) {
		int64_t valley;
		r = take_point(&summits, history->points[i].max_bytes,
			       i + 1 < history->point_count ? history->points[i].end_bytes
							    : INT64_MAX,
			       false, &valley);
		if (r == 0 && valley > valleys[i])
			valleys[i] = valley;
	}
	free(summits.items);
	return r;
}

static bool is_hill(const struct hl_log_point *point, int64_t valley, double percent)
{
	if (valley == NO_HIGHER_GROUND)
		return true;
	int64_t fall = point->max_bytes - valley;
	return fall > 0 && (double)fall >= percent / 100 * (double)point->max_bytes;
}

/* What was in use before the range: nothing when the process began, else the log may tell. */
static bool know_beginning(const struct hl_history *history, int64_t *ret_bytes)
{
	if (history->points > history->log->points)
		*ret_bytes = history->points[-1].end_bytes;
	else if (history->points[0].number > 0)
		return false;
	return true;
}

/* Where it was lowest from the end of point ${first} to the end of the one before ${hill}. */
static void find_valley(const struct hl_history *history, size_t first,
			struct hl_history_hill *hill)
{
	hill->valley = SIZE_MAX;
	hill->valley_is_known = false;
	hill->valley_bytes = 0;
	if (first == SIZE_MAX) {
		first = 0;
		hill->valley_is_known = know_beginning(history, &hill->valley_bytes);
	}
	for (size_t i = first; i < hill->point; i++)
		if (!hill->valley_is_known || history->points[i].end_bytes < hill->valley_bytes) {
			hill->valley = i;
			hill->valley_bytes = history->points[i].end_bytes;
			hill->valley_is_known = true;
		}
}

static int collect(const struct hl_history *history, const int64_t *valleys, double percent,
		   struct hl_history_hill **ret_hills, size_t *ret_count)
{
	struct hl_history_hill *hills = NULL;
	size_t count = 0, capacity = 0;

	for (size_t i = 0; i < history->point_count; i++) {
		if (!is_hill(&history->points[i], valleys[i], percent))
			continue;
		if (HL_ARRAY_RESERVE(hills, capacity, count + 1) < 0) {
			free(hills);
			return -ENOMEM;
		}
		hills[count].point = i;
		find_valley(history, count ? hills[count - 1].point : SIZE_MAX, &hills[count]);
		count++;
	}
	*ret_hills = hills;
	*ret_count = count;
	return 0;
}

int hl_history_hills(const struct hl_history *history, double percent,
		     struct hl_history_hill **ret_hills, size_t *ret_count)
{
	int64_t *valleys = reallocarray(NULL, history->point_count, sizeof(*valleys));
	int r = valleys ? find_valleys_before(history, valleys) : -ENOMEM;

	if (r == 0)
		r = find_valleys_after(history, valleys);
	if (r == 0)
		r = collect(history, valleys, percent, ret_hills, ret_count);
	free(valleys);
	return r;
}
