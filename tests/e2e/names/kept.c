/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kept [LIBRARY]: says "ready", then keeps 100 blocks for each line that it reads, in keep() or in library_keep() of the
 * library. With "-m PROGRAM ARGUMENTS" becomes a copy of the program that has no path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

extern char **environ;

__attribute__((noinline)) static void *keep(size_t bytes)
{
	void *block = malloc(bytes);

	__asm__ volatile("" ::"r"(block) : "memory");
	return block;
}

static int become_memfd(char **argv)
{
	int in = open(argv[0], O_RDONLY | O_CLOEXEC), out = memfd_create("kept-copy", MFD_CLOEXEC);

	while (sendfile(out, in, NULL, 1 << 20) > 0)
		continue;
	return fexecve(out, argv, environ);
}

int main(int argc, char **argv)
{
	void *(*allocate)(size_t) = keep;
	char line[16];

	if (argc > 2 && !strcmp(argv[1], "-m"))
		return become_memfd(argv + 2);
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);
		allocate = library ? (void *(*)(size_t))dlsym(library, "library_keep") : NULL;
		if (!allocate)
			return 1;
	}
	setvbuf(stdin, NULL, _IONBF, 0);
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < 100; i++)
			allocate(100);
		if (write(STDOUT_FILENO, "done\n", 5) != 5)
			return 1;
	}
	return 0;
}
