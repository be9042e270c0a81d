/* SPDX-License-Identifier: BSD-2-Clause */
/* The sentences of a recording about what went wrong: each once, and not too many. */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HL_WARNINGS_MAX	 32
#define HL_WARNING_BYTES 1024 /* of a sentence, with the end of the text */

struct hl_warnings {
	char *texts[HL_WARNINGS_MAX + 1]; /* NULL-terminated */
	uint32_t count;
};

/* Adds a sentence. False when it was there already, or there is no room. */
bool hl_warnings_add(struct hl_warnings *warnings, const char *format, ...) HL_PRINTF(2, 3);

/* Puts ${sentence} in the place of ${before}, or adds it where that is not there. As above. */
bool hl_warnings_replace(struct hl_warnings *warnings, const char *before, const char *sentence);

void hl_warnings_release(struct hl_warnings *warnings);

/* ---- what the log of a process lacks ---- */

struct hl_log_losses {
	uint64_t lost_events;	  /* by the recorder: a ring was full, or there was none */
	uint64_t refused_events;  /* by the collector: at no node, or no memory for it */
	uint32_t waiting_threads; /* waited because their rings were full and not read */
	uint64_t waited_ns;	  /* at most, of these */
	uint64_t rebased_tick;	  /* from which on the log is right again, where it is */
	bool is_rebased;	  /* it is */
	uint32_t unsettled; /* threads of which an event may be wrong since the last re-base */
	uint64_t missing_intervals; /* could not be written */
	uint64_t lost_marks;	    /* could not be written */
	uint64_t missing_events;    /* of those kept one by one: could not be written */
	uint32_t bad_rings;	    /* made no sense; what they held is lost, however much it was */
	int error;	 /* why an interval could not be written, the last; negative errno */
	int event_error; /* the same of events */
};

/* Adds a sentence for each kind of loss in the log of process ${pid}. Whether there was any. */
bool hl_log_losses_tell(const struct hl_log_losses *losses, pid_t pid,
			struct hl_warnings *warnings);
