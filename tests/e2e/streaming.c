/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread of aarch64 that computes in SME's streaming mode, without a system call, which would end it:
 *
 *	streaming SECONDS [beside]	its only thread; or one beside another that waits for its end
 *
 * Says "ready" before, and ends with status 0 if mode and registers were kept, with 2 where there is no SME.
 */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <unistd.h>

#define HAS_SME	  (1ul << 23) /* HWCAP2_SME */
#define STREAMING UINT64_C(1) /* SVCR.SM */
#define PATTERN	  UINT64_C(0x1234567890abcdef)

static uint64_t seconds;
static atomic_int is_ready;

static uint64_t ticks(void)
{
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
}

static void *stream(void *argument)
{
	uint64_t frequency, mode = STREAMING, kept = PATTERN;

	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
	const uint64_t until = ticks() + seconds * frequency;
	/* smstart sm */
	__asm__ volatile(".inst 0xd503437f\n\tfmov d31, %0" ::"r"(PATTERN) : "v31");
	atomic_store(&is_ready, 1);
	while (mode & STREAMING && kept == PATTERN && ticks() < until)
		__asm__ volatile("mrs %0, s3_3_c4_c2_2\n\tfmov %1, d31" : "=r"(mode), "=r"(kept));
	/* smstop sm */
	__asm__ volatile(".inst 0xd503427f" ::: "memory");
	_exit(mode & STREAMING && kept == PATTERN ? 0 : 1);
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	REQUIRE(argc > 1);
	if (!(getauxval(AT_HWCAP2) & HAS_SME))
		return 2;
	seconds = strtoul(argv[1], NULL, 10);
	if (argc > 2) {
		REQUIRE(!pthread_create(&thread, NULL, stream, NULL));
		while (!atomic_load(&is_ready))
			usleep(1000);
	}
	REQUIRE(write(1, "ready\n", 6) == 6);
	if (argc == 2)
		stream(NULL);
	pthread_join(thread, NULL);
	return 1;
}
