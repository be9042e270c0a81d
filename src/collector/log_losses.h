/* SPDX-License-Identifier: BSD-2-Clause */
/* What the log of a process lacks, and the sentences that say so. */
#pragma once

#include "collector/warnings.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_log_losses {
	uint64_t lost_events;	 /* by the recorder: a ring was full, or there was none */
	uint64_t refused_events; /* by the collector: at no node, or no memory for it */
	uint64_t rebased_tick;	 /* from which on the log is right again, where it is */
	bool is_rebased;	 /* it is */
	uint32_t unsettled;	 /* threads of which an event may be wrong since the last re-base */
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
