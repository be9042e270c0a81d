/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps figures of heaps for a minute; see heaps.h. */
#include "serve/heaps.h"

#include "base/array.h"
#include "base/clock.h"
#include "heap/heap_figures.h"
#include "serve/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct known {
	pid_t pid;
	uint32_t sequence;
	ino_t recording; /* with the sequence: another process may get the number */
	uint64_t read_ns;
	int64_t cached_bytes, retained_bytes; /* -1: not known */
};

struct hl_serve_heaps {
	pthread_mutex_t reading; /* held while heaps are read: which may take long */
	pthread_mutex_t lock;	 /* of what follows */
	struct known *known;
	size_t count, capacity;
};

struct hl_serve_heaps *hl_serve_heaps_new(void)
{
	struct hl_serve_heaps *heaps = calloc(1, sizeof(*heaps));

	if (!heaps)
		return NULL;
	pthread_mutex_init(&heaps->reading, NULL);
	pthread_mutex_init(&heaps->lock, NULL);
	return heaps;
}

void hl_serve_heaps_free(struct hl_serve_heaps *heaps)
{
	if (!heaps)
		return;
	pthread_mutex_destroy(&heaps->reading);
	pthread_mutex_destroy(&heaps->lock);
	free(heaps->known);
	free(heaps);
}

static struct known key_of(const struct hl_catalog *catalog,
			   const struct hl_catalog_process *process)
{
	return (struct known){
		.pid = process->pid,
		.sequence = process->sequence,
		.recording = catalog->recordings[process->recording].inode,
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

static bool is_fresh(struct hl_serve_heaps *heaps, const struct known *key, uint64_t now_ns)
{
	pthread_mutex_lock(&heaps->lock);
	const struct known *known = find(heaps, key);
	bool fresh = known && now_ns - known->read_ns < HL_SERVE_HEAP_AGE_S * HL_NS_PER_SECOND;
	pthread_mutex_unlock(&heaps->lock);
	return fresh;
}

static void read_heap(struct known *known)
{
	char process[32], path[32];
	char *const arguments[] = {"--json", process, NULL};
	struct hl_heap_figures figures;
	struct hl_error err = {0};
	uint64_t bytes;

	snprintf(process, sizeof(process), "--pid=%d", known->pid);
	int fd = hl_run_verb("heap", arguments, &bytes, &err);
	known->read_ns = hl_clock_ns(CLOCK_MONOTONIC);
	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (hl_heap_figures_read(path, &figures, &err) == 0 && figures.numbers[HL_HEAP_SYSTEM]) {
		known->cached_bytes = (int64_t)(figures.numbers[HL_HEAP_TCACHE] +
						figures.numbers[HL_HEAP_FASTBIN]);
		known->retained_bytes = (int64_t)figures.numbers[HL_HEAP_FREE_RESIDENT];
	}
	close(fd);
}

static void keep(struct hl_serve_heaps *heaps, const struct known *known)
{
	pthread_mutex_lock(&heaps->lock);
	struct known *before = find(heaps, known);
	if (before)
		*before = *known;
	else /* without memory it is read again by the next caller */
		(void)HL_ARRAY_APPEND(heaps->known, heaps->count, heaps->capacity, *known);
	pthread_mutex_unlock(&heaps->lock);
}

static void read_heaps(struct hl_serve_heaps *heaps, const struct hl_catalog *catalog)
{
	uint64_t begun_ns = hl_clock_ns(CLOCK_MONOTONIC);

	for (size_t i = 0; i < catalog->process_count; i++) {
		struct known known = key_of(catalog, &catalog->processes[i]);
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		if (now_ns - begun_ns > HL_SERVE_HEAP_TURN_S * HL_NS_PER_SECOND)
			break;
		if (is_fresh(heaps, &known, now_ns))
			continue;
		read_heap(&known);
		keep(heaps, &known);
	}
}

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

void hl_serve_heaps_fill(struct hl_serve_heaps *heaps, struct hl_catalog *catalog)
{
	if (pthread_mutex_trylock(&heaps->reading) == 0) {
		read_heaps(heaps, catalog);
		pthread_mutex_unlock(&heaps->reading);
	}
	pthread_mutex_lock(&heaps->lock);
	forget(heaps, catalog);
	for (size_t i = 0; i < catalog->process_count; i++) {
		struct known key = key_of(catalog, &catalog->processes[i]);
		const struct known *known = find(heaps, &key);
		if (!known)
			continue;
		catalog->processes[i].cached_bytes = known->cached_bytes;
		catalog->processes[i].retained_bytes = known->retained_bytes;
	}
	pthread_mutex_unlock(&heaps->lock);
}
