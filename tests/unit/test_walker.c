/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack walker at work on this process, where it is short of room, of memory, or of time.
 * Needs the right to load BPF programs.
 */
#include "bpf/walker.h"

#include "fail_allocations.h"
#include "walk_test.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOINLINE       __attribute__((noinline))
#define PATH_STEPS     10u
#define SKIPPED_STATUS 77 /* meson's */

struct fixture {
	struct hl_target *target;
	struct walk_test *skeleton;
	struct hl_walker *walker;
	struct bpf_link *link;
};

/* What is probed. */
void test_walker_probed(void);
NOINLINE void test_walker_probed(void)
{
	__asm__ volatile("nop");
}

/* A stack for each number: which of two functions calls is one of its bits. */
static void take_path(unsigned path, unsigned steps);

static NOINLINE void left(unsigned path, unsigned steps)
{
	take_path(path, steps);
	__asm__ volatile("nop; nop"); /* differs, and is not a tail call */
}

static NOINLINE void right(unsigned path, unsigned steps)
{
	take_path(path, steps);
	__asm__ volatile("nop");
}

static inline __attribute__((always_inline)) void take_path(unsigned path, unsigned steps)
{
	if (!steps)
		test_walker_probed();
	else if (path & 1)
		right(path >> 1, steps - 1);
	else
		left(path >> 1, steps - 1);
}

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	(void)format;
	(void)arguments;
	return 0;
}

/* Up to where sizes of maps can still be set. */
static void open_walker(struct fixture *fixture)
{
	struct hl_error err = {{0}};
	uint32_t number;

	*fixture = (struct fixture){0};
	if (hl_target_new(getpid(), NULL, &fixture->target, &err) < 0)
		fail_msg("%s", err.text);
	fixture->skeleton = walk_test__open();
	assert_non_null(fixture->skeleton);
	if (hl_walker_new(fixture->skeleton->obj, 1, NULL, NULL, &fixture->walker, &err) < 0 ||
	    hl_walker_add(fixture->walker, fixture->target, &number, &err) < 0)
		fail_msg("%s", err.text);
}

static void start_walker(struct fixture *fixture)
{
	struct hl_error err = {{0}};

	LIBBPF_OPTS(bpf_uprobe_opts, options, .func_name = "test_walker_probed");
	assert_int_equal(walk_test__load(fixture->skeleton), 0);
	if (hl_walker_start(fixture->walker, &err) < 0)
		fail_msg("%s", err.text);
	fixture->link = bpf_program__attach_uprobe_opts(fixture->skeleton->progs.at_entry, getpid(),
							"/proc/self/exe", 0, &options);
	assert_non_null(fixture->link);
}

static void close_walker(struct fixture *fixture)
{
	bpf_link__destroy(fixture->link);
	hl_walker_free(fixture->walker);
	walk_test__destroy(fixture->skeleton);
	hl_target_free(fixture->target);
}

static struct hl_walker_losses losses_of(const struct fixture *fixture)
{
	struct hl_walker_losses losses;

	assert_int_equal(hl_walker_losses(fixture->walker, &losses), 0);
	return losses;
}

static void poll_walker(const struct fixture *fixture)
{
	assert_int_equal(hl_walker_poll(fixture->walker, 0, NULL), 0);
}

struct counts {
	uint64_t events, unknown; /* unknown: of these, with a stack that was not received */
	uint64_t stacks;
};

static struct counts counts_of(const struct fixture *fixture)
{
	struct counts counts = {0};
	int map = bpf_map__fd(fixture->skeleton->maps.stack_counts);
	uint64_t stack, count, *last = NULL;

	while (bpf_map_get_next_key(map, last, &stack) == 0) {
		last = &stack;
		assert_int_equal(bpf_map_lookup_elem(map, &stack, &count), 0);
		counts.events += count;
		counts.stacks++;
		if (!hl_walker_node(fixture->walker, stack, NULL))
			counts.unknown += count;
	}
	return counts;
}

static bool bpf_is_allowed(void)
{
	libbpf_set_print(silent);
	struct walk_test *skeleton = walk_test__open_and_load();
	if (!skeleton)
		printf("skipped: BPF programs cannot be loaded here: %s\n", strerror(errno));
	walk_test__destroy(skeleton);
	return skeleton;
}

static void each_stack_is_received_once_and_counted_each_time(void **state)
{
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	start_walker(&fixture);
	for (unsigned i = 0; i < 3000; i++)
		take_path(i % 1000, PATH_STEPS);
	poll_walker(&fixture);
	struct counts counts = counts_of(&fixture);
	assert_int_equal(counts.events, 3000);
	assert_int_equal(counts.stacks, 1000);
	assert_int_equal(counts.unknown, 0);
	close_walker(&fixture);
}

static void stacks_that_found_no_room_in_the_ring_are_counted_and_sent_again(void **state)
{
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	bpf_map__set_max_entries(fixture.skeleton->maps.hl_records, 4096);
	start_walker(&fixture);
	for (unsigned i = 0; i < 100; i++)
		take_path(i, PATH_STEPS);
	poll_walker(&fixture);
	struct counts counts = counts_of(&fixture);
	assert_int_equal(counts.events, 100);
	assert_true(counts.unknown > 50);
	assert_int_equal(losses_of(&fixture).walk.count[HL_LOSS_RING], counts.unknown);
	for (unsigned i = 0; i < 100; i++) {
		take_path(i, PATH_STEPS);
		poll_walker(&fixture);
	}
	/* The caller is another place, so these are other stacks: all known. */
	assert_int_equal(losses_of(&fixture).walk.count[HL_LOSS_RING], counts.unknown);
	assert_int_equal(counts_of(&fixture).events, 200);
	assert_int_equal(counts_of(&fixture).unknown, counts.unknown);
	close_walker(&fixture);
}

static void files_that_find_no_room_are_counted_and_their_code_is_no_harm(void **state)
{
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	bpf_map__set_max_entries(fixture.skeleton->maps.hl_rows, 16);
	start_walker(&fixture);
	for (unsigned i = 0; i < 100; i++)
		take_path(i, PATH_STEPS);
	poll_walker(&fixture);
	struct hl_walker_losses losses = losses_of(&fixture);
	assert_true(losses.rows_full > 0);
	assert_int_equal(counts_of(&fixture).events, 100);
	assert_int_equal(counts_of(&fixture).unknown, 0);
	close_walker(&fixture);
}

static atomic_bool enough;
static atomic_ulong events;

static void *walk_on(void *unused)
{
	while (!enough) {
		take_path((unsigned)events, PATH_STEPS);
		events++;
	}
	return unused;
}

/* Each refresh finds other mappings, and so writes the list that walks may just be reading. */
static void mappings_that_change_during_walks_never_make_wrong_stacks(void **state)
{
	struct fixture fixture;
	pthread_t thread;
	uint64_t before;

	(void)state;
	open_walker(&fixture);
	start_walker(&fixture);
	enough = false;
	events = 0;
	before = fixture.target->changes;
	assert_int_equal(pthread_create(&thread, NULL, walk_on, NULL), 0);
	while (events < 2000 || fixture.target->changes - before < 300) {
		void *code =
			mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(code, MAP_FAILED);
		assert_int_equal(hl_walker_refresh(fixture.walker, NULL), 0);
		assert_int_equal(munmap(code, 4096), 0);
		assert_int_equal(hl_walker_refresh(fixture.walker, NULL), 0);
		poll_walker(&fixture);
	}
	enough = true;
	pthread_join(thread, NULL);
	poll_walker(&fixture);
	struct counts counts = counts_of(&fixture);
	struct hl_walker_losses losses = losses_of(&fixture);
	assert_int_equal(counts.events, events);
	assert_int_equal(counts.unknown, losses.walk.count[HL_LOSS_STALE]);
	assert_int_equal(losses.walk.count[HL_LOSS_INCOMPLETE], 0);
	assert_true(counts.stacks <= (1u << PATH_STEPS) + 1); /* and none */
	close_walker(&fixture);
}

#define TOUCHED_PAGES 64u
#define PAGE_BYTES    4096u

static char *fresh_pages(void)
{
	char *pages = mmap(NULL, TOUCHED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	madvise(pages, TOUCHED_PAGES * PAGE_BYTES, MADV_NOHUGEPAGE);
	return pages;
}

static NOINLINE void touch_pages(volatile char *pages)
{
	for (unsigned i = 0; i < TOUCHED_PAGES; i++) {
		pages[i * PAGE_BYTES] = 1;
		__asm__ volatile("" : "+r"(i)); /* a loop, not 64 stores in a row */
	}
}

static NOINLINE void read_into_pages(char *pages)
{
	int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_int_equal(read(zeros, pages, TOUCHED_PAGES * PAGE_BYTES),
			 TOUCHED_PAGES * PAGE_BYTES);
	close(zeros);
}

static bool is_in(uint64_t frame, const void *function)
{
	return (frame & HL_FRAME_PC_MASK) - (uint64_t)function < 256;
}

/* Events whose innermost frame, or one of ${outer} outward of it, is in ${function}. */
static uint64_t events_in(const struct fixture *fixture, const void *function, unsigned outer)
{
	int map = bpf_map__fd(fixture->skeleton->maps.stack_counts);
	uint64_t stack, count, sum = 0, *last = NULL;
	uint32_t node_count;
	const struct hl_recording_node *nodes = hl_walker_nodes(fixture->walker, 1, &node_count);

	while (bpf_map_get_next_key(map, last, &stack) == 0) {
		last = &stack;
		assert_int_equal(bpf_map_lookup_elem(map, &stack, &count), 0);
		uint32_t node = hl_walker_node(fixture->walker, stack, NULL);
		for (unsigned i = 0; i < outer && node && !is_in(nodes[node - 1].frame, function);
		     i++)
			node = nodes[node - 1].parent;
		if (node && is_in(nodes[node - 1].frame, function))
			sum += count;
	}
	return sum;
}

static void page_faults_are_found_where_they_happen(void **state)
{
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	/* the walker's own link; Linux 6.1 refuses a second one */
	bpf_program__set_autoattach(fixture.skeleton->progs.hl_place_given, false);
	assert_int_equal(walk_test__load(fixture.skeleton), 0);
	assert_int_equal(hl_walker_start(fixture.walker, NULL), 0);
	char *touched = fresh_pages(), *filled = fresh_pages();
	assert_int_equal(walk_test__attach(fixture.skeleton), 0);
	touch_pages(touched);
	read_into_pages(filled);
	walk_test__detach(fixture.skeleton);
	poll_walker(&fixture);
	assert_int_equal(events_in(&fixture, (void *)(uintptr_t)touch_pages, 0), TOUCHED_PAGES);
	/* the system call is libc's, which from 2.41 on makes it some frames further in */
	assert_int_equal(events_in(&fixture, (void *)(uintptr_t)read_into_pages, 4), TOUCHED_PAGES);
	assert_int_equal(losses_of(&fixture).walk.count[HL_LOSS_INCOMPLETE], 0);
	close_walker(&fixture);
	munmap(touched, TOUCHED_PAGES * PAGE_BYTES);
	munmap(filled, TOUCHED_PAGES * PAGE_BYTES);
}

static int make_walker(const struct fixture *fixture)
{
	struct hl_walker *walker = NULL;
	uint32_t number;

	int r = hl_walker_new(fixture->skeleton->obj, 1, NULL, NULL, &walker, NULL);
	if (r == 0)
		r = hl_walker_add(walker, fixture->target, &number, NULL);
	hl_walker_free(walker);
	return r;
}

static void want_of_memory_is_reported_or_counted(void **state)
{
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	FOR_EACH_FAILING_ALLOCATION(r, make_walker(&fixture))
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(walk_test__load(fixture.skeleton), 0);
	assert_int_equal(WITH_ALLOCATIONS(0, hl_walker_start(fixture.walker, NULL)), -ENOMEM);
	close_walker(&fixture);
	open_walker(&fixture);
	start_walker(&fixture);
	take_path(5, PATH_STEPS);
	assert_int_equal(WITH_ALLOCATIONS(0, hl_walker_poll(fixture.walker, 0, NULL)), 0);
	assert_int_equal(counts_of(&fixture).unknown, 1);
	close_walker(&fixture);
}

/* Has this program run once more in a pid namespace of its own, where its pid is another one. */
static void run_in_pid_namespace(void)
{
	int status;

	if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
		fail_msg("no namespace: %s", strerror(errno));
	pid_t child = fork();
	if (!child) {
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    mount("proc", "/proc", "proc", 0, NULL) == 0)
			execl("/proc/self/exe", "test_walker", "inside", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void all_is_the_same_in_a_pid_namespace(void **state)
{
	int status;
	pid_t child = fork(); /* because the children of this process must stay where they are */

	(void)state;
	if (!child) {
		run_in_pid_namespace();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_stack_is_received_once_and_counted_each_time),
		cmocka_unit_test(page_faults_are_found_where_they_happen),
		cmocka_unit_test(stacks_that_found_no_room_in_the_ring_are_counted_and_sent_again),
		cmocka_unit_test(files_that_find_no_room_are_counted_and_their_code_is_no_harm),
		cmocka_unit_test(mappings_that_change_during_walks_never_make_wrong_stacks),
		cmocka_unit_test(want_of_memory_is_reported_or_counted),
	};
	const struct CMUnitTest outside[] = {
		cmocka_unit_test(all_is_the_same_in_a_pid_namespace),
	};

	(void)argv;
	if (!bpf_is_allowed())
		return SKIPPED_STATUS;
	if (argc == 1 && cmocka_run_group_tests(outside, NULL, NULL))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
