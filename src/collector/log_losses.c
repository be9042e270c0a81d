/* SPDX-License-Identifier: BSD-2-Clause */
/* Words for losses; see log_losses.h. */
#include "collector/log_losses.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static bool tell_lost(const struct hl_log_losses *losses, pid_t pid, struct hl_warnings *warnings)
{
	char since[64] = "";

	if (losses->is_rebased)
		snprintf(since, sizeof(since),
			 "; its figures are right again from %" PRIu64 " ms on",
			 losses->rebased_tick);
	return hl_warnings_add(warnings,
			       "the log of process %d lacks %" PRIu64
			       " event%s: there was no room for them in its rings%s",
			       pid, losses->lost_events, plural(losses->lost_events), since);
}

bool hl_log_losses_tell(const struct hl_log_losses *losses, pid_t pid, struct hl_warnings *warnings)
{
	bool any = false;
	if (losses->lost_events)
		any |= tell_lost(losses, pid, warnings);
	if (losses->refused_events)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks %" PRIu64
				       " event%s that made no sense or found no memory",
				       pid, losses->refused_events, plural(losses->refused_events));
	if (losses->bad_rings)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks the events of %" PRIu32
				       " thread%s: the process has damaged their rings",
				       pid, losses->bad_rings, plural(losses->bad_rings));
	if (losses->lost_marks)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks %" PRIu64
				       " mark%s that could not be written",
				       pid, losses->lost_marks, plural(losses->lost_marks));
	if (losses->missing_intervals)
		any |= hl_warnings_add(warnings,
				       "%" PRIu64 " interval%s of the log of process %d could not "
				       "be written: %s",
				       losses->missing_intervals, plural(losses->missing_intervals),
				       pid, strerror(-losses->error));
	if (losses->missing_events)
		any |= hl_warnings_add(warnings,
				       "%" PRIu64 " event%s of process %d could not be kept: %s",
				       losses->missing_events, plural(losses->missing_events), pid,
				       strerror(-losses->event_error));
	return any;
}
