/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records programs: looks at one, starts it, collects what recorders count until it ends, and says what the
 * recording lacks.
 */
#pragma once

#include "base/error.h"
#include "collector/directory.h"
#include "collector/region_read.h"
#include "collector/tracked.h"
#include "guests/traits.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- collector ---- */

/*
 * The collector: hands regions to recorders and keeps the recording up to date while they count.
 *
 * Never blocks on a target, never ends for want of disk, memory or descriptors: what could not be
 * kept is told in the recording's warnings and in hl_collector_summary. One thread; give it
 * hl_collector_dispatch whenever its descriptor is readable.
 */

struct hl_collector;

/*
 * Brings the recorder into programs that preload one and would be recorded without a part of what they allocate. wants() is asked of each that says
 * hello; enter() follows once no other hello is to be read, while it waits for the answer before its first constructor: 0 after hl_collector_adopt(), or a
 * negative errno with a sentence; then its own recorder records it, unless it was adopted. NULL: all are left to their own.
 */
struct hl_collector_entering {
	bool (*wants)(void *context, pid_t pid);
	int (*enter)(void *context, pid_t pid, struct hl_error *err);
	void *context;
};

struct hl_collector_settings {
	struct hl_region_settings region; /* region.follow: record children, too */
	struct hl_log_limits log;	  /* in modes with a log */
	struct hl_budget_settings budget;
	uint64_t save_every_ns; /* at least; 0: a second */
	char **command;		/* NULL-terminated; must stay until hl_collector_free */
	/* Called when the recording cannot be written, once until it can be again; NULL: nobody listens. */
	void (*on_failure)(const void *context, const char *sentence);
	const void *on_failure_context;
	struct hl_collector_entering entering;
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
	bool is_empty;	     /* nothing could; there is no recording */
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

/* Whether an exact recording of ${pid} may need what is left below the limit of its memory control group; ${sentence} says so. */
bool hl_collector_describe_room(const struct hl_collector *collector, pid_t pid,
				char sentence[HL_WARNING_BYTES]);

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

/* ---- launch ---- */

/*
 * Starts a program as if heapline were not there, and stands between it and the world until it
 * ends: signals, job control, exit status.
 */

struct hl_launch {
	pid_t pid;     /* of the program */
	int go_fd;     /* a byte into it lets the program begin */
	int result_fd; /* the errno of a failed exec comes out of it */
	int signal_fd;
	sigset_t mask; /* as it was, for the program */
	bool wait;     /* for its descendants, too */

	/* The child reads all this, on a stack of its own, until it becomes the program. */
	struct hl_launch_child {
		int go_fd, other_go_fd, result_fd;
		char **argv, **environment;
	} child;
	void *stack;
	size_t stack_bytes;
};

/*
 * Gives descriptors 0, 1 and 2 a place when they are closed, so that nothing of ours, least of all
 * a file of the recording, takes their numbers. The program finds them closed all the same.
 */
void hl_launch_guard_standard_streams(void);

/*
 * Makes a child, which waits for hl_launch_go; from here on heapline catches the signals that it will
 * forward. ${argv} and ${environment} are the program's, and stay until hl_launch_go or hl_launch_release has returned. ${wait}: supervision goes on until all descendants have
 * ended, and those whose parents are gone become heapline's children.
 */
int hl_launch_init(struct hl_launch *launch, char **argv, char **environment, bool wait,
		   struct hl_error *err);

/* Lets the program begin. 0, or the negative errno of its exec; the child has then ended. */
int hl_launch_go(struct hl_launch *launch);

/*
 * Serves ${collector} until the program and those that are to be waited for have ended; SIGINT,
 * SIGTERM, SIGHUP or SIGQUIT end the wait for the latter.
 * Returns the program's exit status, or 128 plus the signal that ended it.
 */
int hl_launch_supervise(struct hl_launch *launch, struct hl_collector *collector);

/* For hl_launch_serve(), before the program runs, and hl_launch_attend(): SIGTERM and the like wait
 * until they are looked at, and a write to a closed pipe or past a file size limit is an error. */
void hl_launch_defer_signals(void);

/* Tells the recorder at the other end of socket ${fd}, which started us, how to reach ${collector}.
 * False when it waits no more. */
bool hl_launch_invite(int fd, const struct hl_collector *collector);

/*
 * Serves ${collector} for a program that another started, until descriptor ${pidfd} says that it has
 * ended, and with ${wait} until no recorded process runs. SIGTERM and the like are for the program,
 * which a service manager ends together with us; while only its descendants run, they end the wait.
 * 0 or a negative errno.
 */
int hl_launch_serve(struct hl_collector *collector, int pidfd, bool wait);

/*
 * Serves ${collector} for processes that ran before it, until none runs any more, a signal such as
 * SIGINT asks for the end, 'heapline ctl detach' does, or it is ${end_ns} (CLOCK_MONOTONIC,
 * UINT64_MAX: never). 0 or a negative errno. After hl_launch_defer_signals().
 */
int hl_launch_attend(struct hl_collector *collector, uint64_t end_ns);

/* Ends a child that still waits; closes what is open. */
void hl_launch_release(struct hl_launch *launch);

/* ---- the recorder and the environment ---- */

/* What heapline preloads. */
enum hl_preload_library {
	HL_PRELOAD_RECORDER, /* libheapline.so */
	HL_PRELOAD_TAGS,     /* libheapline-tags.so */
};

/*
 * Finds ${library}: what HEAPLINE_RECORDER or HEAPLINE_TAGS names, else beside this executable in
 * its build directory, else in the library directory that belongs to where this executable is
 * installed, else where it was configured to be installed. Writes an absolute path.
 */
int hl_preload_find(enum hl_preload_library library, char *ret_path, size_t capacity,
		    struct hl_error *err);

/*
 * This process' environment with ${library} in front of LD_PRELOAD and the way to the collector, if
 * there is one. To be freed with hl_preload_environment_free; NULL for want of memory.
 */
char **hl_preload_environment(const char *library, const char *socket, const char *token);

void hl_preload_environment_free(char **environment); /* NULL is fine */

/* ---- looks at a program before it is started: can the recorder work in it? ---- */

/*
 * Finds ${command} as execvp does: along PATH unless it has a slash. Writes the path of the file
 * that would be run. -ENOENT when there is none, -EACCES when what there is may not be run,
 * -ENAMETOOLONG.
 */
int hl_examine_find(const char *command, char *ret_path, size_t capacity, struct hl_error *err);

/* Why nothing would be recorded in a program, and what to do; NULL: it can be recorded. Constants. */
struct hl_examined {
	const char *reason, *remedy;
	/* Why the recorder must be brought in as the program begins; NULL: it is preloaded. */
	const char *entered;
	bool is_static; /* preloading does nothing to it, and may be left for its children */
	/* It can be preloaded, and what it allocates by functions of its own is seen only where the recorder is brought in. */
	const char *beside;
	const struct hl_pool_traits *pool; /* or NULL */
	const struct hl_guest_allocator *guest_allocator;
};

/*
 * Judges the program at ${path}: it may be static, of another machine or libc, set-user-id, or
 * have a malloc of its own. Scripts are followed to their interpreter, which ${ret_program} names.
 * What cannot be read is let pass: the kernel will judge.
 */
struct hl_examined hl_examine_file(const char *path, char ret_program[PATH_MAX]);

/* Refuses such a program with -ENOTSUP and one sentence of both. */
int hl_examine_program(const char *path, struct hl_examined *ret_examined, struct hl_error *err);

/* A program that is asked more than one question. */
struct hl_examinee {
	int fd;
	struct Elf *elf; /* NULL: it cannot be read, and has nothing of what is asked for */
};

void hl_examinee_open(const char *path, struct hl_examinee *ret_examinee);
void hl_examinee_close(struct hl_examinee *examinee);

/*
 * The function of a known allocator under a name of its own, mi_malloc for one, that the program
 * brings in itself, so that no library can take its place: a constant; NULL when there is
 * none, or no symbol table says so.
 */
const char *hl_examine_allocator(const struct hl_examinee *program);

/* The name of an allocator, or of a C library as such, that a program without symbols has built in, none of whose functions it exports; NULL: not found. Neither
 * record nor attach sees what it allocates. */
const char *hl_examine_hidden_allocator(const struct hl_examinee *program);

#define HL_EXAMINE_UNSEEN_MAX 256 /* bytes of names, with the NUL; no more than these are named */

/*
 * Writes the functions of allocators that the program calls by names of the allocator's own
 * and whose place the preloaded recorder does not take, separated by ", ": "" where there are none.
 */
void hl_examine_unseen(const struct hl_examinee *program, char ret_names[HL_EXAMINE_UNSEEN_MAX]);

#define HL_EXAMINE_VERSION_MAX 32 /* bytes of a version, with the NUL */

/* If the program holds an interpreter of a guest that exports nothing of itself, so that the recorder cannot
 * find it: what helps, a constant; else NULL. Its text about itself says so, which stripping leaves; ${ret_version} is what it
 * names, "NAME 5.4.6". */
const char *hl_examine_hidden_guest(const struct hl_examinee *program,
				    char ret_version[HL_EXAMINE_VERSION_MAX]);

/* ---- program warnings ---- */

/*
 * What is said of programs of which a recording, or a trace, shows less than one may expect: memory that grows outside
 * malloc, allocators and runtimes that are not seen, an end by the kernel.
 */

struct hl_archive;
struct hl_cgroup;
struct hl_region_settings;
struct hl_tracked;

/* ---- memory control groups ---- */

/*
 * The memory control group of a recorded process. The recorder's memory counts to it, and the kernel kills a process when
 * it reaches its limit.
 */
struct hl_memory_group;

/* Looks at the group of ${pid} as it is now. NULL: it cannot be read from here, or there is no memory. */
struct hl_memory_group *hl_memory_group_open(pid_t pid);

/* NULL for NULL. */
const struct hl_cgroup *hl_memory_group_at(const struct hl_memory_group *group);

/* Whether an exact recording of ${pid} may need what is left below the limit; ${sentence} says so. */
bool hl_memory_group_describe_room(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES]);

void hl_memory_group_free(struct hl_memory_group *group); /* NULL is fine */

/* ---- growth outside malloc ---- */

/*
 * Programs whose memory grew though they hardly called malloc: their runtime maps memory for itself. What is recorded or
 * traced of one is empty, or nearly so, and says what would show that memory.
 */
struct hl_outside_malloc {
	pid_t pid;
	const char *executable;
	bool runs;		  /* has not ended */
	bool ran_before;	  /* when it was looked at first */
	bool is_traced;		  /* from outside, where objects of interpreters are not seen */
	uint64_t allocations;	  /* that were seen */
	int64_t malloc_bytes;	  /* the most in use of these */
	int64_t alloc_bytes;	  /* of all of these: malloc may keep what was freed */
	int64_t rss_growth_bytes; /* meanwhile, of anonymous memory */
};

/* Writes the sentence. False where malloc explains the growth, or there is hardly any. */
bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES]);

/* ---- recorded programs ---- */

/* Programs that are not searched again for allocators of their own; a build runs a few over and
 * over. */
#define HL_EXAMINED_MAX 64

/* What was said of a recording's programs. Zero-initialize. */
struct hl_program_warnings {
	struct {
		dev_t device;
		ino_t inode;
	} examined[HL_EXAMINED_MAX]; /* programs that were searched for allocators */
	uint32_t examined_count;
	bool has_warned_of_growth;
};

/* Of a process that has begun, whose RLIMIT_AS is ${limit}. */
void hl_program_warnings_address_space(struct hl_archive *archive,
				       const struct hl_region_settings *settings,
				       const struct hl_tracked *tracked, uint64_t limit);

/* Of a process that was told to go on by samples. Says it once, and has reports call the figures estimates from the next save on. */
void hl_program_warnings_sampling(struct hl_archive *archive, struct hl_tracked *tracked);

/* Of a process that filters forbid system calls. Says it once. */
void hl_program_warnings_filters(struct hl_archive *archive, struct hl_tracked *tracked);

/* Of a process whose end has been noted: the same, its end, its program, its scripts. */
void hl_program_warnings_end(struct hl_program_warnings *warnings, struct hl_archive *archive,
			     struct hl_tracked *tracked);

/* Of a process whose totals are known, once in a recording. */
void hl_program_warnings_growth(struct hl_program_warnings *warnings, struct hl_archive *archive,
				const struct hl_region_settings *settings,
				const struct hl_tracked *tracked);
