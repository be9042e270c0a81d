/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a drain by the clock, and hands orders to its thread; see drain.h. */
#include "base/clock.h"
#include "base/worker.h"
#include "collector/drain.h"
#include "region/ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- orders ---- */

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

/* ---- the thread ---- */

#define STACK_BYTES (256u << 10)

/* The target may have hundreds of busy threads, and they wait for this one. */
#define NICENESS (-10)

/* After QUIET_TICKS without an event the thread sleeps for at most DOZE_TICKS. Each wake-up costs
 * about 15 microseconds, nearly all of it in the kernel. */
#define QUIET_TICKS 20
#define DOZE_TICKS  100

struct hl_drain_thread {
	struct hl_drain *drain; /* the thread's, until it has ended */
	uint64_t start_ns;
	atomic_bool stop;
	pthread_t id;
};

static uint64_t tick_of(const struct hl_drain_thread *thread)
{
	return (hl_clock_ns(CLOCK_MONOTONIC) - thread->start_ns) / HL_RING_TICK_NS;
}

static void *run(void *argument)
{
	struct hl_drain_thread *thread = argument;
	unsigned quiet_ticks = 0;

	setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread alone, and only if it may */
	while (!atomic_load(&thread->stop)) {
		uint64_t tick = tick_of(thread);
		quiet_ticks = hl_drain_run(thread->drain, tick) ? 0 : quiet_ticks + 1;
		bool doze = quiet_ticks > QUIET_TICKS;
		uint64_t next_tick = tick + (doze ? DOZE_TICKS : 1);
		uint64_t next_ns = thread->start_ns + next_tick * HL_RING_TICK_NS;
		struct timespec next = {.tv_sec = (time_t)(next_ns / HL_NS_PER_SECOND),
					.tv_nsec = (long)(next_ns % HL_NS_PER_SECOND)};
		if (doze)
			hl_drain_doze(thread->drain, tick, &next);
		else
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

int hl_drain_thread_start(const struct hl_drain_settings *settings, uint64_t start_ns,
			  struct hl_drain_thread **ret_thread)
{
	struct hl_drain_thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return -ENOMEM;
	thread->start_ns = start_ns;
	int r = hl_drain_new(settings, &thread->drain);
	if (r == 0)
		r = hl_worker_start(&thread->id, STACK_BYTES, run, thread);
	if (r == 0) {
		*ret_thread = thread;
		return 0;
	}
	struct hl_log_losses none;
	if (thread->drain)
		hl_drain_finish(thread->drain, 0, &none);
	free(thread);
	return r;
}

void hl_drain_thread_move(struct hl_drain_thread *thread, int directory_fd)
{
	hl_drain_move(thread->drain, directory_fd);
}

void hl_drain_thread_stop(struct hl_drain_thread *thread, struct hl_log_losses *ret_losses)
{
	atomic_store(&thread->stop, true);
	hl_drain_wake(thread->drain);
	pthread_join(thread->id, NULL);
	hl_drain_finish(thread->drain, tick_of(thread), ret_losses);
	free(thread);
}
