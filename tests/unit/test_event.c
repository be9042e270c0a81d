/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters and the peak, against a ledger: events of made-up stacks and of blocks of a made-up
 * allocator, by several threads, in every mode, and with every want of memory in turn.
 */
#include "recorder/event.h"

#include "base/frame_key.h"
#include "log/ring_reader.h"
#include "recorder/libc.h"
#include "recorder/node.h"
#include "recorder/recall_check.h"
#include "recorder/sample.h"
#include "recorder/sys.h"
#include "recorder/thread.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_region.h"

/* ---- what stands in for the rest of the process ---- */

#define STACKS 300u

/* A stack is the number in caller->pc: an outer frame of one of seven, an inner one of its own. No
 * frame has the key 0, which is that of a node not yet published. */
static uint64_t frame_of_stack(uint64_t stack)
{
	return stack + 1;
}

uint32_t __wrap_hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
				const struct hl_registers *at);
uint32_t __wrap_hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
				const struct hl_registers *at)
{
	(void)unwind;
	walk->depth = 2;
	walk->frames[0].key = 0x1000 + at->pc % 7;
	walk->frames[1].key = frame_of_stack(at->pc);
	return 0;
}

struct hl_recall_slot *__wrap_hl_recall_keep(void);
struct hl_recall_slot *__wrap_hl_recall_keep(void)
{
	return NULL;
}

/* The made-up allocator rounds up to 16, and each size has addresses of its own. */
static size_t usable_size(void *block)
{
	return ((uintptr_t)block >> 4 & 0xff) * 16 + 16;
}

static uint64_t requested_of(const void *block)
{
	return usable_size((void *)block) - ((uintptr_t)block >> 12) % 16;
}

/* The memory that is refused: the request with this number and all that follow, or that alone; 0 =
 * none. */
static _Atomic uint64_t refuse_from, requests;
static bool refuse_one;

static bool is_refused(void)
{
	uint64_t number = atomic_fetch_add(&requests, 1) + 1;
	uint64_t from = atomic_load(&refuse_from);

	return from && (refuse_one ? number == from : number >= from);
}

/* By libc, where the thread sanitizer sees that an address is another's now. */
void *__wrap_hl_sys_mmap(size_t bytes, int protection, int flags, int fd);
void *__wrap_hl_sys_mmap(size_t bytes, int protection, int flags, int fd)
{
	void *address = is_refused() ? MAP_FAILED : mmap(NULL, bytes, protection, flags, fd, 0);

	return address == MAP_FAILED ? NULL : address;
}

long __wrap_hl_sys_munmap(void *address, size_t bytes);
long __wrap_hl_sys_munmap(void *address, size_t bytes)
{
	return munmap(address, bytes);
}

long __real_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice)
{
	return is_refused() ? -ENOMEM : __real_hl_sys_madvise(address, bytes, advice);
}

static struct hl_recorder *recorder;

static void start(enum hl_mode mode)
{
	atomic_store(&refuse_from, 0);
	refuse_one = false;
	recorder = aligned_alloc(_Alignof(struct hl_recorder), sizeof(*recorder));
	memset(recorder, 0, sizeof(*recorder));
	recorder->region = test_region_new(0);
	atomic_store(&recorder->region.header->mode, hl_mode_first(mode));
	recorder->modules.region = &recorder->region;
	hl_libc.usable_size = usable_size;
	assert_true(hl_node_init(&recorder->region));
	assert_true(hl_block_table_init(&recorder->blocks));
	atomic_store(&recorder->phase, HL_PHASE_RUNNING);
	hl_recorder = recorder;
}

static void stop_recorder(void)
{
	atomic_store(&refuse_from, 0);
	if (hl_thread_self())
		hl_thread_end(hl_thread_self());
	hl_recorder = NULL;
	test_region_free(&recorder->region);
	free(recorder);
}

/* ---- events ---- */

static const void *block_at(uint32_t thread, uint32_t place)
{
	return (const void *)(UINT64_C(0x100000000) * (thread + 1) + place * UINT64_C(4096) +
			      place % 256 * 16);
}

static void alloc_event(const void *block, uint64_t stack)
{
	if (hl_sample_passes(requested_of(block)))
		return; /* as a hook does */
	struct hl_thread *thread = hl_thread_enter();
	if (!thread) {
		hl_event_nested_alloc(requested_of(block));
		return;
	}
	const struct hl_registers caller = {.pc = stack};
	hl_event_alloc(thread, block, requested_of(block), &caller,
		       hl_event_locate(thread, &caller));
	hl_thread_leave(thread);
}

static void free_event(const void *block)
{
	struct hl_thread *thread = hl_thread_enter();

	if (!thread) {
		hl_event_nested_free(block);
		return;
	}
	if (!hl_event_free_plain(thread, block))
		hl_event_free(thread, block);
	hl_thread_leave(thread);
}

/* ---- what the region says ---- */

struct sums {
	uint64_t alloc_bytes[STACKS], alloc_objects[STACKS];
	uint64_t free_bytes[STACKS], free_objects[STACKS];
	int64_t slack_bytes, inuse_bytes, peak_bytes;
};

static struct sums sums;
static struct hl_cell class_sums[STACKS][HL_SIZE_CLASS_COUNT]; /* where sizes are told apart */

static void add_to_class(const struct hl_cell *cell, struct hl_cell *sum)
{
	sum->alloc_bytes += cell->alloc_bytes;
	sum->alloc_objects += cell->alloc_objects;
	sum->free_bytes += cell->free_bytes;
	sum->free_objects += cell->free_objects;
	sum->temporary_objects += cell->temporary_objects;
	sum->slack_bytes += cell->slack_bytes;
}

static void add_cell(const struct hl_cell *cell, uint32_t peak_epoch)
{
	const struct hl_region_node *node = &recorder->region.nodes[cell->node];
	uint64_t frame = atomic_load(&node->frame);
	uint32_t size_class;

	bool classed = hl_frame_key_is_size(frame, &size_class);
	if (classed)
		frame = atomic_load(&recorder->region.nodes[node->parent].frame);
	uint64_t stack = frame - frame_of_stack(0);
	assert_true(stack < STACKS);
	if (classed)
		add_to_class(cell, &class_sums[stack][size_class]);
	sums.alloc_bytes[stack] += cell->alloc_bytes;
	sums.alloc_objects[stack] += cell->alloc_objects;
	sums.free_bytes[stack] += cell->free_bytes;
	sums.free_objects[stack] += cell->free_objects;
	sums.slack_bytes += cell->slack_bytes;
	int64_t inuse = (int64_t)(cell->alloc_bytes - cell->free_bytes);
	sums.inuse_bytes += inuse;
	sums.peak_bytes += cell->epoch == peak_epoch ? cell->at_peak_bytes : inuse;
}

static void add_up(void)
{
	assert_null(test_region_check(&recorder->region));
	memset(&sums, 0, sizeof(sums));
	memset(class_sums, 0, sizeof(class_sums));
	uint32_t epoch = atomic_load(&recorder->region.header->peak_epoch);
	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->chunk_count); i++)
		for (uint32_t j = 0; j < atomic_load(&recorder->region.chunks[i].used); j++)
			add_cell(&recorder->region.chunks[i].cells[j], epoch);
}

static uint64_t lost_events(void)
{
	uint64_t lost = atomic_load(&recorder->region.header->lost.events);

	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->thread_count); i++)
		lost += recorder->region.threads[i].lost.events;
	return lost;
}

/* ---- one thread ---- */

#define PLACES 5000u

static void the_peak_is_the_maximum_and_its_nodes_are_those_of_that_moment(void **state)
{
	(void)state;
	start(HL_MODE_MEM_FAST);
	bool live[PLACES] = {false};
	int64_t inuse = 0, maximum = 0;
	srand(3);
	for (uint32_t i = 0; i < 400000; i++) {
		/* Grows, falls to a third, grows again: the maximum is long past in the end. */
		uint32_t reach = i < 150000 ? i / 30 + 1 : PLACES / 3;
		uint32_t place = (uint32_t)rand() % reach;
		const void *block = block_at(0, place);
		if (live[place])
			free_event(block);
		else
			alloc_event(block, place % STACKS);
		live[place] = !live[place];
		inuse += live[place] ? (int64_t)requested_of(block) : -(int64_t)requested_of(block);
		maximum = inuse > maximum ? inuse : maximum;
	}
	add_up();
	assert_true(sums.inuse_bytes == inuse);
	int64_t mark = (int64_t)atomic_load(&recorder->region.header->peak_mark);
	assert_true(sums.peak_bytes == mark);
	assert_true(mark <= maximum && mark >= maximum - maximum / 100);
	assert_int_equal(lost_events(), 0);
	stop_recorder();
}

static void in_closed_mode_only_frees_count(void **state)
{
	(void)state;
	start(HL_MODE_MEM_RECORD);
	alloc_event(block_at(0, 1), 1);
	atomic_store(&recorder->region.header->mode, HL_MODE_CLOSED);
	alloc_event(block_at(0, 2), 1);
	free_event(block_at(0, 1));
	free_event(block_at(0, 2));
	add_up();
	assert_int_equal(sums.alloc_objects[1], 1);
	assert_int_equal(sums.free_objects[1], 1);
	assert_int_equal(recorder->region.threads[0].lost.unmatched_frees, 0);
	assert_int_equal(lost_events(), 0);
	stop_recorder();
}

static void allocations_of_new_stacks_are_lost_and_counted_when_all_nodes_are_taken(void **state)
{
	uint64_t lost_bytes = 0;

	(void)state;
	start(HL_MODE_MEM_FAST);
	alloc_event(block_at(0, 1), 1);
	struct hl_region_header *header = recorder->region.header;
	uint32_t count = atomic_load(&header->node_count);
	atomic_store(&header->node_count, HL_NODE_MAX);
	for (uint32_t i = 2; i < 12; i++)
		alloc_event(block_at(0, i), i);
	alloc_event(block_at(0, 12), 1);
	for (uint32_t i = 2; i < 12; i++)
		free_event(block_at(0, i));
	atomic_store(&header->node_count, count);
	for (uint32_t i = 0; i < atomic_load(&header->thread_count); i++)
		lost_bytes += recorder->region.threads[i].lost.bytes;
	add_up();
	assert_int_equal(sums.alloc_objects[1], 2);
	assert_true(sums.inuse_bytes ==
		    (int64_t)(requested_of(block_at(0, 1)) + requested_of(block_at(0, 12))));
	assert_int_equal(lost_events(), 10);
	for (uint32_t i = 2; i < 12; i++)
		lost_bytes -= requested_of(block_at(0, i));
	assert_int_equal(lost_bytes, 0);
	stop_recorder();
}

static void frees_by_handlers_inside_the_recorder_are_counted_when_it_is_left(void **state)
{
	(void)state;
	start(HL_MODE_MEM_FAST);
	for (uint32_t i = 0; i < HL_PENDING_MAX + 2; i++)
		alloc_event(block_at(0, i), 1);
	struct hl_thread *thread = hl_thread_enter();
	assert_null(hl_thread_enter());
	for (uint32_t i = 0; i < HL_PENDING_MAX + 2; i++)
		hl_event_nested_free(block_at(0, i));
	hl_event_nested_alloc(100);
	hl_thread_leave(thread);
	add_up();
	assert_int_equal(sums.free_objects[1], HL_PENDING_MAX);
	assert_int_equal(lost_events(), 3);
	stop_recorder();
}

static void frees_by_handlers_while_the_thread_ends_are_counted(void **state)
{
	(void)state;
	start(HL_MODE_MEM_FAST);
	alloc_event(block_at(0, 1), 1);
	struct hl_thread *thread = hl_thread_enter();
	hl_event_nested_free(block_at(0, 1));
	hl_thread_end(thread);
	add_up();
	assert_int_equal(sums.free_objects[1], 1);
	assert_int_equal(lost_events(), 0);
	assert_int_equal(atomic_load(&recorder->region.header->inuse_bytes), 0);
	stop_recorder();
}

/* ---- comparing recalled stacks ---- */

/* With the mask: abort() may leave SIGABRT blocked while its handler runs. */
static sigjmp_buf aborted;

static void on_abort(int signal)
{
	(void)signal;
	siglongjmp(aborted, 1);
}

/* Whether comparing the stack ${stack} as node ${node} ends the program; what it wrote is in
 * ${ret_text}. */
static bool check_ends(uint64_t stack, uint32_t node, char *ret_text, size_t capacity)
{
	int ends[2], stderr_copy = dup(2);

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], 2);
	signal(SIGABRT, on_abort);
	bool ended = sigsetjmp(aborted, true);
	if (!ended)
		hl_recall_check(recorder, hl_thread_self(), &(struct hl_registers){.pc = stack},
				node, false);
	signal(SIGABRT, SIG_DFL);
	dup2(stderr_copy, 2);
	close(stderr_copy);
	close(ends[1]);
	ssize_t bytes = read(ends[0], ret_text, capacity - 1);
	close(ends[0]);
	ret_text[bytes > 0 ? bytes : 0] = '\0';
	return ended;
}

static void a_recalled_stack_that_is_not_the_walked_one_ends_the_program(void **state)
{
	(void)state;
	char text[1024];
	start(HL_MODE_MEM_FAST);
	alloc_event(block_at(0, 1), 3);
	uint32_t node = recorder->region.chunks[0].cells[0].node;
	hl_recall_check_every = 2;
	for (unsigned i = 0; i < 4; i++)
		assert_false(check_ends(3, node, text, sizeof(text)));
	assert_false(check_ends(4, node, text, sizeof(text))); /* not its turn */
	assert_true(check_ends(4, node, text, sizeof(text)));
	assert_non_null(strstr(text, "recalled 0000000000000004 0000000000001003; walked "
				     "0000000000000005 0000000000001004\n"));
	assert_false(check_ends(3, node, text, sizeof(text)));
	assert_true(check_ends(3, recorder->region.nodes[node].parent, text, sizeof(text)));
	hl_recall_check_every = 0;
	stop_recorder();
}

static void refuse_memory_in_turn(bool sizes)
{
	uint64_t needed = UINT64_MAX;

	for (uint64_t from = 0; from < needed; from++) {
		start(HL_MODE_MEM_FAST);
		recorder->sizes = sizes;
		atomic_store(&requests, 0);
		atomic_store(&refuse_from, from);
		for (uint32_t i = 0; i < 900; i++)
			alloc_event(block_at(i % 3, i), i % STACKS);
		for (uint32_t i = 0; i < 900; i += 2)
			free_event(block_at(i % 3, i));
		if (from == 0)
			needed = atomic_load(&requests) + 1;
		add_up();
		uint64_t allocated = 0, freed = 0;
		for (uint32_t i = 0; i < STACKS; i++) {
			assert_true(sums.free_bytes[i] <= sums.alloc_bytes[i]);
			allocated += sums.alloc_objects[i];
			freed += sums.free_objects[i];
		}
		assert_true(allocated + lost_events() >= 900 && allocated <= 900 && freed <= 450);
		assert_true(from ? lost_events() > 0 || from == needed : lost_events() == 0);
		stop_recorder();
	}
	assert_true(needed > 5);
}

static void whatever_memory_is_refused_figures_stay_consistent(void **state)
{
	(void)state;
	refuse_memory_in_turn(false);
}

static void whatever_memory_is_refused_figures_by_size_stay_consistent(void **state)
{
	(void)state;
	refuse_memory_in_turn(true);
}

/* ---- modes ---- */

#define MODE_THREADS	 4u
#define MODE_PLACES	 3000u
#define EVENTS_OF_A_MODE 700u /* of each thread, before the next switch */

/* A block that may be. Whoever has `taken` it allocates it or frees it. */
struct place {
	atomic_flag taken;
	bool live, recorded;
};

/* What threads do by themselves, to be compared with the counters. */
struct mode_ledger {
	struct place places[MODE_PLACES];
	_Atomic uint64_t alloc_bytes[STACKS], alloc_objects[STACKS];
	_Atomic uint64_t free_bytes[STACKS], free_objects[STACKS];
	_Atomic uint64_t unmatched, events;
	/* Held for writing while HL_MODE_CLOSED begins and ends: an event is in it or is not. */
	pthread_rwlock_t gate;
	bool closed;
	_Atomic bool stop;
};

static void step_in_mode(struct mode_ledger *ledger, struct place *place, uint32_t number)
{
	const void *block = block_at(number % 7, number);
	uint32_t stack = number % STACKS;

	pthread_rwlock_rdlock(&ledger->gate);
	if (!place->live) {
		place->recorded = !ledger->closed;
		alloc_event(block, stack);
		ledger->alloc_bytes[stack] += place->recorded ? requested_of(block) : 0;
		ledger->alloc_objects[stack] += place->recorded;
	} else {
		free_event(block);
		ledger->free_bytes[stack] += place->recorded ? requested_of(block) : 0;
		ledger->free_objects[stack] += place->recorded;
		ledger->unmatched += !place->recorded && !ledger->closed;
	}
	place->live = !place->live;
	pthread_rwlock_unlock(&ledger->gate);
	ledger->events++;
}

static void *allocate_in_any_mode(void *argument)
{
	struct mode_ledger *ledger = argument;
	unsigned seed = (unsigned)(uintptr_t)&seed;

	while (!atomic_load(&ledger->stop)) {
		uint32_t number = (uint32_t)rand_r(&seed) % MODE_PLACES;
		struct place *place = &ledger->places[number];
		if (atomic_flag_test_and_set(&place->taken))
			continue;
		step_in_mode(ledger, place, number);
		atomic_flag_clear(&place->taken);
	}
	if (hl_thread_self())
		hl_thread_end(hl_thread_self());
	return NULL;
}

static void switch_mode(struct mode_ledger *ledger, enum hl_mode to)
{
	_Atomic uint32_t *mode = &recorder->region.header->mode;
	bool gated = ledger->closed || to == HL_MODE_CLOSED;

	if (gated)
		pthread_rwlock_wrlock(&ledger->gate);
	hl_mode_switch(mode, to);
	if (gated) {
		ledger->closed = to == HL_MODE_CLOSED;
		pthread_rwlock_unlock(&ledger->gate);
	}
	uint64_t until = atomic_load(&ledger->events) + MODE_THREADS * EVENTS_OF_A_MODE;
	while (atomic_load(&ledger->events) < until)
		usleep(200);
}

static void assert_counters_are_those_of(const struct mode_ledger *ledger)
{
	uint64_t unmatched = 0;

	add_up();
	for (uint32_t i = 0; i < STACKS; i++) {
		assert_int_equal(sums.alloc_bytes[i], ledger->alloc_bytes[i]);
		assert_int_equal(sums.alloc_objects[i], ledger->alloc_objects[i]);
		assert_int_equal(sums.free_bytes[i], ledger->free_bytes[i]);
		assert_int_equal(sums.free_objects[i], ledger->free_objects[i]);
		assert_true(sums.alloc_objects[i] > 0);
	}
	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->thread_count); i++)
		unmatched += recorder->region.threads[i].lost.unmatched_frees;
	assert_int_equal(unmatched, ledger->unmatched);
	assert_true(unmatched > 0);
	assert_int_equal(lost_events(), 0);
}

static void whatever_mode_follows_which_counters_are_those_of_the_ledger(void **state)
{
	(void)state;
	struct mode_ledger *ledger = calloc(1, sizeof(*ledger));
	pthread_t threads[MODE_THREADS];
	start(HL_MODE_CLOSED);
	atomic_store(&recorder->region.header->flags, HL_REGION_LOSSY); /* nobody reads the rings */
	ledger->closed = true;
	pthread_rwlockattr_t attributes;
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&ledger->gate, &attributes);
	for (uint32_t i = 0; i < MODE_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, allocate_in_any_mode, ledger),
				 0);
	for (enum hl_mode from = 0; from < HL_MODE_COUNT; from++)
		for (enum hl_mode to = 0; to < HL_MODE_COUNT; to++) {
			switch_mode(ledger, from);
			switch_mode(ledger, to);
		}
	atomic_store(&ledger->stop, true);
	for (uint32_t i = 0; i < MODE_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_counters_are_those_of(ledger);
	stop_recorder();
	pthread_rwlock_destroy(&ledger->gate);
	free(ledger);
}

/* ---- size classes ---- */

static struct hl_cell class_ledger[STACKS][HL_SIZE_CLASS_COUNT];

static struct hl_cell *account_of(const void *block, uint64_t stack)
{
	return &class_ledger[stack][hl_size_class(requested_of(block))];
}

static void note_class(const void *block, uint64_t stack, bool freed, bool temporary)
{
	struct hl_cell *account = account_of(block, stack);
	int64_t slack = (int64_t)(usable_size((void *)block) - requested_of(block));

	*(freed ? &account->free_bytes : &account->alloc_bytes) += requested_of(block);
	*(freed ? &account->free_objects : &account->alloc_objects) += 1;
	account->slack_bytes += freed ? -slack : slack;
	account->temporary_objects += temporary;
}

static void assert_classes_are_those_of_the_ledger(void)
{
	for (uint32_t stack = 0; stack < STACKS; stack++)
		for (uint32_t i = 0; i < HL_SIZE_CLASS_COUNT; i++)
			assert_memory_equal(&class_sums[stack][i], &class_ledger[stack][i],
					    sizeof(struct hl_cell));
}

static void compare_classes_with_a_ledger(enum hl_mode mode)
{
	bool live[PLACES] = {false};
	uint32_t last = PLACES; /* where the last event allocated; PLACES: it did not */

	start(mode);
	recorder->sizes = true;
	memset(class_ledger, 0, sizeof(class_ledger));
	srand(5);
	for (uint32_t i = 0; i < 300000; i++) {
		bool again = last < PLACES && rand() % 4 == 0;
		uint32_t place = again ? last : (uint32_t)rand() % PLACES;
		const void *block = block_at(0, place);
		note_class(block, place % STACKS, live[place], last == place);
		if (live[place])
			free_event(block);
		else
			alloc_event(block, place % STACKS);
		live[place] = !live[place];
		last = live[place] ? place : PLACES;
	}
	add_up();
	assert_classes_are_those_of_the_ledger();
	assert_int_equal(lost_events(), 0);
	stop_recorder();
}

static void with_sizes_each_class_of_a_stack_has_exact_counters_of_its_own(void **state)
{
	(void)state;
	compare_classes_with_a_ledger(HL_MODE_MEM_FAST);
	compare_classes_with_a_ledger(HL_MODE_MEM_RECORD);
}

/* The frame of the only cell that has counted anything. */
static uint64_t frame_that_counted(void)
{
	const struct hl_cell_chunk *chunk = &recorder->region.chunks[0];
	uint64_t frame = 0;

	for (uint32_t i = 0; i < atomic_load(&chunk->used); i++) {
		if (!chunk->cells[i].alloc_objects)
			continue;
		assert_int_equal(frame, 0);
		frame = atomic_load(&recorder->region.nodes[chunk->cells[i].node].frame);
	}
	return frame;
}

static void with_sizes_mappings_get_no_class(void **state)
{
	(void)state;
	start(HL_MODE_MEM_FAST);
	recorder->sizes = true;
	struct hl_thread *thread = hl_thread_enter();
	hl_event_map(thread, 0x10000, 0x14000, HL_PSEUDO_MMAP, &(struct hl_registers){.pc = 9});
	hl_thread_leave(thread);
	assert_true(frame_that_counted() == hl_pseudo_frame_key(HL_PSEUDO_MMAP));
	stop_recorder();
}

static void without_sizes_no_node_tells_any(void **state)
{
	(void)state;
	start(HL_MODE_MEM_FAST);
	alloc_event(block_at(0, 1), 1);
	assert_true(frame_that_counted() == frame_of_stack(1));
	stop_recorder();
}

static size_t no_usable_size(void *block)
{
	(void)block;
	return 0;
}

/* As gperftools' says before its library's constructors have run. */
static void a_block_whose_usable_size_is_not_known_yet_has_no_slack(void **state)
{
	const void *block = block_at(0, 1);

	(void)state;
	start(HL_MODE_MEM_FAST);
	hl_libc.usable_size = no_usable_size;
	alloc_event(block, 1);
	add_up();
	assert_int_equal(sums.slack_bytes, 0);
	assert_int_equal(sums.alloc_bytes[1], requested_of(block));
	hl_libc.usable_size = usable_size;
	free_event(block);
	add_up();
	assert_int_equal(sums.free_bytes[1], requested_of(block));
	assert_int_equal(lost_events(), 0);
	stop_recorder();
}

/* ---- threads ---- */

#define THREADS 4u

#if defined(__SANITIZE_THREAD__)
#define EVENTS 40000u
#else
#define EVENTS 200000u
#endif

struct ledger {
	uint32_t thread;
	struct sums sums;
};

static pthread_mutex_t hand_over_lock = PTHREAD_MUTEX_INITIALIZER;
static const void *handed_over[64]; /* blocks that any thread may free */
static uint64_t handed_over_stack[64];

static void note_free(struct sums *ledger, const void *block, uint64_t stack)
{
	ledger->free_bytes[stack] += requested_of(block);
	ledger->free_objects[stack]++;
}

/* Puts the block where another thread may find it, and frees what lay there. */
static void exchange(struct sums *ledger, const void *block, uint64_t stack)
{
	uint64_t slot = stack % 64;

	pthread_mutex_lock(&hand_over_lock);
	const void *other = handed_over[slot];
	uint64_t other_stack = handed_over_stack[slot];
	handed_over[slot] = block;
	handed_over_stack[slot] = stack;
	pthread_mutex_unlock(&hand_over_lock);
	if (!other)
		return;
	note_free(ledger, other, other_stack);
	free_event(other);
}

static void *make_events(void *argument)
{
	struct ledger *ledger = argument;
	unsigned seed = ledger->thread + 1;

	for (uint32_t i = 0; i < EVENTS; i++) {
		const void *block = block_at(ledger->thread, i);
		uint64_t stack = (uint64_t)rand_r(&seed) % STACKS;
		alloc_event(block, stack);
		ledger->sums.alloc_bytes[stack] += requested_of(block);
		ledger->sums.alloc_objects[stack]++;
		if (i % 3 == 0) {
			exchange(&ledger->sums, block, stack);
		} else if (i % 3 == 1) {
			note_free(&ledger->sums, block, stack);
			free_event(block);
		}
	}
	hl_thread_end(hl_thread_self());
	return NULL;
}

static void run_threads(enum hl_mode mode, bool sizes)
{
	static struct ledger ledgers[THREADS];
	pthread_t threads[THREADS];

	memset(ledgers, 0, sizeof(ledgers));
	memset(handed_over, 0, sizeof(handed_over));
	start(mode);
	recorder->sizes = sizes;
	for (uint32_t i = 0; i < THREADS; i++) {
		ledgers[i].thread = i;
		assert_int_equal(pthread_create(&threads[i], NULL, make_events, &ledgers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	add_up();
	for (uint32_t stack = 0; stack < STACKS; stack++) {
		struct sums expected = {0};
		for (uint32_t i = 0; i < THREADS; i++) {
			expected.alloc_bytes[stack] += ledgers[i].sums.alloc_bytes[stack];
			expected.alloc_objects[stack] += ledgers[i].sums.alloc_objects[stack];
			expected.free_bytes[stack] += ledgers[i].sums.free_bytes[stack];
			expected.free_objects[stack] += ledgers[i].sums.free_objects[stack];
		}
		assert_true(sums.alloc_bytes[stack] == expected.alloc_bytes[stack]);
		assert_true(sums.alloc_objects[stack] == expected.alloc_objects[stack]);
		assert_true(sums.free_bytes[stack] == expected.free_bytes[stack]);
		assert_true(sums.free_objects[stack] == expected.free_objects[stack]);
	}
	/* All threads have ended, so the total is settled; in use only grew, so it is the peak. */
	assert_true(atomic_load(&recorder->region.header->inuse_bytes) == sums.inuse_bytes);
	assert_true(sums.peak_bytes >= sums.inuse_bytes - sums.inuse_bytes / 100);
	assert_int_equal(lost_events(), 0);
	stop_recorder();
}

static void the_sum_of_all_threads_is_what_they_did_with_the_array(void **state)
{
	(void)state;
	run_threads(HL_MODE_MEM_FAST, false);
}

static void the_sum_of_all_threads_is_what_they_did_with_the_hash(void **state)
{
	(void)state;
	run_threads(HL_MODE_MEM_RECORD, false);
}

static void the_sum_of_all_threads_is_what_they_did_with_sizes(void **state)
{
	(void)state;
	run_threads(HL_MODE_MEM_FAST, true);
}

/* ---- logs: what rings hold is what the counters were told ---- */

#define LOGGED_NODES 8192u

/* First the sink, so that it leads back here. */
struct log_reading {
	struct hl_ring_sink sink;
	struct hl_ring_reader readers[THREADS + 1]; /* by slot */
	int64_t bytes[LOGGED_NODES], objects[LOGGED_NODES];
	uint64_t events;
	atomic_bool stop;
};

static int note_logged(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct log_reading *reading = (struct log_reading *)sink;

	assert_true(node && node < LOGGED_NODES);
	reading->bytes[node] += bytes;
	reading->objects[node] += objects;
	reading->events++;
	return 0;
}

static struct log_reading *log_reading_new(void)
{
	struct log_reading *reading = calloc(1, sizeof(*reading));

	reading->sink.event = note_logged;
	return reading;
}

static void read_log(struct log_reading *reading)
{
	uint32_t count = atomic_load(&recorder->region.header->thread_count);

	for (uint32_t i = 0; i < count && i <= THREADS; i++) {
		if (!atomic_load(&recorder->region.threads[i].has_ring))
			continue;
		if (!reading->readers[i].ring)
			hl_ring_reader_init(&reading->readers[i],
					    hl_ring_at(atomic_load(&recorder->region.rings), i),
					    recorder->region.header->areas[HL_AREA_RINGS].capacity -
						    i * HL_RING_SMALL);
		assert_int_equal(hl_ring_reader_read(&reading->readers[i], UINT64_MAX, UINT64_MAX,
						     &reading->sink),
				 0);
		assert_false(reading->readers[i].given_up);
	}
}

static void *keep_reading(void *argument)
{
	struct log_reading *reading = argument;

	while (!atomic_load(&reading->stop)) {
		atomic_fetch_add(&recorder->region.header->tick, 1);
		read_log(reading);
	}
	read_log(reading);
	return NULL;
}

static void subtract_cells(struct log_reading *reading)
{
	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->chunk_count); i++) {
		const struct hl_cell_chunk *chunk = &recorder->region.chunks[i];
		for (uint32_t j = 0; j < atomic_load(&chunk->used); j++) {
			const struct hl_cell *cell = &chunk->cells[j];
			reading->bytes[cell->node] -=
				(int64_t)(cell->alloc_bytes - cell->free_bytes);
			reading->objects[cell->node] -=
				(int64_t)(cell->alloc_objects - cell->free_objects);
		}
	}
}

static void assert_log_is_what_cells_have(struct log_reading *reading)
{
	subtract_cells(reading);
	for (uint32_t i = 0; i < LOGGED_NODES; i++)
		assert_true(!reading->bytes[i] && !reading->objects[i]);
}

static uint64_t lost_log_events(void)
{
	uint64_t lost = 0;

	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->thread_count); i++)
		lost += recorder->region.threads[i].lost_log_events;
	return lost;
}

static void compare_log_with_counters(enum hl_mode mode)
{
	static struct ledger ledgers[THREADS];
	pthread_t threads[THREADS], reader;
	struct log_reading *reading = log_reading_new();

	memset(handed_over, 0, sizeof(handed_over));
	start(mode);
	assert_int_equal(pthread_create(&reader, NULL, keep_reading, reading), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		ledgers[i].thread = i;
		assert_int_equal(pthread_create(&threads[i], NULL, make_events, &ledgers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&reading->stop, true);
	pthread_join(reader, NULL);
	assert_int_equal(lost_log_events(), 0);
	assert_log_is_what_cells_have(reading);
	stop_recorder();
	free(reading);
}

static void the_log_of_all_threads_is_what_the_counters_say_with_the_array(void **state)
{
	(void)state;
	compare_log_with_counters(HL_MODE_LOG_FAST);
}

static void the_log_of_all_threads_is_what_the_counters_say_with_the_hash(void **state)
{
	(void)state;
	compare_log_with_counters(HL_MODE_LOG_RECORD);
}

static void frees_while_closed_are_in_the_log(void **state)
{
	(void)state;
	struct log_reading *reading = log_reading_new();
	start(HL_MODE_LOG_FAST);
	alloc_event(block_at(0, 1), 1);
	alloc_event(block_at(0, 2), 2);
	hl_mode_switch(&recorder->region.header->mode, HL_MODE_CLOSED);
	alloc_event(block_at(0, 3), 1);
	free_event(block_at(0, 1));
	free_event(block_at(0, 3));
	read_log(reading);
	assert_int_equal(reading->events, 3);
	assert_log_is_what_cells_have(reading);
	stop_recorder();
	free(reading);
}

/* Each event that is counted is in the log or is counted as lost for it. */
static void whatever_memory_is_refused_what_the_log_lacks_is_counted(void **state)
{
	(void)state;
	bool lost_some = false;
	uint64_t needed = UINT64_MAX;
	for (uint64_t from = 0; from < needed; from++) {
		struct log_reading *reading = log_reading_new();
		start(HL_MODE_LOG_FAST);
		refuse_one = true;
		atomic_store(&requests, 0);
		atomic_store(&refuse_from, from);
		for (uint32_t i = 0; i < 900; i++)
			alloc_event(block_at(i % 3, i), i % STACKS);
		for (uint32_t i = 0; i < 900; i += 2)
			free_event(block_at(i % 3, i));
		if (from == 0)
			needed = atomic_load(&requests) + 1;
		read_log(reading);
		add_up();
		uint64_t counted = 0;
		for (uint32_t i = 0; i < STACKS; i++)
			counted += sums.alloc_objects[i] + sums.free_objects[i];
		assert_int_equal(reading->events + lost_log_events(), counted);
		lost_some |= lost_log_events() > 0;
		stop_recorder();
		free(reading);
	}
	assert_true(lost_some);
}

static int make_key(void **state)
{
	(void)state;
	return hl_thread_init(NULL) ? 0 : -1;
}

static void a_request_that_must_fail_moves_no_sample(void **state)
{
	(void)state;
	static const uint64_t too_much[] = {UINT64_MAX, UINT64_C(1) << 63, UINT64_C(3) << 62};
	struct hl_thread *before = hl_thread_self();
	struct hl_thread *thread = aligned_alloc(_Alignof(struct hl_thread), sizeof(*thread));
	memset(thread, 0, sizeof(*thread));
	thread->sampling = true;
	thread->sample_countdown = 1000;
	hl_thread_become(thread);
	for (size_t i = 0; i < HL_COUNT_OF(too_much); i++) {
		assert_false(hl_sample_passes(too_much[i]));
		assert_int_equal(thread->sample_countdown, 1000);
	}
	assert_true(hl_sample_passes(999));
	assert_false(hl_sample_passes(1));
	hl_thread_become(before);
	free(thread);
}

/* ---- memory becomes short ---- */

#define SHORT_ROUNDS 200
#define SHORT_BLOCKS 600u
#define SHORT_MEAN   8192u

static void alloc_object_event(const void *block, uint64_t stack)
{
	if (hl_sample_passes(requested_of(block)))
		return;
	struct hl_thread *thread = hl_thread_enter();
	const struct hl_registers caller = {.pc = stack};
	hl_event_alloc_object(thread, block, requested_of(block), &caller,
			      hl_event_locate(thread, &caller));
	hl_thread_leave(thread);
}

static void free_object_event(const void *block)
{
	struct hl_thread *thread = hl_thread_enter();

	hl_event_free_object(thread, block);
	hl_thread_leave(thread);
}

struct errors {
	double sum, squares;
};

/* That a figure is right on average: the mean of its errors is within four of its own deviations of 0. */
static void add_error(struct errors *errors, double error)
{
	errors->sum += error;
	errors->squares += error * error;
}

static void assert_unbiased(const struct errors *errors)
{
	assert_true(errors->squares > 0); /* it is an estimate */
	assert_true(errors->sum * errors->sum < 16 * errors->squares);
}

static int64_t inuse_objects(void)
{
	int64_t objects = 0;

	for (uint32_t i = 0; i < STACKS; i++)
		objects += (int64_t)(sums.alloc_objects[i] - sums.free_objects[i]);
	return objects;
}

static void compare_when_short(enum hl_mode mode, void (*alloc)(const void *, uint64_t),
			       void (*give)(const void *))
{
	struct errors bytes = {0}, objects = {0}, bytes_left = {0}, objects_left = {0};

	srand(7);
	for (int round = 0; round < SHORT_ROUNDS; round++) {
		int64_t inuse = 0, count = 0;
		start(mode);
		recorder->sample_mean = SHORT_MEAN;
		alloc(block_at(0, 0), 0);
		give(block_at(0, 0));
		hl_thread_self()->random = ((uint64_t)rand() << 32 | (uint64_t)rand()) | 1;
		hl_sample_next(hl_thread_self(), SHORT_MEAN);
		for (uint32_t i = 1; i < SHORT_BLOCKS; i++)
			alloc(block_at(0, i), i % STACKS);
		for (uint32_t i = 1; i < SHORT_BLOCKS; i += 3)
			give(block_at(0, i));
		add_up();
		int64_t exact = sums.inuse_bytes;
		assert_int_equal(inuse_objects(), SHORT_BLOCKS - 1 - (SHORT_BLOCKS + 1) / 3);
		atomic_fetch_or(&recorder->region.header->mode, HL_MODE_SAMPLED);
		for (uint32_t i = 2; i < SHORT_BLOCKS; i += 3)
			give(block_at(0, i));
		for (uint32_t i = SHORT_BLOCKS; i < 2 * SHORT_BLOCKS; i++)
			alloc(block_at(0, i), i % STACKS);
		for (uint32_t i = SHORT_BLOCKS; i < 2 * SHORT_BLOCKS; i += 2)
			give(block_at(0, i));
		assert_null(atomic_load(&recorder->blocks.array));
		for (uint32_t i = 3; i < 2 * SHORT_BLOCKS; i += i < SHORT_BLOCKS ? 3 : 1)
			if (i < SHORT_BLOCKS || (i - SHORT_BLOCKS) % 2) {
				inuse += (int64_t)requested_of(block_at(0, i));
				count++;
			}
		add_up();
		assert_true(exact > inuse / 2);
		add_error(&bytes, (double)(sums.inuse_bytes - inuse));
		add_error(&objects, (double)(inuse_objects() - count));
		for (uint32_t i = 3; i < 2 * SHORT_BLOCKS; i += i < SHORT_BLOCKS ? 3 : 1)
			if (i < SHORT_BLOCKS || (i - SHORT_BLOCKS) % 2)
				give(block_at(0, i));
		add_up();
		add_error(&bytes_left, (double)sums.inuse_bytes);
		add_error(&objects_left, (double)inuse_objects());
		assert_int_equal(lost_events(), 0);
		stop_recorder();
	}
	assert_unbiased(&bytes);
	assert_unbiased(&objects);
	assert_unbiased(&bytes_left);
	assert_unbiased(&objects_left);
}

static void when_memory_is_short_figures_go_on_as_unbiased_estimates(void **state)
{
	(void)state;
	compare_when_short(HL_MODE_MEM_FAST, alloc_event, free_event);
}

static void when_memory_is_short_so_do_those_of_objects(void **state)
{
	(void)state;
	compare_when_short(HL_MODE_MEM_FAST, alloc_object_event, free_object_event);
}

/* Until then a block that is hit counts as any other, wherever it is kept. */
static void while_memory_suffices_figures_are_exact(void **state)
{
	(void)state;
	for (int is_object = 0; is_object < 2; is_object++) {
		int64_t inuse = 0;
		start(HL_MODE_MEM_FAST);
		recorder->sample_mean = 64; /* nearly each */
		for (uint32_t i = 0; i < SHORT_BLOCKS; i++) {
			(is_object ? alloc_object_event : alloc_event)(block_at(0, i), i % STACKS);
			inuse += (int64_t)requested_of(block_at(0, i));
		}
		add_up();
		assert_true(sums.inuse_bytes == inuse);
		assert_int_equal(inuse_objects(), SHORT_BLOCKS);
		for (uint32_t i = 0; i < SHORT_BLOCKS; i++)
			(is_object ? free_object_event : free_event)(block_at(0, i));
		add_up();
		assert_true(sums.inuse_bytes == 0 && inuse_objects() == 0);
		stop_recorder();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_peak_is_the_maximum_and_its_nodes_are_those_of_that_moment),
		cmocka_unit_test(in_closed_mode_only_frees_count),
		cmocka_unit_test(whatever_mode_follows_which_counters_are_those_of_the_ledger),
		cmocka_unit_test(
			allocations_of_new_stacks_are_lost_and_counted_when_all_nodes_are_taken),
		cmocka_unit_test(frees_by_handlers_inside_the_recorder_are_counted_when_it_is_left),
		cmocka_unit_test(frees_by_handlers_while_the_thread_ends_are_counted),
		cmocka_unit_test(a_recalled_stack_that_is_not_the_walked_one_ends_the_program),
		cmocka_unit_test(whatever_memory_is_refused_figures_stay_consistent),
		cmocka_unit_test(whatever_memory_is_refused_figures_by_size_stay_consistent),
		cmocka_unit_test(with_sizes_each_class_of_a_stack_has_exact_counters_of_its_own),
		cmocka_unit_test(with_sizes_mappings_get_no_class),
		cmocka_unit_test(without_sizes_no_node_tells_any),
		cmocka_unit_test(a_block_whose_usable_size_is_not_known_yet_has_no_slack),
		cmocka_unit_test(a_request_that_must_fail_moves_no_sample),
		cmocka_unit_test(when_memory_is_short_figures_go_on_as_unbiased_estimates),
		cmocka_unit_test(when_memory_is_short_so_do_those_of_objects),
		cmocka_unit_test(while_memory_suffices_figures_are_exact),
		cmocka_unit_test(the_sum_of_all_threads_is_what_they_did_with_the_array),
		cmocka_unit_test(the_sum_of_all_threads_is_what_they_did_with_the_hash),
		cmocka_unit_test(the_sum_of_all_threads_is_what_they_did_with_sizes),
		cmocka_unit_test(the_log_of_all_threads_is_what_the_counters_say_with_the_array),
		cmocka_unit_test(the_log_of_all_threads_is_what_the_counters_say_with_the_hash),
		cmocka_unit_test(frees_while_closed_are_in_the_log),
		cmocka_unit_test(whatever_memory_is_refused_what_the_log_lacks_is_counted),
	};

	return cmocka_run_group_tests(tests, make_key, NULL);
}
