/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The collector: hands regions to recorders and keeps the recording up to date while they count.
 *
 * Never blocks on a target, never ends for want of disk, memory or descriptors: what could not be
 * kept is told in the recording's warnings and in hl_collector_summary. One thread; give it
 * hl_collector_dispatch whenever its descriptor is readable.
 */
#pragma once

#include "base/error.h"
#include "collector/region.h"
#include "collector/tracked.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_collector;

struct hl_collector_settings {
	struct hl_region_settings region; /* region.follow: record children, too */
	struct hl_log_limits log;	  /* in modes with a log */
	struct hl_budget_settings budget;
	uint64_t save_every_ns; /* at least; 0: a second */
	char **command;		/* NULL-terminated; must stay until hl_collector_free */
	/* Called when the recording cannot be written, once until it can be again; NULL: nobody listens. */
	void (*on_failure)(const void *context, const char *sentence);
	const void *on_failure_context;
};

struct hl_collector_summary {
	uint32_t processes; /* recorded, whatever became of them */
	uint32_t running;   /* of these, outlived the recording */
	uint32_t refused;   /* said hello and were not recorded; the warnings say why */
	uint32_t unrecorded_children;
	uint32_t refused_children; /* of these, those that are among the refused */
	uint32_t replaced;	   /* processes that went on as other programs, unrecorded */
	pid_t replaced_pid;	   /* the first of these */
	char replaced_name[HL_IDENTITY_NAME_MAX]; /* the program that it became */
	uint64_t allocations;
	int64_t peak_bytes; /* the largest of any process */
	uint64_t lost_events;
	bool damaged;	     /* some process wrote over its region */
	bool own_malloc;     /* of some process nothing was seen, because its malloc is its own */
	bool incomplete;     /* something could not be written in the end */
	const char *failure; /* then the last reason, a sentence; the collector's */
	uint32_t unsaved;    /* processes whose last save failed */
	const struct hl_code_runtime *nameless; /* of a process, most of whose code has no names */
	pid_t nameless_pid;			/* if it outlived the recording; or 0 */
	/* Sentences in the recording about what went wrong, NULL-terminated; the collector's. */
	char *const *warnings;
};

/* Listens. Nothing is written yet. */
int hl_collector_new(const struct hl_collector_settings *settings,
		     struct hl_collector **ret_collector, struct hl_error *err);

void hl_collector_free(struct hl_collector *collector); /* NULL is fine */

/* For the environment of the target; see region/protocol.h. */
const char *hl_collector_socket(const struct hl_collector *collector);
const char *hl_collector_token(const struct hl_collector *collector);

/*
 * Makes the recording's directory at ${path} (see hl_directory_init for ${replace}) and begins it.
 * ${program} is the process that record starts: without `follow` the only one that is answered.
 */
int hl_collector_begin(struct hl_collector *collector, const char *path, bool replace,
		       pid_t program, struct hl_error *err);

/*
 * Takes in a process whose recorder is brought in, and will map the region that ${region_fd}, an
 * empty memfd, becomes; it is taken over also on failure. ${ran_before}: not from its beginning. The process counts as recorded, and a
 * recorder must begin in it, or the recording be abandoned.
 */
int hl_collector_adopt(struct hl_collector *collector, pid_t pid, int region_fd, bool ran_before,
		       uint64_t *ret_region_bytes, struct hl_error *err);

/*
 * The same for process ${pid}, which one of those has forked. Its recorder waits, and begins as soon as it
 * is told; it counts itself as unrecorded otherwise. 0 or a negative errno.
 */
int hl_collector_adopt_child(struct hl_collector *collector, pid_t pid, int region_fd);

/* Calls ${ready} whenever ${fd} is readable, from hl_collector_dispatch(). 0 or a negative errno. */
typedef void hl_collector_ready_fn(void *context);
int hl_collector_heed(struct hl_collector *collector, int fd, hl_collector_ready_fn *ready,
		      void *context);

/* Adds ${sentence} to the recording's warnings. */
void hl_collector_warn(struct hl_collector *collector, const char *sentence);

/* The program runs and is recorded: removes the recording that was replaced. */
void hl_collector_keep(struct hl_collector *collector);

/* Removes the recording again, and brings back the one that it replaced: the program could not be
 * started, or not be joined. */
void hl_collector_abandon(struct hl_collector *collector);

/* Readable (poll) when there is something to do. */
int hl_collector_fd(const struct hl_collector *collector);

/* Does all that there is to do now: answers hellos, saves what is due, finishes ended processes. */
void hl_collector_dispatch(struct hl_collector *collector);

/* Finishes every process that has ended. For the owner of the program, before it reaps it: only
 * until then can be seen how it ended. */
void hl_collector_check_ends(struct hl_collector *collector);

/* Whether a process is being recorded that has not ended. */
bool hl_collector_has_running(const struct hl_collector *collector);

/* Whether 'heapline ctl detach' asked for the end of a recording by hl_collector_adopt(). */
bool hl_collector_is_to_detach(const struct hl_collector *collector);

/* Tells whoever asked, after hl_collector_finish(), that the recorder is out of the process, or in
 * ${problem}, a sentence, why not; NULL if there is none. */
void hl_collector_tell_detached(struct hl_collector *collector, const char *problem);

/*
 * Ends the recording: whatever runs on is told to record no more and saved as it stands, and all is
 * on disk when this returns.
 */
void hl_collector_finish(struct hl_collector *collector, struct hl_collector_summary *ret_summary);
