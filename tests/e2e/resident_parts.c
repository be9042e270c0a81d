/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * resident_parts KIND: brings 48 MiB of one kind of memory into RAM, as programs do that reserve address space, choose their
 * stacks themselves, or map files privately. Says "ready", and ends with its standard input.
 */
#include "program.h"

#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES	    (48u << 20)
#define THREADS	    8
#define STACK_BYTES (8u << 20)
#define TOUCHED	    (BYTES / THREADS)

static pthread_barrier_t touched;

static char *map(size_t bytes, int protection, int flags, int fd)
{
	char *memory = mmap(NULL, bytes, protection, flags, fd, 0);

	REQUIRE(memory != MAP_FAILED);
	return memory;
}

static int scratch_file(off_t bytes)
{
	char path[] = "/var/tmp/resident-parts-XXXXXX";
	int fd = mkstemp(path);

	REQUIRE(fd >= 0 && unlink(path) == 0 && ftruncate(fd, bytes) == 0);
	return fd;
}

static int memory_file(const char *name)
{
	int fd = memfd_create(name, 0);

	REQUIRE(fd >= 0 && ftruncate(fd, BYTES) == 0);
	return fd;
}

static SITE void *run_thread(void *unused)
{
	char *used = alloca(TOUCHED);

	memset(used, 1, TOUCHED);
	KEEP(used);
	pthread_barrier_wait(&touched);
	pause();
	return unused;
}

/* Threads without guard pages; on memory of the program if ${is_own}. */
static void start_threads(bool is_own)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_barrier_init(&touched, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++) {
		pthread_attr_init(&attributes);
		pthread_attr_setguardsize(&attributes, 0);
		pthread_attr_setstacksize(&attributes, STACK_BYTES);
		if (is_own)
			pthread_attr_setstack(&attributes,
					      map(STACK_BYTES, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_ANONYMOUS, -1),
					      STACK_BYTES);
		REQUIRE(pthread_create(&thread, &attributes, run_thread, NULL) == 0);
	}
	pthread_barrier_wait(&touched);
}

/* The kernel puts the file right below the memory, as a library's variables lie below its .bss. */
static void fill_above_a_file(void)
{
	char *memory = map(BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *file = map(1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, scratch_file(1 << 20));

	memset(memory, 1, BYTES);
	file[0] = 1;
}

/* The upper half of a reservation is made usable, as a JVM does. */
static void fill_a_reservation(void)
{
	char *memory = map(2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	REQUIRE(mprotect(memory + BYTES, BYTES, PROT_READ | PROT_WRITE) == 0);
	memset(memory + BYTES, 1, BYTES);
}

static void fill(size_t bytes, int flags, int fd)
{
	memset(map(bytes, PROT_READ | PROT_WRITE, flags, fd), 1, bytes);
}

/* What the program gives back, but the kernel has not taken yet. */
static void free_lazily(void)
{
	char *memory = map(BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	memset(memory, 1, BYTES);
	REQUIRE(madvise(memory, BYTES, MADV_FREE) == 0);
}

/* A second libc, with a heap of its own, as plugins have that are opened by dlmopen(). */
static void fill_beside_a_second_libc(void)
{
	for (unsigned i = 0; i < BYTES / 1000; i++)
		KEEP(memset(malloc(1000 - 8), 1, 1000 - 8));
	void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	REQUIRE(libc);
	void *(*other)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
	REQUIRE(other && other(100));
}

int main(int count, char **arguments)
{
	const char *kind = count == 2 ? arguments[1] : "";

	if (strcmp(kind, "reservation") == 0)
		fill_a_reservation();
	else if (strcmp(kind, "threads") == 0)
		start_threads(false);
	else if (strcmp(kind, "own-stacks") == 0)
		start_threads(true);
	else if (strcmp(kind, "above-a-file") == 0)
		fill_above_a_file();
	else if (strcmp(kind, "zeros") == 0)
		fill(BYTES, MAP_PRIVATE, open("/dev/zero", O_RDWR));
	else if (strcmp(kind, "private-memfd") == 0)
		fill(BYTES, MAP_PRIVATE, memory_file("copied"));
	else if (strcmp(kind, "shared-memfd") == 0)
		fill(BYTES, MAP_SHARED, memory_file("frames"));
	else if (strcmp(kind, "shared-file") == 0)
		fill(BYTES, MAP_SHARED, scratch_file(BYTES));
	else if (strcmp(kind, "huge-pages") == 0)
		fill(BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	else if (strcmp(kind, "huge-blocks") == 0)
		memset(malloc(BYTES), 1, BYTES);
	else if (strcmp(kind, "lazily") == 0)
		free_lazily();
	else if (strcmp(kind, "second-libc") == 0)
		fill_beside_a_second_libc();
	else
		REQUIRE(strcmp(kind, "of no kind") == 0);
	puts("ready");
	fflush(stdout);
	return getchar() == EOF ? 0 : 1;
}
