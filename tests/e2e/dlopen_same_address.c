/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads and unloads two libraries in turn, so that the second comes to lie where the first lay.
 * Prints, as JSON, how often it did.
 *
 * Usage: dlopen_same_address LIBRARY OTHER_LIBRARY
 */
#include "program.h"

#include <dlfcn.h>
#include <stdint.h>

typedef void *allocate_fn(size_t bytes);

/* Has the library allocate ${bytes} seven times; the address of its code. */
static uintptr_t load_and_allocate(const char *library, size_t bytes)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	REQUIRE(handle);
	allocate_fn *allocate = (allocate_fn *)(uintptr_t)dlsym(handle, "plugin_allocate");
	REQUIRE(allocate);
	for (int i = 0; i < 7; i++)
		KEEP(allocate(bytes));
	REQUIRE(!dlclose(handle));
	return (uintptr_t)allocate;
}

int main(int argc, char **argv)
{
	int coincidences = 0;

	REQUIRE(argc == 3);
	for (int i = 0; i < 101; i++) {
		uintptr_t first = load_and_allocate(argv[1], 109);
		uintptr_t second = load_and_allocate(argv[2], 113);
		coincidences += first == second;
	}
	printf("{\"coincidences\": %d}\n", coincidences);
	return 0;
}
