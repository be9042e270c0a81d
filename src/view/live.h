/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording watched while it grows: what is in use now and over time, rows with rates and with what
 * changed since a mark, and the callers and callees of any of them.
 *
 *	shot	a profile, and when it was saved
 *	mark	the shot that growth is counted from: the first one, or the one the user chose
 */
#pragma once

#include "base/array.h"
#include "base/strings.h"
#include "view/rows.h"

#define HL_LIVE_SAMPLES_MAX 3600 /* an hour of seconds; later ones take the place of the first */
#define HL_LIVE_DEPTH_MAX   32

/* How things stood at one moment. */
struct hl_live_sample {
	uint64_t ns; /* CLOCK_MONOTONIC */
	int64_t inuse_bytes, inuse_objects, peak_bytes;
	int64_t rss_bytes; /* without the recorder's memory; 0: not known */
	int64_t recorder_bytes;
	int64_t threads; /* that run now */
	int64_t events;	 /* allocations and frees so far */
	uint64_t ms;	 /* since the recording of the process began */
	char mode[16];
};

struct hl_live_shot {
	struct hl_profile *profile; /* NULL if there is none */
	uint64_t saved_ns;	    /* CLOCK_REALTIME */
	uint64_t taken_ns;	    /* CLOCK_MONOTONIC: by hl_live_take() */
};

struct hl_live_pair {
	struct hl_aggregate_figures inuse, alloc;
};

enum { HL_LIVE_FLAT, HL_LIVE_CUM };
enum { HL_LIVE_NOW, HL_LIVE_BEFORE, HL_LIVE_MARK, HL_LIVE_SHOTS };

enum hl_live_column {
	HL_LIVE_INUSE,
	HL_LIVE_ALLOC, /* ever */
	HL_LIVE_RATE,  /* of allocations, a second */
	HL_LIVE_DELTA, /* of what is in use, since the mark */
	HL_LIVE_NAME,
	HL_LIVE_COLUMNS,
};

/* What a row is to the one whose callers and callees are shown. */
enum hl_live_role {
	HL_LIVE_PLAIN,
	HL_LIVE_CALLER,
	HL_LIVE_ITSELF,
	HL_LIVE_CALLEE,
	HL_LIVE_ROLES,
};

struct hl_live_row {
	uint32_t id; /* of its text in live->texts, which is the same in every shot */
	enum hl_live_role role;
	struct hl_keys_label label;
	struct hl_live_pair figures[HL_LIVE_SHOTS][2]; /* flat and cum */
};

struct hl_live {
	/* What is watched, which the caller fills in. */
	const char *path, *name, *command; /* of the recording */
	char pid[16];			   /* "" for all processes */
	char end[512];	   /* the sentence that says why nothing more comes; "": it goes on */
	char silence[256]; /* says why only saves are known; "": the collector answers */

	/* How, which may change at any time before hl_live_update(). */
	enum hl_view_key by; /* function, line, module or thread */
	enum hl_unit unit;
	int cum; /* HL_LIVE_FLAT or HL_LIVE_CUM */
	enum hl_live_column sort;
	char filter[128];		     /* in the name, file or module, in any case */
	uint32_t drilled[HL_LIVE_DEPTH_MAX]; /* texts of rows, innermost last */
	size_t depth;

	struct hl_live_sample samples[HL_LIVE_SAMPLES_MAX]; /* a ring */
	size_t sample_count;				    /* ever */
	struct hl_live_shot shots[HL_LIVE_SHOTS];
	struct hl_strings texts;
	struct hl_live_row *rows;
	size_t row_count, row_capacity;
	struct hl_live_pair total[HL_LIVE_SHOTS];
};

/* Adds a sample. */
void hl_live_add_sample(struct hl_live *live, struct hl_live_sample sample);

/* "running", "silent" or "ended". */
const char *hl_live_state(const struct hl_live *live);

/* The last sample, or one of zeroes. */
const struct hl_live_sample *hl_live_last(const struct hl_live *live);

/* Takes over a new shot; the one before becomes what rates are counted from. */
void hl_live_take(struct hl_live *live, struct hl_profile *profile, uint64_t saved_ns);

/* Forgets all shots and samples: another program took the place of the one that was watched. */
void hl_live_forget(struct hl_live *live);

/* Growth counts from the last shot on. */
void hl_live_mark(struct hl_live *live);

/* Makes the rows. 0 or -ENOMEM. */
int hl_live_update(struct hl_live *live);

/* What stands in a column. */
int64_t hl_live_figure(const struct hl_live *live, const struct hl_live_row *row, int cum,
		       enum hl_unit unit, enum hl_live_column column);

/* From ${before} to ${now}, a second; 0 while nothing is allocated. */
int64_t hl_live_rate(const struct hl_live *live, struct hl_aggregate_figures now,
		     struct hl_aggregate_figures before, enum hl_unit unit);

/* Shows the callers and callees of ${row}; those of the one before again. */
void hl_live_drill(struct hl_live *live, const struct hl_live_row *row);
void hl_live_rise(struct hl_live *live);

void hl_live_release(struct hl_live *live);

/* ---- live_text.c ---- */

enum {
	HL_LIVE_HEAD = 1,     /* the first line, and the titles */
	HL_LIVE_HEAVY = 2,    /* as HL_EMIT_HEAVY */
	HL_LIVE_SELECTED = 4, /* the row that keys are about */
	HL_LIVE_WARNING = 8,
};

/* How a screen is filled. */
struct hl_live_page {
	size_t width, height;	 /* height 0: as many lines as it takes */
	size_t row_limit;	 /* 0: as many as fit, or all */
	size_t first, selected;	 /* rows */
	bool keys, help, paused; /* names the keys below; instead of rows; nothing is looked at */
	const char *prompt;	 /* what is being typed, instead of the keys; NULL: nothing */
	void (*line)(void *context, const char *text, unsigned emphasis);
	void *context;
	size_t shown; /* returned: how many rows there was room for */
};

/* Writes one screen. 0 or -ENOMEM. */
int hl_live_paint(const struct hl_live *live, struct hl_live_page *page);

/* Writes one line of JSON, heapline/live/1. 0 or a negative errno. */
int hl_live_json(const struct hl_live *live, size_t row_limit, FILE *out);

/* ---- live_screen.c ---- */

/* Looks again: adds a sample, and a shot if there is a new one. 0 or a negative errno. */
typedef int hl_live_look(struct hl_live *live, void *context, struct hl_error *err);

/* Shows ${live} until the user has seen enough, at most ${row_limit} rows, or as many as fit where that is 0. 0 or a negative errno
 * with a sentence. */
int hl_live_screen(struct hl_live *live, double seconds, size_t row_limit, bool color,
		   hl_live_look *look, void *context, struct hl_error *err);
