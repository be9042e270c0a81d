/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens a library, closes it, and opens it again where something else may lie by then. */
#include <dlfcn.h>
#include <sys/mman.h>

#define GAP_BYTES (64 << 20)

static int call(const char *path, int size)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*allocate)(int) = library ? (void (*)(int))dlsym(library, "library_allocate") : 0;

	if (!allocate)
		return 1;
	allocate(size);
	return dlclose(library);
}

int main(int argc, char **argv)
{
	if (argc != 2 || call(argv[1], 100) != 0)
		return 1;
	/* Whatever is mapped now takes the place of the library. */
	if (mmap(0, GAP_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 1;
	return call(argv[1], 1000);
}
