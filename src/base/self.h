/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds heapline's own file, and runs heapline itself, for what one of its verbs does. */
#pragma once

#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The path of the program that runs, also where a dynamic loader was executed that loaded it. False where no /proc says it. */
bool hl_self_path(char ret_path[PATH_MAX]);

/*
 * Begins heapline with ${arguments}, NULL-terminated, the first of which is "heapline". It writes to ${out} and ${complaints},
 * reads nothing, and takes signals as a program does that a shell begins; both -1: it has the standard streams and
 * the signals of its parent. 0 or a negative errno.
 */
int hl_self_spawn(char *const *arguments, int out, int complaints, pid_t *ret_pid);

/* Before a verb: the text of hl_user_format() follows, of whom the process becomes one before it does anything else. */
#define HL_SELF_AS_USER "--as-user"

/* The same: HL_SELF_PARENT_FORM follows, a signal, which the process gets when the thread that began it ends, and the process of that thread. It exits
 * with status 1 if that has ended already. */
#define HL_SELF_WITH_PARENT "--with-parent"
#define HL_SELF_PARENT_FORM "%d:%d"

/*
 * Waits for a child, by its pidfd (-1: for none) as the first of ${watched}, until ${deadline_ns} of CLOCK_MONOTONIC or something at one of
 * the others, which cancels. 0; -ETIMEDOUT, -ECANCELED or another negative errno.
 */
int hl_self_wait(struct pollfd *watched, size_t count, uint64_t deadline_ns);

/* Takes the text behind HL_SELF_WITH_PARENT. From then on SIGXCPU, that is the soft limit of processor time, does what SIGTERM does. False when the parent
 * has ended already. */
bool hl_self_keep_to_parent(const char *text);

#define HL_SELF_SENTENCE_MAX 2000 /* bytes, with the NUL */

/* The first sentence that it wrote to ${complaints}, a file, without "heapline: " before it; NULL: none. In ${text}. */
const char *hl_self_sentence(int complaints, char text[HL_SELF_SENTENCE_MAX]);
