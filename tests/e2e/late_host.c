/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: late_host LIBRARY [COUNT]
 *
 * For each line "N" that it reads it opens and closes a library N times, and says what the library has
 * allocated by its own functions. "open PATH" opens another one and leaves it open; "threads" has threads
 * allocate by malloc meanwhile, until the input ends. With COUNT the first line is that.
 */
#include "late_pool.h"
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define THREADS 3

static struct late_figures sum;
static _Atomic int is_over;

static void add(const struct late_figures *figures)
{
	sum.blocks += figures->blocks;
	sum.bytes += figures->bytes;
	sum.kept_blocks += figures->kept_blocks;
	sum.kept_bytes += figures->kept_bytes;
}

static void use(const char *path, int stays_open)
{
	struct late_figures figures;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	REQUIRE(library);
	struct late_figures *(*work)(void) =
		(struct late_figures * (*)(void)) dlsym(library, "late_run");
	void (*at_end)(struct late_figures *) =
		(void (*)(struct late_figures *))dlsym(library, "late_figures_at_end");
	REQUIRE(work && at_end);
	figures = *work();
	if (!stays_open) {
		at_end(&figures);
		REQUIRE(dlclose(library) == 0);
	}
	add(&figures);
}

static void answer(const char *path, char *line)
{
	int count = atoi(line);

	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "open ", 5) == 0)
		use(line + 5, 1);
	for (int i = 0; i < count; i++)
		use(path, 0);
	printf("by_late %zu %zu %zu %zu\ndone\n", sum.blocks, sum.bytes, sum.kept_blocks,
	       sum.kept_bytes);
	sum = (struct late_figures){0};
}

static void *rage(void *unused)
{
	while (!is_over) {
		void *block = malloc(100);
		KEEP(block);
		free(block);
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	char line[4096];
	int running = 0;

	setvbuf(stdout, NULL, _IOLBF, 1 << 12);
	if (count > 2)
		answer(arguments[1], arguments[2]);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		for (; strcmp(line, "threads\n") == 0 && running < THREADS; running++)
			REQUIRE(pthread_create(&threads[running], NULL, rage, NULL) == 0);
		answer(arguments[1], line);
	}
	is_over = 1;
	while (running > 0)
		pthread_join(threads[--running], NULL);
	return 0;
}
