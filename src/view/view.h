/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The views: each writes one report about a profile. All take what to show and how from one set of
 * options, write to options->out, and return 0 or a negative errno with a sentence.
 */
#pragma once

#include "open/history.h"
#include "profile/profile.h"
#include "view/emit.h"

enum hl_view_sort {
	HL_VIEW_SORT_FLAT,
	HL_VIEW_SORT_CUM,
	HL_VIEW_SORT_GROWTH, /* diff: what grew most first, what shrank most last */
	HL_VIEW_SORT_SIZE,   /* diff: the larger of before and after */
};

/* What a row stands for. */
enum hl_view_key {
	HL_VIEW_BY_FUNCTION,
	HL_VIEW_BY_LINE,
	HL_VIEW_BY_ADDRESS,
	HL_VIEW_BY_MODULE,
	HL_VIEW_BY_THREAD, /* needs profile->threads; in diff: HL_VIEW_BY_STACK in its place */
	HL_VIEW_BY_STACK,
	HL_VIEW_BY_TOTAL, /* timeline: all in one */
};

enum hl_view_palette {
	HL_VIEW_PALETTE_AUTO,	/* diff where two profiles are compared, else module */
	HL_VIEW_PALETTE_DIFF,	/* red grew, blue shrank; needs profile->base */
	HL_VIEW_PALETTE_MODULE, /* by function where all is in one module */
};

enum hl_view_timeline {
	HL_VIEW_TIMELINE_TEXT,
	HL_VIEW_TIMELINE_SVG,
	HL_VIEW_TIMELINE_CSV,
};

enum hl_view_events {
	HL_VIEW_EVENTS_SUMMARY,
	HL_VIEW_EVENTS_DUMP,
	HL_VIEW_EVENTS_LIFETIMES,
	HL_VIEW_EVENTS_REPLAY,
};

enum hl_view_picture {
	HL_VIEW_DOT,
	HL_VIEW_SVG,
	HL_VIEW_PNG,
};

struct hl_view_options {
	FILE *out;
	FILE *notes; /* for what must be said beside plain lines */
	enum hl_value value;
	enum hl_unit unit;
	const char *value_reason; /* "because ...": why this value and not the usual one; NULL */
	bool json, color;
	enum hl_view_sort sort;
	enum hl_view_key by;
	uint64_t row_limit;   /* 0: all; or HL_EMIT_ROWS_DEFAULT */
	double threshold;     /* percent of the total; what is smaller is left out or folded */
	bool stacks;	      /* info: list them; events: name the functions that allocated */
	bool reversed;	      /* tree, flame: from the functions that allocated to their callers */
	uint64_t depth_limit; /* tree: of nodes; 0: none */
	bool brief;	      /* stacks: one report of several, whose head is said once */
	const char *function; /* annotate: a name, or an extended regular expression */
	const char *source_path; /* annotate: where the sources are now; NULL: where they were */

	/* sizes */
	uint64_t stack_limit; /* of each class; 0: all */
	bool full;	      /* stacks with all their frames */

	/* flame */
	const char *title, *countname; /* NULL: a fitting one */
	enum hl_view_palette palette;
	bool flames_up; /* the root at the bottom */

	/* graph */
	enum hl_view_picture picture;
	uint64_t node_limit;
	double edge_threshold; /* percent of the total */

	/* timeline, peaks */
	enum hl_view_timeline timeline;
	uint64_t key_limit; /* timeline by module or function: this many, and the rest in one; 0:
			       all, as far as there is room */
	double valley;	    /* peaks: percent of its height that in use falls by on both sides */

	enum hl_view_events events;

	struct hl_history *history; /* report: of the profile's process; NULL: nothing is known */
};

/* What a view returns when all is well but a limit that the user set was crossed. */
#define HL_VIEW_LIMIT_CROSSED 1

/* A view: writes a report of ${profile} to options->out. */
typedef int hl_view(const struct hl_profile *profile, const struct hl_view_options *options,
		    struct hl_error *err);

hl_view hl_view_top;	/* functions, or what else options->by says, heaviest first */
hl_view hl_view_lines;	/* source lines, heaviest first */
hl_view hl_view_folded; /* a line for each stack: frames from the root, joined by ';', the value */
hl_view hl_view_info;	/* what was recorded, how, and what is missing; all there is of it */
hl_view hl_view_tree;	/* the call tree */
hl_view hl_view_flame;	/* an interactive flame graph as SVG; differential with profile->base */
hl_view hl_view_graph;	/* the call graph as a picture */
hl_view hl_view_diff;	/* growth from profile->base; by options->by */
hl_view hl_view_annotate; /* the source of a function with figures beside its lines */
hl_view hl_view_sizes;	  /* histogram of sizes, and the heaviest stacks of each class */
hl_view hl_view_report;	  /* one HTML page with all of it */

/* A view of a recording's log. */
typedef int hl_history_view(struct hl_history *history, const struct hl_view_options *options,
			    struct hl_error *err);

hl_history_view hl_view_timeline; /* the maximum in use of each interval */
hl_history_view hl_view_peaks;	  /* the highest maxima, and the stacks that made them */
hl_history_view hl_view_growth;	  /* what rises steadily; by options->by */
hl_history_view hl_view_events;	  /* kept events, one by one or in sum; by options->events */

/* Files for other tools; these hold every value at once where their format can. */
hl_view hl_view_pprof, hl_view_speedscope, hl_view_heaptrack, hl_view_csv, hl_view_json;
