/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that knows what the words on the way to its blocks are called. Says for each
 * `chain ADDRESS CHAIN`, as `heapline holders --path` writes it but for where the variable is, then
 * `ready`, and waits for the end of its input.
 */
#include "wipe.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT_BYTES 4000

struct list {
	struct list *next, *previous;
};

struct entry {
	struct entry *next;
	const char *key;
	void *value;
	struct list links;
};

struct table {
	unsigned long count;
	struct {
		unsigned mask : 5, is_open : 1;
		struct entry *buckets[32];
	} inner;
	union {
		double number;
		unsigned long bits;
		struct entry *single;
	};
};

struct session {
	long id;
	struct {
		int used;
		char *bytes;
	} buffers[3];
};

typedef struct {
	short kind;
	void *payload[];
} record;

struct opaque; /* what it has the other file knows */
struct opaque *opaque_new(void *kept);

/* Not static: the compiler would leave out what nobody reads. */
struct table table;
struct table *by_pointer;
struct session *sessions;
struct session *row[8];
char *grid[3][4];
record *tail;
char **words;
void *anything;
uintptr_t hidden;
struct opaque *opaque;
struct list *inside;
struct entry *list;
__thread int before;
__thread struct session of_thread;

static __attribute__((noinline)) void *kept(const char *chain)
{
	char *block = malloc(KEPT_BYTES);

	memset(block, 'k', KEPT_BYTES);
	printf("chain %p %s\n", (void *)block, chain);
	return block;
}

static __attribute__((noinline)) struct entry *entry_of(struct entry *next, void *value)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	entry->next = next;
	entry->value = value;
	return entry;
}

static __attribute__((noinline)) void plant_tables(void)
{
	struct entry *last =
		entry_of(NULL, kept("table.inner.buckets[17] -> next (+0) x 2 -> value (+16)"));

	table.inner.buckets[17] = entry_of(entry_of(last, NULL), NULL);
	table.single = entry_of(NULL, kept("table.single -> value (+16)"));
	by_pointer = calloc(1, sizeof(*by_pointer));
	by_pointer->inner.buckets[3] =
		entry_of(NULL, kept("by_pointer -> inner.buckets[3] (+40) -> value (+16)"));
}

static __attribute__((noinline)) void plant_arrays(void)
{
	sessions = calloc(20, sizeof(*sessions));
	sessions[7].buffers[2].bytes = kept("sessions -> [7].buffers[2].bytes (+440)");
	sessions[0].buffers[0].bytes = kept("sessions -> buffers[0].bytes (+16)");
	row[5] = calloc(1, sizeof(*row[5]));
	row[5]->buffers[1].bytes = kept("row[5] -> buffers[1].bytes (+32)");
	grid[2][1] = kept("grid[2][1]");
	tail = calloc(1, sizeof(*tail) + 10 * sizeof(tail->payload[0]));
	tail->payload[9] = kept("tail -> payload[9] (+80)");
	words = calloc(10, sizeof(*words));
	words[0] = kept("words -> [0] (+0)");
	words[4] = kept("words -> [4] (+32)");
}

static __attribute__((noinline)) void plant_list(void)
{
	struct entry *first = entry_of(NULL, kept("list -> next (+0) x 99 -> value (+16)"));

	for (int i = 1; i < 100; i++)
		first = entry_of(first, NULL);
	list = first;
}

/* What is known ends, begins later, or begins inside of a block. */
static __attribute__((noinline)) void plant_unknown(void)
{
	struct entry *holder = calloc(1, sizeof(*holder));
	struct list *link = calloc(1, sizeof(*link));
	void **plain = calloc(1, 64);

	plain[3] = kept("anything -> ? (+24)");
	anything = plain;
	plain = calloc(1, 64);
	plain[2] = kept("hidden -> ? (+16)");
	hidden = (uintptr_t)plain;
	opaque = opaque_new(kept("opaque -> inner.kept (+16)"));
	link->next = kept("inside -> next (+24) -> next (+0)");
	holder->links.next = link;
	inside = &holder->links;
}

static __attribute__((noinline)) void plant_local(void)
{
	static struct session local;

	struct session *volatile reached = &local;

	reached->buffers[1].bytes = kept("local.buffers[1].bytes");
	before = 1;
	of_thread.buffers[2].bytes = kept("of_thread.buffers[2].bytes");
}

int main(void)
{
	static char output[1 << 16];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	plant_tables();
	plant_arrays();
	plant_list();
	plant_unknown();
	plant_local();
	wipe();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
