/* SPDX-License-Identifier: BSD-2-Clause */
/* Who a process is, from /proc. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HL_IDENTITY_NAME_MAX 64 /* bytes, with the end of the text */

struct hl_identity {
	uint32_t parent_pid;
	char *executable;		 /* "" when unknown */
	char **command;			 /* NULL-terminated */
	dev_t device;			 /* of the executable */
	ino_t inode;			 /* of the executable; 0 when unknown */
	char name[HL_IDENTITY_NAME_MAX]; /* the kernel's, of its main thread; "" when unknown */
};

/* What cannot be read is left empty. 0 or -ENOMEM. */
int hl_identity_read(pid_t pid, struct hl_identity *ret_identity);

/* Reads the command line and the name again, which a process may change to say what it does. What
 * cannot be read, as of one that has ended, stays as it is. */
void hl_identity_refresh(struct hl_identity *identity, pid_t pid);

/* Reads the name alone, into ${ret_name}; of one that has ended, too, as long as nobody has waited
 * for it. False when it cannot be read. */
bool hl_identity_read_name(pid_t pid, char ret_name[HL_IDENTITY_NAME_MAX]);

/* Takes the ${size} bytes of a command line, as in /proc/PID/cmdline, for the process'. */
void hl_identity_set_command(struct hl_identity *identity, const char *bytes, size_t size);

/* 0 when unknown. */
uint32_t hl_identity_parent(pid_t pid);

/* Whether the process runs another program than then. ${ret_name} is what the kernel calls it now.
 */
bool hl_identity_has_changed(const struct hl_identity *identity, pid_t pid,
			     char ret_name[HL_IDENTITY_NAME_MAX]);

void hl_identity_release(struct hl_identity *identity);
