/* SPDX-License-Identifier: BSD-2-Clause */
/* thread_mappings N: for each line that it reads N threads that live at once; says how many mappings the process has then. */
#include "program.h"

#include <pthread.h>

static pthread_barrier_t begun, counted;

static void *work(void *unused)
{
	(void)unused;
	for (int i = 0; i < 100; i++)
		KEEP(malloc((size_t)i));
	pthread_barrier_wait(&begun);
	pthread_barrier_wait(&counted);
	return NULL;
}

static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int lines = 0;

	REQUIRE(maps);
	for (int c; (c = getc(maps)) != EOF;)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static void run(unsigned count)
{
	pthread_t *threads = calloc(count, sizeof(*threads));
	pthread_attr_t attributes;

	REQUIRE(threads && !pthread_attr_init(&attributes));
	REQUIRE(!pthread_attr_setstacksize(&attributes, 64 << 10));
	pthread_barrier_init(&begun, NULL, count + 1);
	pthread_barrier_init(&counted, NULL, count + 1);
	for (unsigned i = 0; i < count; i++)
		REQUIRE(!pthread_create(&threads[i], &attributes, work, NULL));
	pthread_barrier_wait(&begun);
	printf("%d\n", count_mappings());
	pthread_barrier_wait(&counted);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

int main(int count, char **arguments)
{
	char line[16];

	REQUIRE(count > 1);
	setvbuf(stdout, NULL, _IOLBF, 1 << 12);
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		run((unsigned)atoi(arguments[1]));
	return 0;
}
