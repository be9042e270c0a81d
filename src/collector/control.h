/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lets a recording be asked and changed while it goes on: by `heapline ctl` over a socket, and by
 * the recorded programs through their mailboxes. Never waits for either.
 */
#pragma once

#include "collector/control_actions.h"

struct hl_control;

/* Nobody is listened to yet. 0 or a negative errno. */
int hl_control_new(const struct hl_control_subject *subject, struct hl_control **ret_control);

/* Listens to nobody any more: ends a snapshot that is being made, and removes the socket. Mailboxes
 * can still be read, and hl_control_tell_detached() be called. */
void hl_control_close(struct hl_control *control);

void hl_control_free(struct hl_control *control); /* NULL is fine; closes */

/* Listens at a socket, see control_protocol.h. 0, or a negative errno: there is no control, which
 * need not keep a recording. */
int hl_control_open(struct hl_control *control);

/* Readable (poll) when there is something to do. */
int hl_control_fd(const struct hl_control *control);

/* Does all that there is to do now. */
void hl_control_dispatch(struct hl_control *control);

/* Whether somebody asked for the recorder to be taken out, and waits for it. */
bool hl_control_is_to_detach(const struct hl_control *control);

/* Answers all who did: it has been, or ${problem}, a sentence (NULL if there is none). */
void hl_control_tell_detached(struct hl_control *control, const char *problem);

/* To be called when the list of processes has changed, and before a region of one that was on it is unmapped. */
void hl_control_listen(struct hl_control *control);

/* Does what the process' mailbox asks for. ${last}: the process has ended. */
void hl_control_read_mailbox(struct hl_control *control, struct hl_tracked *tracked, bool last);
