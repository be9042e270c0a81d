/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the collector keeps: each program image that is being recorded, their recording on disk, and the socket
 * that they come in by.
 */
#pragma once

#include "base/error.h"
#include "collector/directory.h"
#include "collector/drain.h"
#include "collector/region_read.h"
#include "process/code_names.h"
#include "process/maps.h"
#include "recording/recording.h"
#include "recording/recording_files.h"
#include "region/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/utsname.h>

/* ---- one program image that is being recorded, from its hello to its last save ---- */

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
		random_bytes; /* address of AT_RANDOM of one that was entered, which differs after each exec; 0 when unknown */
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
	bool is_filtered;	     /* a warning says that filters forbid it system calls */
	bool is_sampled;	     /* it was told to, and a warning says so */
	uint64_t recording_start_ns; /* see recording.h */
	uint64_t start_realtime_ns;
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC; end_ns 0 while it runs */
	enum hl_process_end end;
	int end_status;
	char first_name[HL_IDENTITY_NAME_MAX]; /* of a forked child: its parent's; else "" */
	bool attached;			       /* the recorder was brought into it */
	bool ran_before;		       /* and it, or its parent, ran already then */
	struct hl_recorder_memory recorder_memory;
	int64_t first_anonymous_bytes,
		anonymous_bytes; /* in RAM, at first, 0 of a program from its start, and when last looked at */
	bool arrived;		 /* counted as a child that was expected */
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

/* ---- archive ---- */

/* The recording as it grows on disk: saves, and what to do when the disk does not take them. */

struct hl_collector_settings;

struct hl_archive {
	struct hl_directory directory;
	struct hl_recording meta; /* refers to the members below; owns its marks alone */
	struct utsname system;
	struct hl_warnings warnings;
	size_t mark_capacity;
	struct hl_recording_figure recorder_memory; /* of meta, once it is known */
	uint64_t start_ns;
	uint32_t ended_files;	 /* processes whose last save is in the directory */
	uint32_t revivals;	 /* how often the directory had to be made again */
	bool meta_is_stale;	 /* has what is not on disk */
	struct hl_error failure; /* the last that happened; empty when none did */
	bool is_failing;	 /* the last write failed */
	/* See struct hl_collector_settings. */
	void (*on_failure)(const void *context, const char *sentence);
	const void *on_failure_context;
};

/* settings->command must stay. A full disk is not a failure: the recording then begins when there is room. */
int hl_archive_init(struct hl_archive *archive, const char *path, bool replace,
		    const struct hl_collector_settings *settings, struct hl_error *err);
void hl_archive_release(struct hl_archive *archive);

/* The recording that is replaced is not needed any more. */
void hl_archive_keep(struct hl_archive *archive);

/* Removes all that was written, and brings back the recording that is replaced. */
void hl_archive_remove(struct hl_archive *archive);

/* Saves a process, makes the directory again if it vanished, and warns if neither helps. ${last}:
 * no event will follow. */
int hl_archive_save(struct hl_archive *archive, struct hl_tracked *tracked, bool last);

/* Saves the meta data. ${complete}: the recording ends here; waits until all is on disk. */
int hl_archive_save_meta(struct hl_archive *archive, bool complete);

/* Where the meta data are as they were: sets the time of their file, by which readers find that processes were saved. 0 or a negative errno. */
int hl_archive_touch_meta(const struct hl_archive *archive);

/* Adds what the log of process ${pid} lacks to the recording. */
void hl_archive_warn_of_log(struct hl_archive *archive, pid_t pid,
			    const struct hl_log_losses *losses);

/*
 * Notes that a process, or with ${all} the whole recording, is in ${mode} from now on. The mode
 * that a recording shows is the last that all were switched to and that counts; of one that began
 * closed the first that any process was switched to.
 */
void hl_archive_note_mode(struct hl_archive *archive, enum hl_mode mode, bool all);

/* Adds the mark ${name}, set ${ms} after the start of process ${pid}. 0, -ENOMEM, or -EAGAIN when
 * there are too many. */
int hl_archive_mark(struct hl_archive *archive, pid_t pid, uint64_t ms, const char *name);

/* Notes how much memory the recorder took in one process: the most is kept. */
void hl_archive_note_recorder(struct hl_archive *archive, int64_t bytes);

/* Says how many children ran unrecorded, and of how many of these a warning gives the reason. */
void hl_archive_set_unrecorded(struct hl_archive *archive, uint32_t children, uint32_t refused);

/* Adds a sentence to the recording. */
void hl_archive_warn(struct hl_archive *archive, const char *format, ...) HL_PRINTF(2, 3);

/* Adds it in the place of ${before}. */
void hl_archive_warn_instead(struct hl_archive *archive, const char *before, const char *sentence);

/* ---- reception ---- */

/* The collector's socket: who may speak to it, what a hello must be, how it is answered; and who did not come. */

struct hl_reception {
	int fd;		/* listening; non-blocking */
	int reserve_fd; /* given up to refuse a caller when no descriptor is left */
	char name[48];	/* abstract, without the leading NUL */
	char token[33];
};

struct hl_caller {
	pid_t pid;
	int fd;
	bool is_foreign; /* neither our user nor root */
};

int hl_reception_init(struct hl_reception *reception, struct hl_error *err);
void hl_reception_release(struct hl_reception *reception);

/*
 * Takes the next caller. 0, -EAGAIN when there is none, -EPERM for one turned away (it cannot be
 * seen from our PID namespace), or -EMFILE and the like for one turned away for want of means.
 */
int hl_reception_accept(struct hl_reception *reception, struct hl_caller *ret_caller);

/* Reads a caller's hello. 0, -EAGAIN when it is not there yet, -EPROTO for anything but a hello
 * with our token. */
int hl_reception_read_hello(const struct hl_reception *reception, const struct hl_caller *caller,
			    struct hl_hello *ret_hello);

/* Answers with ${region}, or, where that is NULL, with ${error}, a positive errno. */
int hl_reception_answer(const struct hl_caller *caller, int error, const struct hl_region *region);

/* A pidfd of the caller, or a negative errno. */
int hl_reception_pidfd(const struct hl_caller *caller);

/* ---- unrecorded children ---- */

/*
 * Children that should have been recorded and were not. Recorded programs tell in their regions which children
 * started (recorder/start.h); a child that is recorded says hello. The difference ran unrecorded: in another network
 * namespace, without memory, as a static program, or while the collector was stopped.
 */

#define HL_UNRECORDED_REASONS 8 /* of more, each process has a sentence of its own */
#define HL_UNRECORDED_PIDS    3 /* named in the sentence about a reason */

struct hl_unrecorded {
	uint64_t started; /* children with programs of their own, of processes that have ended */
	uint64_t forked;  /* children without a region, of processes that have ended */
	uint64_t arrived; /* programs that were expected and said hello */
	uint64_t awaited; /* forked children of whom nothing was known when their parent ended */
	uint64_t fork_hellos; /* of forked children, in vain or not */
	uint32_t just_now;    /* hl_unrecorded_steady()'s last count */
	uint32_t refused;     /* of the children, those that said hello in vain */
	struct {
		char reason[96];
		uint32_t count;
		pid_t pids[HL_UNRECORDED_PIDS];
	} reasons[HL_UNRECORDED_REASONS]; /* why processes were refused */
};

/* Process ${pid} said hello and is not recorded: the sentence of the recording about those that
 * were refused for that ${reason} counts it. */
void hl_unrecorded_refuse(struct hl_unrecorded *unrecorded, struct hl_archive *archive, pid_t pid,
			  const char *reason);

/*
 * Whether a program that says hello was told of when it was started. One that ${parent} started,
 * which is not recorded itself, was not: ${tracked} is that process, NULL where none is known.
 * ${is_orphan}: it has another parent than the one that started it.
 */
bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked, bool is_orphan);

/* The region of ${tracked} is about to go. */
void hl_unrecorded_keep(struct hl_unrecorded *unrecorded, const struct hl_tracked *tracked);

/* Whether a child may be about to say hello. So it seems for ever where a child ended without having
 * allocated. */
bool hl_unrecorded_are_awaited(const struct hl_unrecorded *unrecorded,
			       const struct hl_tracked *running);

/* How many there are, with those that the processes in the list ${running} tell of. */
uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running);

/* The same while the recording goes on: without children that are just about to say hello. To be
 * called once a second. */
uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running);
