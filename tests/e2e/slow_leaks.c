/* SPDX-License-Identifier: BSD-2-Clause */
/* Grows at one line, in C; see slow_leaks.h. */
#include "slow_leaks.h"

#include <pthread.h>
#include <sys/mman.h>

#define BYTES 1000

struct item {
	struct item *next;
	char text[BYTES - sizeof(void *)];
};

static struct item *list;
static char *cache[100000];
static size_t cached;

static SITE void lost(void)
{
	KEEP(malloc(BYTES)); /* LEAK lost */
}

static SITE void listed(void)
{
	struct item *item = malloc(sizeof(*item)); /* LEAK listed */

	item->next = list;
	list = item;
}

static SITE void zeroed(void)
{
	cache[cached++ % 100000] = calloc(1, BYTES); /* LEAK zeroed */
}

static SITE void copied(void)
{
	static char text[BYTES];

	memset(text, 'x', BYTES - 1);
	cache[cached++ % 100000] = strdup(text); /* LEAK copied */
}

static SITE void grown(void)
{
	static char *buffer;
	static size_t size;

	size += BYTES;
	buffer = realloc(buffer, size); /* LEAK grown */
	KEEP(buffer);
}

static SITE void aligned(void)
{
	void *block = NULL;

	REQUIRE(posix_memalign(&block, 64, BYTES) == 0); /* LEAK aligned */
	cache[cached++ % 100000] = block;
}

static SITE void printed(void)
{
	char *text;

	REQUIRE(asprintf(&text, "%0*d", BYTES, 7) > 0); /* LEAK printed */
	cache[cached++ % 100000] = text;
}

static SITE void *in_thread(void *unused)
{
	(void)unused;
	cache[cached++ % 100000] = malloc(BYTES); /* LEAK threaded */
	return NULL;
}

static SITE void threaded(void)
{
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0);
	pthread_join(thread, NULL);
}

static SITE void *checked(size_t bytes)
{
	void *block = malloc(bytes);

	REQUIRE(block);
	return block;
}

static SITE void wrapped(void)
{
	cache[cached++ % 100000] = checked(BYTES); /* LEAK wrapped */
}

static SITE void pairs(void)
{
	char *kept = malloc(BYTES); /* LEAK pairs */
	char *freed = malloc(3 * BYTES);

	cache[cached++ % 100000] = kept;
	KEEP(freed);
	free(freed);
}

static const struct leak leaks[] = {
	{"lost", lost},	      {"listed", listed},   {"zeroed", zeroed},	  {"copied", copied},
	{"grown", grown},     {"aligned", aligned}, {"printed", printed}, {"threaded", threaded},
	{"wrapped", wrapped}, {"pairs", pairs},
};

LEAKS_MAIN
