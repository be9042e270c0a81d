/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts a log right after it has lost events: what the counters say is in use, and the log does not,
 * is added to the interval that ends.
 *
 * While it is compared the program goes on. Each counter is read between two events of its thread,
 * as the ring's sequence tells, together with how far the ring was written then. Of the events that
 * are still unread in the rings those up to there are in the counters already, and are taken off.
 * So what the log says after it has read them is what the counters say: exactly, but for threads
 * that were found in the middle of an event for as long as they were looked at, for want of a
 * processor or of room in their rings. Their counters may lack that event, or have it too early, by
 * one event for each such thread; who re-bases once more later puts that right, too.
 */
#pragma once

#include "collector/region_reader.h"
#include "log/event_writer.h"
#include "log/interval.h"
#include "log/ring_reader.h"
#include "log/segment_writer.h"

struct hl_rebase {
	const struct hl_region_view *view;
	const struct hl_ring_set *rings;    /* all that was read of them is in the intervals */
	const struct hl_log_writer *writer; /* up to the last interval */
	struct hl_intervals *intervals;	    /* the current one, about to be ended */
	struct hl_event_writer *events;	    /* NULL: events are not kept */
};

/* 0, with the number of threads of which an event may be wrong in ${ret_unsettled}; or -ENOMEM,
 * with the intervals unchanged or changed in part. Costs a pass over the counters. */
int hl_rebase_log(const struct hl_rebase *rebase, uint32_t *ret_unsettled);
