/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways to gain and lose pages; see pages.h. Functions on whose stacks pages must be found end
 * with _site. */
#include "pages.h"

#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* glibc 2.35; kernel 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* glibc 2.37; kernel 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE (2 * MIB)

/* Prepared before the trace, used in it. */
static char *area;
static int file = -1, sockets[2];

/* ---- what scenarios are made of ---- */

static char *map(long bytes, int flags, int fd)
{
	char *mapped = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	REQUIRE(mapped != MAP_FAILED);
	return mapped;
}

/* Of small pages alone, whatever the machine prefers. */
static char *map_small(long bytes)
{
	char *mapped = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	madvise(mapped, (size_t)bytes, MADV_NOHUGEPAGE); /* not known to all kernels */
	return mapped;
}

/* Aligned to huge pages, and of those where the machine has them. */
static char *map_huge(long bytes)
{
	char *mapped = map(bytes + HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	long excess = (HUGE - (long)((unsigned long)mapped % HUGE)) % HUGE;

	madvise(mapped + excess, (size_t)bytes, MADV_HUGEPAGE);
	return mapped + excess;
}

static void discard(char *start, long bytes)
{
	REQUIRE(!madvise(start, (size_t)bytes, MADV_DONTNEED));
}

static void make_file(long bytes)
{
	char path[] = "/var/tmp/heapline-pages-XXXXXX";
	char block[65536];

	file = mkstemp(path);
	REQUIRE(file >= 0);
	REQUIRE(!unlink(path));
	memset(block, 'x', sizeof(block));
	for (long written = 0; written < bytes; written += (long)sizeof(block))
		REQUIRE(write(file, block, sizeof(block)) == (ssize_t)sizeof(block));
}

static void write_to(char *start, long bytes)
{
	for (long at = 0; at < bytes; at += PAGE)
		start[at] = 1;
	KEEP(start);
}

static long read_from(const char *start, long bytes)
{
	long sum = 0;

	for (long at = 0; at < bytes; at += PAGE)
		sum += ((const volatile char *)start)[at];
	return sum;
}

/* Each of these pages is touched by a caller of their own name. */
static SITE void write_site(char *start, long bytes)
{
	write_to(start, bytes);
	BARRIER();
}

static SITE void write_again_site(char *start, long bytes)
{
	write_to(start, bytes);
	BARRIER();
}

static SITE void read_site(const char *start, long bytes)
{
	KEEP(read_from(start, bytes));
}

/* ---- memory of its own ---- */

static void anon(void)
{
	write_site(map_small(AREA_BYTES), AREA_BYTES);
}

static void huge(void)
{
	write_site(map_huge(AREA_BYTES), AREA_BYTES);
}

static void huge_then_half_discarded(void)
{
	char *start = map_huge(AREA_BYTES);

	write_site(start, AREA_BYTES);
	discard(start + AREA_BYTES / 4 + 5 * PAGE, AREA_BYTES / 2);
	/* Otherwise khugepaged may fill the two that are partly discarded, at any time. */
	madvise(start, AREA_BYTES, MADV_NOHUGEPAGE);
}

static void huge_in_place_of_small(void)
{
	char *start = map_huge(AREA_BYTES);

	madvise(start, AREA_BYTES, MADV_NOHUGEPAGE);
	write_site(start, AREA_BYTES);
	REQUIRE(mmap(start, AREA_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start);
	madvise(start, AREA_BYTES, MADV_HUGEPAGE);
	write_again_site(start, AREA_BYTES);
}

static void zero_page(void)
{
	read_site(map_small(AREA_BYTES), AREA_BYTES);
}

static void zero_page_then_half_written(void)
{
	char *start = map_small(AREA_BYTES);

	read_site(start, AREA_BYTES);
	write_site(start, AREA_BYTES / 2);
}

static void huge_zero_page_then_half_written(void)
{
	char *start = map_huge(AREA_BYTES);

	read_site(start, AREA_BYTES);
	write_site(start, AREA_BYTES / 2);
}

static SITE void deep_site(long frames)
{
	char frame[PAGE];

	memset(frame, 1, sizeof(frame));
	KEEP(frame);
	if (frames > 1)
		deep_site(frames - 1);
	BARRIER();
}

static void deep_stack(void)
{
	deep_site(1000);
}

static SITE void grow_break_site(long bytes)
{
	char *start = sbrk(bytes);

	REQUIRE(start != (void *)-1);
	write_to(start, bytes);
	BARRIER();
}

static void grow_break(void)
{
	grow_break_site(AREA_BYTES);
}

/* ---- forks ---- */

/* A child writes to ${bytes}, then the parent while the child lives. */
static void write_on_both_sides(char *start, long bytes)
{
	int to_child[2], to_parent[2];
	char byte = 0;

	REQUIRE(!pipe(to_child) && !pipe(to_parent));
	pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		write_to(start, bytes);
		_exit(write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1);
	}
	REQUIRE(read(to_parent[0], &byte, 1) == 1);
	write_again_site(start, bytes);
	REQUIRE(write(to_child[1], &byte, 1) == 1);
	int status;
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void prepare_written(void)
{
	area = map_small(AREA_BYTES);
	write_to(area, AREA_BYTES);
}

static void fork_and_write_old(void)
{
	write_on_both_sides(area, AREA_BYTES);
}

static void fork_and_write_new(void)
{
	char *start = map_small(AREA_BYTES);

	write_site(start, AREA_BYTES);
	write_on_both_sides(start, AREA_BYTES);
}

static SITE void child_of_vfork_site(char *start, long bytes)
{
	pid_t child = vfork();

	if (child == 0) {
		write_to(start, bytes);
		_exit(0);
	}
	int status;
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void child_of_vfork(void)
{
	child_of_vfork_site(map_small(AREA_BYTES), AREA_BYTES);
}

/* ---- files ---- */

static void prepare_file(void)
{
	make_file(AREA_BYTES);
}

static void file_read(void)
{
	read_site(map(AREA_BYTES, MAP_PRIVATE, file), AREA_BYTES);
}

static void file_read_then_half_written(void)
{
	char *start = map(AREA_BYTES, MAP_PRIVATE, file);

	read_site(start, AREA_BYTES);
	write_site(start, AREA_BYTES / 2);
}

static void prepare_file_read(void)
{
	prepare_file();
	area = map(AREA_BYTES, MAP_PRIVATE, file);
	KEEP(read_from(area, AREA_BYTES));
}

static void old_file_written(void)
{
	write_site(area, AREA_BYTES);
}

static void file_shared_written(void)
{
	write_site(map(AREA_BYTES, MAP_SHARED, file), AREA_BYTES);
}

/* ---- the kernel writes ---- */

static SITE void read_call_site(char *start, long bytes)
{
	REQUIRE(pread(file, start, (size_t)bytes, 0) == bytes);
}

static void read_into_fresh(void)
{
	read_call_site(map_small(AREA_BYTES), AREA_BYTES);
}

static void prepare_sockets(void)
{
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
}

static SITE void recv_call_site(char *start)
{
	char block[2 * PAGE];

	memset(block, 1, sizeof(block));
	REQUIRE(send(sockets[0], block, sizeof(block), 0) == (ssize_t)sizeof(block));
	REQUIRE(recv(sockets[1], start, sizeof(block), MSG_WAITALL) == (ssize_t)sizeof(block));
}

static void receive_into_fresh(void)
{
	char *start = map_small(AREA_BYTES);

	for (long at = 0; at < AREA_BYTES; at += 2 * PAGE)
		recv_call_site(start + at);
}

/* ---- pages that go ---- */

static void discard_half(void)
{
	char *start = map_small(AREA_BYTES);

	write_site(start, AREA_BYTES);
	discard(start, AREA_BYTES / 2);
}

static void discard_in_rounds(void)
{
	char *start = map_small(AREA_BYTES);

	for (int round = 0; round < 4; round++) {
		write_site(start, AREA_BYTES);
		discard(start, AREA_BYTES * 3 / 4);
	}
}

static void free_lazily(void)
{
	char *start = map_small(AREA_BYTES);

	write_site(start, AREA_BYTES);
	REQUIRE(!madvise(start, AREA_BYTES, MADV_FREE));
}

static void old_freed(void)
{
	REQUIRE(!munmap(area, AREA_BYTES));
}

static void old_freed_and_new(void)
{
	REQUIRE(!munmap(area, AREA_BYTES));
	write_site(map_small(AREA_BYTES), AREA_BYTES / 2);
}

static void old_discarded_and_written(void)
{
	discard(area, AREA_BYTES);
	write_site(area, AREA_BYTES);
}

static void unmapped_in_part(void)
{
	char *start = map_huge(AREA_BYTES);

	write_site(start, AREA_BYTES);
	REQUIRE(!munmap(start + HUGE / 2, (size_t)(AREA_BYTES / 2)));
}

/* ---- pages that come without a fault, or move ---- */

static char *move(char *start, long bytes, long new_bytes)
{
	char *moved = mremap(start, (size_t)bytes, (size_t)new_bytes, MREMAP_MAYMOVE);

	REQUIRE(moved != MAP_FAILED);
	return moved;
}

/* Something after it, so that it cannot grow where it is. */
static char *map_hemmed(long bytes)
{
	char *start = map_small(2 * bytes);

	REQUIRE(mprotect(start + bytes, (size_t)bytes, PROT_READ) == 0);
	return start;
}

static void moved(void)
{
	char *start = map_hemmed(AREA_BYTES);

	write_site(start, AREA_BYTES);
	char *moved_to = move(start, AREA_BYTES, 2 * AREA_BYTES);
	REQUIRE(moved_to != start);
	write_again_site(moved_to + AREA_BYTES, AREA_BYTES);
}

static void old_moved(void)
{
	area = mremap(area, AREA_BYTES, AREA_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		      map(AREA_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1));
	REQUIRE(area != MAP_FAILED);
}

static void shrunk_in_place(void)
{
	char *start = map_small(AREA_BYTES);

	write_site(start, AREA_BYTES);
	REQUIRE(move(start, AREA_BYTES, AREA_BYTES / 2) == start);
}

static SITE void populate_site(long bytes)
{
	KEEP(map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1));
}

static void populate(void)
{
	populate_site(AREA_BYTES);
}

static SITE char *populate_to_move_site(long bytes)
{
	char *start = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);

	BARRIER();
	return start;
}

static void populate_and_move(void)
{
	char *start = populate_to_move_site(2 * AREA_BYTES);

	REQUIRE(!munmap(start + AREA_BYTES, AREA_BYTES));
	REQUIRE(mprotect(start, PAGE, PROT_READ) == 0); /* a border where it is not 2 MiB */
	move(start + PAGE, AREA_BYTES - PAGE, 3 * AREA_BYTES);
}

static SITE void advise_populate_site(char *start, long bytes)
{
	if (madvise(start, (size_t)bytes, MADV_POPULATE_WRITE))
		_exit(CANNOT);
	BARRIER();
}

static void advise_populate(void)
{
	advise_populate_site(map_small(AREA_BYTES), AREA_BYTES);
}

static SITE void lock_site(char *start, long bytes)
{
	if (mlock(start, (size_t)bytes))
		_exit(CANNOT);
	BARRIER();
}

static void lock(void)
{
	lock_site(map_small(AREA_BYTES), AREA_BYTES);
}

static void lock_what_is_partly_there(void)
{
	char *start = map_small(AREA_BYTES);

	write_site(start, AREA_BYTES / 2);
	lock_site(start, AREA_BYTES);
}

static void lock_on_fault(void)
{
	char *start = map_small(AREA_BYTES);

	if (mlock2(start, AREA_BYTES, MLOCK_ONFAULT))
		_exit(CANNOT);
	write_site(start, AREA_BYTES / 2);
}

static SITE void lock_all_site(void)
{
	if (mlockall(MCL_CURRENT))
		_exit(CANNOT);
	BARRIER();
}

static void prepare_unwritten(void)
{
	area = map_small(AREA_BYTES);
}

static void lock_all(void)
{
	lock_all_site();
}

static SITE void collapse_site(char *start, long bytes)
{
	if (madvise(start, (size_t)bytes, MADV_COLLAPSE))
		_exit(CANNOT);
	BARRIER();
}

/* Every other page is written to, then all are made huge. */
static void collapse(void)
{
	char *start = map_huge(AREA_BYTES);

	madvise(start, AREA_BYTES, MADV_NOHUGEPAGE);
	for (long at = 0; at < AREA_BYTES; at += 2 * PAGE)
		write_site(start + at, PAGE);
	madvise(start, AREA_BYTES, MADV_HUGEPAGE);
	collapse_site(start, AREA_BYTES);
}

/* ---- shared memory ---- */

static void shared(void)
{
	write_site(map(AREA_BYTES, MAP_SHARED | MAP_ANONYMOUS, -1), AREA_BYTES);
}

static void shared_memfd(void)
{
	file = memfd_create("heapline-pages", MFD_CLOEXEC);
	REQUIRE(file >= 0 && !ftruncate(file, AREA_BYTES));
	write_site(map(AREA_BYTES, MAP_SHARED, file), AREA_BYTES);
	close(file);
}

/* A private view of shared memory: what is written to is the process' own. */
static void prepare_memfd(void)
{
	file = memfd_create("heapline-pages", MFD_CLOEXEC);
	REQUIRE(file >= 0 && !ftruncate(file, AREA_BYTES));
	char *start = map(AREA_BYTES, MAP_SHARED, file);
	write_to(start, AREA_BYTES);
	REQUIRE(!munmap(start, AREA_BYTES));
}

static void shared_read_then_half_written(void)
{
	char *start = map(AREA_BYTES, MAP_PRIVATE, file);

	read_site(start, AREA_BYTES);
	write_site(start, AREA_BYTES / 2);
}

/* ---- threads and the allocator ---- */

#define THREADS 64

static pthread_barrier_t all_are_there, all_may_end;

static SITE void *thread_site(void *nothing)
{
	char *block = malloc(100000);

	(void)nothing;
	REQUIRE(block);
	memset(block, 1, 100000);
	KEEP(block);
	pthread_barrier_wait(&all_are_there);
	pthread_barrier_wait(&all_may_end);
	return NULL;
}

static void threads(void)
{
	pthread_t thread;

	REQUIRE(!pthread_barrier_init(&all_are_there, NULL, THREADS + 1));
	REQUIRE(!pthread_barrier_init(&all_may_end, NULL, THREADS + 1));
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&thread, NULL, thread_site, NULL));
	pthread_barrier_wait(&all_are_there);
}

#define SLOTS 20000

static SITE void churn_site(long rounds)
{
	static char *slots[SLOTS];
	unsigned random = 1;

	for (long i = 0; i < rounds; i++) {
		random = random * 1664525u + 1013904223u;
		size_t bytes = 16 + (random >> 8) % 4000;
		char **slot = &slots[(random >> 4) % SLOTS];
		free(*slot);
		*slot = malloc(bytes);
		REQUIRE(*slot);
		memset(*slot, 1, bytes);
	}
}

static void churn(void)
{
	churn_site(200000);
}

static void *churn_forever(void *nothing)
{
	for (;;)
		churn_site(1000);
	return nothing;
}

/* Goes on when the scenario is done. */
static void churn_on(void)
{
	pthread_t thread;

	churn_site(200000);
	REQUIRE(!pthread_create(&thread, NULL, churn_forever, NULL));
}

/* ---- the end of the program ---- */

static void become_another(void)
{
	write_site(map_small(AREA_BYTES), AREA_BYTES);
	execl("/proc/self/exe", "pages", "anon", NULL);
	abort();
}

/* ---- the tables ---- */

#define HALF (AREA_PAGES / 2)

/* Pages that come with one that is read, and go along when that one is written to. */
#define READ_AROUND 16

const struct scenario scenarios[] = {
	{"anon", NULL, anon, {{"write_site", AREA_PAGES}}, 0, 0},
	{"huge", NULL, huge, {{"write_site", AREA_PAGES}}, 0, 0},
	{"huge_then_half_discarded", NULL, huge_then_half_discarded, {{"write_site", HALF}}, 0, 0},
	{"huge_in_place_of_small",
	 NULL,
	 huge_in_place_of_small,
	 {{"write_again_site", AREA_PAGES}},
	 0,
	 0},
	{"zero_page", NULL, zero_page, {{0}}, 0, 0},
	{"zero_page_then_half_written",
	 NULL,
	 zero_page_then_half_written,
	 {{"write_site", HALF}},
	 0,
	 0},
	{"huge_zero_page_then_half_written",
	 NULL,
	 huge_zero_page_then_half_written,
	 {{"write_site", HALF}},
	 0,
	 0},
	{"deep_stack", NULL, deep_stack, {{"deep_site", 900}}, 0, 0},
	{"grow_break", NULL, grow_break, {{"grow_break_site", AREA_PAGES}}, 0, 0},
	{"fork_and_write_old", prepare_written, fork_and_write_old, {{0}}, 0, 0},
	{"fork_and_write_new", NULL, fork_and_write_new, {{"write_site", AREA_PAGES}}, 0, 0},
	{"child_of_vfork", NULL, child_of_vfork, {{"child_of_vfork_site", AREA_PAGES}}, 0, 0},
	{"file_read", prepare_file, file_read, {{"read_site", AREA_PAGES}}, 0, 0},
	{"file_read_then_half_written",
	 prepare_file,
	 file_read_then_half_written,
	 {{"read_site", HALF - READ_AROUND}, {"write_site", HALF}},
	 0,
	 0},
	{"old_file_written",
	 prepare_file_read,
	 old_file_written,
	 {{"write_site", AREA_PAGES}},
	 AREA_PAGES,
	 0},
	{"file_shared_written",
	 prepare_file,
	 file_shared_written,
	 {{"write_site", AREA_PAGES}},
	 0,
	 0},
	{"read_into_fresh", prepare_file, read_into_fresh, {{"read_call_site", AREA_PAGES}}, 0, 0},
	{"receive_into_fresh",
	 prepare_sockets,
	 receive_into_fresh,
	 {{"recv_call_site", AREA_PAGES}},
	 0,
	 0},
	{"discard_half", NULL, discard_half, {{"write_site", HALF}}, 0, 0},
	{"discard_in_rounds", NULL, discard_in_rounds, {{"write_site", AREA_PAGES / 4}}, 0, 0},
	{"free_lazily", NULL, free_lazily, {{"write_site", AREA_PAGES}}, 0, 0},
	{"old_freed", prepare_written, old_freed, {{0}}, AREA_PAGES, 0},
	{"old_freed_and_new", prepare_written, old_freed_and_new, {{0}}, 0, 0},
	{"old_discarded_and_written", prepare_written, old_discarded_and_written, {{0}}, 0, 0},
	{"unmapped_in_part", NULL, unmapped_in_part, {{"write_site", HALF}}, 0, 0},
	{"moved",
	 NULL,
	 moved,
	 {{"write_site", AREA_PAGES}, {"write_again_site", AREA_PAGES}},
	 0,
	 0},
	{"old_moved", prepare_written, old_moved, {{0}}, 0, 0},
	{"shrunk_in_place", NULL, shrunk_in_place, {{"write_site", HALF}}, 0, 0},
	{"populate", NULL, populate, {{"populate_site", AREA_PAGES}}, 0, 0},
	{"populate_and_move",
	 NULL,
	 populate_and_move,
	 {{"populate_to_move_site", AREA_PAGES}},
	 0,
	 0},
	{"advise_populate", NULL, advise_populate, {{"advise_populate_site", AREA_PAGES}}, 0, 0},
	{"lock", NULL, lock, {{"lock_site", AREA_PAGES}}, 0, 0},
	{"lock_what_is_partly_there",
	 NULL,
	 lock_what_is_partly_there,
	 {{"write_site", HALF}, {"lock_site", HALF}},
	 0,
	 0},
	{"lock_on_fault", NULL, lock_on_fault, {{"write_site", HALF}}, 0, 0},
	{"lock_all", prepare_unwritten, lock_all, {{"lock_all_site", AREA_PAGES}}, 0, 0},
	{"collapse", NULL, collapse, {{"write_site", HALF}, {"collapse_site", HALF}}, 0, 0},
	{"shared", NULL, shared, {{"write_site", AREA_PAGES}}, 0, 0},
	{"shared_memfd", NULL, shared_memfd, {{"write_site", AREA_PAGES}}, 0, 0},
	{"shared_read_then_half_written",
	 prepare_memfd,
	 shared_read_then_half_written,
	 {{"read_site", HALF - READ_AROUND}, {"write_site", HALF}},
	 0,
	 0},
	{"threads", NULL, threads, {{"thread_site", THREADS * 24}}, 0, 0},
	{"churn", NULL, churn, {{"churn_site", 5000}}, 0, 0},
};

/* That do not come to rest as the same program. */
const struct scenario other_scenarios[] = {
	{"churn_on", NULL, churn_on, {{0}}, 0, 0},
	{"become_another", NULL, become_another, {{0}}, 0, 0},
	{0},
};

const size_t scenario_count = sizeof(scenarios) / sizeof(scenarios[0]);
