/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wakes the collector when a program has put something into its mailbox, so that nobody need look there
 * ten times a second. A thread sleeps on the bells of all mailboxes at once (futex_waitv of Linux 5.16).
 */
#pragma once

#include "region/mailbox.h"

#include <stddef.h>

/* The kernel's limit, less the one that wakes the thread itself. */
#define HL_BELLS_MAX 127u

struct hl_bell;

/* 0 or a negative errno; -ENOSYS where the kernel is too old. Nothing is listened to yet. */
int hl_bell_new(struct hl_bell **ret_bell);

void hl_bell_free(struct hl_bell *bell); /* NULL is fine; waits for the thread's end */

/* Readable (poll) once a mailbox has been rung, and at most each HL_MAILBOX_POLL_MS. */
int hl_bell_fd(const struct hl_bell *bell);

/* To be called before the mailboxes are read: what is posted from here on rings again. */
void hl_bell_answer(struct hl_bell *bell);

/*
 * Listens to ${count} mailboxes, at most HL_BELLS_MAX, instead of those before. What one of them holds
 * already rings. A mailbox may be unmapped once it is not listened to any more.
 */
void hl_bell_listen(struct hl_bell *bell, struct hl_mailbox *const *mailboxes, size_t count);
