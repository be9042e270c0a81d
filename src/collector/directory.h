/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directory NAME.hl/ of a recording that is being written, copies of modules in it, and the warnings that
 * the recording carries.
 */
#pragma once

#include "base/compiler.h"
#include "base/error.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- directory ---- */

/* The directory NAME.hl/ that is being written: made, replaced, made again when it vanished. */

struct hl_directory {
	char *path;
	int fd;
	bool has_older; /* the recording that is replaced can still be brought back */
};

/*
 * Makes the directory. An existing one is refused, but for ${replace}: then one that is empty or
 * holds nothing but a recording is replaced: its files are set aside in the directory until
 * hl_directory_keep(). Anything else is never touched. Nobody else can make or
 * replace the directory before it is released, or the process has ended.
 */
int hl_directory_init(struct hl_directory *directory, const char *path, bool replace,
		      struct hl_error *err);

/* Whether ${name} is one that a recording's directory can hold, or what an interrupted write leaves
 * there. */
bool hl_directory_is_file(const char *name);

/* Copies the first ${bytes} of ${from_fd}, or as many as there are, to where ${to_fd} is. 0 or a negative errno. */
int hl_directory_copy_bytes(int from_fd, int to_fd, uint64_t bytes);

/* Makes the directory again if it has been removed. 1 when it was, 0 when it is there, or a
 * negative errno. */
int hl_directory_revive(struct hl_directory *directory);

/* Waits until the recording's files are on disk. A file that cannot be synced is left to the
 * system. */
void hl_directory_sync(const struct hl_directory *directory);

/* The recording has begun for good: the one that it replaces is removed. */
void hl_directory_keep(struct hl_directory *directory);

/* For a recording that never began: removes its files, and brings back the one that it replaces or
 * else removes the directory. */
void hl_directory_remove(struct hl_directory *directory);

/* Keeps the recording. */
void hl_directory_release(struct hl_directory *directory);

/* ---- module files ---- */

/*
 * The files of a recorded process' modules, held open while it runs: a program in another mount namespace, one that was
 * deleted or replaced meanwhile, and one that runs from a memfd cannot be opened at their path later. What a recording's
 * stacks need of them is copied into the recording.
 */

/* Files that several processes have are open once, the last ${idle_max} without a process for the next one. Zero-initialize the rest. */
struct hl_held_files {
	struct hl_held_file *first;
	unsigned idle, idle_max;
};

/* To be called when the last process is freed. */
void hl_held_files_release(struct hl_held_files *held);

/* Those of one process. */
struct hl_module_files;

/* ${held} must outlive it. NULL when out of memory. */
struct hl_module_files *hl_module_files_new(struct hl_held_files *held);

/*
 * Opens the files of what ${pid} has mapped with code since the last look. To be called as it begins, and when ${module_count}, of
 * modules that its recorder has registered, has changed: else nothing is done. What cannot be opened is left out.
 */
void hl_module_files_look(struct hl_module_files *files, pid_t pid, uint32_t module_count);

/*
 * Copies the files of modules that nodes of ${process}, from the one with id ${first_node} + 1 on, lie in, or nodes of an earlier call, into the directory, if they are not at
 * their path any more, or as this process sees it. Completes the fingerprints of modules whose file the recorder could not open. A
 * file that cannot be copied is left out.
 */
void hl_module_files_keep(struct hl_module_files *files, struct hl_recording_process *process,
			  uint32_t first_node, int directory_fd);

void hl_module_files_free(struct hl_module_files *files); /* NULL is fine */

/* ---- the sentences of a recording about what went wrong: each once, and not too many ---- */

#define HL_WARNINGS_MAX	 32
#define HL_WARNING_BYTES 1024 /* of a sentence, with the end of the text */

struct hl_warnings {
	char *texts[HL_WARNINGS_MAX + 1]; /* NULL-terminated */
	uint32_t count;
};

/* Adds a sentence. False when it was there already, or there is no room. */
bool hl_warnings_add(struct hl_warnings *warnings, const char *format, ...) HL_PRINTF(2, 3);

/* Puts ${sentence} in the place of ${before}, or adds it where that is not there. As above. */
bool hl_warnings_replace(struct hl_warnings *warnings, const char *before, const char *sentence);

void hl_warnings_release(struct hl_warnings *warnings);

/* ---- what the log of a process lacks ---- */

struct hl_log_losses {
	uint64_t lost_events;	  /* by the recorder: a ring was full, or there was none */
	uint64_t refused_events;  /* by the collector: at no node, or no memory for it */
	uint32_t waiting_threads; /* waited because their rings were full and not read */
	uint64_t waited_ns;	  /* at most, of these */
	uint64_t rebased_tick;	  /* from which on the log is right again, where it is */
	bool is_rebased;	  /* it is */
	uint32_t unsettled; /* threads of which an event may be wrong since the last re-base */
	uint64_t missing_intervals; /* could not be written */
	uint64_t lost_marks;	    /* could not be written */
	uint64_t missing_events;    /* of those kept one by one: could not be written */
	uint32_t bad_rings;	    /* made no sense; what they held is lost, however much it was */
	int error;	 /* why an interval could not be written, the last; negative errno */
	int event_error; /* the same of events */
};

/* Adds a sentence for each kind of loss in the log of process ${pid}. Whether there was any. */
bool hl_log_losses_tell(const struct hl_log_losses *losses, pid_t pid,
			struct hl_warnings *warnings);
