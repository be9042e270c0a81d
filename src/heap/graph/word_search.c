/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a heap for words that lead to a few blocks; see leak_candidates.h. */
#include "heap/graph/leak_candidates.h"

#include "base/array.h"
#include "base/worker.h"
#include "heap/glibc.h"
#include "heap/graph/graph.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- the filter ---- */

static inline uint32_t hl_word_filter_bit(uint64_t address)
{
	return (uint32_t)(address >> HL_WORD_FILTER_STRETCH_BITS) * UINT32_C(0x9e3779b1) >>
	       (32 - HL_WORD_FILTER_BITS);
}

/* False: ${word} leads to none of the blocks. */
static inline bool hl_word_filter_passes(const struct hl_word_filter *filter, uint64_t word)
{
	uint32_t bit = hl_word_filter_bit(word);

	return filter->bits[bit / 64] >> bit % 64 & 1 ||
	       word - filter->large_first < filter->large_bytes;
}

#define FILTERED_MAX (UINT64_C(64) << 10)

void hl_word_filter_fill(struct hl_word_filter *filter, const struct hl_graph *graph)
{
	uint64_t first = UINT64_MAX, end = 0;

	for (uint64_t block = 0; (block = hl_graph_next_lost(graph, block)); block += 16) {
		uint64_t last = block + hl_graph_usable(graph, block);
		if (last - block > FILTERED_MAX) {
			first = block < first ? block : first;
			end = last;
			continue;
		}
		for (uint64_t at = block >> HL_WORD_FILTER_STRETCH_BITS;
		     at <= last >> HL_WORD_FILTER_STRETCH_BITS; at++) {
			uint32_t bit = hl_word_filter_bit(at << HL_WORD_FILTER_STRETCH_BITS);
			filter->bits[bit / 64] |= UINT64_C(1) << bit % 64;
		}
	}
	filter->large_first = first;
	filter->large_bytes = first < end ? end - first : 0;
}

/* ---- the search ---- */

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
	int r = 0;

	for (size_t i = 0; i < count; i++)
		readers[i] = (struct reader){.search = search, .is_callers = i == 0};
	while (started < count &&
	       hl_worker_start(&readers[started].thread, 0, read_tasks, &readers[started]) == 0)
		started++;
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
	size_t processors = hl_worker_processors();
	size_t count = processors > THREADS_MAX ? THREADS_MAX : processors;

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

/* ---- the sweep ---- */

#define WINDOW_BYTES (UINT64_C(256) << 10)
#define BATCH_SPANS  4096u
#define BATCH_BYTES  (UINT64_C(4) << 20) /* from the first span's start to the last one's end */
#define BATCHES	     4u

struct batch {
	struct hl_extent spans[BATCH_SPANS];
	size_t count;
	struct hl_pages pages; /* from the first span to the last one */
};

struct hl_sweep {
	struct hl_graph *graph;
	struct hl_memory *memory;
	struct hl_word_filter filter;
	struct hl_graph_tail tail;
	int error; /* of the reader */
	int scan_error;
	pthread_t thread;
	pthread_mutex_t mutex; /* of what follows, but for the batches' contents */
	pthread_cond_t changed;
	size_t filled, read; /* batches so far; those between wait */
	bool is_over;
	struct batch batches[BATCHES];
	uint64_t window[WINDOW_BYTES / 8];
};

static int sweep_word(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct hl_sweep *sweep = context;

	(void)address;
	if (hl_word_filter_passes(&sweep->filter, words[0]))
		hl_graph_see_root(sweep->graph, words, count, false);
	return 0;
}

static void sweep_words(struct hl_sweep *sweep, uint64_t address, const uint64_t *words,
			size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (hl_word_filter_passes(&sweep->filter, words[i]))
			hl_graph_see_root(sweep->graph, &words[i], 1, false);
	if (sweep->graph->reads_unaligned)
		hl_graph_each_unaligned(sweep->graph, address, words, count, &sweep->tail,
					sweep_word, sweep);
}

/* Sees those parts of ${batch} from its span *${next} on that lie in the window. */
static void see_spans(struct hl_sweep *sweep, const struct batch *batch, size_t *next,
		      uint64_t start, uint64_t end)
{
	for (; *next < batch->count && batch->spans[*next].start < end; ++*next) {
		const struct hl_extent *span = &batch->spans[*next];
		uint64_t from = span->start > start ? span->start : start;
		uint64_t to = span->end < end ? span->end : end;
		if (from < to)
			sweep_words(sweep, from, sweep->window + (from - start) / 8,
				    (to - from) / 8);
		if (span->end > end)
			break;
	}
}

static int read_batch(struct hl_sweep *sweep, const struct batch *batch)
{
	uint64_t mask = sweep->memory->page_bytes - 1;
	size_t next = 0;
	int r = 0;

	for (size_t i = 0; i < batch->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &batch->pages.runs[i];
		for (uint64_t at = run->start, to; at < run->end && r == 0; at = to) {
			while (next < batch->count && batch->spans[next].end <= at)
				next++;
			if (next == batch->count || batch->spans[next].start >= run->end)
				break;
			if (batch->spans[next].start > at)
				at = batch->spans[next].start & ~mask;
			to = at + WINDOW_BYTES < run->end ? at + WINDOW_BYTES : run->end;
			r = hl_memory_read(sweep->memory, at, sweep->window, to - at);
			if (r == -EFAULT) { /* a page has gone since */
				to = at + mask + 1;
				r = hl_memory_read(sweep->memory, at, sweep->window, to - at);
			}
			if (r == 0)
				see_spans(sweep, batch, &next, at, to);
			else if (r == -EFAULT)
				r = 0;
		}
	}
	return r;
}

static void *run(void *context)
{
	struct hl_sweep *sweep = context;

	pthread_mutex_lock(&sweep->mutex);
	for (;;) {
		while (sweep->read == sweep->filled && !sweep->is_over)
			pthread_cond_wait(&sweep->changed, &sweep->mutex);
		if (sweep->read == sweep->filled)
			break;
		const struct batch *batch = &sweep->batches[sweep->read % BATCHES];
		pthread_mutex_unlock(&sweep->mutex);
		if (sweep->error == 0)
			sweep->error = read_batch(sweep, batch);
		pthread_mutex_lock(&sweep->mutex);
		sweep->read++;
		pthread_cond_signal(&sweep->changed);
	}
	pthread_mutex_unlock(&sweep->mutex);
	return NULL;
}

/* Hands the batch that is being filled to the reader, and waits until there is room for another. */
static void hand_over(struct hl_sweep *sweep)
{
	struct batch *batch = &sweep->batches[sweep->filled % BATCHES];
	uint64_t mask = sweep->memory->page_bytes - 1;

	if (!batch->count)
		return;
	/* Here, as the page map is for one thread at a time. */
	batch->pages.count = 0;
	int r = hl_memory_scan(sweep->memory, batch->spans[0].start & ~mask,
			       (batch->spans[batch->count - 1].end + mask) & ~mask, &batch->pages);
	if (r < 0)
		sweep->scan_error = r;
	pthread_mutex_lock(&sweep->mutex);
	sweep->filled++;
	pthread_cond_signal(&sweep->changed);
	while (sweep->filled - sweep->read == BATCHES)
		pthread_cond_wait(&sweep->changed, &sweep->mutex);
	pthread_mutex_unlock(&sweep->mutex);
	sweep->batches[sweep->filled % BATCHES].count = 0;
}

void hl_sweep_add(struct hl_sweep *sweep, uint64_t start, uint64_t end)
{
	struct batch *batch = &sweep->batches[sweep->filled % BATCHES];
	struct hl_extent *last = batch->count ? &batch->spans[batch->count - 1] : NULL;

	/* Between two blocks lies a size, which is not a pointer. */
	if (last && start - last->end <= HL_CHUNK_HEADER &&
	    end - batch->spans[0].start <= BATCH_BYTES) {
		last->end = end;
		return;
	}
	if (last && (batch->count == BATCH_SPANS || start < last->end ||
		     end - batch->spans[0].start > BATCH_BYTES)) {
		hand_over(sweep);
		batch = &sweep->batches[sweep->filled % BATCHES];
	}
	batch->spans[batch->count++] = (struct hl_extent){start, end};
}

int hl_sweep_begin(struct hl_graph *graph, struct hl_sweep **ret_sweep)
{
	struct hl_sweep *sweep = calloc(1, sizeof(*sweep));

	if (!sweep)
		return -ENOMEM;
	sweep->graph = graph;
	sweep->memory = graph->memory;
	/* What was reached by now need not be found. */
	hl_word_filter_fill(&sweep->filter, graph);
	pthread_mutex_init(&sweep->mutex, NULL);
	pthread_cond_init(&sweep->changed, NULL);
	int r = hl_worker_start(&sweep->thread, 0, run, sweep);
	if (r < 0) {
		free(sweep);
		return r;
	}
	*ret_sweep = sweep;
	return 0;
}

int hl_sweep_end(struct hl_sweep *sweep)
{
	if (!sweep)
		return 0;
	hand_over(sweep);
	pthread_mutex_lock(&sweep->mutex);
	sweep->is_over = true;
	pthread_cond_signal(&sweep->changed);
	pthread_mutex_unlock(&sweep->mutex);
	pthread_join(sweep->thread, NULL);
	int r = sweep->error < 0	? sweep->error
		: sweep->scan_error < 0 ? sweep->scan_error
					: sweep->graph->error;
	pthread_mutex_destroy(&sweep->mutex);
	pthread_cond_destroy(&sweep->changed);
	for (size_t i = 0; i < BATCHES; i++)
		hl_pages_release(&sweep->batches[i].pages);
	free(sweep);
	return r;
}
