/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hot reload: each library in turn is copied over PATH, loaded from there, called and unloaded, so
 * that they come to lie at one address under one name; or, when PATH is "-", loaded from where it
 * is. Prints, as JSON, how many of the loads found the address of the one before, or were the first: a mapping of the recorder may take
 * the hole that an unloaded library has left, and then the next ones lie elsewhere.
 *
 * Usage: hot_reload ROUNDS PATH LIBRARY...
 *
 * In each round library n (from 0) allocates 7 blocks of 101 + n bytes.
 */
#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef void *allocate_fn(size_t bytes);

static void copy(const char *from, const char *to)
{
	static char bytes[1 << 20];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);

	REQUIRE(in >= 0 && out >= 0);
	ssize_t size = read(in, bytes, sizeof(bytes));
	REQUIRE(size > 0 && size < (ssize_t)sizeof(bytes));
	REQUIRE(write(out, bytes, (size_t)size) == size);
	close(in);
	close(out);
}

static uintptr_t load_and_allocate(const char *path, size_t bytes)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

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
	uintptr_t last = 0;
	int coincidences = 0;

	REQUIRE(argc > 3);
	for (int round = 0; round < atoi(argv[1]); round++) {
		for (int i = 3; i < argc; i++) {
			const char *path = strcmp(argv[2], "-") ? argv[2] : argv[i];
			if (path == argv[2])
				copy(argv[i], path);
			uintptr_t found = load_and_allocate(path, 98 + (size_t)i);
			coincidences += !last || found == last;
			last = found;
		}
	}
	printf("{\"coincidences\": %d}\n", coincidences);
	return 0;
}
