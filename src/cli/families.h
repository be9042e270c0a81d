/* SPDX-License-Identifier: BSD-2-Clause */
/* What families of verbs share: which heap is read, what is recorded, and what live processes add to a view. */
#pragma once

#include "cli/cli.h"
#include "cli/output.h"
#include "collector/collector.h"
#include "heap/heap.h"
#include "hook/attach.h"
#include "profile/profile.h"

#include <stdbool.h>
#include <sys/types.h>

/* ---- heap target ---- */

/* Which heap is read, and how: what heapline heap, carriers, allocations, pins, leaks and holders share. */

/* For the shared_options of a verb. */
extern const struct hl_option hl_heap_process_options[]; /* --pid --comm */
extern const struct hl_option hl_heap_core_options[];	 /* --core */
extern const struct hl_option hl_heap_stop_options[];	 /* --stop */
#define HL_HEAP_TARGET_OPTIONS hl_heap_process_options, hl_heap_core_options, hl_heap_stop_options
extern const struct hl_option hl_heap_graph_options[]; /* --swapped --unaligned */

/* What these options were set to. The request of a verb with them begins with it. */
struct hl_heap_target {
	struct hl_view_output output;
	struct hl_guest_request guests[HL_GUESTS_OUTSIDE_MAX];
	uint64_t pid;
	const char *core; /* NULL: none */
	bool stop, swapped, unaligned;
};

/* For an option that sets ${member} of it. */
#define HL_HEAP_TARGET_AT(member) offsetof(struct hl_heap_target, member)

/* Whether --pid or --core says whose heap it is, and nothing else is on the line. HL_EXIT_DONE, or
 * HL_EXIT_USAGE after a report. */
int hl_heap_target_check(const struct hl_verb *verb, int argc, char **argv,
			 const struct hl_heap_target *target);

/* Reads it; ${settings}->stop is set here. 0 or a negative errno with a sentence. */
int hl_heap_target_read(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			struct hl_heap **ret_heap, struct hl_error *err);

/*
 * Reads it and has ${write} write its report to the output, in ${form}. Returns the exit status;
 * what went wrong was reported.
 */
int hl_heap_target_report(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			  enum hl_report_form form,
			  int (*write)(const struct hl_heap_target *target,
				       const struct hl_heap *heap,
				       const struct hl_emit_options *how));

/* ---- record run ---- */

/* What heapline record and attach share: options of the recording, its name, what is said at the
 * end. */

/* How long a thread that is inside the recorder is waited for. */
#define HL_RECORD_LEAVE_WAIT_MS 2000

/* For the shared_options of a verb. */
extern const struct hl_option hl_record_options[]; /* --output --force --mode --sample ... */

/* What they were set to. The request of a verb with them begins with it; HL_RECORD_DEFAULTS are its defaults. */
struct hl_record_request {
	int mode; /* enum hl_mode, once it is checked */
	uint64_t sample_bytes;
	const char *max_memory;
	struct hl_budget_settings budget; /* what that says */
	bool sizes, no_scripts, no_objects;
	uint64_t log_segment_bytes, log_segments;
	bool events, lossy;
	double save_every_s;
	const char *output;
	bool force;
	bool quiet; /* only what went wrong is to be said */
};

#define HL_RECORD_LOG_SEGMENT_BYTES (UINT64_C(100) << 20)
#define HL_RECORD_LOG_SEGMENTS	    10
#define HL_RECORD_DEFAULTS                           \
	.mode = HL_MODE_MEM_FAST, .save_every_s = 1, \
	.log_segment_bytes = HL_RECORD_LOG_SEGMENT_BYTES, .log_segments = HL_RECORD_LOG_SEGMENTS

/* HL_EXIT_DONE, or the status to leave with after a usage error. */
int hl_record_check_options(const struct hl_verb *verb, struct hl_record_request *request);

/* Whether an option was given that only a recording has, but for the mode. */
bool hl_record_has_options(const struct hl_record_request *request);

/* What they ask for. ${command} must stay as long as the collector. */
struct hl_collector_settings hl_record_settings(const struct hl_record_request *request,
						char **command);

/* The recording's path: what --output says, or after ${command} and ${pid}. To be freed; NULL for
 * want of memory. */
char *hl_record_name(const struct hl_record_request *request, const char *command, pid_t pid);

/* hl_collector_begin() at ${name}, in a process that saves again and again. Says where the control group of ${pid} may be short of
 * memory for the recorder. */
int hl_record_begin(const struct hl_record_request *request, struct hl_collector *collector,
		    const char *name, pid_t pid, struct hl_error *err);

/* Who brings the recorder into children. */
struct hl_record_following {
	struct hl_collector *collector;
	struct hl_attach *attach;
	int group_fd; /* an epoll that waits for what they ask; 0: the collector waits */
	bool has_children;
};

/* Brings the recorder into a process that was opened. ${ran_before}: not from its beginning. ${following}, unless it is
 * NULL: into children that it forks from here on, too, and theirs, as long as ${collector} and ${attach} are there; the
 * caller's storage, which stays until the last hl_collector_dispatch(). Whatever fails, the process is as it was. */
int hl_record_join(struct hl_collector *collector, pid_t pid, struct hl_attach *attach,
		   bool ran_before, struct hl_record_following *following, struct hl_error *err);

/* Where ${group_fd} is one: for what it finds, whose data is ${to}. */
void hl_record_join_child(struct hl_record_following *to);

/* What went wrong, and what was not seen. */
void hl_record_say_problems(const struct hl_record_request *request,
			    const struct hl_collector_summary *summary, const char *name);

/* What was recorded and where it is, unless --quiet. */
void hl_record_say_result(const struct hl_record_request *request,
			  const struct hl_collector_summary *summary, const char *name);

/* ---- a program under 'heapline record', for a verb that looks at its recording ---- */

/* Like env(1): 'heapline record' has failed, not the program. */
#define HL_RECORD_FAILED       125
#define HL_RECORD_NOT_RUNNABLE 126
#define HL_RECORD_NOT_FOUND    127

/* A folder for a recording that is not kept, locked as long as ${ret_fd}, to be closed, is open. Removes those that verbs left which were killed. 0 or a
 * negative errno with a sentence. */
int hl_record_child_folder(char *folder, size_t size, int *ret_fd, struct hl_error *err);

#define HL_RECORD_LEFT_FOR "spool" /* a link in a folder that is left on purpose */

/* Shows ${visit} all folders of this user whose verb was killed and whose recording has ended, locked; what returns true has it removed. */
typedef bool hl_record_left_visit(void *context, const char *path, int fd);
void hl_record_child_each_left(hl_record_left_visit *visit, void *context);

/* Removes it with all that is in it; says so when it cannot. */
void hl_record_child_remove(const char *folder);

/*
 * Starts 'heapline record' of the ${count} words of ${command}, to ${path}; ${options}, NULL-terminated, are more of its options. It has the
 * streams and signals of this process. 0 or a negative errno.
 */
int hl_record_child_start(char *const *command, int count, const char *path,
			  const char *const *options, pid_t *ret_pid);

/* The status to leave with for what waitpid() said of it. */
int hl_record_child_status(int status);

/* ---- names of tests ---- */

struct hl_check_test;

/* Whether ${argv} is ctest or meson, which start a process for each test. */
bool hl_check_tests_are_processes(char **argv, int argc);

/* The tests that a runner, the command ${argv}, would run, as it calls them: none where it is not known or cannot say. Free them
 * with hl_check_tests_free(). */
void hl_check_tests_ask(char **argv, int argc, struct hl_check_test **ret_tests, size_t *ret_count);
void hl_check_tests_free(struct hl_check_test *tests, size_t count);

/* ---- live fill ---- */

/*
 * What running processes say of the blocks that a recording counts: how much of each stack is in RAM, which
 * types they have, and how many collections they have outlived, as far as a guest knows. Both become
 * labels of the blocks that are in use.
 */

#define HL_LIVE_LABELS_MAX 12

struct hl_block_owners;

struct hl_inuse_labels;

/* For hl_profile_selection.filler: adds what is in RAM, types, and ages of blocks to recordings that go on, as far as they are
 * wanted, and names of services. Valid until the next call. */
struct hl_recording_filler *hl_live_filler(bool wants_pages, bool wants_types, bool wants_ages);

/* Reads the processes of the snapshot in directory ${path}, and writes what it found there. 0 or a
 * negative errno with a sentence; the snapshot is whole in any case. */
int hl_live_fill_snapshot(const char *path, struct hl_error *err);

/* Labels of the blocks that a process has in use. Zero-initialize. */
struct hl_live_labels {
	struct hl_block_owners *owners;
	struct {
		const char *what; /* they say: "the types of ..." */
		struct hl_inuse_labels *labels;
	} of[HL_LIVE_LABELS_MAX];
	size_t count;
};

/* Reads which blocks process ${pid} has, as long as its recorder is there, of which guests know something: none where they know nothing. */
void hl_live_labels_read(pid_t pid, struct hl_live_labels *labels);

void hl_live_labels_release(struct hl_live_labels *labels);

/* Adds ${labels}, read from process ${pid} before its recorder left, and now completed from what it has in memory, to its recording in directory ${path}. As above. */
int hl_live_fill_labels(const char *path, pid_t pid, struct hl_inuse_labels *labels,
			struct hl_error *err);

/* Names services of process ${pid}, which still runs, that its recording in directory ${path} knows by their handles
 * alone. As above. */
int hl_live_fill_services(const char *path, pid_t pid, struct hl_error *err);
