/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process over time, as its log tells it. The timeline is known from the log's indexes alone;
 * names, and what each stack held, are read from the log itself when a view asks for them.
 *
 *	point	one interval of 100 ms, see log/log.h
 *	range	the points that the views show; times count from its beginning
 */
#pragma once

#include "log/log.h"
#include "open/open.h"
#include "profile/filter.h"

/* In milliseconds since the process' recording began. The intervals of both ends are included. */
struct hl_history_range {
	uint64_t first_ms, last_ms;
};

#define HL_HISTORY_ALL ((struct hl_history_range){0, UINT64_MAX})

struct hl_history {
	char *path;
	struct hl_log_source source;
	const struct hl_recording_process *process; /* whose log it is */
	struct hl_log *log;
	const struct hl_log_point *points; /* the range, a part of log->points */
	size_t point_count;		   /* at least 1 */
	struct hl_log_options reading;
	const struct hl_filter *filter; /* of the profile; NULL if there is none */
	struct hl_profile *profile;	/* has the figures of the range, and no nodes until
					   hl_history_survey() */
	uint32_t *profile_nodes;	/* by node of the log: its node of the profile, or
					   HL_NODE_LEFT_OUT if an expression of the filter did so */
	size_t log_node_count;		/* 0 until hl_history_survey() */
};

/*
 * Opens the log in ${path}, see open.h, of the process that ${selection} names, else of the
 * one with the highest peak. ${filter}, which may be NULL and must outlive the history, is applied
 * to the stacks, and not to what the timeline says of all. 0 or a negative errno with a sentence.
 */
int hl_history_open(const char *path, const struct hl_profile_selection *selection,
		    const struct hl_history_range *range, const struct hl_filter *filter,
		    struct hl_history **ret_history, struct hl_error *err);

void hl_history_free(struct hl_history *history); /* NULL is fine */

/* Where the range begins and how long it is. */
static inline uint64_t hl_history_start_ms(const struct hl_history *history)
{
	return history->points[0].number * HL_INTERVAL_TICKS;
}

static inline uint64_t hl_history_length_ms(const struct hl_history *history)
{
	return history->point_count * HL_INTERVAL_TICKS;
}

/*
 * Names the nodes of ${state} instead of whatever the profile named before. What was in use in
 * ${state} is then what the profile's nodes have in use. 0 or a negative errno with a sentence.
 */
int hl_history_name(struct hl_history *history, const struct hl_log_state *state,
		    struct hl_error *err);

/* ---- what each stack held over the range ---- */

/* One node of the profile. Sums are over the range, with in-use bytes as they were at each ms. */
struct hl_history_sum {
	int64_t from_bytes, to_bytes; /* in use at the range's beginning and end */
	double area;		      /* sum of bytes, in byte ms */
	double moment;		      /* sum of bytes * time, in byte ms ms */
	double *buckets; /* area of each of survey->bucket_count equal parts of the range, then the
			    least in use in each, of several nodes the sum of theirs; NULL where
			    the bytes never changed */
};

struct hl_history_survey {
	struct hl_history_sum *sums; /* by node of the profile */
	size_t sum_count;
	size_t bucket_count;
};

/*
 * Reads the whole range: names the nodes, as hl_history_name() does of the range's end, and sums up
 * what they held. A log knows what was in use at the maximum and at the end of an interval: changes
 * are taken to happen there. If the log began after the process did, what is in use at the end of
 * its first interval counts from the beginning of that interval. Release in any case. 0 or a
 * negative errno with a sentence.
 */
int hl_history_survey_init(struct hl_history_survey *survey, struct hl_history *history,
			   size_t bucket_count, struct hl_error *err);
void hl_history_survey_release(struct hl_history_survey *survey);

/* Where bucket ${index} begins, in ms from the beginning of the range. */
static inline uint64_t hl_history_bucket_ms(const struct hl_history *history, size_t bucket_count,
					    size_t index)
{
	return hl_history_length_ms(history) * index / bucket_count;
}

/* Adds ${more} to ${sum}; buckets of ${sum} are made if need be. 0 or -ENOMEM. */
int hl_history_survey_add_sum(struct hl_history_sum *sum, const struct hl_history_sum *more,
			      const struct hl_history *history, size_t bucket_count);

/* Bytes per second, by least squares over every ms of the range. */
double hl_history_survey_slope(const struct hl_history_sum *sum, const struct hl_history *history);

/* ---- what was in use at maxima, by key ---- */

/*
 * What each key held at the maximum of some points: ${ret_bytes}, to be freed, has ${key_count}
 * figures for each of the ${count} ${points}, which are indexes of history->points in ascending
 * order. ${key_of} gives each node of the profile, which hl_history_survey_init() has named, a key.
 * The figures of a point add up to its max_bytes. The history's filter has no expressions. 0 or a
 * negative errno with a sentence.
 */
int hl_history_series(const struct hl_history *history, const size_t *points, size_t count,
		      const uint32_t *key_of, size_t key_count, int64_t **ret_bytes,
		      struct hl_error *err);

/* ---- hills: maxima of the timeline that are told apart ---- */

/*
 * A point is a hill when, on the way to any higher point, what is in use falls by a share of the
 * hill's height at least. The highest point always is one; of equal points without such a valley in
 * between, the first is. So a hill's own ups and downs make no further hills, however many there
 * are.
 */
struct hl_history_hill {
	size_t point; /* index of history->points */
	/* Since the hill before, or the range's beginning, what was in use was lowest at the end of
	 * this point's interval; SIZE_MAX: before the first one. */
	size_t valley;
	int64_t valley_bytes;
	bool valley_is_known; /* false where the log begins with the hill, long after the process;
				 valley_bytes is then 0 */
};

/*
 * The hills of the range in order of time; each falls by ${percent} of its height on both sides.
 * ${ret_hills} is to be freed. 0 or -ENOMEM.
 */
int hl_history_hills(const struct hl_history *history, double percent,
		     struct hl_history_hill **ret_hills, size_t *ret_count);
