/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gains and loses pages, in one of the ways of page_scenarios.c: prepares, says "ready" and waits
 * for a line; goes its way, says "done" and waits for another line. So that whoever looks at it
 * sees it at rest before and after. `pages --list` names the ways and what must be said of them, as
 * JSON.
 */
#include "pages.h"

#include <string.h>
#include <unistd.h>

static void print_scenario(const struct scenario *scenario, const char *end)
{
	printf("{\"name\": \"%s\", \"sites\": [", scenario->name);
	for (size_t i = 0; i < SITES_MAX && scenario->sites[i].function; i++)
		printf("%s{\"function\": \"%s\", \"pages\": %ld}", i ? ", " : "",
		       scenario->sites[i].function, scenario->sites[i].pages);
	printf("], \"released\": %ld, \"unattributed\": %ld}%s\n", scenario->released,
	       scenario->unattributed, end);
}

static void list(void)
{
	puts("[");
	for (size_t i = 0; i < scenario_count; i++)
		print_scenario(&scenarios[i], i + 1 < scenario_count ? "," : "]");
}

/* Without stdio, whose buffers would be pages of their own. */
static void say_and_wait(const char *word)
{
	char line;

	REQUIRE(write(STDOUT_FILENO, word, strlen(word)) == (ssize_t)strlen(word));
	do
		REQUIRE(read(STDIN_FILENO, &line, 1) == 1);
	while (line != '\n');
}

static const struct scenario *find(const char *name)
{
	for (size_t i = 0; i < scenario_count; i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	for (const struct scenario *other = other_scenarios; other->name; other++)
		if (!strcmp(other->name, name))
			return other;
	fprintf(stderr, "pages: no scenario '%s'\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fputs("usage: pages --list | SCENARIO\n", stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--list")) {
		list();
		return 0;
	}
	const struct scenario *scenario = find(argv[1]);
	if (scenario->prepare)
		scenario->prepare();
	say_and_wait("ready\n");
	scenario->go();
	say_and_wait("done\n");
	_exit(0); /* whatever its threads do */
}
