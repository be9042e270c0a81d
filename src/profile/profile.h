/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The profile: the only model that views know. Whatever a recording or an imported file holds is
 * loaded into it, named, and then only read.
 *
 *	module    an ELF file, by path and build id; one, however many processes mapped it
 *	function  a name in a module
 *	frame     a place in a function: an address; inlined functions at one address have a frame
 *		  each
 *	node      a frame below a frame: the call tree. Node 0 is the root and has no frame
 *	counters  what was allocated with that node as the leaf; its descendants not included
 *
 * Nodes are in preorder: a node's subtree is the run of nodes from its own id to `end`, so every
 * walk over the tree is a loop over an array.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/file_print.h"
#include "base/lost.h"
#include "base/strings.h"
#include "recording/recording.h"
#include "symbols/symbols.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum hl_value {
	HL_VALUE_INUSE,	    /* allocated and not freed */
	HL_VALUE_ALLOC,	    /* ever allocated */
	HL_VALUE_PEAK,	    /* in use when the process' total was highest */
	HL_VALUE_TEMPORARY, /* freed as the thread's next event; objects only */
	HL_VALUE_SLACK,	    /* usable - requested of what is in use; bytes only */
	HL_VALUE_RESIDENT,  /* usable bytes of what is in use that lie in RAM; bytes only */
	HL_VALUE_SWAPPED,   /* that were swapped out; bytes only */
};

#define HL_VALUE_COUNT 7

/* Known of snapshots and of processes that are looked at while they run. */
static inline bool hl_value_is_of_pages(enum hl_value value)
{
	return value == HL_VALUE_RESIDENT || value == HL_VALUE_SWAPPED;
}

enum hl_unit {
	HL_UNIT_BYTES,
	HL_UNIT_OBJECTS,
};

#define HL_UNIT_COUNT 2

struct hl_profile_counters {
	int64_t alloc_bytes, alloc_objects;
	int64_t free_bytes, free_objects;
	int64_t peak_bytes, peak_objects;
	int64_t temporary_objects;
	int64_t slack_bytes;
	int64_t resident_bytes, swapped_bytes;
};

/* Texts are ids of profile->strings. */
struct hl_profile_module {
	uint32_t path;			   /* 0: addresses outside every module */
	uint8_t build_id[HL_BUILD_ID_MAX]; /* see base/file_print.h */
	uint32_t build_id_bytes;
	struct hl_file_print print;
	bool used;   /* some frame lies in it; only then are its symbols looked for */
	bool script; /* no file: a runtime of scripts, named instead of a path */
	enum hl_symbols_source symbols;
	uint32_t symbols_reason; /* why there are no better ones, and what would help */
};

/* The function's name in HL_PSEUDO_RETURN_PROBE frames. */
#define HL_PROFILE_RETURN_PROBE "[uretprobe trampoline]"

struct hl_profile_function {
	uint32_t name;
	uint32_t label;	     /* see builder.h; nearly always the name */
	uint32_t file, line; /* where it begins; 0 when unknown */
	uint32_t module;
};

struct hl_profile_frame {
	uint64_t address; /* in the module's file; without a module, in the process */
	uint32_t function;
	uint32_t file, line; /* 0 when unknown */
	bool inlined;
	uint8_t part;	   /* enum hl_frame_part */
	uint32_t provider; /* the runtime, a module; of native frames 0 */
};

struct hl_profile_node {
	uint32_t parent; /* smaller than the node's own id */
	uint32_t end;	 /* one past the last node of its subtree */
	uint32_t frame;	 /* of node 0: 0, which means nothing */
};

/* One process that the profile sums up. */
struct hl_profile_process {
	uint32_t pid, parent_pid, sequence;
	uint32_t thread_count; /* selected ones, with those that had ended; 0: unknown */
	uint32_t command;      /* words joined by spaces */
	uint32_t executable;
	uint32_t end; /* sentence: "exited with status 0" */
	uint64_t duration_ns;
	bool complete;	 /* false: figures are those of the last save */
	bool own_malloc; /* has a malloc of its own, which was not seen */
	struct hl_profile_counters total;
	struct hl_lost lost;
};

/* One thread slot of one selected process: what its threads did, one after another. */
struct hl_profile_thread {
	uint32_t process; /* index of processes */
	uint32_t tid;
	uint32_t name;		  /* "" when unknown */
	uint32_t earlier_threads; /* that had ended, and whose figures are among these */
	struct hl_profile_counters total;
};

/* What one thread did at one node. A pair may occur more than once; the rows add up. */
struct hl_profile_row {
	uint32_t node, thread;
	struct hl_profile_counters counters;
};

/* What one thread allocated at one node in one size class, see hl_size_class(). */
struct hl_profile_size {
	uint32_t node, thread, size_class;
	struct hl_profile_counters counters;
};

/* A moment that somebody named while a process without a log was recorded. */
struct hl_profile_mark {
	uint32_t pid;
	uint32_t name;
	uint64_t ms; /* after the process' start */
};

/* A number that is of the whole recording: see recording.h. */
struct hl_profile_figure {
	uint32_t name;
	int64_t value;
};

struct hl_profile {
	struct hl_strings strings;

	/* Where it comes from; ids of strings. */
	uint32_t name, command, host, kernel, mode, tool_version;
	uint32_t source; /* kind of file: "recording", "packed recording", "pprof", ... */
	bool imported;	 /* from another tool's file: no processes, and only some values known */
	bool known[HL_VALUE_COUNT][HL_UNIT_COUNT]; /* else all zero, and not to be shown */
	bool has_preferred; /* the file names the value that views show first: */
	enum hl_value preferred_value;
	enum hl_unit preferred_unit;
	uint64_t sample_bytes;
	uint64_t start_realtime_ns, duration_ns;
	bool complete;			 /* the recording was finished, and every process in it */
	bool snapshot;			 /* a copy that was taken while it went on */
	bool attached;			 /* blocks allocated before it began are not counted */
	bool left_running;		 /* a process of it ran on when it ended */
	bool no_scripts;		 /* interpreters were not looked for */
	uint64_t reset_ns;		 /* after the start: the last of its processes; 0: none */
	bool resident_is_mean;		 /* some blocks count with the mean size of their stack's */
	uint64_t resident_unknown_bytes; /* in RAM, of live blocks whose stack is not known */
	bool running; /* else an incomplete recording that is not a snapshot was interrupted */
	uint32_t *warnings;
	size_t warning_count;
	struct hl_profile_mark *marks;
	size_t mark_count;
	struct hl_profile_figure *figures;
	size_t figure_count;

	struct hl_profile_process *processes;
	struct hl_profile_module *modules;
	struct hl_profile_function *functions;
	struct hl_profile_frame *frames;
	struct hl_profile_node *nodes;
	struct hl_profile_counters *counters; /* of nodes[i] */
	size_t process_count, module_count, function_count, frame_count, node_count;

	struct hl_profile_thread *threads;
	size_t thread_count;
	struct hl_profile_row *rows; /* counters[] by thread; only when selection->keep_rows */
	size_t row_count;
	struct hl_profile_size *sizes; /* counters[] by size class; none unless recorded so */
	size_t size_count;

	/* Of two profiles that were compared (hl_profile_join()), or of folded text with two columns:
	 * the earlier one, by node; `counters` and `total` are then the later one. NULL: not
	 * compared.
	 */
	struct hl_profile_counters *base;
	struct hl_profile_counters base_total;
	uint32_t base_name; /* the earlier one's name */
	uint32_t
		base_source; /* as `source`, where it was imported, which says of a store which part; else 0 */
	uint64_t base_duration_ns;
	uint32_t base_moment; /* as `moment` below */
	uint64_t base_moment_ms;
	bool base_snapshot; /* as `snapshot` */

	uint64_t unrecorded_children;	  /* of the recording: that should be in it */
	uint64_t refused_children;	  /* of these, those whose reason a warning gives */
	size_t recorded_process_count;	  /* in the recording, selected or not */
	size_t recorded_process_number;	  /* from 1: of a log's process among them; else 0 */
	struct hl_profile_counters total; /* of the selected processes and threads */
	struct hl_lost lost;		  /* of the selected processes */
	uint64_t lost_log_events;	  /* by the log alone: counters have them */
	uint64_t script_unmatched;	  /* allocations whose script frames did not fit the native
					     ones; known once they are spliced */

	/* Where frames were chosen (filter.h): by what, as a clause, and the total of all stacks.
	 */
	uint32_t filter; /* 0: all stacks are here */
	struct hl_profile_counters unfiltered_total;
	/* Types were asked for, see filter.h, and no block has one; or blocks in use alone have. */
	bool has_no_types, has_types_of_inuse;
	bool asks_survivors;  /* blocks alone were chosen that have outlived collections */
	bool has_generations; /* set where ages are asked for: see HL_AGE_GENERATIONS */
	uint64_t
		requests; /* of these blocks, those that ended and allocated any: see HL_AGE_REQUEST */
	bool spliced;	  /* script frames stand where they were asked for; see filter.h */
	bool folds_plumbing; /* views leave frames of allocation plumbing out, see symbols/symbols.h */
	bool plumbing_folded; /* some were */
	bool host_folded;     /* frames that only run services were left out */
	bool *is_plumbing;    /* by function, once it was folded; else NULL */

	/* Where it is of a moment (open/open.h): which, as a clause, and in milliseconds. */
	uint32_t moment; /* 0: of the whole recording */
	uint64_t moment_ms;
};

/* A moment within a recording that has a log. */
enum hl_moment_kind {
	HL_MOMENT_NONE, /* the whole recording */
	HL_MOMENT_MS,	/* the local maximum of the interval that holds `ms` */
	HL_MOMENT_PEAK, /* the highest of them all */
};

struct hl_moment {
	enum hl_moment_kind kind;
	uint64_t ms; /* since the process' recording began */
};

struct hl_known_names;
struct hl_log_state;

/* Finds files of modules whose path leads to none, or to another one by now. */
struct hl_file_finder {
	/* A path to the file that the process calls ${path}, valid until the next call; or NULL. */
	const char *(*find)(struct hl_file_finder *finder, const char *path);
};

struct hl_recording;

/* Adds to a recording that was read what its processes say now. */
struct hl_recording_filler {
	/* 0 or a negative errno with a sentence. */
	int (*fill)(struct hl_recording_filler *filler, struct hl_recording *recording,
		    struct hl_error *err);
};

/* What to load; zero is all. */
struct hl_profile_selection {
	uint32_t pid;	  /* 0: every process; else those of that pid */
	bool by_sequence; /* of these, the one with this sequence number */
	uint32_t sequence;
	uint32_t tid;	/* 0: every thread */
	bool keep_rows; /* profile->rows are wanted */
	struct hl_moment at;
	unsigned jobs;		/* threads that read a log; 0: as many as there are cores */
	uint32_t **ret_nodes;	/* of one process: the profile's node of each of its node ids, to be
				 freed by the caller; NULL: not wanted */
	size_t *ret_node_count; /* how many these are, id 0 included; NULL: not wanted */
	struct hl_recording_filler *filler; /* of recordings that are directories; NULL: none */
	struct hl_file_finder *files;	    /* NULL: files are where their paths say */
	const struct hl_known_names *names; /* what is in them needs no files; NULL: nothing */
	struct hl_log_state *const *logs;   /* of each process of the recording, or NULL: names what
					       they name, too; NULL: nothing more is named */
	struct hl_progress *progress;	    /* NULL: nobody watches */
};

/* Says that ${name} holds nothing of what ${selection} names. Returns -ESRCH. */
int hl_profile_selection_fail(const struct hl_profile_selection *selection, const char *name,
			      struct hl_error *err);

struct hl_recording_process;

/*
 * Builds a profile of ${recording}, which is not needed any more afterwards. 0; -ENOMEM; -ESRCH
 * when nothing matches ${selection} (NULL: all); -EBADMSG when the recording contradicts itself.
 */
int hl_profile_load(const struct hl_recording *recording,
		    const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		    struct hl_error *err);

/* ---- the parts of loading that concern meta data ---- */

/* Fills the members of ${profile} that say where it comes from. 0 or -ENOMEM. */
int hl_profile_describe_recording(struct hl_profile *profile, const struct hl_recording *recording);

/* All of ${ret_described} but its thread count and total; texts go to ${profile}. 0 or -ENOMEM. */
int hl_profile_describe_process(struct hl_profile *profile,
				const struct hl_recording_process *process,
				struct hl_profile_process *ret_described);

/* ---- two profiles as one ---- */

/*
 * A profile with the stacks of both: `counters` are those of ${after}, `base` those of ${before}.
 * Frames are equal when function, file, line and the module's file name are, whatever their
 * addresses, so that two builds of a program can be compared. The rest (name, processes, lost,
 * warnings of both) is said of ${after}. ${normalize}: the base is scaled by the ratio of the
 * durations. 0 or a negative errno with a sentence.
 */
int hl_profile_join(const struct hl_profile *before, const struct hl_profile *after, bool normalize,
		    struct hl_profile **ret_profile, struct hl_error *err);

/*
 * ${profile} with the stacks of ${more} too, whose figures are left out: *${ret_nodes}, to be freed
 * by the caller, says which node each node of ${more} is. Both are of one recording, so that
 * modules are equal when path and build id are; else frames are equal as above. Nothing else of
 * what ${profile} says has changed. 0 or a negative errno with a sentence.
 */
int hl_profile_join_stacks(const struct hl_profile *profile, const struct hl_profile *more,
			   struct hl_profile **ret_profile, uint32_t **ret_nodes,
			   struct hl_error *err);

/* ---- what is said of a profile ---- */

/* Adds a sentence to the warnings of ${profile}. 0 or -ENOMEM. */
int hl_profile_warn(struct hl_profile *profile, const char *format, ...) HL_PRINTF(2, 3);

/* Where one thread was asked for and several match: adds a warning for each. 0 or -ENOMEM. */
int hl_profile_warn_of_earlier_threads(struct hl_profile *profile);

/*
 * Warns of time that processes spent in mode 'closed' while the recording went on; for when marks
 * and processes are there. Source: marks at switches of the mode. 0 or -ENOMEM.
 */
int hl_profile_warn_of_pauses(struct hl_profile *profile);

void hl_profile_free(struct hl_profile *profile); /* NULL is fine */
HL_DEFINE_FREE_AT(struct hl_profile, hl_profile_free)

static inline const char *hl_profile_text(const struct hl_profile *profile, uint32_t id)
{
	return hl_strings_text(&profile->strings, id);
}

/* Whether it has frames of scripts of the provider ${name}. */
bool hl_profile_has_runtime(const struct hl_profile *profile, const char *name);

/* The number ${name} of the whole recording; 0 where it has none. */
int64_t hl_profile_whole_figure(const struct hl_profile *profile, const char *name);

/* Whether ${frame} is of a script: read by a provider, or of code that a runtime made and named. */
bool hl_profile_is_script(const struct hl_profile *profile, const struct hl_profile_frame *frame);

/* Whether some frame is. */
bool hl_profile_has_scripts(const struct hl_profile *profile);

/* The runtime that made the code in no module; NULL: none that is known runs here. */
const struct hl_code_runtime *hl_profile_code_runtime(const struct hl_profile *profile);

/*
 * Whether ${process} ended by exec, which took its memory away: what it had in use then is not in
 * use when the recording ends.
 */
bool hl_profile_was_replaced(const struct hl_profile *profile,
			     const struct hl_profile_process *process);

/* "went on as 'perl', unrecorded" of a process that did so; NULL for any other. */
const char *hl_profile_went_on(const struct hl_profile *profile,
			       const struct hl_profile_process *process);

/* One figure out of ${counters}; 0 where the value has no such unit. Inline, because views ask for
 * each node's. */
static inline int64_t hl_profile_figure(const struct hl_profile_counters *counters,
					enum hl_value value, enum hl_unit unit)
{
	bool bytes = unit == HL_UNIT_BYTES;

	switch (value) {
	case HL_VALUE_INUSE:
		return bytes ? counters->alloc_bytes - counters->free_bytes
			     : counters->alloc_objects - counters->free_objects;
	case HL_VALUE_ALLOC:
		return bytes ? counters->alloc_bytes : counters->alloc_objects;
	case HL_VALUE_PEAK:
		return bytes ? counters->peak_bytes : counters->peak_objects;
	case HL_VALUE_TEMPORARY:
		return bytes ? 0 : counters->temporary_objects;
	case HL_VALUE_SLACK:
		return bytes ? counters->slack_bytes : 0;
	case HL_VALUE_RESIDENT:
		return bytes ? counters->resident_bytes : 0;
	case HL_VALUE_SWAPPED:
		return bytes ? counters->swapped_bytes : 0;
	}
	return 0;
}

/* Whether ${value} is counted in ${unit} at all: temporary has objects only; slack,
 * resident and swapped have bytes only. */
bool hl_profile_has_unit(enum hl_value value, enum hl_unit unit);

static inline enum hl_unit hl_unit_other(enum hl_unit unit)
{
	return unit == HL_UNIT_BYTES ? HL_UNIT_OBJECTS : HL_UNIT_BYTES;
}

/* Whether ${profile} knows it: so for recordings, but samples lack what is temporary; other tools'
 * files hold less. */
static inline bool hl_profile_knows(const struct hl_profile *profile, enum hl_value value,
				    enum hl_unit unit)
{
	return profile->known[value][unit];
}

/* Marks every figure as known that counters of a recorder have: all but those of pages. */
void hl_profile_know_all(struct hl_profile *profile);

/* Marks those of pages as known. */
void hl_profile_know_pages(struct hl_profile *profile);

/* Marks the figures as known that heapline itself records in ${mode}, sampled or not. */
void hl_profile_know_recorded(struct hl_profile *profile, const char *mode);

void hl_profile_counters_add(struct hl_profile_counters *sum,
			     const struct hl_profile_counters *more);

/* Whether any of them is not 0. */
bool hl_profile_counters_any(const struct hl_profile_counters *counters);

/* "inuse", "alloc", "peak", "temporary", "slack", "resident", "swapped", NULL; by enum hl_value. */
extern const char *const hl_value_names[];

/* By hl_value, as they read before a unit: "in use, bytes", "peak bytes". */
extern const char *const hl_value_words[];

/* "bytes", "objects", NULL; by enum hl_unit. */
extern const char *const hl_unit_names[];

/* Checks what the comments above promise of the structure; for tests and debug builds. */
bool hl_profile_is_valid(const struct hl_profile *profile);

/* ---- recordings that are results of traces from outside, by their mode: what they know, and in which words ---- */

struct hl_trace_kind {
	const char *mode;
	const char *verb; /* that makes such ones */
	enum hl_value
		value; /* the only one that is known: HL_VALUE_INUSE where what went is left out */
	const char *noun;      /* of one object: "block", "page" */
	const char *nouns;     /* of several */
	const char *word;      /* for the value: "not freed" */
	const char *no_object; /* when there is nothing: "nothing was allocated ..." */
	const char *no_stack;  /* when not even a stack was seen; NULL: says no more */
	const char *negative;  /* why a figure can be less than nothing; NULL: it cannot */
};

/* The kind of ${mode}; NULL when that is not a trace's mode. */
const struct hl_trace_kind *hl_trace_kind_of(const char *mode);

/* The kind of ${profile}, unless it was imported. */
const struct hl_trace_kind *hl_trace_kind_of_profile(const struct hl_profile *profile);

/* Whether its objects are pages. */
bool hl_trace_kind_counts_pages(const struct hl_trace_kind *kind);

/* ---- which Debian packages would bring the symbols that are missing ---- */

#define HL_DPKG_DIRECTORY "/var/lib/dpkg"

/*
 * Names in each module's symbols_reason the package that would help, where dpkg's files in
 * ${directory} know the owner of the module's file; other reasons stay as they are. Reads some
 * megabytes if anything is missing at all, so it is for those who are asked what would help. 0 or
 * -ENOMEM.
 */
int hl_symbols_advice_add(struct hl_profile *profile, const char *directory);
