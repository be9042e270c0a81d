/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that end in every way, and signals that come in the middle of the allocator. Prints, as
 * JSON, what each function must have.
 *
 * Usage: threads SCENARIO
 */
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static SITE void *thread_site(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

static void print_answer(const char *function, long alloc_objects, long alloc_bytes,
			 long inuse_objects, long inuse_bytes)
{
	printf("{\"function\": \"%s\", \"alloc_objects\": %ld, \"alloc_bytes\": %ld, "
	       "\"inuse_objects\": %ld, \"inuse_bytes\": %ld}\n",
	       function, alloc_objects, alloc_bytes, inuse_objects, inuse_bytes);
}

static pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t id;

	REQUIRE(!pthread_create(&id, NULL, body, argument));
	return id;
}

/* --- a thousand threads that leave their blocks behind ------------------------------------- */

static void *leave_blocks(void *unused)
{
	for (int i = 0; i < 11; i++)
		KEEP(thread_site(37));
	free(thread_site(41));
	return unused;
}

static int short_threads(void)
{
	for (int i = 0; i < 1000; i += 4) {
		pthread_t ids[4];
		for (int n = 0; n < 4; n++)
			ids[n] = start(leave_blocks, NULL);
		for (int n = 0; n < 4; n++)
			REQUIRE(!pthread_join(ids[n], NULL));
	}
	print_answer("leave_blocks", 12000, 1000 * (11 * 37 + 41), 11000, 11000 * 37);
	return 0;
}

/* --- more threads than processors, all of them busy with the allocator --------------------- */

#define CROWD	    300
#define CROWD_PAIRS 60000

static void *come_and_go(void *unused)
{
	for (int i = 0; i < CROWD_PAIRS; i++)
		free(thread_site(47));
	return unused;
}

static int crowd(void)
{
	pthread_t ids[CROWD];

	for (int i = 0; i < CROWD; i++)
		ids[i] = start(come_and_go, NULL);
	for (int i = 0; i < CROWD; i++)
		REQUIRE(!pthread_join(ids[i], NULL));
	print_answer("come_and_go", (long)CROWD * CROWD_PAIRS, (long)CROWD * CROWD_PAIRS * 47, 0,
		     0);
	return 0;
}

/* --- a thousand threads at once, each with a hundred stacks -------------------------------- */

#define MULTITUDE	 1000
#define MULTITUDE_STACKS 100
#define MULTITUDE_LEVELS 7 /* bits of a stack */

static SITE void *turn_left(unsigned stack, int levels);
static SITE void *turn_right(unsigned stack, int levels);

static inline __attribute__((always_inline)) void *turn(unsigned stack, int levels)
{
	if (!levels)
		return thread_site(MULTITUDE_STACKS + stack);
	return (stack >> (levels - 1) & 1 ? turn_right : turn_left)(stack, levels - 1);
}

static SITE void *turn_left(unsigned stack, int levels)
{
	void *block = turn(stack, levels);

	KEEP(block);
	return block;
}

static SITE void *turn_right(unsigned stack, int levels)
{
	void *block = turn(stack, levels);

	KEEP(block);
	return block;
}

/* Leaves one block of each stack, of three. */
static void *turn_everywhere(void *barrier)
{
	for (int round = 0; round < 3; round++)
		for (unsigned stack = 0; stack < MULTITUDE_STACKS; stack++) {
			void *block = turn(stack, MULTITUDE_LEVELS);
			if (round < 2)
				free(block);
		}
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	return NULL;
}

/* Says "ready" while all of them live, and waits for the end of its input. */
static int multitude(void)
{
	static pthread_t ids[MULTITUDE];
	pthread_barrier_t barrier;

	REQUIRE(!pthread_barrier_init(&barrier, NULL, MULTITUDE + 1));
	for (int i = 0; i < MULTITUDE; i++)
		ids[i] = start(turn_everywhere, &barrier);
	pthread_barrier_wait(&barrier);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < MULTITUDE; i++)
		REQUIRE(!pthread_join(ids[i], NULL));
	return 0;
}

/* --- destructors of thread-specific values allocate when the thread is nearly gone --------- */

static pthread_key_t late_key;

static SITE void late_site(void *value)
{
	free(value);
	KEEP(malloc(43));
}

static void *end_with_destructor(void *unused)
{
	pthread_setspecific(late_key, thread_site(47));
	return unused;
}

static int late_allocations(void)
{
	REQUIRE(!pthread_key_create(&late_key, late_site));
	for (int i = 0; i < 101; i++)
		REQUIRE(!pthread_join(start(end_with_destructor, NULL), NULL));
	print_answer("late_site", 101, 101 * 43, 101, 101 * 43);
	print_answer("end_with_destructor", 101, 101 * 47, 0, 0);
	return 0;
}

/* --- cancellation -------------------------------------------------------------------------- */

static atomic_long allocated;
static sem_t running;

static void *allocate_until_cancelled(void *unused)
{
	sem_post(&running);
	for (;;) {
		for (int i = 0; i < 7; i++) {
			KEEP(thread_site(53));
			atomic_fetch_add(&allocated, 1);
		}
		pthread_testcancel();
	}
	return unused;
}

static int cancel_deferred(void)
{
	sem_init(&running, 0, 0);
	for (int i = 0; i < 101; i++) {
		pthread_t id = start(allocate_until_cancelled, NULL);
		void *result = NULL;
		sem_wait(&running);
		pthread_cancel(id);
		REQUIRE(!pthread_join(id, &result) && result == PTHREAD_CANCELED);
	}
	long n = atomic_load(&allocated);
	print_answer("allocate_until_cancelled", n, n * 53, n, n * 53);
	return 0;
}

/* malloc is not async-cancel-safe: the thread allocates before, and spins while it can be hit. */
static void *spin_until_cancelled(void *unused)
{
	for (int i = 0; i < 13; i++)
		KEEP(thread_site(59));
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	sem_post(&running);
	for (volatile long spin = 0;; spin = spin + 1)
		;
	return unused;
}

static int cancel_asynchronous(void)
{
	sem_init(&running, 0, 0);
	for (int i = 0; i < 101; i++) {
		pthread_t id = start(spin_until_cancelled, NULL);
		sem_wait(&running);
		pthread_cancel(id);
		REQUIRE(!pthread_join(id, NULL));
	}
	print_answer("spin_until_cancelled", 1313, 1313 * 59, 1313, 1313 * 59);
	return 0;
}

/* --- malloc in a signal handler -------------------------------------------------------------- */

#define HANDLER_BYTES 911
#define CHURN_BYTES   97
#define TICKS	      1500

static volatile sig_atomic_t ticks;

/*
 * Handler and program use blocks of two size classes that both lie in the thread's cache already,
 * so glibc takes no lock and neither sees the other's list: what is interrupted, nearly always, is
 * the recorder.
 */
static SITE void handler_site(int signal_number)
{
	int saved = errno;
	void *block = malloc(HANDLER_BYTES);

	KEEP(block);
	free(block);
	ticks = ticks + (signal_number == SIGALRM);
	errno = saved;
}

static SITE void churn_site(void)
{
	void *block = malloc(CHURN_BYTES);

	KEEP(block);
	free(block);
	BARRIER();
}

static int signals(void)
{
	struct sigaction action = {.sa_handler = handler_site, .sa_flags = SA_RESTART};
	struct itimerval each_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	long churned = 0;

	free(malloc(HANDLER_BYTES));
	free(malloc(CHURN_BYTES));
	REQUIRE(!sigaction(SIGALRM, &action, NULL));
	REQUIRE(!setitimer(ITIMER_REAL, &each_ms, NULL));
	for (; ticks < TICKS; churned++)
		churn_site();
	REQUIRE(!setitimer(ITIMER_REAL, &never, NULL));
	signal(SIGALRM, SIG_IGN);
	print_answer("churn_site", churned, churned * CHURN_BYTES, 0, 0);
	print_answer("handler_site", ticks, (long)ticks * HANDLER_BYTES, 0, 0);
	return 0;
}

static SITE void raise_many(void)
{
	for (int i = 0; i < 103; i++)
		raise(SIGALRM);
}

/* The handler runs on a stack of its own, and what it interrupted stands below it. */
static int signals_on_other_stack(void)
{
	static char room[65536];
	stack_t other = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction action = {.sa_handler = handler_site, .sa_flags = SA_ONSTACK};

	REQUIRE(!sigaltstack(&other, NULL));
	REQUIRE(!sigaction(SIGALRM, &action, NULL));
	raise_many();
	print_answer("raise_many", 103, 103 * HANDLER_BYTES, 0, 0);
	print_answer("handler_site", 103, 103 * HANDLER_BYTES, 0, 0);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
	{"short-threads", short_threads},
	{"crowd", crowd},
	{"multitude", multitude},
	{"late-allocations", late_allocations},
	{"cancel-deferred", cancel_deferred},
	{"cancel-asynchronous", cancel_asynchronous},
	{"signals", signals},
	{"signals-on-other-stack", signals_on_other_stack},
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(scenarios[i].name, argv[1]))
			return scenarios[i].run();
	fprintf(stderr, "threads: no scenario '%s'\n", argv[1]);
	return 2;
}
