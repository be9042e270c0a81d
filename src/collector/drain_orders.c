/* SPDX-License-Identifier: BSD-2-Clause */
/* Hands orders from one thread to another; see drain.h. */
#include "collector/drain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A full disk keeps marks waiting, and a program sets as many as it likes. */
#define MARKS_MAX 4096u

struct hl_drain_mark {
	struct hl_drain_mark *next;
	uint64_t tick;
	char text[];
};

void hl_drain_orders_init(struct hl_drain_orders *orders)
{
	*orders = (struct hl_drain_orders){.lock = PTHREAD_MUTEX_INITIALIZER};
	orders->end = &orders->first;
}

static void drop_first(struct hl_drain_orders *orders)
{
	struct hl_drain_mark *mark = orders->first;

	orders->first = mark->next;
	orders->mark_count--;
	if (!orders->first)
		orders->end = &orders->first;
	free(mark);
}

void hl_drain_orders_release(struct hl_drain_orders *orders)
{
	while (orders->first)
		drop_first(orders);
	pthread_mutex_destroy(&orders->lock);
}

int hl_drain_orders_mark(struct hl_drain_orders *orders, uint64_t tick, const char *text)
{
	size_t size = strlen(text) + 1;

	struct hl_drain_mark *mark = malloc(sizeof(*mark) + size);
	if (!mark)
		return -ENOMEM;
	mark->next = NULL;
	mark->tick = tick;
	memcpy(mark->text, text, size);
	pthread_mutex_lock(&orders->lock);
	bool room = orders->mark_count < MARKS_MAX;
	if (room) {
		*orders->end = mark;
		orders->end = &mark->next;
		orders->mark_count++;
		atomic_store(&orders->any, true);
	}
	pthread_mutex_unlock(&orders->lock);
	if (!room)
		free(mark);
	return room ? 0 : -EAGAIN;
}

void hl_drain_orders_keep(struct hl_drain_orders *orders, uint32_t segments)
{
	pthread_mutex_lock(&orders->lock);
	orders->segments_kept = segments;
	atomic_store(&orders->any, true);
	pthread_mutex_unlock(&orders->lock);
}

void hl_drain_orders_obey(struct hl_drain_orders *orders, struct hl_log_writer *writer, bool last)
{
	if (!atomic_load_explicit(&orders->any, memory_order_relaxed))
		return;
	pthread_mutex_lock(&orders->lock);
	if (orders->segments_kept)
		hl_log_writer_keep(writer, orders->segments_kept);
	orders->segments_kept = 0;
	while (orders->first) {
		int r = hl_log_writer_mark(writer, orders->first->tick, orders->first->text);
		/* The log takes marks between intervals, and not while the disk is full. */
		if (r == -EAGAIN && !last)
			break;
		orders->lost_marks += r < 0;
		drop_first(orders);
	}
	atomic_store(&orders->any, orders->first != NULL);
	pthread_mutex_unlock(&orders->lock);
}
