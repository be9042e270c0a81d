/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shows on standard error, if that is a terminal, what work is done that takes over a second, and
 * how far it has come where that is known. A thread of its own shows it, so that work need not
 * report in time.
 */
#pragma once

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

struct hl_terminal_progress {
	struct hl_progress progress;
	bool is_running; /* the thread is there */
	pthread_t thread;
	pthread_cond_t ended;
	bool ends;
	const char *phase;  /* NULL: nothing is shown for it */
	const char *detail; /* of the phase, and how much of it is done; NULL: none is known */
	unsigned percent;
	bool shown;
};

/* Begins with ${phase}: "reading". One can be there at a time, and must not move. */
void hl_terminal_progress_init(struct hl_terminal_progress *progress, const char *phase);

/* What is done from here on; NULL when the terminal is needed for something else. */
void hl_terminal_progress_phase(struct hl_terminal_progress *progress, const char *phase);

/* Wipes what was shown, and shows nothing more. Twice is fine. */
void hl_terminal_progress_clear(struct hl_terminal_progress *progress);

/* Wipes what is shown, if anything is, so that a sentence can be written in its place. */
void hl_terminal_progress_wipe(void);
