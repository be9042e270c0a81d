/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Brings the recorder into a running process, and takes it out again: no debugger, no dlopen(),
 * nothing of the target's libc. The target goes on whatever becomes of heapline.
 *
 *	hl_attach_open()	looks; the target is not touched
 *	hl_attach_bring()	one thread stopped for a millisecond: memory, image, memfd of the region
 *	hl_attach_patch()	the recorder starts; all threads stopped while entries are patched
 *	hl_attach_detach()	entries are as before; once no thread is inside, all memory is given back
 *
 * One thread, always the same, since the kernel knows tracers by thread.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_attach;

struct hl_attach_settings {
	const char *const *hooks; /* of `--hook`, NULL-terminated; NULL: none */
	const char *presets;	  /* a file of presets; NULL: $HEAPLINE_PRESETS, if it is set */
	/* Calls that functions of rules make of others that allocate count, too. */
	bool counts_layers;
	bool no_objects; /* those of a guest's own allocator are left out; the region says it of others */
	bool no_pools; /* presets of pools hold only where ${hooks} ask for them */
	bool waits; /* its one thread waits for the caller, before any code of the program has run */
};

/* How long the target was stopped, in microseconds. */
struct hl_attach_times {
	uint32_t bring_us; /* one thread */
	uint32_t patch_us; /* all threads */
	uint32_t detach_us;
};

/* Says in ${err} why the process cannot be entered. 0, -ESRCH, -EACCES, -EBUSY (it is traced, or
 * attached to already), -ENOTSUP; -EINVAL or -ENOENT for ${settings}. */
int hl_attach_open(pid_t pid, const struct hl_attach_settings *settings,
		   struct hl_attach **ret_attach, struct hl_error *err);

/* ${ret_region_fd}: an empty memfd, made in the target, for its region; the caller's to close. */
int hl_attach_bring(struct hl_attach *attach, int *ret_region_fd, struct hl_error *err);

/* The region has been laid out in ${region_bytes}. After an error hl_attach_detach() is due. */
int hl_attach_patch(struct hl_attach *attach, uint64_t region_bytes, struct hl_error *err);

/*
 * Takes the recorder out. -EAGAIN when some thread has not left it in ${wait_ms}: entries are as
 * before, and its memory stays; a later call tries again. A target that has ended is not an error.
 */
int hl_attach_detach(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err);

/*
 * Before hl_attach_patch(), once the region has been laid out: children that the process forks from there on, and
 * theirs, ask for regions of their own, and wait. The descriptor is readable when some do, until hl_attach_next_child() has returned false, and
 * not the caller's to close; or a negative errno: they run unrecorded. hl_attach_next_child() says which, false
 * if none does; its process may be anybody's by the time that it is looked at. ${region_fd}, an empty memfd, becomes the
 * caller's. hl_attach_answer_child() lets it go on; ${has_region}: the region is laid out. They are left with
 * their parent, by hl_attach_detach().
 */
struct hl_attach_child {
	pid_t pid;
	int region_fd;
	uint32_t place;
	uint64_t post;
};

int hl_attach_follow(struct hl_attach *attach);
bool hl_attach_next_child(struct hl_attach *attach, struct hl_attach_child *ret_child);
void hl_attach_answer_child(struct hl_attach *attach, const struct hl_attach_child *child,
			    bool has_region);

/* Writes what allocates or frees in the process without being recorded, once it is patched; "" when
 * nothing is known to. ${is_recorded}: 'heapline record' has brought the recorder in, so that it is not named as the remedy. */
void hl_attach_unseen(const struct hl_attach *attach, bool is_recorded, char *ret_text,
		      size_t capacity);

/* The same of libraries that were loaded later. After hl_attach_detach(). */
void hl_attach_late_problem(const struct hl_attach *attach, char *ret_text, size_t capacity);

/* Names the first function of `--hook` whose library is not loaded yet; "" if all are loaded. */
void hl_attach_awaited(const struct hl_attach *attach, char *ret_text, size_t capacity);

/*
 * For a program from its first instruction on. hl_attach_catch(), before ${child}
 * executes a program; hl_attach_open_caught() instead of hl_attach_open(), with the same errors.
 * The program waits until hl_attach_patch() has succeeded; after any error it has been killed before
 * its first instruction, at the latest by hl_attach_free().
 */
int hl_attach_catch(pid_t child, struct hl_error *err);
int hl_attach_open_caught(pid_t child, const struct hl_attach_settings *settings,
			  struct hl_attach **ret_attach, struct hl_error *err);

/* The presets of pools that hold in it, with ", " between them; "" if none does. */
void hl_attach_pools(const struct hl_attach *attach, char *ret_text, size_t capacity);

struct hl_attach_times hl_attach_times(const struct hl_attach *attach);

/* Closes; a target that is attached to stays as it is. NULL is fine. */
void hl_attach_free(struct hl_attach *attach);
