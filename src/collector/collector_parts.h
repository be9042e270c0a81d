/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files behind the collector share: collector.c has its life, collector_hellos.c how processes come to it. */
#pragma once

#include "collector/collector.h"
#include "collector/control.h"
#include "collector/tracked.h"

/* Callers that have connected and not yet said hello; more are turned away. */
#define HL_WAITING_MAX 64

/* After a hello of the program that record started, and of what replaces it by exec: a recording
 * whose collector is killed before the next second names it all the same. */
#define HL_FIRST_SAVE_NS 20000000

/* epoll's cookie: one of these, plus the index of a waiting caller or a process' sequence. */
enum hl_collector_event {
	HL_EVENT_SOCKET,
	HL_EVENT_TIMER,
	HL_EVENT_CONTROL,
	HL_EVENT_HEEDED,
	HL_EVENT_WAITING,
	HL_EVENT_TRACKED = HL_EVENT_WAITING + HL_WAITING_MAX,
};

struct hl_waiting {
	struct hl_caller caller; /* fd -1: a free place */
	uint64_t deadline_ns;
};

/* A program that waits for the recorder to be brought in. */
struct hl_enterable {
	struct hl_enterable *next;
	struct hl_caller caller;
	struct hl_hello hello;
	bool arrived; /* it is one of those that are counted as children, and no forked one */
};

struct hl_collector {
	struct hl_collector_settings settings;
	struct hl_enterable *enterable; /* oldest first */
	struct hl_reception reception;
	struct hl_archive archive;
	struct hl_budget *budget;   /* NULL for want of memory */
	struct hl_control *control; /* NULL: not begun, or no means for one */
	bool begun;
	pid_t program;
	bool program_is_child; /* not with a preloaded recorder, which started us */
	int epoll_fd, timer_fd;
	struct hl_waiting waiting[HL_WAITING_MAX];
	struct hl_held_files held_files;
	struct hl_tracked *tracked; /* oldest first; ended ones only when their last save failed */
	uint32_t next_sequence;
	uint32_t strangers; /* callers whose hello was none */
	struct hl_program_warnings warnings;
	struct hl_unrecorded unrecorded;
	uint64_t next_save_ns;	/* by what the last one cost */
	uint64_t next_round_ns; /* by --save-every; new processes do not wait for it */
	uint32_t revivals_seen; /* of the archive's directory */
	hl_collector_ready_fn *ready;
	void *ready_context;
	struct hl_collector_summary summary;
};

/* ---- collector.c ---- */

/* Wakes hl_collector_dispatch() with ${cookie} when ${fd} is readable. 0 or a negative errno. */
int hl_collector_watch(struct hl_collector *collector, int fd, uint64_t cookie);

/* The timer comes within ${ns} from now. */
void hl_collector_look_within(struct hl_collector *collector, uint64_t ns);

/* The process that runs under that number; NULL: none is recorded. */
struct hl_tracked *hl_collector_find_running(struct hl_collector *collector, pid_t pid);

/* For a process whose end has been noted. */
void hl_collector_finish_process(struct hl_collector *collector, struct hl_tracked *tracked);

/* Notes that a process is not recorded; ${was_expected}: its parent told of it. */
void hl_collector_refuse(struct hl_collector *collector, pid_t pid, const char *reason,
			 bool was_expected);

/* Of an errno, as a clause. */
const char *hl_collector_reason_of(int error);

/* ---- collector_hellos.c ---- */

void hl_collector_on_socket(struct hl_collector *collector);
void hl_collector_on_waiting(struct hl_collector *collector, struct hl_waiting *waiting);

/* Frees the place. */
void hl_collector_stop_waiting(struct hl_waiting *waiting);

/* Turns away those who have not said hello in time. Returns whether some still may. */
bool hl_collector_check_waiting(struct hl_collector *collector, uint64_t now_ns);

/* Enters the program that has waited longest. False: none waits. */
bool hl_collector_enter_next(struct hl_collector *collector);
