/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program for which the kernel keeps known amounts of memory: the stacks of 400 threads, what lies unread in sockets, huge pages where some are free, and
 * memory that it has asked the kernel to swap. Prints how many bytes of each, "unix", "tcp", "huge" and "swapped", then "ready", and ends with its input.
 */
#include "program.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB	      ((size_t)1 << 20)
#define THREADS	      400
#define UNIX_PAIRS    50
#define TCP_PAIRS     8
#define HUGE_BYTES    (8 * MIB)
#define SWAPPED_BYTES (8 * MIB)

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

/* How many bytes it takes until nobody takes more. */
static size_t fill(int fd)
{
	static char bytes[16384];
	size_t sum = 0;

	for (ssize_t sent; (sent = send(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;)
		sum += (size_t)sent;
	return sum;
}

static size_t fill_unix(void)
{
	size_t sum = 0;
	int ends[2];

	for (size_t i = 0; i < UNIX_PAIRS; i++) {
		REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		sum += fill(ends[0]);
	}
	return sum;
}

static size_t fill_tcp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	size_t sum = 0;

	int server = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(bind(server, (struct sockaddr *)&address, size) == 0 &&
		listen(server, TCP_PAIRS) == 0);
	REQUIRE(getsockname(server, (struct sockaddr *)&address, &size) == 0);
	for (size_t i = 0; i < TCP_PAIRS; i++) {
		int client = socket(AF_INET, SOCK_STREAM, 0);
		REQUIRE(connect(client, (struct sockaddr *)&address, size) == 0);
		REQUIRE(accept(server, NULL, NULL) >= 0);
		sum += fill(client);
		usleep(10000); /* until what was sent has arrived */
		sum += fill(client);
	}
	return sum;
}

static size_t take_huge(void)
{
	void *memory = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (memory == MAP_FAILED)
		return 0;
	memset(memory, 1, HUGE_BYTES);
	return HUGE_BYTES;
}

static size_t swap(void)
{
	void *memory = mmap(NULL, SWAPPED_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(memory != MAP_FAILED);
	memset(memory, 1, SWAPPED_BYTES);
	return madvise(memory, SWAPPED_BYTES, MADV_PAGEOUT) == 0 ? SWAPPED_BYTES : 0;
}

int main(void)
{
	char byte;

	start_threads();
	printf("unix %zu\n", fill_unix());
	printf("tcp %zu\n", fill_tcp());
	printf("huge %zu\n", take_huge());
	printf("swapped %zu\nready\n", swap());
	fflush(stdout);
	REQUIRE(read(STDIN_FILENO, &byte, 1) >= 0);
	return 0;
}
