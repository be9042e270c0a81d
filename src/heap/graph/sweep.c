/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading live memory for words that lead to a few blocks; see sweep.h. */
#include "heap/graph/sweep.h"

#include "heap/glibc.h"
#include "heap/graph/word_filter.h"

#include <pthread.h>
#include <signal.h>

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

/* ---- reading ---- */

static int see_word(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct hl_sweep *sweep = context;

	(void)address;
	if (hl_word_filter_passes(&sweep->filter, words[0]))
		hl_graph_see_root(sweep->graph, words, count, false);
	return 0;
}

static void see_words(struct hl_sweep *sweep, uint64_t address, const uint64_t *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (hl_word_filter_passes(&sweep->filter, words[i]))
			hl_graph_see_root(sweep->graph, &words[i], 1, false);
	if (sweep->graph->reads_unaligned)
		hl_graph_each_unaligned(sweep->graph, address, words, count, &sweep->tail, see_word,
					sweep);
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
			see_words(sweep, from, sweep->window + (from - start) / 8, (to - from) / 8);
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

/* ---- spans ---- */

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

/* ---- all ---- */

int hl_sweep_begin(struct hl_graph *graph, struct hl_sweep **ret_sweep)
{
	struct hl_sweep *sweep = calloc(1, sizeof(*sweep));
	sigset_t all, before;

	if (!sweep)
		return -ENOMEM;
	sweep->graph = graph;
	sweep->memory = graph->memory;
	/* What was reached by now need not be found. */
	hl_word_filter_fill(&sweep->filter, graph);
	pthread_mutex_init(&sweep->mutex, NULL);
	pthread_cond_init(&sweep->changed, NULL);
	sigfillset(&all); /* signals are for the caller's thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&sweep->thread, NULL, run, sweep);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		free(sweep);
		return -error;
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
