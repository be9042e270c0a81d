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
	HL_VIEW_BY_THREAD,  /* needs profile->threads; in diff: HL_VIEW_BY_STACK in its place */
	HL_VIEW_BY_TYPE,    /* of profiles of which hl_filter_apply() left that alone */
	HL_VIEW_BY_SERVICE, /* the same */
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
	uint64_t stack_limit; /* of each size class or peak; 0: all */
	bool full;	      /* stacks with all their frames */
	bool reversed;	      /* from the functions that allocated to their callers */

	/* What one view alone reads. */
	struct {
		const char *function;	 /* a name, or an extended regular expression */
		const char *source_path; /* where the sources are now; NULL: where they were */
	} annotate;
	struct {
		uint64_t fail_above; /* bytes that the total may grow by; for the verb */
	} diff;
	struct {
		enum hl_view_events report;
		bool names; /* of the functions that allocated */
	} events;
	struct {
		const char *title, *countname; /* NULL: a fitting one */
		enum hl_view_palette palette;
		bool flames_up; /* the root at the bottom */
	} flame;
	struct {
		enum hl_view_picture picture;
		uint64_t node_limit;
		double edge_threshold; /* percent of the total */
	} graph;
	struct {
		bool stacks; /* lists them */
	} info;
	struct {
		bool freed; /* lines whose memory was all freed, too */
		bool plain; /* one on each line, for scripts */
	} lines;
	struct {
		double valley; /* percent of its height that in use falls by on both sides */
	} peaks;
	struct {
		struct hl_history *history; /* of the profile's process; NULL: nothing is known */
	} report;
	struct {
		bool brief; /* one report of several, whose head is said once */
	} stacks;
	struct {
		enum hl_view_timeline form;
		uint64_t key_limit; /* by module or function: this many, and the rest in one; 0:
				       all, as far as there is room */
	} timeline;
	struct {
		double threshold;     /* percent of the total; what is smaller is folded */
		uint64_t depth_limit; /* of nodes; 0: none */
	} tree;
};

/* What a view returns when all is well but a limit that the user set was crossed. */
#define HL_VIEW_LIMIT_CROSSED 1

/* A view: writes a report of ${profile} to options->out. hl_top_view() is in top.c, and so on. */
typedef int hl_view(const struct hl_profile *profile, const struct hl_view_options *options,
		    struct hl_error *err);

hl_view hl_top_view;	/* functions, or what else options->by says, heaviest first */
hl_view hl_lines_view;	/* source lines, heaviest first */
hl_view hl_folded_view; /* a line for each stack: frames from the root, joined by ';', the value */
hl_view hl_info_view;	/* what was recorded, how, and what is missing; all there is of it */
hl_view hl_tree_view;	/* the call tree */
hl_view hl_flame_view;	/* an interactive flame graph as SVG; differential with profile->base */
hl_view hl_graph_view;	/* the call graph as a picture */
hl_view hl_diff_view;	/* growth from profile->base; by options->by */
hl_view hl_annotate_view; /* the source of a function with figures beside its lines */
hl_view hl_sizes_view;	  /* histogram of sizes, and the heaviest stacks of each class */
hl_view hl_report_view;	  /* one HTML page with all of it */

/* Whole stacks, heaviest first. By line, calls from different lines of a function are different
 * stacks. The schema is that of the trace's kind. */
hl_view hl_stacks_view;

/* A view of a recording's log. */
typedef int hl_history_view(struct hl_history *history, const struct hl_view_options *options,
			    struct hl_error *err);

hl_history_view hl_timeline_view; /* the maximum in use of each interval */
hl_history_view hl_peaks_view;	  /* the highest maxima, and the stacks that made them */
hl_history_view hl_growth_view;	  /* what rises steadily; by options->by */
hl_history_view hl_events_view;	  /* kept events, one by one or in sum; by options->events.report */

/* Files for other tools; these hold every value at once where their format can. */
hl_view hl_dhat_view, hl_firefox_view, hl_perfetto_view;
hl_view hl_pprof_view, hl_gperftools_view, hl_speedscope_view, hl_heaptrack_view, hl_csv_view,
	hl_export_json_view;
