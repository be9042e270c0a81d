/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints how many events a second the collector drains on one core: from full rings through
 * intervals into segments, which are written to a directory that is empty again afterwards.
 *
 * Written are pairs of a malloc and a free, from stacks and sizes of which a few are frequent, as
 * in programs; how frequent decides how many fit a ring's slots, and so how long events are. Only
 * the drain's own processor time counts.
 *
 * usage: drain_bench [ROUNDS]
 */
#include "collector/drain.h"
#include "recorder/ring_writer.h"

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
#define ROUNDS_DEFAULT 500u
#define TICKS_OF_ROUND (HL_DRAIN_LAG_TICKS + 1)
#define DIRECTORY      "/tmp/heapline-drain-XXXXXX"

struct event {
	uint32_t node;
	uint32_t size;
};

struct bench {
	struct hl_shared shared;
	struct hl_region_header layout;
	struct hl_ring_writer writer;
	struct hl_drain *drain;
	struct event pattern[PATTERN];
	uint64_t tick, events;
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
	hl_shared_init(&bench->shared, base);
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
	bench->shared.header->thread_count = 1;
	hl_ring_writer_init(&bench->writer, &bench->shared, 0);
	must(bench->writer.ring != NULL, "drain_bench: no memory for a ring");
	atomic_store(&bench->shared.header->state, HL_REGION_RUNNING);
	struct hl_drain_settings settings = {
		.view = {bench->shared.header, bench->layout.region_bytes, &bench->layout},
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

/* Fills the ring: each event allocates, and frees what was allocated LIVE events before. */
static void fill_ring(struct bench *bench, uint64_t *written)
{
	const struct event *pattern = bench->pattern;

	for (;; ++*written) {
		const struct event *alloc = &pattern[*written % PATTERN];
		const struct event *freed = &pattern[(*written - LIVE) % PATTERN];
		if (bench->writer.head + 4 * HL_RING_EVENT_MAX > bench->writer.limit)
			return;
		must(hl_ring_write(&bench->writer, &bench->shared, alloc->node, alloc->size, 1,
				   false),
		     "drain_bench: the ring was full");
		bench->events++;
		if (*written < LIVE)
			continue;
		hl_ring_write(&bench->writer, &bench->shared, freed->node, freed->size, 1, true);
		bench->events++;
	}
}

static void round_of(struct bench *bench, uint64_t *written)
{
	uint64_t tail = atomic_load(&bench->writer.ring->tail);

	bench->writer.limit = tail + bench->writer.mask + 1;
	fill_ring(bench, written);
	bench->tick += TICKS_OF_ROUND;
	double begin = cpu_seconds();
	hl_drain_run(bench->drain, bench->tick);
	bench->seconds += cpu_seconds() - begin;
}

static void measure(const char *title, unsigned skew, unsigned rounds)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	char directory[] = DIRECTORY, command[64];
	uint64_t written = 0;

	must(bench != NULL, "drain_bench");
	must(mkdtemp(directory) != NULL, "drain_bench: no directory");
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	make_pattern(bench, skew);
	start(bench, fd);
	hl_drain_run(bench->drain, bench->tick = TICKS_OF_ROUND);
	for (unsigned i = 0; i < rounds; i++)
		round_of(bench, &written);
	printf("%s: %.1f bytes an event, %.1f million events/s\n", title,
	       (double)bench->writer.head / (double)bench->events,
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

	measure("few stacks", 7, rounds);
	measure("many stacks", 4, rounds);
	measure("all stacks alike", 0, rounds);
	return 0;
}
