/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads heaps beside the answers; see catalog.h. */
#include "serve/catalog.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "heap/heap_figures.h"
#include "serve/command.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct known {
	pid_t pid;
	uint32_t sequence;
	ino_t recording;  /* with the sequence: another process may get the number */
	uint64_t read_ns; /* 0: never */
	int64_t recorder_bytes, cached_bytes, retained_bytes; /* -1: not known */
	struct sample {
		int64_t ms, inuse_bytes; /* of the recording; zero at its beginning */
	} older, newer;
};

struct hl_serve_heaps {
	int stop_fd, wake_fd;
	pthread_t reader;
	pthread_mutex_t lock; /* of what follows */
	struct known *known;
	size_t count, capacity;
};

static struct known key_of(const struct hl_catalog *catalog,
			   const struct hl_catalog_process *process)
{
	return (struct known){
		.pid = process->pid,
		.sequence = process->sequence,
		.recording = catalog->recordings[process->recording].inode,
		.recorder_bytes = -1,
		.cached_bytes = -1,
		.retained_bytes = -1,
	};
}

static bool is_same(const struct known *one, const struct known *other)
{
	return one->pid == other->pid && one->sequence == other->sequence &&
	       one->recording == other->recording;
}

/* Under the lock. NULL if it is not known. */
static struct known *find(struct hl_serve_heaps *heaps, const struct known *key)
{
	for (size_t i = 0; i < heaps->count; i++)
		if (is_same(&heaps->known[i], key))
			return &heaps->known[i];
	return NULL;
}

static bool is_fresh(const struct known *known, uint64_t now_ns)
{
	return known && known->read_ns &&
	       now_ns - known->read_ns < HL_SERVE_HEAP_AGE_S * HL_NS_PER_SECOND;
}

/* ---- the thread that reads ---- */

static void read_heap(const struct hl_serve_heaps *heaps, const struct hl_user *user,
		      struct known *known)
{
	char process[32], path[32];
	const struct hl_run run = {.verb = "heap",
				   .arguments = (char *const[]){"--json", process, NULL},
				   .user = user,
				   .stop_fd = heaps->stop_fd,
				   .client_fd = -1};
	struct hl_heap_figures figures;
	struct hl_error err = {0};
	uint64_t bytes;

	snprintf(process, sizeof(process), "--pid=%d", known->pid);
	int fd = hl_command_run(&run, &bytes, &err);
	known->read_ns = hl_clock_ns(CLOCK_MONOTONIC);
	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (hl_heap_figures_read(path, &figures, &err) == 0) {
		known->recorder_bytes = (int64_t)figures.numbers[HL_HEAP_RESIDENT_RECORDER];
		if (figures.numbers[HL_HEAP_SYSTEM]) { /* else malloc is not glibc's */
			known->cached_bytes = (int64_t)(figures.numbers[HL_HEAP_TCACHE] +
							figures.numbers[HL_HEAP_FASTBIN]);
			known->retained_bytes = (int64_t)figures.numbers[HL_HEAP_FREE_RESIDENT];
		}
	}
	close(fd);
}

static void keep(struct hl_serve_heaps *heaps, const struct known *read)
{
	pthread_mutex_lock(&heaps->lock);
	struct known *known = find(heaps, read);
	if (known) { /* else it has ended */
		known->read_ns = read->read_ns;
		known->recorder_bytes = read->recorder_bytes;
		known->cached_bytes = read->cached_bytes;
		known->retained_bytes = read->retained_bytes;
	}
	pthread_mutex_unlock(&heaps->lock);
}

/* Waits for ${wake_fd}, up to ${timeout_ms}. Whether it has to end. */
static bool has_to_end(struct hl_serve_heaps *heaps, int timeout_ms)
{
	struct pollfd watched[] = {{.fd = heaps->stop_fd, .events = POLLIN},
				   {.fd = heaps->wake_fd, .events = POLLIN}};
	eventfd_t count;

	while (poll(watched, HL_COUNT_OF(watched), timeout_ms) < 0 && errno == EINTR)
		;
	if (watched[1].revents)
		eventfd_read(heaps->wake_fd, &count);
	return watched[0].revents != 0;
}

static void *read_heaps(void *context)
{
	struct hl_serve_heaps *heaps = context;

	while (!has_to_end(heaps, -1)) {
		HL_CLEANUP(hl_catalog_release) struct hl_catalog catalog;
		if (hl_catalog_read(&catalog, NULL, 0) < 0)
			continue;
		for (size_t i = 0; i < catalog.process_count && !has_to_end(heaps, 0); i++) {
			const struct hl_catalog_process *process = &catalog.processes[i];
			struct known known = key_of(&catalog, process);
			pthread_mutex_lock(&heaps->lock);
			bool fresh = is_fresh(find(heaps, &known), hl_clock_ns(CLOCK_MONOTONIC));
			pthread_mutex_unlock(&heaps->lock);
			if (fresh)
				continue;
			read_heap(heaps, catalog.recordings[process->recording].owner, &known);
			keep(heaps, &known);
		}
	}
	return NULL;
}

int hl_serve_heaps_new(int stop_fd, struct hl_serve_heaps **ret_heaps)
{
	struct hl_serve_heaps *heaps = calloc(1, sizeof(*heaps));

	if (!heaps)
		return -ENOMEM;
	heaps->stop_fd = stop_fd;
	heaps->wake_fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&heaps->lock, NULL);
	int error = heaps->wake_fd < 0 ? errno
				       : pthread_create(&heaps->reader, NULL, read_heaps, heaps);
	if (error) {
		if (heaps->wake_fd >= 0)
			close(heaps->wake_fd);
		pthread_mutex_destroy(&heaps->lock);
		free(heaps);
		return -error;
	}
	*ret_heaps = heaps;
	return 0;
}

void hl_serve_heaps_free(struct hl_serve_heaps *heaps)
{
	if (!heaps)
		return;
	pthread_join(heaps->reader, NULL);
	close(heaps->wake_fd);
	pthread_mutex_destroy(&heaps->lock);
	free(heaps->known);
	free(heaps);
}

/* ---- answers ---- */

/* Forgets processes that are not in ${catalog}. Under the lock. */
static void forget(struct hl_serve_heaps *heaps, const struct hl_catalog *catalog)
{
	size_t kept = 0;

	for (size_t k = 0; k < heaps->count; k++)
		for (size_t i = 0; i < catalog->process_count; i++) {
			struct known key = key_of(catalog, &catalog->processes[i]);
			if (!is_same(&heaps->known[k], &key))
				continue;
			heaps->known[kept++] = heaps->known[k];
			break;
		}
	heaps->count = kept;
}

/* By how much it grows in a minute; the sample of now may become one to measure from. Under the lock. */
static int64_t measure_growth(struct known *known, const struct hl_catalog_process *process)
{
	const struct sample now = {process->ms, process->inuse_bytes};

	if (now.ms - known->newer.ms >= HL_SERVE_GROWTH_MS) {
		known->older = known->newer;
		known->newer = now;
	}
	int64_t ms = now.ms - known->older.ms;
	return ms > 0 ? (int64_t)((double)(now.inuse_bytes - known->older.inuse_bytes) * 60000 /
				  (double)ms)
		      : 0;
}

void hl_serve_heaps_fill(struct hl_serve_heaps *heaps, struct hl_catalog *catalog, bool reads)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	bool all_fresh = true;

	pthread_mutex_lock(&heaps->lock);
	forget(heaps, catalog);
	for (size_t i = 0; i < catalog->process_count; i++) {
		struct hl_catalog_process *process = &catalog->processes[i];
		struct known key = key_of(catalog, process), *known = find(heaps, &key);
		if (!known &&
		    HL_ARRAY_APPEND(heaps->known, heaps->count, heaps->capacity, key) == 0)
			known = &heaps->known[heaps->count - 1];
		if (!known)
			continue;
		process->growth_bytes = measure_growth(known, process);
		all_fresh &= is_fresh(known, now_ns);
		if (known->recorder_bytes < 0)
			continue;
		process->recorder_bytes = known->recorder_bytes;
		process->cached_bytes = known->cached_bytes;
		process->retained_bytes = known->retained_bytes;
		process->heap_age_s = (int64_t)((now_ns - known->read_ns) / HL_NS_PER_SECOND);
	}
	pthread_mutex_unlock(&heaps->lock);
	if (reads && !all_fresh)
		eventfd_write(heaps->wake_fd, 1);
}
