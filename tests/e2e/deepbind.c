/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens libraries with RTLD_DEEPBIND, which free its blocks as it frees theirs. For each function that allocates it prints the
 * blocks and bytes that were allocated, and those that are in use at the end.
 */
#include "deepbind.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <stdbool.h>
#include <string.h>

static bool by_namespace; /* libraries are opened by dlmopen(), in the program's own namespace */

static void *open_library(const char *directory, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s.so", directory, name);
	void *library = by_namespace ? dlmopen(LM_ID_BASE, path, RTLD_LAZY | RTLD_DEEPBIND)
				     : dlopen(path, RTLD_LAZY | RTLD_DEEPBIND);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	return library;
}

static void *symbol_of(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	REQUIRE(symbol);
	return symbol;
}

SITE void *main_make(size_t bytes);
SITE void *main_make(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

SITE void *by_handle(void *(*allocate)(size_t), size_t bytes);
SITE void *by_handle(void *(*allocate)(size_t), size_t bytes)
{
	void *block = allocate(bytes);

	KEEP(block);
	return block;
}

/* Blocks of ${make}, the first ${freed} of which ${give} frees. */
static void account(const char *name, make_fn *make, give_fn *give, size_t count, size_t bytes,
		    size_t freed)
{
	void **blocks = alloca(count * sizeof(*blocks));

	for (size_t i = 0; i < count; i++)
		REQUIRE(blocks[i] = make(bytes));
	for (size_t i = 0; i < freed; i++)
		give(blocks[i]);
	printf("%s %zu %zu %zu %zu\n", name, count, count * bytes, count - freed,
	       (count - freed) * bytes);
}

static void *(*handle_malloc)(size_t);

static void *make_by_handle(size_t bytes)
{
	return by_handle(handle_malloc, bytes);
}

int main(int count, char **arguments)
{
	REQUIRE(count > 1);
	by_namespace = count > 2 && !strcmp(arguments[2], "base");
	void *library = open_library(arguments[1], "deepbound");
	REQUIRE(library);
	give_fn *library_free = (give_fn *)symbol_of(library, "deepbound_free");
	account("main_make", main_make, library_free, 1000, 5000, 1000);
	account("deepbound_make", (make_fn *)symbol_of(library, "deepbound_make"), free, 1000, 1000,
		400);
	account("needed_make", (make_fn *)symbol_of(library, "needed_make"), library_free, 300, 300,
		100);
	printf("deepbound_begin 10 1000 10 1000\n");
	handle_malloc = (void *(*)(size_t))symbol_of(dlopen(LIBC_SO, RTLD_LAZY), "malloc");
	account("by_handle", make_by_handle, free, 50, 77, 10);
	void *cxx = count > 2 && !by_namespace ? open_library(arguments[1], "deepbound_cxx") : NULL;
	if (cxx)
		account("cxx_make", (make_fn *)symbol_of(cxx, "cxx_make"),
			(give_fn *)symbol_of(cxx, "cxx_give"), 200, 40, 50);
	puts("done");
	return 0;
}
