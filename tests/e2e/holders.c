/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose blocks have known holders. Says for each `holder NAME KIND BLOCKS BYTES`, then
 * `deepest ADDRESS` of the last block of a chain, `ready`, and waits for the end of its input.
 * With "damaged" the header of a chunk is written over.
 */
#include "counted_blocks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIST 1000
#define RING 50

struct node *volatile global_list;
static struct node *volatile static_ring;
static struct node *volatile static_table[100];
static __thread struct node *volatile of_thread;
static struct node *volatile shared_left, *volatile shared_right;
static struct node *volatile chain;
static pthread_barrier_t standing;

static struct node *list(int count, struct sum *sum)
{
	struct node *first = NULL;

	for (int i = 0; i < count; i++) {
		struct node *new = block(sizeof(*new), sum);
		new->next = first;
		first = new;
	}
	return first;
}

static void say(const char *name, const char *kind, const struct sum *sum)
{
	printf("holder %s %s %lu %lu\n", name, kind, sum->blocks, sum->bytes);
}

static void plant_ring(struct sum *sum)
{
	struct node *last;

	static_ring = last = list(RING, sum);
	while (last->next)
		last = last->next;
	last->next = static_ring;
}

/* Both lead to a block of their own, and by it to the same list, whose end leads to a block again. */
static void plant_shared(struct sum *left, struct sum *right, struct sum *both)
{
	shared_left = block(200, left);
	shared_right = block(300, right);
	shared_left->next = shared_right->next = list(10, both);
	shared_right->next->other = block(5000, both);
}

static void plant_chain(struct sum *sum)
{
	chain = block(80, sum);
	struct node *inner = block(120, sum);
	memcpy((char *)(uintptr_t)chain + 24, &inner, sizeof(inner));
	inner->other = block(4000, sum);
	printf("deepest %p\n", (void *)inner->other);
}

static void plant_table(struct sum *sum)
{
	for (int i = 0; i < 100; i++)
		static_table[i] = list(2, sum);
}

static void *mapped(struct sum *sum)
{
	void **outside =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	outside[100] = list(20, sum);
	return outside;
}

static __attribute__((noinline)) void plant_on_stack(struct node *volatile *place)
{
	struct sum sum = {0};

	*place = list(40, &sum);
	say("keep_on_stack", "stack", &sum);
}

/* The only pointer is a local variable of this frame. */
__attribute__((noinline)) void keep_on_stack(void)
{
	struct node *volatile only;

	plant_on_stack(&only);
	wipe();
	pthread_barrier_wait(&standing);
	pause();
	free(only);
}

static __attribute__((noinline)) void plant_in_thread(void)
{
	struct sum sum = {0};

	of_thread = list(30, &sum);
	say("of_thread", "thread-local", &sum);
}

static void *keep_in_thread(void *unused)
{
	plant_in_thread();
	keep_on_stack();
	return unused;
}

static __attribute__((noinline)) void plant(void)
{
	struct sum list_sum = {0}, ring = {0}, table = {0}, left = {0}, right = {0}, both = {0},
		   in_chain = {0}, outside = {0};

	global_list = list(LIST, &list_sum);
	say("global_list", "variable", &list_sum);
	plant_ring(&ring);
	say("static_ring", "variable", &ring);
	plant_table(&table);
	say("static_table", "variable", &table);
	plant_shared(&left, &right, &both);
	say("shared_left", "variable", &left);
	say("shared_right", "variable", &right);
	say("shared_left,shared_right", "shared", &both);
	plant_chain(&in_chain);
	say("chain", "variable", &in_chain);
	mapped(&outside);
	say("[anon]", "mapping", &outside);
}

/* Writes over the header of a chunk. */
static void damage(void)
{
	struct sum unused = {0};
	char *damaged[3];

	for (int i = 0; i < 3; i++)
		damaged[i] = block(200, &unused);
	memset(damaged[1] - 16, 0xff, 16);
}

int main(int argc, char **argv)
{
	static char output[4096];
	pthread_t thread;
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output)); /* so that it is not in the heap */
	plant();
	if (argc > 1 && strcmp(argv[1], "damaged") == 0)
		damage();
	pthread_barrier_init(&standing, NULL, 2);
	if (pthread_create(&thread, NULL, keep_in_thread, NULL) != 0)
		return 1;
	pthread_barrier_wait(&standing);
	wipe();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
