/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs in C that lose blocks: planted KIND; without a KIND, names all. See planted.h. */
#include "planted.h"

#include <pthread.h>

struct node {
	struct node *next, *other;
	uint64_t number;
	struct node *parent;
};

static struct node *volatile of_program;
static __thread struct node *volatile of_thread;

/* A block of zeros. */
static __attribute__((noinline)) void *lose(size_t size)
{
	void *block = malloc(size);

	if (!block)
		abort();
	memset(block, 0, malloc_usable_size(block));
	note_planted(block);
	return block;
}

static struct node *lose_node(void)
{
	return lose(sizeof(struct node));
}

static void small(void)
{
	for (size_t size = 1; size < 1000; size++)
		lose(size);
}

static void large(void)
{
	for (int i = 0; i < 20; i++)
		lose(100000);
}

static void mapped(void)
{
	for (int i = 0; i < 10; i++)
		lose(1 << 20);
}

static void text(void)
{
	for (int i = 0; i < ROUNDS; i++)
		sprintf(lose(64), "a text that nobody has any more: %d", i);
}

static struct node *chain(int count)
{
	struct node *first = NULL;

	while (count--) {
		struct node *node = lose_node();
		node->next = first;
		first = node;
	}
	return first;
}

static void list(void)
{
	for (int i = 0; i < ROUNDS; i++)
		chain(20);
}

static void double_list(void)
{
	for (int i = 0; i < ROUNDS; i++)
		for (struct node *node = chain(20); node->next; node = node->next)
			node->next->other = node;
}

static void circle(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct node *first = chain(20), *last = first;
		while (last->next)
			last = last->next;
		last->next = first;
	}
}

static void pair(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct node *node = chain(2);
		node->next->next = node;
	}
}

static void self(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct node *node = lose_node();
		node->next = node;
		node->other = (struct node *)&node->number;
	}
}

static struct node *grow(int depth, struct node *parent)
{
	struct node *node = lose_node();

	node->parent = parent;
	if (depth) {
		node->next = grow(depth - 1, parent ? node : NULL);
		node->other = grow(depth - 1, parent ? node : NULL);
	}
	return node;
}

static void tree(void)
{
	for (int i = 0; i < ROUNDS / 10; i++)
		grow(6, NULL);
}

static void tree_with_parents(void)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		struct node *root = lose_node();
		root->next = grow(6, root);
	}
}

static void chained_table(void)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		struct node **buckets = lose(64 * sizeof(*buckets));
		for (int k = 0; k < 64; k++)
			buckets[k] = chain(k % 4);
	}
}

static void array(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		void **items = lose(10 * sizeof(*items));
		for (int k = 0; k < 10; k++)
			items[k] = lose(24 + 8 * (size_t)k);
	}
}

static void matrix(void)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		double **rows = lose(30 * sizeof(*rows));
		for (int k = 0; k < 30; k++)
			rows[k] = lose(30 * sizeof(**rows));
	}
}

static void grown_array(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		void **items = malloc(16);
		for (size_t size = 32; size <= 2048; size *= 2)
			items = realloc(items, size);
		memset(items, 0, malloc_usable_size(items));
		note_planted(items);
		items[200] = lose(40);
	}
}

/* As in the kernel: members lead to members. */
static void member_list(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct node *one = lose_node(), *two = lose_node();
		one->other = (struct node *)&two->other;
		two->other = (struct node *)&one->other;
	}
}

static void random_graph(void)
{
	struct node **nodes = calloc(2000, sizeof(*nodes));
	uint64_t state = 1;

	for (int i = 0; i < 2000; i++)
		nodes[i] = lose_node();
	for (int i = 0; i < 2000; i++) {
		state = state * UINT64_C(6364136223846793005) + 1;
		nodes[i]->next = nodes[(state >> 33) % 2000];
		nodes[i]->other = nodes[(state >> 43) % 2000];
	}
	memset(nodes, 0, 2000 * sizeof(*nodes));
	free(nodes);
}

static void overwritten_variable(void)
{
	for (int i = 0; i < ROUNDS; i++)
		of_program = lose_node();
	of_program = NULL;
}

static void overwritten_of_thread(void)
{
	for (int i = 0; i < ROUNDS; i++)
		of_thread = lose_node();
	of_thread = NULL;
}

static void *plant_in_thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		of_thread = chain(3);
		of_thread->number = 1;
	}
	return NULL;
}

static void ended_thread(void)
{
	for (int i = 0; i < 8; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, plant_in_thread, NULL);
		pthread_join(thread, NULL);
	}
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

static __attribute__((noinline)) void plant_locked(void)
{
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < ROUNDS; i++)
		lose(16 + (size_t)i * 8);
	pthread_mutex_unlock(&mutex);
}

static void *plant_in_arena(void *unused)
{
	plant_locked();
	wipe();
	pthread_barrier_wait(&barrier);
	pause();
	return unused;
}

static void arenas(void)
{
	pthread_barrier_init(&barrier, NULL, 5);
	for (int i = 0; i < 4; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, plant_in_arena, NULL);
	}
	pthread_barrier_wait(&barrier);
}

static void taken_from_queue(void)
{
	struct node *last = of_program = chain(1);

	for (int i = 0; i < ROUNDS; i++) {
		last->next = lose_node();
		struct node *first = of_program;
		last = last->next;
		of_program = first->next;
	}
	of_program = NULL;
}

static void aligned(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		void *block = NULL;
		if (posix_memalign(&block, 32u << i % 8, 100))
			abort();
		memset(block, 0, malloc_usable_size(block));
		note_planted(block);
	}
}

static void tagged_list(void)
{
	for (int i = 0; i < ROUNDS; i++)
		for (struct node *node = chain(10), *next; node; node = next) {
			next = node->next;
			node->next = next ? (struct node *)((uintptr_t)next | 1) : NULL;
		}
}

static void xor_list(void)
{
	for (int i = 0; i < ROUNDS; i++)
		for (struct node *node = chain(10), *before = NULL, *next; node;
		     before = node, node = next) {
			next = node->next;
			node->next = (struct node *)((uintptr_t)next ^ (uintptr_t)before);
		}
}

static void deep_list(void)
{
	chain(20000);
}

/* Blocks that were used before, of which the program writes no word. */
static void unwritten(void)
{
	void *blocks[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		blocks[i] = malloc(200);
	for (int i = 0; i < ROUNDS; i++)
		free(blocks[i]);
	for (int i = 0; i < ROUNDS; i++)
		note_planted(malloc(200));
	memset(blocks, 0, sizeof(blocks));
	__asm__ volatile("" : : "r"(blocks) : "memory");
}

static const struct kind {
	const char *name;
	void (*plant)(void);
} kinds[] = {
	{"small", small},
	{"large", large},
	{"mapped", mapped},
	{"text", text},
	{"list", list},
	{"double_list", double_list},
	{"circle", circle},
	{"pair", pair},
	{"self", self},
	{"tree", tree},
	{"tree_with_parents", tree_with_parents},
	{"chained_table", chained_table},
	{"array", array},
	{"matrix", matrix},
	{"grown_array", grown_array},
	{"member_list", member_list},
	{"random_graph", random_graph},
	{"overwritten_variable", overwritten_variable},
	{"overwritten_of_thread", overwritten_of_thread},
	{"ended_thread", ended_thread},
	{"arenas", arenas},
	{"taken_from_queue", taken_from_queue},
	{"aligned", aligned},
	{"tagged_list", tagged_list},
	{"xor_list", xor_list},
	{"deep_list", deep_list},
	{"unwritten", unwritten},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (argc == 1)
			puts(kinds[i].name);
		else if (strcmp(argv[1], kinds[i].name) == 0)
			kinds[i].plant();
	wipe();
	return argc == 1 ? 0 : wait_for_end();
}
