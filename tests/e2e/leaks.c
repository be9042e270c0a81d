/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with known leaks: leaks KIND...
 *
 * Plants each KIND ("later" says "ready" and waits for a letter), says by `lost BLOCKS BYTES`, `indirect` and `possible` what must be found of all
 * of them, then "ready", and waits for the end of its input. Exits with 1 if what it keeps has
 * changed, or if a system call of its threads was interrupted.
 */
#include "counted_blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3

static struct sum lost, indirect, possible;
static void *volatile kept[64];
static __thread void *volatile of_thread;
static pthread_barrier_t standing;
static volatile int interrupted;

static struct node *node(struct sum *sum)
{
	return block(sizeof(struct node), sum);
}

/* ---- kinds ---- */

static void plant_blocks(void)
{
	for (size_t size = 1; size < 1000; size++)
		memset(block(size, &lost), 'x', size);
}

static void plant_mapped(void)
{
	strcpy(block(3 << 20, &lost), "a block with a mapping of its own");
}

static void plant_list(void)
{
	struct node *list = NULL;

	for (int i = 0; i < 500; i++) {
		struct node *new = node(i < 499 ? &indirect : &lost);
		new->next = list;
		list = new;
	}
}

static struct node *tree(int depth, struct sum *sum)
{
	struct node *new = node(sum);

	if (depth) {
		new->next = tree(depth - 1, &indirect);
		new->other = tree(depth - 1, &indirect);
	}
	return new;
}

static void plant_tree(void)
{
	tree(8, &lost);
}

static struct node *ring(int count, struct sum *first_sum)
{
	struct node *first = node(first_sum), *last = first;

	for (int i = 1; i < count; i++) {
		last->next = node(&indirect);
		last = last->next;
	}
	last->next = first;
	return first;
}

static void plant_ring(void)
{
	ring(100, &lost);
}

/* The ring that is met first is led to by the other one, and so is what both lead to. */
static void plant_rings(void)
{
	struct node *second = ring(7, &indirect), *first = ring(5, &lost);

	first->other = second;
	second->other = node(&indirect);
}

static void plant_inner(void)
{
	char *inside = block(3000, &possible);

	*(void **)inside = block(100, &possible); /* it leads on */
	kept[0] = inside + 1000;
}

static void *plant_and_end(void *kind)
{
	wipe();
	((void (*)(void))kind)();
	wipe();
	return NULL;
}

/* Stacks of threads that ended are kept, with what lay on them. */
static void plant_ended(void)
{
	pthread_t thread;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, plant_and_end, (void *)plant_tree) != 0 ||
		    pthread_join(thread, NULL) != 0)
			abort();
}

static void *plant_and_wait(void *unused)
{
	plant_and_end((void *)plant_list);
	of_thread = malloc(123);
	memset(of_thread, 0, 123);
	*(void **)of_thread = malloc(77);
	pthread_barrier_wait(&standing);
	pause();
	return unused;
}

/* Each has an arena, and thread-local variables that keep blocks. */
static void plant_arenas(void)
{
	struct sum before = indirect, first = lost;
	pthread_t thread;

	pthread_barrier_init(&standing, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, plant_and_wait, NULL) != 0)
			abort();
	pthread_barrier_wait(&standing);
	/* Their sums raced. */
	lost = (struct sum){first.blocks + THREADS, first.bytes + THREADS * 56ul};
	indirect =
		(struct sum){before.blocks + THREADS * 499ul, before.bytes + THREADS * 499 * 56ul};
}

/* ---- what keeps blocks ---- */

static void keep_all(void)
{
	struct sum unused = {0};
	struct node *outside =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *counted = block(1000, &unused), *headed = block(1000, &unused);

	kept[10] = ring(1000, &unused);
	outside->next = tree(6, &unused);
	of_thread = block(500, &unused);
	kept[11] = counted + 8;
	kept[12] = headed + 16;
	kept[13] = block(5 << 20, &unused);
	*(void **)((char *)kept[13] + (3 << 20)) = block(99, &unused);
	indirect = (struct sum){0};
}

static void *handed_over; /* for a thread's register alone */

static void *wake_often(void *unused)
{
	for (;;)
		usleep(1000);
	return unused;
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Many threads that sleep, and one that never does for long. */
static void start_crowd(void)
{
	pthread_t thread;

	for (int i = 0; i < 200; i++)
		if (pthread_create(&thread, NULL, i ? wait_for_ever : wake_often, NULL) != 0)
			abort();
}

/* Keeps one block at a time, on its stack alone. */
static void *wake_in_turn(void *number)
{
	void *volatile only = NULL;

	for (usleep((useconds_t)(uintptr_t)number * 2000);; usleep(400000)) {
		free(only);
		only = malloc(104);
	}
	return only;
}

/* Of many threads that sleep another one wakes every 2 ms. */
static void start_turns(void)
{
	pthread_t thread;

	for (uintptr_t i = 0; i < 200; i++)
		if (pthread_create(&thread, NULL, wake_in_turn, (void *)i) != 0)
			abort();
}

/* Waits with the only copy of a pointer in a register that calls preserve. */
static void *keep_in_register(void *unused)
{
	void *only = handed_over;

	handed_over = NULL;
	pthread_barrier_wait(&standing);
	wipe();
	wait_with_register(only);
	return unused;
}

static void keep_register(void)
{
	pthread_t thread;

	if (!handed_over)
		handed_over = memset(malloc(333), 0, 333);
	pthread_barrier_init(&standing, NULL, 2);
	if (pthread_create(&thread, NULL, keep_in_register, NULL) != 0)
		abort();
	pthread_barrier_wait(&standing);
}

/* The word in a segment of a file that points to ${chunk}. Allocates nothing, which would empty lists. */
static void **find_word(const void *chunk)
{
	static char text[1 << 18];
	unsigned long start, end, inode;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	ssize_t length = 0, more;

	while ((more = read(fd, text + length, sizeof(text) - 1 - (size_t)length)) > 0)
		length += more;
	close(fd);
	for (char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		if (sscanf(line, "%lx-%lx rw-p %*s %*s %lu", &start, &end, &inode) != 3 || !inode)
			continue;
		for (void **at = (void **)start; at < (void **)end; at++)
			if (*at == chunk && at != &handed_over)
				return at;
	}
	return NULL;
}

#define CACHED 7 /* chunks of a size, at most, that a thread keeps */

/* A list of free chunks is in no arena, as while malloc_consolidate() works on it; glibc 2.43 has none. */
static void detach_list(void)
{
	void *blocks[CACHED + 5], **fastbin;

	for (unsigned i = 0; i < CACHED + 5; i++)
		blocks[i] = malloc(72);
	kept[14] = malloc(72);
	for (unsigned i = 0; i < CACHED + 5; i++)
		free(blocks[i]);
#ifdef __GLIBC__
	if (!mallinfo2().smblks) {
		puts("absent 0");
		return;
	}
#endif
	handed_over = (char *)blocks[CACHED + 4] - 16;
	fastbin = find_word(handed_over);
	if (!fastbin)
		abort();
	*fastbin = NULL;
	memset(blocks, 0, sizeof(blocks));
	keep_register();
}

/* signal(7): a stop makes epoll_wait() end with EINTR. */
static void *wait_for_events(void *unused)
{
	int events = epoll_create1(0);
	struct epoll_event event;

	for (;;)
		if (epoll_wait(events, &event, 1, -1) < 0)
			interrupted = errno;
	return unused;
}

static void wait_in_epoll(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_for_events, NULL) != 0)
		abort();
}

/* The only pointer to a block is in a register of a thread that runs. */
static void *spin(void *unused)
{
	void *only = malloc(444);

	memset(only, 0, 444);
	pthread_barrier_wait(&standing);
	wipe();
	spin_with_register(only);
	return unused;
}

static void keep_spinning(void)
{
	pthread_t thread;

	pthread_barrier_init(&standing, NULL, 2);
	if (pthread_create(&thread, NULL, spin, NULL) != 0)
		abort();
	pthread_barrier_wait(&standing);
}

/* The only pointer to a block lies in memory that the program got from the break, amidst malloc's. */
static void keep_in_break(void)
{
	struct sum unused = {0};
	void *blocks[400];
	void **own;

	kept[40] = block(200, &unused);
	own = sbrk(65536);
	*own = block(500, &unused);
	for (int i = 0; i < 400; i++)
		blocks[i] = block(1000, &unused);
	kept[41] = blocks[399];
	for (int i = 0; i < 399; i++)
		free(blocks[i]);
}

/* ---- what leads to blocks, and no aligned word in readable memory is ---- */

#define HIDDEN 100

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

static void point_to_hidden(void **pointers)
{
	struct sum unused = {0};

	for (int i = 0; i < HIDDEN; i++)
		pointers[i] = block(1104, &unused);
}

/* The pointers lie in a page that nobody may access meanwhile; so do those to a list in a private copy
 * of a file's page. */
static void keep_in_closed_pages(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void **copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	point_to_hidden(page);
	point_to_hidden(copy);
	if (mprotect(page, 4096, PROT_NONE) < 0 || mprotect(copy, 4096, PROT_NONE) < 0)
		abort();
}

/* In memory that nobody else can read; the kernel may have none. */
static void keep_in_secret_page(void)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	void **page;

	page = fd >= 0 && ftruncate(fd, 4096) == 0
		       ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
		       : MAP_FAILED;
	if (page == MAP_FAILED)
		printf("absent 0\n");
	else
		point_to_hidden(page);
}

/* On a page that is on swap, if there is any. */
static void keep_on_swap(void)
{
	void **page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char in_core = 1;

	memset(page, 1, 65536);
	point_to_hidden(page);
	for (int tries = 0; tries < 100 && in_core & 1; tries++) {
		madvise(page, 65536, MADV_PAGEOUT);
		usleep(10000);
		mincore(page, 4096, &in_core);
	}
	if (in_core & 1)
		printf("absent 0\n");
}

/* The kernel alone has pointers, as data of events and as values of timers' signals. */
static void hand_to_kernel(void)
{
	struct sum unused = {0};
	int events = epoll_create1(EPOLL_CLOEXEC);
	timer_t timer;

	for (int i = 0; i < HIDDEN; i++) {
		struct epoll_event event = {EPOLLIN, {.ptr = block(1104, &unused)}};
		struct sigevent signal = {.sigev_notify = SIGEV_SIGNAL,
					  .sigev_signo = SIGRTMIN,
					  .sigev_value.sival_ptr = block(208, &unused)};
		if (epoll_ctl(events, EPOLL_CTL_ADD, eventfd(0, EFD_CLOEXEC), &event) < 0 ||
		    timer_create(CLOCK_MONOTONIC, &signal, &timer) < 0)
			abort();
	}
}

/* Of these pointers 8 divides the address of each eighth one alone, and of none in the block. */
static struct __attribute__((packed)) record {
	char kind;
	void *block;
} volatile records[HIDDEN];

static void keep_in_packed_records(void)
{
	struct sum unused = {0};
	struct record *others = kept[42] = block(sizeof(*others) * 7, &unused);

	for (int i = 0; i < HIDDEN; i++)
		records[i].block = block(1104, &unused);
	for (int i = 0; i < 7; i++)
		others[i].block = block(1104, &unused);
}

/* What a wrapper of malloc returns: a pointer behind a header of its own. */
static void *wrapped(size_t size, struct sum *sum)
{
	size_t *header = block(size + 24, sum);

	header[0] = SIZE_MAX;
	header[1] = size;
	return header + 3;
}

static void *volatile all_wrapped[501];

static void plant_behind_headers(void)
{
	struct sum unused = {0};

	for (size_t i = 0; i < 500; i++)
		all_wrapped[i] = wrapped(20 + i * 3, &unused);
	all_wrapped[500] = wrapped(70000, &unused);
	for (int i = 0; i < 7; i++)
		wrapped(200, &lost);
	/* no habit */
	kept[43] = (char *)block(150, &possible) + 77;
}

/* Writes over the header of a chunk. */
static void damage(void)
{
	struct sum unused = {0};
	char *blocks[8];

	for (int i = 0; i < 8; i++)
		kept[20 + i] = blocks[i] = block(200, &unused);
	memset(blocks[4] - 16, 0xff, 16);
}

/* What is planted after this is planted when a letter comes. */
static void wait_for_letter(void)
{
	char letter;

	printf("ready\n");
	fflush(stdout);
	if (read(STDIN_FILENO, &letter, 1) != 1)
		_exit(1);
}

static const struct kind {
	const char *name;
	void (*plant)(void);
} kinds[] = {
	{"blocks", plant_blocks},
	{"mapped", plant_mapped},
	{"list", plant_list},
	{"tree", plant_tree},
	{"ring", plant_ring},
	{"rings", plant_rings},
	{"inner", plant_inner},
	{"ended", plant_ended},
	{"arenas", plant_arenas},
	{"kept", keep_all},
	{"register", keep_register},
	{"spin", keep_spinning},
	{"epoll", wait_in_epoll},
	{"damaged", damage},
	{"later", wait_for_letter},
	{"break", keep_in_break},
	{"detached", detach_list},
	{"closed", keep_in_closed_pages},
	{"secret", keep_in_secret_page},
	{"swapped", keep_on_swap},
	{"handed", hand_to_kernel},
	{"packed", keep_in_packed_records},
	{"headers", plant_behind_headers},
	{"crowd", start_crowd},
	{"turns", start_turns},
};

int main(int argc, char **argv)
{
	static char output[4096];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output)); /* so that it is not in the heap */
	for (int i = 1; i < argc; i++)
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			if (strcmp(argv[i], kinds[k].name) == 0)
				kinds[k].plant();
	wipe();
	printf("lost %lu %lu\nindirect %lu %lu\npossible %lu %lu\nready\n", lost.blocks, lost.bytes,
	       indirect.blocks, indirect.bytes, possible.blocks, possible.bytes);
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(interrupted != 0);
}
