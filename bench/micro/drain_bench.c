/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints how many events a second the collector drains on one core: from full rings through
 * intervals into segments, which are written to a directory that is empty again afterwards.
 *
 * Written are pairs of a malloc and a free, from stacks and sizes of which a few are frequent, as
 * in programs; how frequent decides how many fit a ring's slots, and so how long events are. Of
 * several threads each event has a time stamp, and threads take turns at random, as they would on
 * a processor each. Only the drain's own processor time counts.
 *
 * usage: drain_bench [ROUNDS]
 */
#include "collector/drain.h"
#include "recorder/region_map.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NODES	       50000u
#define SIZES	       64u
#define PATTERN	       65536u /* events after which the pattern begins again */
#define LIVE	       1024u  /* blocks */
#define THREADS_MAX    8u
#define ROUNDS_DEFAULT 500u
#define TICKS_OF_ROUND (HL_DRAIN_LAG_TICKS + 1)
#define DIRECTORY      "/tmp/heapline-drain-XXXXXX"

struct event {
	uint32_t node;
	uint32_t size;
};

struct bench {
	struct hl_region_map shared;
	struct hl_region_header layout;
	struct hl_ring_writer writers[THREADS_MAX];
	uint32_t threads;
	struct hl_drain *drain;
	struct event pattern[PATTERN];
	uint64_t tick, stamp, events, random;
	double seconds;
};

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- a region with nodes, as a target would have filled it ---- */

static void make_region(struct bench *bench)
{
	hl_region_layout(&bench->layout, 0, HL_MODE_LOG_FAST);
	atomic_store(&bench->layout.flags, HL_REGION_LOSSY); /* rings are large at once */
	void *base = mmap(NULL, bench->layout.region_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(base != MAP_FAILED, "drain_bench: cannot make a region");
	memcpy(base, &bench->layout, sizeof(bench->layout));
	hl_region_map_init(&bench->shared, base, bench->layout.region_bytes);
}

static void make_nodes(struct bench *bench)
{
	struct hl_region_header *header = bench->shared.header;

	header->areas[HL_AREA_NODES].committed = (NODES + 1) * sizeof(struct hl_region_node);
	header->areas[HL_AREA_MODULES].committed = sizeof(struct hl_region_module);
	header->module_count = 1;
	bench->shared.modules[0] = (struct hl_region_module){.start = 0x1000, .end = 0x900000};
	header->node_count = NODES;
	for (uint32_t i = 1; i <= NODES; i++)
		bench->shared.nodes[i] = (struct hl_region_node){
			.frame = UINT64_C(1) << 48 | (0x1000 + 8 * i), .parent = i / 2};
}

static void start(struct bench *bench, int directory_fd)
{
	make_region(bench);
	make_nodes(bench);
	bench->shared.header->thread_count = bench->threads;
	for (uint32_t i = 0; i < bench->threads; i++) {
		hl_ring_writer_init(&bench->writers[i], &bench->shared, i);
		must(bench->writers[i].ring != NULL, "drain_bench: no memory for a ring");
	}
	if (bench->threads > 1)
		atomic_fetch_or(&bench->shared.header->flags, HL_REGION_STAMPS);
	atomic_store(&bench->shared.header->state, HL_REGION_RUNNING);
	struct hl_drain_settings settings = {
		.view = {bench->shared.header, bench->layout.region_bytes, &bench->layout, NULL,
			 NULL, NULL},
		.executable = "/usr/bin/target",
		.pid = getpid(),
		.directory_fd = directory_fd,
		.segment_bytes = UINT64_C(100) << 20,
		.segments_kept = 1,
	};
	must(hl_drain_new(&settings, &bench->drain) == 0, "drain_bench: no drain");
}

static void stop(struct bench *bench)
{
	struct hl_log_losses losses;

	hl_drain_finish(bench->drain, bench->tick, &losses);
	must(!losses.refused_events && !losses.bad_rings && !losses.error,
	     "drain_bench: the drain refused events");
	munmap(bench->shared.header, bench->layout.region_bytes);
}

/* ---- events ---- */

static uint32_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 20);
}

/* Of 0 .. ${count} - 1; the larger ${skew} is, the more often a small one. 0: all alike. */
static uint32_t draw(uint64_t *random, uint32_t count, unsigned skew)
{
	uint32_t drawn = next_random(random) % count;

	for (unsigned i = 0; i < skew; i++)
		drawn = next_random(random) % (drawn + 1);
	return drawn;
}

static void make_pattern(struct bench *bench, unsigned skew)
{
	uint64_t random = 88172645463325252;

	for (uint32_t i = 0; i < PATTERN; i++)
		bench->pattern[i] = (struct event){.node = 1 + draw(&random, NODES, skew),
						   .size = 16 * (1 + draw(&random, SIZES, skew))};
}

/* By any thread. */
static void write_event(struct bench *bench, const struct event *event, bool is_free)
{
	struct hl_ring_writer *writer =
		&bench->writers[next_random(&bench->random) % bench->threads];

	must(hl_ring_writer_prepare(writer, &bench->shared), "drain_bench: the ring was full");
	if (bench->threads > 1)
		hl_ring_writer_put_stamped(writer, ++bench->stamp, event->node, event->size, 1,
					   is_free);
	else
		hl_ring_writer_put_event(writer, event->node, event->size, 1, is_free);
	hl_ring_writer_end(writer);
	bench->events++;
}

static bool has_room(const struct bench *bench)
{
	bool all = true;

	for (uint32_t i = 0; i < bench->threads; i++)
		all &= bench->writers[i].head + 3 * HL_RING_ROOM <= bench->writers[i].limit;
	return all;
}

/* Fills the rings until one is full: each event allocates, and frees what was allocated LIVE events
 * before. */
static void fill_rings(struct bench *bench, uint64_t *written)
{
	const struct event *pattern = bench->pattern;

	for (; has_room(bench); ++*written) {
		write_event(bench, &pattern[*written % PATTERN], false);
		if (*written >= LIVE)
			write_event(bench, &pattern[(*written - LIVE) % PATTERN], true);
	}
}

static void round_of(struct bench *bench, uint64_t *written)
{
	for (uint32_t i = 0; i < bench->threads; i++) {
		struct hl_ring_writer *writer = &bench->writers[i];
		writer->limit = atomic_load(&writer->ring->tail) + writer->mask + 1;
	}
	fill_rings(bench, written);
	bench->tick += TICKS_OF_ROUND;
	double begin = cpu_seconds();
	hl_drain_run(bench->drain, bench->tick);
	bench->seconds += cpu_seconds() - begin;
}

static uint64_t bytes_written(const struct bench *bench)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < bench->threads; i++)
		bytes += bench->writers[i].head;
	return bytes;
}

static void measure(const char *title, uint32_t threads, unsigned skew, unsigned rounds)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	char directory[] = DIRECTORY, command[64];
	uint64_t written = 0;

	must(bench != NULL, "drain_bench");
	must(mkdtemp(directory) != NULL, "drain_bench: no directory");
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bench->threads = threads;
	bench->random = 7;
	make_pattern(bench, skew);
	start(bench, fd);
	hl_drain_run(bench->drain, bench->tick = TICKS_OF_ROUND);
	for (unsigned i = 0; i < rounds; i++)
		round_of(bench, &written);
	printf("%s: %.1f bytes an event, %.1f million events/s\n", title,
	       (double)bytes_written(bench) / (double)bench->events,
	       (double)bench->events / bench->seconds / 1e6);
	stop(bench);
	close(fd);
	snprintf(command, sizeof(command), "rm -r '%s'", directory);
	must(system(command) == 0, "drain_bench: cannot remove its directory");
	free(bench);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS_DEFAULT;

	measure("few stacks", 1, 7, rounds);
	measure("many stacks", 1, 4, rounds);
	measure("all stacks alike", 1, 0, rounds);
	measure("few stacks of 2 threads", 2, 7, rounds / 2);
	measure("few stacks of 8 threads", 8, 7, rounds / 8);
	measure("many stacks of 8 threads", 8, 4, rounds / 8);
	return 0;
}
