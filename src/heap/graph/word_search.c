/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a heap for words that lead to a few blocks; see word_search.h. */
#include "heap/graph/word_search.h"

#include "base/array.h"
#include "heap/graph/graph.h"
#include "heap/graph/word_filter.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define TASK_BYTES  (UINT64_C(1) << 16)
#define THREADS_MAX 16u

struct search {
	const struct hl_graph *graph;
	const struct hl_word_filter *filter;
	size_t hits_max;
	struct hl_extents tasks;
	atomic_size_t next_task;
	atomic_bool is_over; /* a thread has failed */
	atomic_bool is_late; /* see hl_memory_keep_time() */
};

struct reader {
	struct search *search;
	struct hl_graph_tail tail;
	pthread_t thread;
	struct hl_word_hit *hits;
	size_t count, capacity;
	bool is_callers; /* of the thread that stopped the process */
	uint64_t late_bytes;
	int error;
};

/* Keeps the word if it leads to a candidate. */
static int see_word(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct reader *reader = context;
	const struct hl_graph *graph = reader->search->graph;
	uint64_t block, source, word = words[0];

	(void)count;
	if (!hl_word_filter_passes(reader->search->filter, word) ||
	    !hl_graph_find(graph, word, &block) || hl_graph_is_reached(graph, block))
		return 0;
	if (hl_graph_find(graph, address, &source) && !hl_graph_is_reached(graph, source))
		return 0; /* a candidate's own */
	return reader->count == reader->search->hits_max
		       ? -E2BIG
		       : HL_ARRAY_APPEND(reader->hits, reader->count, reader->capacity,
					 (struct hl_word_hit){address, word});
}

static int read_words(struct reader *reader, uint64_t start, uint64_t end, uint64_t *words)
{
	const struct search *search = reader->search;
	size_t count = (end - start) / 8;
	int r = hl_memory_read(search->graph->memory, start, words, end - start);

	for (size_t i = 0; r == 0 && i < count; i++)
		if (hl_word_filter_passes(search->filter, words[i]))
			r = see_word(reader, start + i * 8, &words[i], 1);
	if (r == 0 && search->graph->reads_unaligned)
		r = hl_graph_each_unaligned(search->graph, start, words, count, &reader->tail,
					    see_word, reader);
	return r;
}

static void keep_time(struct reader *reader, const struct hl_extent *task)
{
	struct search *search = reader->search;

	if (reader->is_callers) {
		hl_memory_keep_time(search->graph->memory, task->end - task->start);
		search->is_late = search->graph->memory->is_late;
	} else if (search->is_late) {
		reader->late_bytes += task->end - task->start;
	}
}

/* Where a page has gone since, the others are read one by one. */
static int read_task(struct reader *reader, const struct hl_extent *task, uint64_t *words)
{
	uint64_t page = reader->search->graph->memory->page_bytes;

	keep_time(reader, task);
	int r = read_words(reader, task->start, task->end, words);

	if (r != -EFAULT)
		return r;
	r = 0;
	for (uint64_t at = task->start; at < task->end && r == 0; at += page) {
		r = read_words(reader, at, at + page, words);
		r = r == -EFAULT ? 0 : r;
	}
	return r;
}

static void *read_tasks(void *context)
{
	struct reader *reader = context;
	struct search *search = reader->search;
	uint64_t *words = malloc(TASK_BYTES);
	size_t at;

	if (!words)
		reader->error = -ENOMEM;
	while (reader->error == 0 && !search->is_over &&
	       (at = atomic_fetch_add(&search->next_task, 1)) < search->tasks.count)
		reader->error = read_task(reader, &search->tasks.extents[at], words);
	if (reader->error < 0)
		search->is_over = true;
	free(words);
	return NULL;
}

static int list_tasks(struct search *search, const struct hl_extents *heap, struct hl_pages *pages)
{
	uint64_t mask = search->graph->memory->page_bytes - 1, end = 0;
	int r = 0;

	/* Extents of a recorder's table need not begin with a page, so two may share one. */
	for (size_t i = 0; i < heap->count && r == 0; i++) {
		uint64_t start = heap->extents[i].start & ~mask;
		start = start > end ? start : end;
		end = (heap->extents[i].end + mask) & ~mask;
		if (start < end)
			r = hl_memory_scan(search->graph->memory, start, end, pages);
	}
	for (size_t i = 0; i < pages->count && r == 0; i++) {
		const struct hl_page_run *run = &pages->runs[i];
		for (uint64_t at = run->start, to; at < run->end && r == 0; at = to) {
			to = run->end - at > TASK_BYTES ? at + TASK_BYTES : run->end;
			r = hl_extents_add(&search->tasks, at, to);
		}
	}
	return r;
}

/* The caller reads as well; where no thread can be had, alone. */
static int read_all(struct search *search, struct reader *readers, size_t count)
{
	size_t started = 1;
	sigset_t all, before;
	int r = 0;

	for (size_t i = 0; i < count; i++)
		readers[i] = (struct reader){.search = search, .is_callers = i == 0};
	sigfillset(&all); /* signals are for the caller's thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started < count &&
	       pthread_create(&readers[started].thread, NULL, read_tasks, &readers[started]) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	read_tasks(&readers[0]);
	for (size_t i = 1; i < started; i++)
		pthread_join(readers[i].thread, NULL);
	for (size_t i = 0; i < started; i++) {
		search->graph->memory->late_bytes += readers[i].late_bytes;
		r = r ? r : readers[i].error;
	}
	return r;
}

static int join_hits(struct reader *readers, size_t count, struct hl_word_hits *hits)
{
	size_t capacity = 0;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		for (size_t k = 0; k < readers[i].count && r == 0; k++)
			r = HL_ARRAY_APPEND(hits->hits, hits->count, capacity, readers[i].hits[k]);
	return r;
}

void hl_word_hits_release(struct hl_word_hits *hits)
{
	free(hits->hits);
	hl_pages_release(&hits->pages);
	*hits = (struct hl_word_hits){0};
}

int hl_word_search(const struct hl_graph *graph, const struct hl_word_filter *filter,
		   const struct hl_extents *heap, size_t hits_max, struct hl_word_hits *ret_hits)
{
	struct search search = {.graph = graph,
				.filter = filter,
				.hits_max = hits_max,
				.is_late = graph->memory->is_late};
	struct reader readers[THREADS_MAX] = {0};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	size_t count = processors < 1			? 1
		       : processors > (long)THREADS_MAX ? THREADS_MAX
							: (size_t)processors;

	int r = list_tasks(&search, heap, &ret_hits->pages);
	if (r == 0)
		r = read_all(&search, readers, count);
	if (r == 0)
		r = join_hits(readers, count, ret_hits);
	for (size_t i = 0; i < count; i++)
		free(readers[i].hits);
	hl_extents_release(&search.tasks);
	return r;
}
