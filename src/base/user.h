/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another user of this host, as whom root reads what that user names: the kernel then decides what may be read.
 */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_user {
	uid_t uid;
	gid_t gid;
	size_t group_count;
	gid_t groups[];
};

/*
 * Who is at the other end of the UNIX socket ${fd}, as the kernel says: who began to listen, or who connected. 0 with
 * *${ret_user}, which the caller frees, or a negative errno.
 */
int hl_user_of_peer(int fd, struct hl_user **ret_user);

/* NULL for want of memory. */
struct hl_user *hl_user_copy(const struct hl_user *user);

#define HL_USER_NAME_MAX 64

/* The name of ${uid}, or its number where it has none; "" for -1. Cut to fit. Thread-safe. */
const char *hl_user_name(int64_t uid, char name[HL_USER_NAME_MAX]);

/* ---- one thread, for a while ---- */

/* What the thread was before; all zero: nothing was changed. */
struct hl_user_scope {
	bool is_entered;
	gid_t gid;
	size_t group_count;
	gid_t *groups;
};

/*
 * Has this thread alone open, make and remove files as ${user} (NULL: as itself); what else it may do stays. Begins no
 * process meanwhile. 0, or a negative errno: nothing was changed. To be left in any case.
 */
int hl_user_enter(const struct hl_user *user, struct hl_user_scope *scope);
void hl_user_leave(struct hl_user_scope *scope);

/* Enters the user of number ${uid} with no group but ours, which is enough for what is private to that user. */
int hl_user_enter_uid(uid_t uid, struct hl_user_scope *scope);

/* ---- a process, for good ---- */

/* "UID:GID[,GROUP...]", which the caller frees; NULL for want of memory. */
char *hl_user_format(const struct hl_user *user);

/*
 * Makes this process one of the user in ${text}. That user cannot look into it, since the kernel holds a process that
 * changed its user to be private. 0 or a negative errno.
 */
int hl_user_become(const char *text);
