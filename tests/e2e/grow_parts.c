/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that gains and loses known amounts of each kind of memory, each in a function of its own, in a child, and in
 * another program that it starts.
 *
 *	grow_parts DISK
 *
 * makes a file in the folder DISK ("-": none). Prints "ready", waits for a line, prints "done", and ends with its input.
 */
#include "program.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   ((size_t)1 << 20)
#define PIPES 20
#define BYTES 65536 /* of a pipe */

extern char **environ;

static char written[MIB];

static void *map(size_t mib)
{
	void *memory =
		mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(memory != MAP_FAILED);
	madvise(memory, mib * MIB, MADV_NOHUGEPAGE);
	return memory;
}

/* Without a call of the C library's, so that these pages are the caller's. */
static inline void touch(void *memory, size_t mib)
{
	for (volatile char *at = memory; at < (char *)memory + mib * MIB; at += 4096)
		*at = 1;
}

static void write_mib(int fd, size_t mib)
{
	REQUIRE(fd >= 0);
	for (size_t i = 0; i < mib; i++)
		REQUIRE(write(fd, written, MIB) == (ssize_t)MIB);
}

SITE void grow_anonymous(void *memory)
{
	touch(memory, 16);
}

SITE void grow_and_free(void *memory)
{
	touch(memory, 32);
	munmap(memory, 32 * MIB);
}

SITE void grow_file(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/grown.bin", folder);
	write_mib(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), 12);
}

SITE void grow_shared(int memfd)
{
	write_mib(memfd, 8);
}

SITE void grow_pipes(int ends[PIPES][2])
{
	for (int i = 0; i < PIPES; i++)
		REQUIRE(write(ends[i][1], written, BYTES) == BYTES);
}

SITE void grow_child(void *memory)
{
	touch(memory, 6);
}

SITE void grow_other_program(void *memory)
{
	touch(memory, 5);
}

static void wait_for_end(void)
{
	char line;

	while (read(STDIN_FILENO, &line, 1) > 0)
		;
	_exit(0);
}

/* Says that the process is done. */
static void say_done(int fd)
{
	REQUIRE(write(fd, "", 1) == 1);
}

static void start_child(int fd)
{
	if (fork())
		return;
	usleep(500000); /* whoever follows new processes hears of this one by its first pages */
	grow_child(map(6));
	say_done(fd);
	wait_for_end();
}

static void start_other(const char *self, int fd)
{
	char number[16];
	char *arguments[] = {(char *)self, number, NULL};
	pid_t pid;

	snprintf(number, sizeof(number), "%d", fd);
	REQUIRE(posix_spawnp(&pid, self, NULL, NULL, arguments, environ) == 0);
}

int main(int argc, char **argv)
{
	int ends[PIPES][2], done[2], memfd = memfd_create("grown", 0);
	char line;

	REQUIRE(argc == 2);
	if (argv[1][0] >= '0' && argv[1][0] <= '9') {
		usleep(500000);
		grow_other_program(map(5));
		say_done(atoi(argv[1]));
		wait_for_end();
	}
	memset(written, 1, sizeof(written));
	for (int i = 0; i < PIPES; i++)
		REQUIRE(pipe(ends[i]) == 0);
	REQUIRE(pipe(done) == 0);
	void *old = map(10), *kept = map(16), *freed = map(32);
	touch(old, 10);
	puts("ready");
	fflush(stdout);
	REQUIRE(read(STDIN_FILENO, &line, 1) == 1);
	munmap(old, 10 * MIB);
	grow_anonymous(kept);
	grow_and_free(freed);
	if (argv[1][0] != '-')
		grow_file(argv[1]);
	grow_shared(memfd);
	grow_pipes(ends);
	start_child(done[1]);
	start_other(argv[0], done[1]);
	REQUIRE(read(done[0], &line, 1) == 1 && read(done[0], &line, 1) == 1);
	puts("done");
	fflush(stdout);
	wait_for_end();
}
