/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at memory in time; see drain.h. */
#include "collector/drain.h"

#include "base/clock.h"
#include "base/worker.h"
#include "process/cgroup.h"
#include "process/maps.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)

/* The program may have many busy threads, and dies if this one is late. */
#define NICENESS (-10)

/* By one thread of a program, which does not get memory faster: the kernel zeroes it first. The reserve is for a look that comes
 * too late, and for what grows while the table is given back. */
#define BYTES_PER_NS 4

#define WAIT_MIN_NS	 UINT64_C(2000000)
#define WAIT_MAX_NS	 HL_NS_PER_SECOND
#define NO_LIMIT_WAIT_NS (5 * HL_NS_PER_SECOND) /* one may be set */
#define LIMITS_WAIT_NS	 HL_NS_PER_SECOND	/* they may be changed */
#define RECORDER_MIN	 (INT64_C(1) << 20)	/* what it uses without blocks, about */
#define PARTS_NEAR	 4			/* see hl_recorder_memory_look() */
#define RESERVE_MIN	 (INT64_C(8) << 20)
#define RESERVE_MAX	 (INT64_C(128) << 20)
#define RESERVE_PARTS	 16 /* of the limit */
#define SAMPLES		 16384
#define SAMPLE_BYTES_MIN 4096u
#define SAMPLE_BYTES_MAX (512u << 10)
#define HEAP_PER_BYTE	 4 /* of what the recorder uses */

struct hl_budget {
	struct hl_budget_settings settings;
	pthread_mutex_t lock; /* of what follows, and of watches */
	pthread_cond_t changed;
	struct hl_budget_watch *watches;
	pthread_t thread;
	bool has_thread, ends;
	uint64_t next_ns; /* when the thread looks next */
	struct {
		char path[PATH_MAX];
		uint64_t until_ns;
	} unlimited;	      /* a group without limits, its own or above it */
	int64_t bytes_per_ns; /* 0: not asked yet */
};

struct hl_budget_watch {
	struct hl_budget_watch *next;
	struct hl_budget *budget;
	pid_t pid;
	bool has_told;
	struct hl_cgroup_gauge gauge;
	uint64_t limits_ns; /* when they are to be looked at again */
	int64_t most_bytes; /* of the recorder; 0: no bound */
	struct hl_recorder_memory memory;
	int64_t asked_heap; /* in use when that was asked for */
	uint64_t sample_bytes;
	struct hl_region_header *header; /* NULL: not yet begun */
	struct hl_budget_verdict verdict;
};

struct hl_budget *hl_budget_new(const struct hl_budget_settings *settings)
{
	struct hl_budget *budget = calloc(1, sizeof(*budget));
	pthread_condattr_t attributes;

	if (!budget)
		return NULL;
	budget->settings = *settings;
	pthread_mutex_init(&budget->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&budget->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return budget;
}

void hl_budget_free(struct hl_budget *budget)
{
	if (!budget)
		return;
	pthread_mutex_lock(&budget->lock);
	budget->ends = true;
	pthread_cond_signal(&budget->changed);
	pthread_mutex_unlock(&budget->lock);
	if (budget->has_thread)
		pthread_join(budget->thread, NULL);
	pthread_cond_destroy(&budget->changed);
	pthread_mutex_destroy(&budget->lock);
	free(budget);
}

/* Most processes of a recording are in one group, and most groups have no limit. */
static void open_gauge(struct hl_budget_watch *watch, const struct hl_cgroup *group,
		       uint64_t now_ns)
{
	struct hl_budget *budget = watch->budget;

	watch->limits_ns = now_ns + LIMITS_WAIT_NS;
	if (now_ns < budget->unlimited.until_ns &&
	    strcmp(budget->unlimited.path, group->path) == 0) {
		hl_cgroup_gauge_release(&watch->gauge);
		watch->limits_ns = budget->unlimited.until_ns;
		return;
	}
	hl_cgroup_gauge_open(&watch->gauge, group);
	if (watch->gauge.count)
		return;
	strcpy(budget->unlimited.path, group->path);
	budget->unlimited.until_ns = watch->limits_ns;
}

/* Processes are moved to other groups, and limits are changed. */
static void look_at_limits(struct hl_budget_watch *watch, uint64_t now_ns)
{
	struct hl_cgroup group;

	if (now_ns < watch->limits_ns)
		return;
	watch->limits_ns = now_ns + LIMITS_WAIT_NS;
	if (hl_cgroup_open_of(watch->pid, &group, NULL) == 0) {
		open_gauge(watch, &group, now_ns);
		hl_cgroup_release(&group);
	}
}

bool hl_budget_sees_limit(struct hl_budget *budget, const struct hl_cgroup *group)
{
	struct hl_budget_watch watch = {.budget = budget};

	pthread_mutex_lock(&budget->lock);
	open_gauge(&watch, group, hl_clock_ns(CLOCK_MONOTONIC));
	pthread_mutex_unlock(&budget->lock);
	bool has_limit = watch.gauge.count > 0;
	hl_cgroup_gauge_release(&watch.gauge);
	return has_limit;
}

static int64_t lowest_limit(const struct hl_budget_watch *watch)
{
	int64_t lowest = INT64_MAX;

	for (unsigned i = 0; i < watch->gauge.count; i++)
		if (watch->gauge.levels[i].limit < (uint64_t)lowest)
			lowest = (int64_t)watch->gauge.levels[i].limit;
	return lowest;
}

/* The heap whose exact recording is at the bound decides, or what fits into the group. */
static uint64_t sample_bytes_of(int64_t most_bytes, int64_t limit)
{
	int64_t heap = most_bytes && most_bytes < limit / HEAP_PER_BYTE ? most_bytes * HEAP_PER_BYTE
									: limit;
	int64_t mean = heap / SAMPLES;

	return mean < SAMPLE_BYTES_MIN	 ? SAMPLE_BYTES_MIN
	       : mean > SAMPLE_BYTES_MAX ? SAMPLE_BYTES_MAX
					 : (uint64_t)mean;
}

struct hl_budget_watch *hl_budget_watch_new(struct hl_budget *budget, pid_t pid,
					    const struct hl_cgroup *group)
{
	struct hl_budget_watch *watch = budget ? calloc(1, sizeof(*watch)) : NULL;

	if (!watch)
		return NULL;
	watch->budget = budget;
	watch->pid = pid;
	if (group) {
		pthread_mutex_lock(&budget->lock);
		open_gauge(watch, group, hl_clock_ns(CLOCK_MONOTONIC));
		pthread_mutex_unlock(&budget->lock);
	}
	int64_t limit = lowest_limit(watch);
	int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	int64_t whole = limit < machine ? limit : machine;
	watch->most_bytes = budget->settings.most_percent
				    ? whole / 100 * (int64_t)budget->settings.most_percent
				    : (int64_t)budget->settings.most_bytes;
	watch->sample_bytes = sample_bytes_of(watch->most_bytes, whole);
	return watch;
}

uint64_t hl_budget_sample_bytes(const struct hl_budget_watch *watch)
{
	return watch ? watch->sample_bytes : 0;
}

static void tell(struct hl_budget_watch *watch, struct hl_budget_verdict verdict)
{
	verdict.clock_ns = hl_clock_ns(CLOCK_MONOTONIC);
	watch->verdict = verdict;
	watch->has_told = true;
	atomic_fetch_or(&watch->header->mode, HL_MODE_SAMPLED);
}

/* How long these bytes last. */
static uint64_t wait_for(struct hl_budget *budget, int64_t bytes)
{
	if (!budget->bytes_per_ns) {
		long processors = sysconf(_SC_NPROCESSORS_ONLN);
		budget->bytes_per_ns = BYTES_PER_NS * (processors > 0 ? processors : 1);
	}
	uint64_t ns = (uint64_t)((bytes > 0 ? bytes : 0) / budget->bytes_per_ns);

	return ns < WAIT_MIN_NS ? WAIT_MIN_NS : ns > WAIT_MAX_NS ? WAIT_MAX_NS : ns;
}

/* The wait until the next look, in nanoseconds. Each level is judged by itself: one that is full of page cache hides no other. */
static uint64_t look_at_level(struct hl_budget_watch *watch, const struct hl_cgroup_level *level)
{
	int64_t left = hl_cgroup_level_left(level);
	int64_t limit = (int64_t)level->limit, reserve = limit / RESERVE_PARTS;

	if (left == INT64_MAX)
		return NO_LIMIT_WAIT_NS;
	if (reserve < RESERVE_MIN)
		reserve = RESERVE_MIN < limit / 2 ? RESERVE_MIN : limit / 2;
	if (reserve > RESERVE_MAX)
		reserve = RESERVE_MAX;
	if (left <= reserve)
		left += hl_cgroup_level_cache(level);
	if (left <= reserve)
		tell(watch, (struct hl_budget_verdict){.left = left, .limit = limit});
	return wait_for(watch->budget, left - reserve);
}

static uint64_t look_at_group(struct hl_budget_watch *watch, uint64_t now_ns)
{
	uint64_t wait_ns = NO_LIMIT_WAIT_NS;

	look_at_limits(watch, now_ns);
	for (unsigned i = 0; i < watch->gauge.count && !watch->has_told; i++) {
		uint64_t own_ns = look_at_level(watch, &watch->gauge.levels[i]);
		wait_ns = own_ns < wait_ns ? own_ns : wait_ns;
	}
	return wait_ns;
}

/* The kernel takes its time to say what a recorder uses. It is asked often where what is in use may have brought the
 * recorder to its bound since it was asked last, else seldom. */
static uint64_t look_at_recorder(struct hl_budget_watch *watch)
{
	int64_t heap = atomic_load_explicit(&watch->header->inuse_bytes, memory_order_relaxed);
	int64_t grown = heap > watch->asked_heap ? heap - watch->asked_heap : 0;
	int64_t most =
		watch->memory.bytes + RECORDER_MIN + grown; /* small objects take as much again */
	unsigned parts = most >= watch->most_bytes ? PARTS_NEAR : HL_RECORDER_MEMORY_ASKED;

	if (hl_recorder_memory_look(&watch->memory, watch->pid, parts)) {
		watch->asked_heap = heap;
		most = watch->memory.bytes + RECORDER_MIN;
	}
	if (watch->memory.bytes >= watch->most_bytes)
		tell(watch, (struct hl_budget_verdict){.recorder_bytes = watch->memory.bytes});
	return wait_for(watch->budget, watch->most_bytes - most);
}

static uint64_t look(struct hl_budget_watch *watch, uint64_t now_ns)
{
	uint64_t wait_ns = NO_LIMIT_WAIT_NS;

	if (!watch->has_told)
		wait_ns = look_at_group(watch, now_ns);
	if (!watch->has_told && watch->most_bytes) {
		uint64_t own_ns = look_at_recorder(watch);
		wait_ns = own_ns < wait_ns ? own_ns : wait_ns;
	}
	return wait_ns;
}

static void *run(void *argument)
{
	struct hl_budget *budget = argument;

	setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread alone, and only if it may */
	pthread_mutex_lock(&budget->lock);
	while (!budget->ends) {
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC), wait_ns = NO_LIMIT_WAIT_NS;
		for (struct hl_budget_watch *watch = budget->watches; watch; watch = watch->next) {
			uint64_t own_ns = look(watch, now_ns);
			wait_ns = own_ns < wait_ns ? own_ns : wait_ns;
		}
		uint64_t next_ns = budget->next_ns = now_ns + wait_ns;
		const struct timespec next = {.tv_sec = (time_t)(next_ns / HL_NS_PER_SECOND),
					      .tv_nsec = (long)(next_ns % HL_NS_PER_SECOND)};
		pthread_cond_timedwait(&budget->changed, &budget->lock, &next);
	}
	pthread_mutex_unlock(&budget->lock);
	return NULL;
}

static void start_thread(struct hl_budget *budget)
{
	if (!budget->has_thread)
		budget->has_thread =
			hl_worker_start(&budget->thread, STACK_BYTES, run, budget) == 0;
}

void hl_budget_attend(struct hl_budget *budget)
{
	if (!budget)
		return;
	pthread_mutex_lock(&budget->lock);
	if (budget->watches)
		start_thread(budget);
	pthread_mutex_unlock(&budget->lock);
}

void hl_budget_begin(struct hl_budget_watch *watch, struct hl_region_header *header)
{
	if (!watch)
		return;
	struct hl_budget *budget = watch->budget;
	pthread_mutex_lock(&budget->lock);
	watch->header = header;
	watch->next = budget->watches;
	budget->watches = watch;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC), wait_ns = look(watch, now_ns);
	/* A program without limits may have ended before a thread is worth its start. */
	if (wait_ns < NO_LIMIT_WAIT_NS)
		start_thread(budget);
	if (now_ns + wait_ns < budget->next_ns)
		pthread_cond_signal(&budget->changed);
	pthread_mutex_unlock(&budget->lock);
}

bool hl_budget_has_told(struct hl_budget_watch *watch, struct hl_budget_verdict *ret_verdict)
{
	if (!watch)
		return false;
	pthread_mutex_lock(&watch->budget->lock);
	bool has_told = watch->has_told;
	*ret_verdict = watch->verdict;
	pthread_mutex_unlock(&watch->budget->lock);
	return has_told;
}

void hl_budget_watch_free(struct hl_budget_watch *watch)
{
	if (!watch)
		return;
	struct hl_budget *budget = watch->budget;
	pthread_mutex_lock(&budget->lock);
	for (struct hl_budget_watch **at = &budget->watches; *at; at = &(*at)->next)
		if (*at == watch) {
			*at = watch->next;
			break;
		}
	pthread_mutex_unlock(&budget->lock);
	hl_cgroup_gauge_release(&watch->gauge);
	free(watch);
}
