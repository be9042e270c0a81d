/* SPDX-License-Identifier: BSD-2-Clause */
/* One program image that is being recorded, from its hello to its last save. */
#pragma once

#include "base/error.h"
#include "collector/budget.h"
#include "collector/drain.h"
#include "collector/mailbox_reader.h"
#include "collector/module_files.h"
#include "collector/region.h"
#include "collector/region_read.h"
#include "process/code_names.h"
#include "process/maps.h"
#include "recording/kept.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- who a process is, from /proc ---- */

#define HL_IDENTITY_NAME_MAX 64 /* bytes, with the end of the text */

struct hl_identity {
	uint32_t parent_pid;
	char *executable;		 /* "" when unknown */
	char **command;			 /* NULL-terminated */
	dev_t device;			 /* of the executable */
	ino_t inode;			 /* of the executable; 0 when unknown */
	char name[HL_IDENTITY_NAME_MAX]; /* the kernel's, of its main thread; "" when unknown */
	uint64_t
		random_bytes; /* address of AT_RANDOM, which differs after each exec; 0 when unknown */
};

/* 0 when unknown. */
uint32_t hl_identity_parent(pid_t pid);

/* ---- the process as it is recorded ---- */

/* What a recording's end note tells. */
struct hl_tracked_totals {
	uint64_t allocations;
	int64_t alloc_bytes, peak_bytes;
	uint64_t lost_events;
	bool own_malloc;
	bool damaged;
	char refused_names[HL_CODE_FILE_NAME_MAX]; /* see hl_code_files_name() */
	const struct hl_code_runtime *nameless;	   /* most of whose code has no names; or NULL */
};

struct hl_memory_group;

struct hl_tracked {
	struct hl_tracked *next;
	pid_t pid;
	uint32_t sequence;
	int pidfd;
	struct hl_region region;
	struct hl_region_base base;    /* of the last reset */
	uint64_t reset_ns;	       /* after start_ns; 0: there was none */
	struct hl_region_known known;  /* what the last save has read of region, and ... */
	struct hl_recording_kept kept; /* ... has written */
	struct hl_drain_thread *log;   /* NULL if there is none, or it has ended */
	bool log_is_over;	       /* has ended or could not be begun; none is begun again */
	struct hl_drain_orders orders; /* for it */
	struct hl_mailbox_reader mailbox;
	struct hl_identity identity;
	struct hl_code_files code_files;
	struct hl_module_files *module_files; /* NULL: none are held */
	struct hl_memory_group *memory_group; /* or NULL */
	struct hl_budget_watch *budget;	      /* or NULL */
	bool is_sampled;		      /* it was told to, and a warning says so */
	uint64_t recording_start_ns;	      /* see recording.h */
	uint64_t start_realtime_ns;
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC; end_ns 0 while it runs */
	enum hl_process_end end;
	int end_status;
	char first_name[HL_IDENTITY_NAME_MAX]; /* of a forked child: its parent's; else "" */
	bool attached;			       /* the recorder was brought into it */
	bool ran_before;		       /* and it, or its parent, ran already then */
	struct hl_recorder_memory recorder_memory;
	int64_t first_anonymous_bytes,
		anonymous_bytes; /* in RAM, at first and when last looked at */
	bool arrived;		 /* counted as a child that was expected; see reception.h */
	bool is_another; /* another program runs in its place, as far as is known unrecorded */
	char successor[HL_IDENTITY_NAME_MAX]; /* that one's name */
	uint64_t activity, saved_activity;    /* hl_region_read_activity(), when last asked
						 and at the last save */
	bool saved;			      /* at least once */
	bool was_reset;			      /* since the last save */
	bool mode_marked;		      /* its mode was switched, and a mark says so */
	struct hl_tracked_totals totals;      /* at the last save, or try */
};

/* Takes over ${pidfd}, and ${memfd} (see hl_region_make()), also on failure. ${budget}, which outlives it, or NULL, watches its
 * memory, unless the settings have it sampled. */
int hl_tracked_new(pid_t pid, int pidfd, const struct hl_region_settings *settings,
		   struct hl_budget *budget, uint64_t address_space_limit, int memfd,
		   struct hl_tracked **ret_tracked);

void hl_tracked_free(struct hl_tracked *tracked); /* NULL is fine */

/* Opens the files of its modules, and from then on those that are loaded later. 0 or -ENOMEM. */
int hl_tracked_hold_files(struct hl_tracked *tracked, struct hl_held_files *held);

/* How large a log may become; see log_writer.h. */
struct hl_log_limits {
	uint64_t segment_bytes;
	uint32_t segments_kept;
	bool events; /* keep every event, too, in files as large and as many */
};

/* Begins the log of a process that has a sequence number, at ${first_tick}; see struct
 * hl_drain_settings. 0 or a negative errno. */
int hl_tracked_begin_log(struct hl_tracked *tracked, int directory_fd,
			 const struct hl_log_limits *limits, uint64_t first_tick);

/* Ends the log, if there is one, with all events so far. */
void hl_tracked_end_log(struct hl_tracked *tracked, struct hl_log_losses *ret_losses);

/* Whether the process has ended; then notes when and, if it is our child, how. */
bool hl_tracked_check_end(struct hl_tracked *tracked);

/* Notes an end that the pidfd does not tell: HL_END_EXEC, by a program that is recorded, or
 * HL_END_RUNNING. */
void hl_tracked_set_end(struct hl_tracked *tracked, enum hl_process_end end);

/* It is a forked child: its parent's name is not one that it gave itself. */
void hl_tracked_set_forked(struct hl_tracked *tracked);

/* It is recorded from its program's start: its region says so to whoever reads it from outside. */
void hl_tracked_set_from_start(struct hl_tracked *tracked);

/* Looks at a process that has not ended: whether another program runs in its place, and what it
 * calls itself. */
void hl_tracked_look(struct hl_tracked *tracked);

/* The program that took its place unrecorded when it had ended, or the recording had; "" when none
 * did. */
const char *hl_tracked_successor(const struct hl_tracked *tracked);

/* Whether the recorder has taken its region; if it had no memory for it, it never will. */
bool hl_tracked_has_begun(const struct hl_tracked *tracked);

/* Whether it has, and has not ended as far as is known. */
bool hl_tracked_is_running(const struct hl_tracked *tracked);

/* Whether anything has been counted since the last save. */
bool hl_tracked_has_changed(struct hl_tracked *tracked);

/* See hl_region_base_take(). */
int hl_tracked_reset(struct hl_tracked *tracked);

/* The region as the collector sees it. */
struct hl_region_view hl_tracked_view(const struct hl_tracked *tracked);

/* Writes the process' file, and notes its totals, which are known even when the file cannot be
 * written. ${complete}: no event will follow. */
int hl_tracked_save(struct hl_tracked *tracked, int directory_fd, bool complete,
		    struct hl_error *err);

/* Writes the process' file as it stands to another recording than its own. */
int hl_tracked_copy(const struct hl_tracked *tracked, int directory_fd, struct hl_error *err);
