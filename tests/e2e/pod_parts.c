/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program, with a child, that has known amounts of each kind of memory that a control group is charged with.
 *
 *	pod_parts TMPFS DISK
 *
 * makes files in these two folders; DISK may be "-". Prints
 *
 *	child PID
 *	ready
 *
 * and ends with its input.
 */
#include "program.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB	 ((size_t)1 << 20)
#define THREADS	 64
#define PIPES	 50
#define PIPE_MAX 65536

static void *map(size_t mib, int flags, int fd)
{
	void *memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, flags, fd, 0);

	REQUIRE(memory != MAP_FAILED);
	memset(memory, 1, mib * MIB);
	return memory;
}

/* A file of ${mib} that is written; the descriptor. */
static int write_file(int fd, size_t mib)
{
	static char bytes[MIB];

	REQUIRE(fd >= 0);
	for (size_t i = 0; i < mib; i++)
		REQUIRE(write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
	return fd;
}

static int create(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void start_threads(void)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (size_t i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&thread, &small, wait_for_ever, NULL) == 0);
}

static void fill_pipes(void)
{
	static char bytes[PIPE_MAX];
	int ends[2];

	for (size_t i = 0; i < PIPES; i++) {
		REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
		REQUIRE(write(ends[1], bytes, sizeof(bytes)) > 0);
	}
}

int main(int argc, char **argv)
{
	char byte;

	REQUIRE(argc == 3);
	map(12, MAP_PRIVATE | MAP_ANONYMOUS, -1); /* both have it */
	pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		map(9, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		REQUIRE(read(STDIN_FILENO, &byte, 1) >= 0);
		_exit(0);
	}
	map(20, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	int frames = memfd_create("frames", 0);
	REQUIRE(ftruncate(frames, (off_t)(16 * MIB)) == 0);
	map(16, MAP_SHARED, frames);
	close(frames);
	write_file(memfd_create("queue", 0), 8);
	close(write_file(create(argv[1], "left.bin"), 6));
	write_file(create(argv[1], "kept.bin"), 7);
	map(5, MAP_SHARED | MAP_ANONYMOUS, -1);
	int segment = shmget(IPC_PRIVATE, 4 * MIB, 0600);
	void *shared = shmat(segment, NULL, 0);
	REQUIRE(segment >= 0 && shared != (void *)-1);
	shmctl(segment, IPC_RMID, NULL);
	memset(shared, 1, 4 * MIB);
	if (strcmp(argv[2], "-") != 0)
		REQUIRE(fdatasync(write_file(create(argv[2], "cached.bin"), 10)) == 0);
	fill_pipes();
	start_threads();
	printf("child %d\nready\n", child);
	fflush(stdout);
	REQUIRE(read(STDIN_FILENO, &byte, 1) >= 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
