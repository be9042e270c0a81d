/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that heapline joins while its threads allocate and free, with a ledger of its own in a
 * file, which a test reads at any time. A thread looks before each event whether malloc begins as it
 * did at the program's start, and writes the event to the column of what it saw. So the column
 * PATCHED differs from a recording by one event for each thread and each edge at most: those that
 * were stopped between the look and the call.
 *
 * Usage: attach_target LEDGER THREADS. Says "ready", and then does what lines of its input ask for:
 * "exec" becomes cat(1), "again" itself, "slow" makes a block that takes until the next line,
 * "vfork" waits for a child that somebody kills. It exits with status 7 at the end of its input.
 */
#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS_MAX 16
#define BLOCKS	    512
#define BYTES_MAX   1000
#define ENTRY_BYTES 16
#define LIFE_S	    600

enum column { PLAIN, PATCHED, COLUMNS };

/* Read by tests/e2e/test_attach.py. */
struct ledger {
	_Atomic uint64_t allocs[COLUMNS], alloc_bytes[COLUMNS];
	_Atomic uint64_t frees[COLUMNS], free_bytes[COLUMNS]; /* of blocks of the column PATCHED */
	_Atomic uint64_t older_frees[COLUMNS];		      /* of the others */
};

struct block {
	void *address;
	uint64_t bytes;
	enum column column; /* of its allocation */
};

static struct ledger *ledgers;
static unsigned char entry_at_start[ENTRY_BYTES];
static const unsigned char *entry;

static enum column look(void)
{
	BARRIER();
	return memcmp(entry, entry_at_start, ENTRY_BYTES) ? PATCHED : PLAIN;
}

static void count_free(struct ledger *ledger, const struct block *block, enum column column)
{
	if (block->column == PATCHED) {
		ledger->frees[column]++;
		ledger->free_bytes[column] += block->bytes;
	} else {
		ledger->older_frees[column]++;
	}
}

static void count_alloc(struct ledger *ledger, struct block *block, enum column column)
{
	block->column = column;
	ledger->allocs[column]++;
	ledger->alloc_bytes[column] += block->bytes;
}

static SITE void take_by_malloc(struct ledger *ledger, struct block *block, uint64_t bytes)
{
	enum column column = look();

	block->bytes = bytes;
	block->address = malloc(bytes);
	REQUIRE(block->address);
	count_alloc(ledger, block, column);
}

static SITE void take_by_calloc(struct ledger *ledger, struct block *block, uint64_t bytes)
{
	enum column column = look();

	block->bytes = bytes;
	block->address = calloc(1, bytes);
	REQUIRE(block->address);
	count_alloc(ledger, block, column);
}

static SITE void change_by_realloc(struct ledger *ledger, struct block *block, uint64_t bytes)
{
	enum column column = look();

	count_free(ledger, block, column);
	block->bytes = bytes;
	block->address = realloc(block->address, bytes);
	REQUIRE(block->address);
	count_alloc(ledger, block, column);
}

static SITE void give_back(struct ledger *ledger, struct block *block)
{
	enum column column = look();

	free(block->address);
	block->address = NULL;
	count_free(ledger, block, column);
}

static void *storm(void *argument)
{
	uint64_t number = (uintptr_t)argument, state = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	struct block blocks[BLOCKS] = {0};

	for (;;) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		struct block *block = &blocks[state % BLOCKS];
		uint64_t bytes = state / BLOCKS % BYTES_MAX + 1;
		if (!block->address && state >> 63)
			take_by_calloc(&ledgers[number], block, bytes);
		else if (!block->address)
			take_by_malloc(&ledgers[number], block, bytes);
		else if (state >> 62 == 0)
			change_by_realloc(&ledgers[number], block, bytes);
		else
			give_back(&ledgers[number], block);
	}
	return NULL;
}

static void open_ledger(const char *path)
{
	size_t bytes = THREADS_MAX * sizeof(*ledgers);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	REQUIRE(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	ledgers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(ledgers != MAP_FAILED);
	close(fd);
}

/* One line of the input, without stdio: whose buffers would be blocks. */
static size_t read_line(char *line, size_t size)
{
	size_t used = 0;

	while (used + 1 < size && read(0, line + used, 1) == 1 && line[used] != '\n')
		used++;
	line[used] = '\0';
	return used;
}

/* An allocator that makes its callers wait. */
static SITE void *slow_malloc(size_t bytes)
{
	char line[32];

	REQUIRE(write(1, "inside\n", 7) == 7);
	read_line(line, sizeof(line));
	void *block = malloc(bytes);
	KEEP(block);
	return block;
}

static void wait_for_child(void)
{
	if (vfork() == 0)
		for (;;)
			pause();
}

/* A function that is too short for a jump to take the place of its code. */
__asm__(".pushsection .text\n"
	".globl tiny_free\n"
	".type tiny_free, @function\n"
	"tiny_free: ret\n"
	".size tiny_free, . - tiny_free\n"
	"ret\n"
	".popsection");

static SITE void slow_free(void *block)
{
	free(block);
	BARRIER();
}

int main(int argc, char **argv)
{
	char line[32];
	pthread_t id;

	alarm(LIFE_S);
	REQUIRE(argc == 3);
	long threads = atol(argv[2]);
	REQUIRE(threads >= 0 && threads <= THREADS_MAX);
	open_ledger(argv[1]);
	entry = dlsym(RTLD_DEFAULT, "malloc");
	REQUIRE(entry);
	memcpy(entry_at_start, entry, ENTRY_BYTES);
	for (long i = 0; i < threads; i++)
		REQUIRE(!pthread_create(&id, NULL, storm, (void *)i));
	REQUIRE(write(1, "ready\n", 6) == 6);
	while (read_line(line, sizeof(line))) {
		if (!strcmp(line, "exec"))
			execl("/bin/cat", "cat", NULL);
		else if (!strcmp(line, "again"))
			execv(argv[0], argv);
		if (!strcmp(line, "vfork")) {
			wait_for_child();
			continue;
		}
		REQUIRE(!strcmp(line, "slow"));
		slow_free(slow_malloc(100));
		REQUIRE(write(1, "done\n", 5) == 5);
	}
	return 7;
}
