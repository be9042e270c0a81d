/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel itself reports of a level of a group, so that looks come in time: of version 1 that usage passes a share of the limit, and that memory is
 * hard to get; of version 2 that a limit was reached (memory.events), and that tasks wait for memory (memory.pressure). Version 2 reports no share of a limit.
 *
 * Source: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst and accounting/psi.rst.
 */
#pragma once

#include "base/error.h"
#include "process/cgroup.h"

#include <stdbool.h>
#include <stdint.h>

/* Zero-initialize. */
struct hl_watch_alarm {
	int events, pressure; /* descriptors that wake; 0: none. Version 1 has one for both */
	uint64_t limit;	      /* of which the shares are; of version 2 0 */
	bool was_tried;
};

/* In the data of an event, beside the tag: tasks may wait for memory. */
#define HL_WATCH_ALARM_PRESSURE (UINT64_C(1) << 63)

/*
 * Sets the alarm for ${level}, or sets it again for another limit: ${epoll} then gets an event of data ${tag}, once until hl_watch_alarm_rearm().
 * ${share}: see hl_watch_trigger_feed(). What cannot be set has a sentence in ${why}, and is not tried again.
 */
void hl_watch_alarm_set(struct hl_watch_alarm *alarm, int epoll,
			const struct hl_cgroup_level *level, double share, uint64_t tag,
			struct hl_error *why);

void hl_watch_alarm_rearm(const struct hl_watch_alarm *alarm, int epoll, uint64_t tag);
void hl_watch_alarm_release(struct hl_watch_alarm *alarm);
