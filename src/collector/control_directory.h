/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where collectors listen for `heapline ctl`: PID.sock in a directory of one user, which nobody
 * else may enter. It is the first of $XDG_RUNTIME_DIR/heapline, /run/user/UID/heapline and
 * /tmp/heapline-UID that can be had.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum {
	HL_CONTROL_IN_RUNTIME_DIR, /* $XDG_RUNTIME_DIR; of the calling user alone */
	HL_CONTROL_IN_RUN_USER,
	HL_CONTROL_IN_TMP,
	HL_CONTROL_PLACES,
};

/*
 * Opens a directory of user ${uid} if it is private to them: theirs, mode 0700, no symbolic link.
 * The descriptor, or a negative errno: -ENOENT when there is none, -EPERM when it is not private.
 */
int hl_control_directory_open(unsigned place, uid_t uid);

/* Opens the first place of the calling user that can be had, and makes it if need be. */
int hl_control_directory_make(void);

/* The PIDs that have a socket there, dead or alive; the caller frees them. 0 or a negative errno.
 */
int hl_control_directory_list(int directory_fd, pid_t **ret_pids, size_t *ret_count);

/* Removes sockets that nobody listens to any more. */
void hl_control_directory_clean(int directory_fd);

/* Listens as the calling process. A descriptor that does not block, or a negative errno. */
int hl_control_directory_listen(int directory_fd);

/* Removes the calling process' socket. */
void hl_control_directory_remove(int directory_fd);

/* Connects to the collector ${pid}. A descriptor that does not block, or a negative errno:
 * -ECONNREFUSED when it is dead. */
int hl_control_directory_connect(int directory_fd, pid_t pid);
