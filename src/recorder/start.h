/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How recording starts in a fresh program image, and goes on in its children: the environment, the collector,
 * what the loader bound to libc.
 */
#pragma once

#include "region/protocol.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts recording in a fresh program image; called by the library's constructor. Forked children
 * start by themselves. errno is kept. */
void hl_start(char *const *environment);

/* ---- asks the collector for a region; see protocol.h ---- */

/* Keeps the collector's address, the values of HL_ENV_SOCKET and HL_ENV_TOKEN, for this process and
 * its forked children. False when they are NULL or cannot be an address. */
bool hl_connect_set_collector(const char *socket, const char *token);

/* Whether the filters of this process, which programs that it runs inherit, permit all that the recorder does as it starts. */
bool hl_connect_may_start(void);

/*
 * Gets and maps a region for this process; nothing stays open. NULL when there is no collector, or
 * it refuses, or it does not answer in time, or did not answer another recorder (protocol.h).
 * ${ret_collector_pid} is 0 when the collector is not to be seen in this process' pid namespace.
 * errno is kept.
 */
void *hl_connect_get_region(enum hl_hello_kind kind, size_t *ret_bytes, int32_t *ret_collector_pid);

/* Whether another recorder was brought in instead of this one (HL_WELCOME_ENTERED), which records forked children, but not what they execute. */
bool hl_connect_is_entered(void);

/* ---- ask collector ---- */

/*
 * Asks the collector that records this process, over the socket that 'heapline ctl' uses: what takes the collector more
 * than a glance, and whatever a program asks that has no recorder of its own, as after 'heapline attach'. By raw system
 * calls: nothing is allocated, nothing recorded, errno is kept. It waits for the answer; not for signal handlers.
 */

#define HL_ASK_REASON_BYTES 256

struct hl_answer {
	char *text; /* the program's to change; a NUL follows */
	size_t bytes;
	size_t mapped_bytes;
};

/*
 * Asks "VERB PID[ ARGUMENT]", see collector/control_ask.h; PID 0 is this process. 0, or with a sentence in
 * ${ret_reason}: -ENOTCONN when nobody records this process, -EREMOTEIO when the collector refuses, -ETIMEDOUT or another
 * negative errno.
 */
int hl_ask_collector(const char *question, struct hl_answer *ret_answer,
		     char ret_reason[HL_ASK_REASON_BYTES]);

/* Of an answer that was given, or of one that is all 0. */
void hl_answer_release(struct hl_answer *answer);

/* ---- a collector for a program that preloads the recorder without `heapline record` ---- */

/*
 * Starts `heapline record` with the options in HEAPLINE_RECORD, if ${environment} has it, and waits
 * for its answer. The collector is nobody's child here: it is forked twice, so that the program's
 * wait() never returns it. False if there is none, and the program goes on unrecorded. Why stands on
 * the standard error stream, unless there was no memory for the collector, or it did not answer in
 * 10 s. A set-user-id program gets none. For the program's start, before any other thread.
 */
bool hl_own_collector_start(char *const *environment, struct hl_invitation *ret_invitation);

/* ---- environment ---- */

/*
 * What a program must find in its environment to be recorded: the recorder first in LD_PRELOAD, and
 * the way to the collector. The program itself may have removed them from its own environment, or
 * from the one that it makes for another.
 */

/* Has programs that are started from here on find no way to the collector: not in ${environment}, nor where it is completed. They
 * pass through, without a system call of the recorder. */
void hl_environment_forget_token(char *const *environment);

/* The value of variable ${name}, or NULL. */
const char *hl_environment_value(char *const *environment, const char *name);

/* Keeps the entries that the functions below add: LD_PRELOAD from the environment of this program's
 * start, which may name the file ${recorder} by another path, and the way to the collector. */
void hl_environment_keep(char *const *environment, const char *recorder, const char *socket,
			 const char *token);

/*
 * Bytes that hl_environment_complete() needs. 0: ${environment} is complete, or must be left alone,
 * because it belongs to another recording or preloads a sanitizer, which refuses to come second.
 * ${withholds}: the program is to find no way to the collector.
 */
size_t hl_environment_room(char *const *environment, bool withholds);

/*
 * ${environment} with what is missing, made in the ${bytes} of ${room}, which is aligned as a
 * pointer. The strings stay where they are, but for LD_PRELOAD: there the recorder comes first,
 * then what stood there. Nothing is written beyond ${room} even where another thread adds to
 * ${environment} meanwhile. Both functions are async-signal-safe and allocate nothing.
 */
char *const *hl_environment_complete(char *const *environment, bool withholds, void *room,
				     size_t bytes);

/* ${environment} without the entry of the token, in ${room} for as many pointers. Async-signal-safe. */
char *const *hl_environment_without_token(char *const *environment, void *room);

/* ---- kin ---- */

/*
 * Reports to the collector what it cannot see: that exec is about to replace a program, and that a
 * child runs without a region.
 *
 * The report stands in the header of the process' region. A forked child keeps its parent's header
 * until it has one of its own; the rest of the parent's region it gives back.
 */

/* The region of this process from now on. Takes ${region} over; a forked child that is recorded
 * gives it back all but its header. */
void hl_kin_take(struct hl_region_header *region, size_t bytes);

/* The process is about to fork; and the child is there. */
void hl_kin_count_forked(void);
void hl_kin_enter_child(void);

/* A forked child could not get a region. */
void hl_kin_count_unrecorded(void);

/* In a child that goes on with an interrupted event of its parent (start.c), and is not recorded:
 * puts memory of its own in the place of the header. */
void hl_kin_leave(void);

/* Whether programs that this process starts are to be recorded. */
bool hl_kin_are_followed(void);

/* What hl_kin_begin_exec() counted, for an exec that fails. */
struct hl_kin_exec {
	_Atomic uint32_t *counter; /* NULL: nothing */
	bool moved;		   /* from the children that got no region */
	bool was_awaited;
};

/* The calling process, or a child by vfork(), is about to become the program at ${path}; NULL: the
 * one that ${fd} has open. */
struct hl_kin_exec hl_kin_begin_exec(const char *path, int fd);

/* The exec failed. */
void hl_kin_fail_exec(struct hl_kin_exec exec);

/* Keeps where the arguments of the program lie: many write a title over them. */
void hl_kin_keep_arguments(char *const *arguments, char *const *environment);

/* Writes the title down when the process is about to end. Makes no system call, since a filter may
 * forbid it. */
void hl_kin_keep_title(void);

/* The process asks for a namespace of libraries, whose allocations are not seen. */
void hl_kin_count_namespace(void);

/* The process has started a child with a program of its own. */
void hl_kin_count_spawned(void);

/* ---- deepbind ---- */

/*
 * Libraries that the loader binds to libc before it looks at what is preloaded. The loader is made to find our entry points wherever it
 * would find those of libc: for libraries that are opened with RTLD_DEEPBIND, for what these need, and for dlsym() of libc itself. What is not
 * libc's own without us, because another library defines it, stays as it is.
 *
 * To be called while recording and before the program runs. Where nobody can ask before a library is opened, nothing is changed until then.
 */
void hl_deepbind_begin(void);

/* Changes what has not been changed yet. To be called before a library is opened, by any thread. */
void hl_deepbind_complete(void);
