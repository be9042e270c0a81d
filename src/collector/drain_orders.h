/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What others want of the thread that drains a process and alone may touch its log: marks, and how
 * many segments are kept. Given from any thread, obeyed by that one.
 */
#pragma once

#include "log/segment_writer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hl_drain_mark;

struct hl_drain_orders {
	pthread_mutex_t lock;
	atomic_bool any; /* so that looking for none costs nothing */
	struct hl_drain_mark *first, **end;
	uint32_t mark_count;
	uint32_t segments_kept; /* 0: as before */
	uint32_t lost_marks;
};

void hl_drain_orders_init(struct hl_drain_orders *orders);
void hl_drain_orders_release(struct hl_drain_orders *orders);

/* Notes ${text} for ${tick}. 0, -ENOMEM, or -EAGAIN when too many wait already. */
int hl_drain_orders_mark(struct hl_drain_orders *orders, uint64_t tick, const char *text);

void hl_drain_orders_keep(struct hl_drain_orders *orders, uint32_t segments);

/* Does what was ordered. Marks for which the log has no place yet wait; ${last}: they are lost. */
void hl_drain_orders_obey(struct hl_drain_orders *orders, struct hl_log_writer *writer, bool last);
