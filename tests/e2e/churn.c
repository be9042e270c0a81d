/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two threads that allocate and free until they are killed, and say in a shared file how far they
 * came: before each event a thread raises `begun`, after it `done`. What event number n is follows
 * from n alone (see test_kill.py, which counts the same): a thread first fills its window, then
 * frees its oldest block and allocates a new one in turn. Size of the k-th allocation:
 * k % 997 * 7 + 1.
 *
 * Usage: churn LEDGER [EVENTS]   (each thread stops after EVENTS, if given)
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW	  61
#define THREADS	  2
#define SIZES	  997
#define SIZE_STEP 7

/* One writer each; a kill falls between two instructions of it, so program order is all it takes.
 */
struct progress {
	_Alignas(64) _Atomic uint64_t begun;
	_Atomic uint64_t done;
};

struct ledger {
	_Atomic uint32_t pid;
	struct progress threads[THREADS];
};

static struct ledger *ledger;
static uint64_t event_limit = UINT64_MAX;

struct churner {
	void *window[WINDOW];
	uint64_t allocated, freed;
};

static inline __attribute__((always_inline)) void churn_event(struct churner *self, uint64_t event)
{
	if (event >= WINDOW && (event - WINDOW) % 2 == 0) {
		free(self->window[self->freed++ % WINDOW]);
		BARRIER();
		return;
	}
	void *block = malloc(self->allocated % SIZES * SIZE_STEP + 1);
	KEEP(block);
	REQUIRE(block);
	self->window[self->allocated++ % WINDOW] = block;
}

static inline __attribute__((always_inline)) void churn(struct progress *progress)
{
	struct churner self = {0};

	for (uint64_t event = 0; event < event_limit; event++) {
		atomic_store_explicit(&progress->begun, event + 1, memory_order_release);
		churn_event(&self, event);
		atomic_store_explicit(&progress->done, event + 1, memory_order_release);
	}
}

static SITE void churn_0(void)
{
	churn(&ledger->threads[0]);
	BARRIER();
}

static SITE void churn_1(void)
{
	churn(&ledger->threads[1]);
	BARRIER();
}

static void *second_thread(void *unused)
{
	churn_1();
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t second;

	REQUIRE(argc >= 2);
	if (argc > 2)
		event_limit = strtoull(argv[2], NULL, 10);
	int fd = open(argv[1], O_RDWR);
	REQUIRE(fd >= 0);
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(ledger != MAP_FAILED);
	close(fd);
	atomic_store(&ledger->pid, (uint32_t)getpid());
	REQUIRE(!pthread_create(&second, NULL, second_thread, NULL));
	churn_0();
	pthread_join(second, NULL);
	return 0;
}
