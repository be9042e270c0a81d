/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks all memory under RLIMIT_MEMLOCK and without CAP_IPC_LOCK, with flags of mlockall(), and prints what became of it
 * and how many KiB are locked. With 'wait' it first says "ready" and waits for a line, and so it does before it ends.
 *
 * Usage: lock_limit BYTES FLAGS [wait]
 */
#include "program.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void drop_right(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct sets[2];

	REQUIRE(!syscall(SYS_capget, &header, sets));
	sets[0].effective &= ~(1u << CAP_IPC_LOCK);
	REQUIRE(!syscall(SYS_capset, &header, sets));
}

static unsigned long locked_kib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	REQUIRE(file);
	while (fgets(line, sizeof(line), file) && sscanf(line, "VmLck: %lu", &kib) != 1)
		;
	fclose(file);
	return kib;
}

static SITE void *locked_site(void)
{
	void *block = malloc(1000);

	KEEP(block);
	return block;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3 || argc == 4);
	struct rlimit limit = {.rlim_cur = strtoul(argv[1], NULL, 10)};
	limit.rlim_max = limit.rlim_cur;
	for (int i = 0; i < 100; i++)
		locked_site();
	REQUIRE(!setrlimit(RLIMIT_MEMLOCK, &limit));
	drop_right();
	if (argc == 4) {
		puts("ready");
		fflush(stdout);
		REQUIRE(getchar() == '\n');
	}
	int failed = mlockall((int)strtol(argv[2], NULL, 10));
	for (int i = 0; i < 100; i++)
		REQUIRE(locked_site());
	printf("%d %lu\n", failed, locked_kib());
	fflush(stdout);
	REQUIRE(argc == 3 || getchar() == '\n');
	return 0;
}
