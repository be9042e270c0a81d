/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * oom_ledger FILE STEP_KIB MIB PAUSE_US: grows to MIB in steps, each of which it counts in the first word of FILE, which is mapped, once it has
 * been written to; then writes "grown", grows as much again for each byte of its input, and ends with that.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SITE __attribute__((noinline, noclone))

SITE void *keep_step(size_t bytes, _Atomic uint64_t *ledger);
SITE void *keep_step(size_t bytes, _Atomic uint64_t *ledger)
{
	char *volatile block =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(block, 1, bytes);
	atomic_fetch_add(ledger, 1);
	return block;
}

SITE int grow_to(size_t bytes, size_t step, useconds_t pause_us, _Atomic uint64_t *ledger);
SITE int grow_to(size_t bytes, size_t step, useconds_t pause_us, _Atomic uint64_t *ledger)
{
	volatile int kept = 0;

	for (size_t at = 0; at < bytes; at += step) {
		kept += keep_step(step, ledger) != NULL;
		if (pause_us)
			usleep(pause_us);
	}
	return kept;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	size_t step = strtoul(argv[2], NULL, 10) << 10, bytes = strtoul(argv[3], NULL, 10) << 20;
	int fd = open(argv[1], O_RDWR);
	_Atomic uint64_t *ledger =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ledger == MAP_FAILED)
		return 2;
	do {
		grow_to(bytes, step, (useconds_t)strtoul(argv[4], NULL, 10), ledger);
		puts("grown");
		fflush(stdout);
	} while (getchar() != EOF);
	return 0;
}
