/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Marking by several threads. Each takes a region with pending blocks, reads these, and takes the next one, in order of
 * address like a thread that is alone. A thread that ran ahead would read pages for a few blocks each, to which others
 * are found later: so no region is taken while one from long before is still being read. What is reached in
 * the end is the same in whatever order it is: all that pending blocks lead to.
 */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "base/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MARKERS_MAX 8u
#define REGIONS_MIN 32u /* smaller heaps are marked before a thread has started */
#define AHEAD	    2u	/* regions of each thread that are taken after one that is still read */

struct marker {
	struct hl_graph_crew *crew;
	pthread_t thread;
	struct hl_graph graph; /* shares regions and large blocks with the others */
	struct hl_graph_offsets offsets;
	uint64_t taken; /* how many regions were before graph.region */
};

struct hl_graph_crew {
	pthread_mutex_t mutex; /* of what follows */
	pthread_cond_t changed;
	unsigned count, waiting;
	uint64_t taken; /* regions so far */
	size_t cursor;
	bool is_over;
	atomic_bool is_hungry; /* a thread waits */
	struct marker *markers;
};

bool hl_graph_crew_is_hungry(struct hl_graph_crew *crew)
{
	return atomic_load(&crew->is_hungry);
}

void hl_graph_crew_wake(struct hl_graph_crew *crew)
{
	/* The bit that says what there is to do was set before, and who waits looks after it says so. */
	if (!atomic_load(&crew->is_hungry))
		return;
	pthread_mutex_lock(&crew->mutex);
	pthread_cond_signal(&crew->changed);
	pthread_mutex_unlock(&crew->mutex);
}

/* ---- regions ---- */

static bool is_taken(const struct hl_graph_crew *crew, const struct hl_graph_region *region)
{
	for (unsigned i = 0; i < crew->count; i++)
		if (crew->markers[i].graph.region == region)
			return true;
	return false;
}

/* Whether a region that was taken long ago is still being read. */
static bool is_ahead(const struct hl_graph_crew *crew)
{
	for (unsigned i = 0; i < crew->count; i++)
		if (crew->markers[i].graph.region &&
		    crew->taken - crew->markers[i].taken >= AHEAD * crew->count)
			return true;
	return false;
}

/* Takes the next pending region that is not taken. */
static bool take_region(struct marker *marker)
{
	struct hl_graph_crew *crew = marker->crew;
	struct hl_graph *graph = &marker->graph;

	if (is_ahead(crew))
		return false;
	for (unsigned rounds = 0; rounds < 2; rounds++, crew->cursor = 0)
		for (size_t at = crew->cursor;
		     (at = hl_graph_next_pending(graph, at)) < graph->region_count; at++) {
			if (is_taken(crew, graph->regions[at]))
				continue;
			crew->cursor = at + 1;
			marker->taken = crew->taken++;
			graph->region = graph->regions[at];
			graph->cursor_page = 0;
			return true;
		}
	return false;
}

/* Ends the region that ${marker} has, and takes another, for which it waits. False: there is nothing left
 * to do. */
static bool go_on(struct marker *marker)
{
	struct hl_graph_crew *crew = marker->crew;

	if (marker->graph.region)
		hl_graph_leave_region(&marker->graph, marker->graph.region);
	pthread_mutex_lock(&crew->mutex);
	marker->graph.region = NULL;
	if (crew->waiting)
		pthread_cond_broadcast(&crew->changed);
	crew->waiting++;
	atomic_store(&crew->is_hungry, true);
	while (!crew->is_over && !take_region(marker)) {
		/* With no region taken nobody finds more. */
		crew->is_over = crew->waiting == crew->count;
		if (!crew->is_over)
			pthread_cond_wait(&crew->changed, &crew->mutex);
	}
	atomic_store(&crew->is_hungry, --crew->waiting > 0);
	if (crew->is_over)
		pthread_cond_broadcast(&crew->changed);
	bool goes_on = !crew->is_over;
	pthread_mutex_unlock(&crew->mutex);
	return goes_on;
}

static void end_all(struct hl_graph_crew *crew)
{
	pthread_mutex_lock(&crew->mutex);
	crew->is_over = true;
	pthread_cond_broadcast(&crew->changed);
	pthread_mutex_unlock(&crew->mutex);
}

static void *mark(void *context)
{
	struct marker *marker = context;
	int r = 0;

	while (r == 0 && go_on(marker))
		while ((r = hl_graph_mark_next(&marker->graph)) > 0)
			;
	if (r < 0) {
		marker->graph.error = r;
		end_all(marker->crew);
	}
	return NULL;
}

/* ---- all ---- */

static unsigned count_markers(const struct hl_graph *graph)
{
	if (graph->on_block || graph->phase != HL_GRAPH_DEFINITE ||
	    (!graph->markers && graph->region_count < REGIONS_MIN) ||
	    hl_graph_next_pending(graph, 0) == graph->region_count)
		return 1;
	unsigned most = graph->markers ? graph->markers : hl_worker_processors();
	return most < MARKERS_MAX ? most : MARKERS_MAX;
}

static void init_marker(struct marker *marker, struct hl_graph_crew *crew,
			const struct hl_graph *graph)
{
	marker->crew = crew;
	marker->graph = *graph;
	marker->graph.crew = crew;
	marker->graph.window = NULL;
	marker->graph.ahead = NULL;
	marker->graph.window_start = marker->graph.window_end = marker->graph.read_end = 0;
	marker->graph.inner = (struct hl_addresses){0};
	marker->graph.tail = (struct hl_graph_tail){0};
	if (graph->offsets) {
		marker->offsets = *graph->offsets;
		memset(marker->offsets.blocks, 0, sizeof(marker->offsets.blocks));
		marker->graph.offsets = &marker->offsets;
	}
}

/* Joins what ${marker} kept with ${graph}. */
static void join(struct hl_graph *graph, struct marker *marker)
{
	struct hl_addresses *inner = &marker->graph.inner;

	for (size_t i = 0; i < inner->count; i++)
		hl_graph_keep_inner(graph, inner->addresses[i]);
	for (size_t i = 0; graph->offsets && i < HL_GRAPH_CLASSES; i++)
		graph->offsets->blocks[i] += marker->offsets.blocks[i];
	graph->error = graph->error ? graph->error : marker->graph.error;
	hl_addresses_release(inner);
	hl_ahead_free(marker->graph.ahead);
	free(marker->graph.window);
}

/* The caller marks as well; where a thread cannot be had, with fewer. */
static void run(struct hl_graph_crew *crew, unsigned count)
{
	unsigned started = 1;

	crew->count = count;
	while (started < count && hl_worker_start(&crew->markers[started].thread, 0, mark,
						  &crew->markers[started]) == 0)
		started++;
	pthread_mutex_lock(&crew->mutex);
	crew->count = started;
	pthread_mutex_unlock(&crew->mutex);
	mark(&crew->markers[0]);
	for (unsigned i = 1; i < crew->count; i++)
		pthread_join(crew->markers[i].thread, NULL);
}

int hl_graph_mark_together(struct hl_graph *graph)
{
	unsigned count = count_markers(graph);
	struct hl_graph_crew crew = {0};

	if (count < 2)
		return 0;
	crew.markers = calloc(count, sizeof(*crew.markers));
	if (!crew.markers)
		return -ENOMEM;
	pthread_mutex_init(&crew.mutex, NULL);
	pthread_cond_init(&crew.changed, NULL);
	for (unsigned i = 0; i < count; i++)
		init_marker(&crew.markers[i], &crew, graph);
	run(&crew, count);
	for (unsigned i = 0; i < count; i++)
		join(graph, &crew.markers[i]);
	pthread_mutex_destroy(&crew.mutex);
	pthread_cond_destroy(&crew.changed);
	free(crew.markers);
	return graph->error;
}
