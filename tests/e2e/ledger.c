/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A random multi-threaded program with a ledger of its own: threads allocate by every entry point,
 * on some hundred paths of recursive functions, pass their blocks to each other and free those of
 * others. For every stack the ledger has what was allocated and what is still in use; it lives in
 * memory that the allocator does not know, and is printed at the end as lines of
 *
 *   hop_a;hop_b;...;by_ENTRY alloc_bytes alloc_objects inuse_bytes inuse_objects slack_bytes
 *
 * or, by size, as one line for each stack and number of binary digits of the size:
 *
 *   hop_a;hop_b;...;by_ENTRY;DIGITS alloc_bytes ...
 *
 * Usage: ledger SEED THREADS EVENTS [BYTES_MAX [by-size]]
 */
#include "program.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PATHS	      120
#define HOPS	      6 /* functions that a path is made of */
#define PATH_MAX_HOPS 14
#define SLOTS	      4096
#define THREADS_MAX   8
#define DIGITS_MAX    32 /* binary digits of a size are fewer */

enum entry {
	BY_MALLOC,
	BY_CALLOC,
	BY_REALLOC,
	BY_REALLOCARRAY,
	BY_POSIX_MEMALIGN,
	BY_ALIGNED_ALLOC,
	BY_MEMALIGN,
	BY_VALLOC,
	BY_PVALLOC,
	BY_STRNDUP,
	ENTRIES,
};

static const char *const entry_names[ENTRIES] = {
	"by_malloc",	    "by_calloc",   "by_realloc", "by_reallocarray", "by_posix_memalign",
	"by_aligned_alloc", "by_memalign", "by_valloc",	 "by_pvalloc",	    "by_strndup",
};

struct block {
	void *address;
	size_t bytes;
	size_t slack;
	uint32_t stack; /* path * ENTRIES + entry, of the allocation */
};

struct account {
	_Atomic uint64_t alloc_bytes, alloc_objects, free_bytes, free_objects, slack_bytes;
};

struct slot {
	atomic_flag taken;
	struct block block; /* address NULL: empty */
};

/* Everything that changes while threads run, outside the allocator's memory. */
struct shared {
	struct account accounts[PATHS * ENTRIES][DIGITS_MAX]; /* by stack and size */
	struct slot slots[SLOTS];
};

static struct shared *shared;
static char paths[PATHS][PATH_MAX_HOPS + 1]; /* digits 0 .. HOPS - 1 */
static uint64_t seed;
static long event_count;
static uint64_t bytes_max = 2000;
static char long_text[4096];

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t random_state(uint64_t stream)
{
	uint64_t state =
		(seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + stream * UINT64_C(0xbf58476d1ce4e5b9);

	state |= 1;
	for (int i = 0; i < 8; i++)
		next_random(&state);
	return state;
}

/* The ends of every path: each calls one entry point. ${old} is for realloc alone. */

static SITE void *by_malloc(void *old, size_t bytes)
{
	(void)old;
	void *block = malloc(bytes);
	KEEP(block);
	return block;
}

static SITE void *by_calloc(void *old, size_t bytes)
{
	(void)old;
	void *block = calloc(bytes, 1);
	KEEP(block);
	return block;
}

static SITE void *by_realloc(void *old, size_t bytes)
{
	void *block = realloc(old, bytes);

	KEEP(block);
	return block;
}

static SITE void *by_reallocarray(void *old, size_t bytes)
{
	void *block = reallocarray(old, 1, bytes);

	KEEP(block);
	return block;
}

static SITE void *by_posix_memalign(void *old, size_t bytes)
{
	(void)old;
	void *block = NULL;
	REQUIRE(!posix_memalign(&block, 128, bytes));
	KEEP(block);
	return block;
}

static SITE void *by_aligned_alloc(void *old, size_t bytes)
{
	(void)old;
	void *block = aligned_alloc(32, bytes);
	KEEP(block);
	return block;
}

static SITE void *by_memalign(void *old, size_t bytes)
{
	(void)old;
	void *block = memalign(512, bytes);
	KEEP(block);
	return block;
}

static SITE void *by_valloc(void *old, size_t bytes)
{
	(void)old;
	void *block = valloc(bytes);
	KEEP(block);
	return block;
}

/* jemalloc has no pvalloc(): glibc's would return a block that is not jemalloc's. */
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static SITE void *by_pvalloc(void *old, size_t bytes)
{
	(void)old;
	void *block = mallctl ? valloc(bytes) : pvalloc(bytes);
	KEEP(block);
	return block;
}

static SITE void *by_strndup(void *old, size_t bytes)
{
	(void)old;
	char *text = strndup(long_text, bytes - 1);
	KEEP(text);
	return text;
}

static void *(*const entries[ENTRIES])(void *, size_t) = {
	by_malloc,	  by_calloc,   by_realloc, by_reallocarray, by_posix_memalign,
	by_aligned_alloc, by_memalign, by_valloc,  by_pvalloc,	    by_strndup,
};

struct call {
	enum entry entry;
	void *old;
	size_t bytes;
};

static void *follow(const char *path, const struct call *call);

/* Each hop has a frame of another size, so that stacks differ in more than return addresses. */
#define HOP(number)                                                               \
	static SITE void *hop_##number(const char *path, const struct call *call) \
	{                                                                         \
		char room[16 + 40 * number];                                      \
		KEEP(room);                                                       \
		void *block = follow(path + 1, call);                             \
		KEEP(room);                                                       \
		return block;                                                     \
	}

HOP(0)
HOP(1)
HOP(2)
HOP(3)
HOP(4)
HOP(5)

static void *(*const hops[HOPS])(const char *, const struct call *) = {
	hop_0, hop_1, hop_2, hop_3, hop_4, hop_5,
};

static inline __attribute__((always_inline)) void *follow(const char *path, const struct call *call)
{
	if (*path)
		return hops[*path - '0'](path, call);
	return entries[call->entry](call->old, call->bytes);
}

static struct account *account_of(const struct block *block)
{
	int digits = 64 - __builtin_clzl(block->bytes);

	return &shared->accounts[block->stack][digits];
}

static void account_alloc(const struct block *block)
{
	struct account *account = account_of(block);

	account->alloc_bytes += block->bytes;
	account->alloc_objects++;
	account->slack_bytes += block->slack;
}

static void account_free(const struct block *block)
{
	struct account *account = account_of(block);

	account->free_bytes += block->bytes;
	account->free_objects++;
	account->slack_bytes -= block->slack;
}

/* Small sizes mostly, some odd ones, now and then one that glibc maps by itself. */
static size_t random_size(uint64_t *state, enum entry entry)
{
	uint64_t kind = next_random(state) % 1000, bytes = next_random(state) % bytes_max + 1;

	if (entry == BY_STRNDUP)
		return bytes % (sizeof(long_text) - 1) + 1;
	if (kind < 2)
		return 150000 + bytes;
	return kind < 400 ? bytes % 128 + 1 : bytes;
}

/* Allocates at a random stack; ${old}, if any, is handed to realloc or freed. */
static struct block replace(uint64_t *state, struct block old)
{
	uint32_t path = (uint32_t)(next_random(state) % PATHS);
	enum entry entry = (enum entry)(next_random(state) % ENTRIES);
	struct call call = {.entry = entry, .bytes = random_size(state, entry)};
	struct block fresh = {.bytes = call.bytes, .stack = path * ENTRIES + entry};

	if (old.address)
		account_free(&old);
	if (entry == BY_REALLOC || entry == BY_REALLOCARRAY)
		call.old = old.address;
	else
		free(old.address);
	fresh.address = follow(paths[path], &call);
	REQUIRE(fresh.address);
	memset(fresh.address, 0x5a, fresh.bytes < 64 ? fresh.bytes : 64);
	fresh.slack = malloc_usable_size(fresh.address) - fresh.bytes;
	account_alloc(&fresh);
	return fresh;
}

static void *worker(void *argument)
{
	uint64_t state = random_state((uint64_t)(uintptr_t)argument + 1);

	for (long i = 0; i < event_count; i++) {
		struct slot *slot = &shared->slots[next_random(&state) % SLOTS];
		bool only_free = next_random(&state) % 4 == 0;

		if (atomic_flag_test_and_set_explicit(&slot->taken, memory_order_acquire))
			continue;
		if (!only_free) {
			slot->block = replace(&state, slot->block);
		} else if (slot->block.address) {
			account_free(&slot->block);
			free(slot->block.address);
			slot->block.address = NULL;
		}
		atomic_flag_clear_explicit(&slot->taken, memory_order_release);
	}
	return NULL;
}

static void choose_paths(void)
{
	uint64_t state = random_state(0);

	for (int p = 0; p < PATHS; p++) {
		unsigned length = (unsigned)(next_random(&state) % PATH_MAX_HOPS) + 1;
		for (unsigned i = 0; i < length; i++)
			paths[p][i] = (char)('0' + next_random(&state) % HOPS);
	}
	memset(long_text, 'x', sizeof(long_text) - 1);
}

static void print_account(int stack, int digits, const struct account *account)
{
	if (!account->alloc_objects)
		return;
	for (const char *hop = paths[stack / ENTRIES]; *hop; hop++)
		printf("hop_%c;", *hop);
	printf("%s", entry_names[stack % ENTRIES]);
	if (digits)
		printf(";%d", digits);
	printf(" %lu %lu %lu %lu %lu\n", account->alloc_bytes, account->alloc_objects,
	       account->alloc_bytes - account->free_bytes,
	       account->alloc_objects - account->free_objects, account->slack_bytes);
}

static void add(struct account *sum, const struct account *more)
{
	sum->alloc_bytes += more->alloc_bytes;
	sum->alloc_objects += more->alloc_objects;
	sum->free_bytes += more->free_bytes;
	sum->free_objects += more->free_objects;
	sum->slack_bytes += more->slack_bytes;
}

static void print_stack(int stack, bool by_size)
{
	struct account sum = {0};

	for (int digits = 1; digits < DIGITS_MAX; digits++) {
		add(&sum, &shared->accounts[stack][digits]);
		if (by_size)
			print_account(stack, digits, &shared->accounts[stack][digits]);
	}
	if (!by_size)
		print_account(stack, 0, &sum);
}

int main(int argc, char **argv)
{
	pthread_t ids[THREADS_MAX];

	REQUIRE(argc >= 4);
	seed = strtoull(argv[1], NULL, 10);
	int threads = atoi(argv[2]);
	event_count = atol(argv[3]);
	if (argc > 4)
		bytes_max = strtoull(argv[4], NULL, 10);
	bool by_size = argc > 5 && !strcmp(argv[5], "by-size");
	REQUIRE(threads >= 1 && threads <= THREADS_MAX && bytes_max);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	REQUIRE(shared != MAP_FAILED);
	choose_paths();

	for (long i = 0; i < threads; i++)
		REQUIRE(!pthread_create(&ids[i], NULL, worker, (void *)i));
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (int stack = 0; stack < PATHS * ENTRIES; stack++)
		print_stack(stack, by_size);
	return 0;
}
