/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * linked_blocks COUNT order|random|list|lost: keeps COUNT blocks of 80 bytes that one variable leads
 * to, as a list in order of address, a tree with links to random places, or a list in random order;
 * or such a tree without every 1,000th block, which is lost. Says that it is ready, and waits for
 * the end of its standard input.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOST_EACH 1000

struct node {
	struct node *left, *right, *any;
	uint64_t padding[6];
};

static struct node *root;
static uint64_t state = 1;

static uint64_t below(uint64_t count)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (state >> 33) % count;
}

/* Each node hangs on an earlier one, or on the first free place below it. */
static void link_at_random(struct node **nodes, uint64_t count)
{
	for (uint64_t i = 1; i < count; i++) {
		struct node *at = nodes[below(i)];
		while (at->left && at->right)
			at = below(2) ? at->left : at->right;
		*(at->left ? &at->right : &at->left) = nodes[i];
	}
	for (uint64_t i = 0; i < count; i++)
		nodes[i]->any = nodes[below(count)];
}

/* Takes every 1,000th node out of the array: how many are left. */
static uint64_t lose(struct node **nodes, uint64_t count)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < count; i++)
		if (i % LOST_EACH != LOST_EACH - 1)
			nodes[kept++] = nodes[i];
	return kept;
}

static void shuffle(struct node **nodes, uint64_t count)
{
	for (uint64_t i = count - 1; i > 0; i--) {
		uint64_t other = below(i + 1);
		struct node *node = nodes[i];
		nodes[i] = nodes[other];
		nodes[other] = node;
	}
}

int main(int argc, char **argv)
{
	uint64_t count = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	char byte;

	if (!count)
		return 2;
	/* Not in the heap, and gone when the blocks are linked. */
	struct node **nodes = mmap(NULL, count * sizeof(*nodes), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return 1;
	for (uint64_t i = 0; i < count; i++)
		if (!(nodes[i] = calloc(1, sizeof(**nodes))))
			return 1;
	if (strcmp(argv[2], "list") == 0)
		shuffle(nodes, count);
	uint64_t kept = strcmp(argv[2], "lost") == 0 ? lose(nodes, count) : count;
	if (kept < count || strcmp(argv[2], "random") == 0)
		link_at_random(nodes, kept);
	else
		for (uint64_t i = 0; i + 1 < count; i++)
			nodes[i]->left = nodes[i + 1];
	root = nodes[0];
	munmap(nodes, count * sizeof(*nodes));
	puts("ready");
	fflush(stdout);
	return read(STDIN_FILENO, &byte, 1) < 0 || !root;
}
