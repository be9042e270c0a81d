/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates by amounts that depend on its argument, 1 or 2, at functions that grow, shrink, come,
 * go and stay; prints what each did as JSON: {"function": [bytes, blocks], ...}.
 */
#include "program.h"

#ifdef OTHER_BUILD /* moves everything that follows, in the file and in memory */
static SITE int in_the_way(int number)
{
	KEEP(number);
	return number - 2;
}
#else
#define in_the_way(number) ((number)-2)
#endif

/* name, blocks in run 1, blocks in run 2, bytes of a block */
#define SITES(apply)                                                                         \
	apply(grows_much, 103, 211, 1009) apply(grows_little, 7, 8, 11)                      \
		apply(shrinks, 53, 23, 307) apply(comes, 0, 19, 601) apply(goes, 31, 0, 401) \
			apply(stays, 41, 41, 101)

static SITE void *allocate(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

#define DEFINE_SITE(name, first, second, bytes)            \
	static SITE void name(int run)                     \
	{                                                  \
		int count = run == 1 ? (first) : (second); \
		for (int i = 0; i < count; i++)            \
			KEEP(allocate(bytes));             \
	}
SITES(DEFINE_SITE)

#define RUN_SITE(name, first, second, bytes) name(run);

#define PRINT_SITE(name, first, second, bytes)                                         \
	printf("\"%s\": [%d, %d], ", #name, (run == 1 ? (first) : (second)) * (bytes), \
	       run == 1 ? (first) : (second));

int main(int argc, char **argv)
{
	int run = in_the_way(argc == 2 ? atoi(argv[1]) + 2 : 0);

	REQUIRE(run == 1 || run == 2);
	SITES(RUN_SITE)
	printf("{");
	SITES(PRINT_SITE)
	printf("\"nothing\": [0, 0]}\n");
	return 0;
}
