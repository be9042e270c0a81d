/* SPDX-License-Identifier: BSD-2-Clause */
/* The array of the block table while threads hand blocks over to each other, is read from outside meanwhile, or is left by a kill. */
#include "heap/owners/owner_table.h"
#include "recorder/block.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* A forked child shares the table. */
#define MAPS_MAX 16

static struct {
	void *address;
	size_t bytes;
} maps[MAPS_MAX];
static _Atomic size_t map_count;

void *__wrap_hl_private_map_new_whole(size_t bytes);
void *__wrap_hl_private_map_new_whole(size_t bytes)
{
	size_t at = atomic_fetch_add(&map_count, 1);
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at >= MAPS_MAX || address == MAP_FAILED)
		abort();
	maps[at].address = address;
	maps[at].bytes = bytes;
	return address;
}

/* Of two threads that make one at once, one gives it back; another mapping may lie there by the end. */
void __wrap_hl_private_map_free_whole(void *address, size_t bytes);
void __wrap_hl_private_map_free_whole(void *address, size_t bytes)
{
	for (size_t i = 0; i < map_count; i++)
		if (maps[i].address == address)
			maps[i].bytes = 0;
	munmap(address, bytes);
}

static void release_maps(void)
{
	for (size_t i = 0; i < map_count; i++)
		if (maps[i].bytes)
			munmap(maps[i].address, maps[i].bytes);
	map_count = 0;
}

#define HEAP	UINT64_C(0x100000000000)
#define SLOTS	(1u << 15)
#define THREADS 4
#define ROUNDS	150000u
#define KILLS	200
#define NODES	5000u

/* Blocks of an allocator that begins them 32 bytes apart; of one that may begin two in a granule; and objects, of which those of
 * one step may. */
enum kind { CHUNKS, SHARED, OBJECTS, KIND_COUNT };

static uintptr_t address_of(enum kind kind, uint32_t slot)
{
	uint32_t half = kind == CHUNKS ? slot % 3 == 0 : slot % 2;

	return HEAP + (kind == CHUNKS ? slot : slot / 2) * UINT64_C(32) + half * UINT64_C(16);
}

/* What a block was asked for follows from its node, so that what is read of both can be judged. */
static uint64_t slack_of(uint32_t node)
{
	return node * UINT64_C(37) % (HL_BLOCK_SLACK_MAX + 1);
}

static uint64_t object_of(uint32_t node)
{
	return 1 + node * UINT64_C(7) % 16;
}

static void set(struct hl_block_table *table, enum kind kind, uint32_t slot, uint32_t node)
{
	uintptr_t address = address_of(kind, slot);
	hl_block_entry *entry = hl_block_entry_make(table, (void *)address);
	bool is_set = true;

	if (!entry)
		abort();
	if (kind == CHUNKS)
		atomic_store_explicit(entry, hl_block_word(address, node, slack_of(node)),
				      memory_order_relaxed);
	else if (kind == SHARED)
		is_set = hl_block_set_shared(table, (void *)address, node, slack_of(node));
	else
		is_set = hl_block_object_set(table, entry, (void *)address, node, object_of(node));
	if (!is_set)
		abort();
}

/* Its node, or 0. */
static uint32_t take(struct hl_block_table *table, enum kind kind, uint32_t slot)
{
	struct hl_block found;

	if (!hl_block_take(table, (void *)address_of(kind, slot), 1000, &found))
		return 0;
	bool is_sound = found.requested ==
			(kind == OBJECTS ? object_of(found.node) : 1000 - slack_of(found.node));
	return is_sound ? found.node : UINT32_MAX;
}

static void init(struct hl_block_table *table)
{
	assert_true(hl_block_table_init(table));
	assert_non_null(hl_block_table_add_array(table));
}

/* ---- blocks that are handed over ---- */

static struct {
	_Atomic uint32_t taken;
	uint32_t node; /* 0: no block */
} slots[SLOTS];

struct worker {
	struct hl_block_table *table;
	enum kind kind;
	unsigned seed;
	uint32_t wrong;
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t slot = (uint32_t)rand_r(&worker->seed) % SLOTS;
		if (atomic_exchange_explicit(&slots[slot].taken, 1, memory_order_acquire))
			continue;
		if (slots[slot].node) {
			worker->wrong +=
				take(worker->table, worker->kind, slot) != slots[slot].node;
			slots[slot].node = 0;
		} else {
			slots[slot].node = 1 + (uint32_t)rand_r(&worker->seed) % NODES;
			set(worker->table, worker->kind, slot, slots[slot].node);
		}
		atomic_store_explicit(&slots[slot].taken, 0, memory_order_release);
	}
	return NULL;
}

struct reading {
	enum kind kind;
	uint64_t last;
	size_t count, unsound;
};

static int judge(void *context, const struct hl_listed_block *block)
{
	struct reading *reading = context;
	bool is_sound = block->node && block->node <= NODES && block->address > reading->last &&
			block->has_size == (reading->kind == OBJECTS) &&
			(block->has_size ? block->requested == object_of(block->node)
					 : block->slack == slack_of(block->node));

	reading->last = block->address;
	reading->unsound += !is_sound;
	reading->count++;
	return 0;
}

/* An emulator may have no process_vm_readv(): there, threads hand over blocks that nobody reads. */
static bool nothing_reads_processes(void)
{
	return process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) < 0 && errno == ENOSYS;
}

static void read_all(const struct hl_block_table *table, struct reading *reading)
{
	struct hl_block_reader *reader;

	reading->last = 0;
	if (nothing_reads_processes())
		return;
	assert_int_equal(hl_block_reader_new(getpid(), NULL, (uintptr_t)table->array,
					     (uintptr_t)table->hash, &reader),
			 0);
	assert_int_equal(hl_block_reader_each(reader, judge, reading), 0);
	hl_block_reader_free(reader);
}

static void blocks_are_handed_over_and_read_meanwhile(void **state)
{
	(void)state;
	for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
		struct hl_block_table table;
		struct worker workers[THREADS];
		struct reading reading = {.kind = kind};
		pthread_t threads[THREADS];
		size_t live = 0;
		init(&table);
		for (unsigned i = 0; i < THREADS; i++) {
			workers[i] = (struct worker){&table, kind, i + 1, 0};
			assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
		}
		for (int i = 0; i < 20; i++)
			read_all(&table, &reading);
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(workers[i].wrong, 0);
		}
		assert_int_equal(reading.unsound, 0);
		reading.count = 0;
		read_all(&table, &reading);
		for (uint32_t i = 0; i < SLOTS; i++) {
			live += slots[i].node != 0;
			assert_int_equal(take(&table, kind, i), slots[i].node);
			slots[i].node = 0;
		}
		assert_int_equal(reading.count, nothing_reads_processes() ? 0 : live);
		assert_int_equal(reading.unsound, 0);
		release_maps();
	}
}

/* ---- kills ---- */

struct victim {
	struct hl_block_table table;
	enum kind kind;
	_Atomic uint32_t
		lives[SLOTS]; /* nodes: written before a block is set, cleared after it is taken */
};

struct half {
	struct victim *victim;
	uint32_t number;
};

/* Each thread has every second slot, so that two share each granule. */
static void *live(void *argument)
{
	const struct half *half = argument;
	struct victim *victim = half->victim;
	unsigned seed = (unsigned)getpid() + half->number;

	for (;;) {
		uint32_t slot = ((uint32_t)rand_r(&seed) % SLOTS & ~1u) | half->number;
		uint32_t node = victim->lives[slot];
		if (node) {
			if (take(&victim->table, victim->kind, slot) != node)
				_exit(9);
			victim->lives[slot] = 0;
		} else {
			node = 1 + (uint32_t)rand_r(&seed) % NODES;
			victim->lives[slot] = node;
			set(&victim->table, victim->kind, slot, node);
		}
	}
	return NULL;
}

static void kill_in_passing(struct victim *victim)
{
	struct half halves[2] = {{victim, 0}, {victim, 1}};
	pthread_t thread;
	int status;

	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (pthread_create(&thread, NULL, live, &halves[1]))
			_exit(1);
		live(&halves[0]);
	}
	nanosleep(&(struct timespec){.tv_nsec = 1000000 + rand() % 4000000}, NULL);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
}

static void
a_kill_leaves_right_entries_and_at_most_one_event_of_each_thread_is_missing(void **state)
{
	(void)state;
	struct victim *victim = mmap(NULL, sizeof(*victim), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t left = 0;

	assert_ptr_not_equal(victim, MAP_FAILED);
	for (int i = 0; i < KILLS; i++) {
		uint32_t in_flight = 0;
		victim->kind = (enum kind)(i % KIND_COUNT);
		init(&victim->table);
		/* What the child maps is gone with it. */
		for (uint32_t plane = 0; plane < HL_BLOCK_PLANES; plane++)
			assert_non_null(hl_block_array_make(victim->table.array, plane, HEAP));
		kill_in_passing(victim);
		for (uint32_t slot = 0; slot < SLOTS; slot++) {
			uint32_t node = take(&victim->table, victim->kind, slot);
			assert_true(!node || node == victim->lives[slot]);
			in_flight += node != victim->lives[slot];
			left += node != 0;
			victim->lives[slot] = 0;
		}
		assert_in_range(in_flight, 0, 2);
		release_maps();
	}
	assert_true(left > 0);
	munmap(victim, sizeof(*victim));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_handed_over_and_read_meanwhile),
		cmocka_unit_test(
			a_kill_leaves_right_entries_and_at_most_one_event_of_each_thread_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
