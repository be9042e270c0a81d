/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose heap is read from outside, and that says itself what it has there:
 * heap_target [compact|no_brk|own_brk|fork|leave|decoys] THREADS BLOCKS
 *
 * Its threads allocate and free at random, then pause. For each command line of standard
 * input it answers on standard output:
 *
 *	report	its pid, mallinfo2 and its Rss, one number a line, then its live blocks, "end"
 *	trim	calls malloc_trim(0), then reports
 *	free START END
 *		frees its blocks that lie there in part, then trims and reports
 *	churn	its threads go on at random without end; "end"
 *	crash	aborts
 *
 * What it keeps for itself does not lie in the heap.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 64
#define ROUNDS	    3u	 /* how often each block is replaced */
#define MARKED_SIZE 100u /* of blocks that go to a fastbin, where their mark stays */

struct worker {
	pthread_t thread;
	uint64_t random;
	size_t blocks;
	void **ledger; /* its own mapping */
	bool is_small; /* blocks of 16 to 4096 bytes alone */
};

static struct worker workers[THREADS_MAX];
static size_t worker_count;
static pthread_barrier_t all_done, all_go;
static volatile bool churns;

static void die(const char *what)
{
	dprintf(STDERR_FILENO, "heap_target: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static uint64_t next_random(struct worker *worker)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return worker->random;
}

/* Mostly small ones, now and then one that gets a mapping of its own. */
static size_t random_size(struct worker *worker)
{
	uint64_t kind = next_random(worker) % 1000, random = next_random(worker);

	if (worker->is_small)
		return 16 + random % 4081;
	if (kind < 600)
		return 1 + random % 200;
	if (kind < 950)
		return 1 + random % 4000;
	if (kind < 998)
		return 1 + random % 100000;
	return 1 + random % (4u << 20);
}

static void *touch(void *block, size_t size)
{
	if (!block)
		die("malloc");
	memset(block, 0x5a, size < 64 ? size : 64);
	((char *)block)[size - 1] = 0x5a;
	return block;
}

static void *allocate(struct worker *worker)
{
	size_t size = random_size(worker);
	void *block = NULL;

	switch (next_random(worker) % 16) {
	case 0:
		return touch(calloc(1, size), size);
	case 1:
		if (posix_memalign(&block, (size_t)32 << next_random(worker) % 10, size) != 0)
			die("posix_memalign");
		return touch(block, size);
	default:
		return touch(malloc(size), size);
	}
}

/* Grows or shrinks a block where it is, or moves it. */
static void *resize(struct worker *worker, void *block)
{
	size_t size = malloc_usable_size(block);

	size = next_random(worker) % 2 ? size / 2 + 1 : size + 16 + size / 4;
	return touch(realloc(block, size), size);
}

static void change(struct worker *worker)
{
	void **place = &worker->ledger[next_random(worker) % worker->blocks];

	if (*place && next_random(worker) % 8 == 0) {
		*place = resize(worker, *place);
		return;
	}
	free(*place);
	*place = next_random(worker) % 4 ? allocate(worker) : NULL;
}

/* A thread that ends gives its cache back, but the mark of cached chunks stays in them. */
static void leave_in_cache(void)
{
	void *volatile blocks[7];

	for (int i = 0; i < 7; i++)
		blocks[i] = malloc(MARKED_SIZE);
	for (int i = 0; i < 7; i++)
		free(blocks[i]);
}

/* Takes a block that has the mark, and does not write to it. */
static void *take_marked(void *argument)
{
	*(void **)argument = malloc(MARKED_SIZE);
	return NULL;
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (size_t i = 0; i < worker->blocks * ROUNDS; i++)
		change(worker);
	pthread_barrier_wait(&all_done);
	pthread_barrier_wait(&all_go);
	while (churns)
		change(worker);
	leave_in_cache();
	return NULL;
}

static void begin_worker(size_t blocks)
{
	struct worker *worker = &workers[worker_count];

	worker->random = 88172645463325252u + worker_count++;
	worker->blocks = blocks;
	worker->ledger = mmap(NULL, blocks * sizeof(void *), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (worker->ledger == MAP_FAILED)
		die("mmap");
}

/* ---- what it says of itself ---- */

static char output[1 << 16];
static size_t output_length;

static void flush(void)
{
	for (size_t done = 0; done < output_length;) {
		ssize_t count = write(STDOUT_FILENO, output + done, output_length - done);
		if (count < 0)
			_exit(3);
		done += (size_t)count;
	}
	output_length = 0;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list arguments;

	if (output_length > sizeof(output) - 256)
		flush();
	va_start(arguments, format);
	output_length += (size_t)vsnprintf(output + output_length, 256, format, arguments);
	va_end(arguments);
}

/* Rss of smaps_rollup, read without the heap. */
static unsigned long long own_rss(void)
{
	static char text[4096];
	int fd = open("/proc/self/smaps_rollup", O_RDONLY);
	ssize_t length = read(fd, text, sizeof(text) - 1);
	const char *rss;

	close(fd);
	text[length < 0 ? 0 : length] = '\0';
	rss = strstr(text, "Rss:");
	return rss ? strtoull(rss + 4, NULL, 10) * 1024 : 0;
}

static void say_ledger(void)
{
	for (size_t w = 0; w < worker_count; w++)
		for (size_t i = 0; i < workers[w].blocks; i++)
			if (workers[w].ledger[i])
				say("block %llu %zu\n",
				    (unsigned long long)(uintptr_t)workers[w].ledger[i],
				    malloc_usable_size(workers[w].ledger[i]));
}

static void report(void)
{
	struct mallinfo2 info = mallinfo2();

	say("pid %d\narena %zu\nordblks %zu\nsmblks %zu\nhblks %zu\nhblkhd %zu\n", getpid(),
	    info.arena, info.ordblks, info.smblks, info.hblks, info.hblkhd);
	say("fsmblks %zu\nuordblks %zu\nfordblks %zu\nkeepcost %zu\nrss %llu\n", info.fsmblks,
	    info.uordblks, info.fordblks, info.keepcost, own_rss());
	say_ledger();
	say("end\n");
	flush();
}

static void trim(void)
{
	malloc_trim(0);
	report();
}

static void churn(void)
{
	for (size_t i = 0; i < worker_count; i++)
		workers[i].is_small = true;
	churns = true;
	pthread_barrier_wait(&all_go);
	say("end\n");
	flush();
}

/* Frees blocks of which a byte, or what the allocator keeps before it, is in [${start}, ${end}). */
static void free_between(uintptr_t start, uintptr_t end)
{
	for (size_t w = 0; w < worker_count; w++)
		for (size_t i = 0; i < workers[w].blocks; i++) {
			void **block = &workers[w].ledger[i];
			uintptr_t at = (uintptr_t)*block;
			if (!at || at + malloc_usable_size(*block) <= start || at - 16 >= end)
				continue;
			free(*block);
			*block = NULL;
		}
}

static bool read_command(char *line, size_t capacity)
{
	size_t length = 0;

	while (length + 1 < capacity && read(STDIN_FILENO, line + length, 1) == 1) {
		if (line[length] == '\n') {
			line[length] = '\0';
			return true;
		}
		length++;
	}
	return false;
}

static void obey(void)
{
	unsigned long long start, end;
	char line[64];

	while (read_command(line, sizeof(line))) {
		if (sscanf(line, "free %llu %llu", &start, &end) == 2) {
			free_between(start, end);
			trim();
		} else if (strcmp(line, "report") == 0)
			report();
		else if (strcmp(line, "trim") == 0)
			trim();
		else if (strcmp(line, "churn") == 0)
			churn();
		else if (strcmp(line, "crash") == 0)
			abort();
	}
}

/* ---- unusual heaps ---- */

/* Where the program moved the break itself, main_arena goes on after a gap. */
static void move_break(void)
{
	if (sbrk(5000) == (void *)-1)
		die("sbrk");
}

/* Where the break cannot move, main_arena has pieces of its own from mmap. */
static void block_break(void)
{
	uintptr_t end = ((uintptr_t)sbrk(0) + 4095) & ~(uintptr_t)4095;

	if (mmap((void *)end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		 -1, 0) == MAP_FAILED)
		die("mmap at the break");
}

/* Blocks of unusual sizes that nobody frees. */
static void *keep[8];

static void keep_unusual(bool is_compact)
{
	keep[0] = touch(malloc(1), 1);
	keep[1] = malloc((size_t)1 << (is_compact ? 20 : 30)); /* mostly not in memory */
	keep[2] = touch(malloc(3 << 20), 3 << 20);
	if (posix_memalign(&keep[3], 2 << 20, 5 << 20) != 0 || posix_memalign(&keep[4], 64, 1) != 0)
		die("posix_memalign");
	keep[5] = touch(realloc(malloc(1 << 20), 9 << 20), 9 << 20);
	workers[0].ledger[0] = keep[1];
	workers[0].ledger[1] = keep[3];
}

static char *map_at(void *address, size_t bytes)
{
	return mmap(address, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);
}

/* Has a page look like the header of a block with a mapping of its own. */
static void decoy(void *page, size_t bytes)
{
	((size_t *)page)[0] = 0;
	((size_t *)page)[1] = bytes | 2;
}

/* A block of 11 MiB right after a mapping of 48 MiB, and pages before, in and after it that look
 * like headers; the first covers the block's own. */
static void place_decoys(void)
{
	char *block, *header, *area = MAP_FAILED, *after = map_at(NULL, 48 << 20);

	for (int tries = 0; tries < 100 && area == MAP_FAILED; tries++) {
		block = touch(malloc(11 << 20), 11 << 20);
		header = block - 16;
		area = map_at(header - (48 << 20), 48 << 20);
	}
	if (area == MAP_FAILED || after == MAP_FAILED)
		die("mmap");
	decoy(area + (47 << 20), 5 << 20);
	decoy(header + (4 << 20), 6 << 20);
	decoy(after + 4096, 7 << 20);
}

static void fork_and_go_on(void)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		die("fork");
	if (child == 0) {
		for (int i = 0; i < 10000; i++)
			change(&workers[0]);
		return;
	}
	close(STDIN_FILENO);
	waitpid(child, &status, 0);
	_exit(0);
}

static void start_threads(void)
{
	for (size_t i = 1; i < worker_count; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("pthread_create");
}

/* Has the threads end, so that their arenas are nobody's. */
static void end_threads(void)
{
	pthread_barrier_wait(&all_go);
	for (size_t i = 1; i < worker_count; i++)
		pthread_join(workers[i].thread, NULL);
	if (pthread_create(&workers[1].thread, NULL, take_marked, &workers[0].ledger[2]) != 0)
		die("pthread_create");
	pthread_join(workers[1].thread, NULL);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 3 ? argv[1] : "";
	size_t threads = strtoul(argv[argc - 2], NULL, 10),
	       blocks = strtoul(argv[argc - 1], NULL, 10);

	if (argc < 3 || threads < 1 || threads > THREADS_MAX)
		return 2;
	pthread_barrier_init(&all_done, NULL, (unsigned)threads);
	pthread_barrier_init(&all_go, NULL, (unsigned)threads);
	for (size_t i = 0; i < threads; i++)
		begin_worker(blocks);
	start_threads();
	for (size_t i = 0; i < blocks * ROUNDS; i++) {
		if (i == blocks && strcmp(kind, "own_brk") == 0)
			move_break();
		if (i == blocks && strcmp(kind, "no_brk") == 0)
			block_break();
		change(&workers[0]);
	}
	pthread_barrier_wait(&all_done);
	free(workers[0].ledger[0]);
	free(workers[0].ledger[1]);
	free(workers[0].ledger[2]);
	workers[0].ledger[2] = NULL;
	keep_unusual(strcmp(kind, "compact") == 0);
	if (strcmp(kind, "decoys") == 0)
		place_decoys();
	if (strcmp(kind, "fork") == 0)
		fork_and_go_on();
	if (strcmp(kind, "leave") == 0)
		end_threads();
	obey();
	return 0;
}
