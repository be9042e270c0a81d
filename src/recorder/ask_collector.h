/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks the collector that records this process, over the socket that 'heapline ctl' uses: what takes the collector more
 * than a glance, and whatever a program asks that has no recorder of its own, as after 'heapline attach'. By raw system
 * calls: nothing is allocated, nothing recorded, errno is kept. It waits for the answer; not for signal handlers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HL_ASK_REASON_BYTES 256

struct hl_answer {
	char *text; /* the program's to change; a NUL follows */
	size_t bytes;
	size_t mapped_bytes;
};

/*
 * Asks "VERB PID[ ARGUMENT]", see collector/control_protocol.h; PID 0 is this process. 0, or with a sentence in
 * ${ret_reason}: -ENOTCONN when nobody records this process, -EREMOTEIO when the collector refuses, -ETIMEDOUT or another
 * negative errno.
 */
int hl_ask_collector(const char *question, struct hl_answer *ret_answer,
		     char ret_reason[HL_ASK_REASON_BYTES]);

/* Of an answer that was given, or of one that is all 0. */
void hl_answer_release(struct hl_answer *answer);
