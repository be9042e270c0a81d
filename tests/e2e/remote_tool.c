/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Enters a process from outside, for tests/e2e/test_remote.py:
 *
 *	remote_tool PID calls		a few system calls on one thread; prints what they gave
 *	remote_tool PID stops COUNT	stops all threads that often; prints how many there were
 *	remote_tool PID permits		whether its filters permit what a recorder calls
 *
 * On failure, prints the sentence to standard error and exits with 1.
 */
#include "base/cleanup.h"
#include "hook/remote.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define MAPPED_BYTES 65536

static int make_calls(struct hl_remote *remote, struct hl_error *err)
{
	int r = hl_remote_stop_one(remote, err);

	if (r < 0)
		return r;
	long pid = hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0);
	long address = hl_remote_syscall(remote, SYS_mmap, 0, MAPPED_BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long written = 4711, seen = 0;
	bool is_there = hl_remote_write(remote, (uint64_t)address, &written, sizeof(written)) &&
			hl_remote_read(remote, (uint64_t)address, &seen, sizeof(seen)) &&
			seen == written;
	long unmapped = hl_remote_syscall(remote, SYS_munmap, address, MAPPED_BYTES, 0, 0, 0, 0);
	bool is_gone = !hl_remote_read(remote, (uint64_t)address, &seen, sizeof(seen));
	long refused = hl_remote_syscall(remote, SYS_close, -1, 0, 0, 0, 0, 0);
	hl_remote_continue(remote);
	printf("pid %ld mapped %d unmapped %ld gone %d refused %ld\n", pid, is_there, unmapped,
	       is_gone, refused);
	return 0;
}

static int stop_often(struct hl_remote *remote, int count, struct hl_error *err)
{
	size_t threads = 0;

	for (int i = 0; i < count; i++) {
		int r = hl_remote_stop_all(remote, err);
		if (r < 0)
			return r;
		hl_remote_threads(remote, &threads);
		hl_remote_continue(remote);
	}
	printf("threads %zu\n", threads);
	return 0;
}

static int check_calls(struct hl_remote *remote, struct hl_error *err)
{
	static const struct hl_seccomp_call calls[] = {
		{.name = "mmap", .number = SYS_mmap, .args = {0, 4096, 3, 0x22, UINT64_MAX}},
		{.name = "mremap", .number = SYS_mremap},
		{.name = "gettid", .number = SYS_gettid},
	};

	return hl_remote_check_calls(remote, calls, HL_COUNT_OF(calls), err);
}

int main(int argc, char **argv)
{
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	if (argc < 3)
		return 2;
	int r = hl_remote_open((pid_t)atoi(argv[1]), &remote, &err);
	if (r == 0 && !strcmp(argv[2], "calls"))
		r = make_calls(remote, &err);
	else if (r == 0 && !strcmp(argv[2], "stops"))
		r = stop_often(remote, atoi(argv[3]), &err);
	else if (r == 0 && !strcmp(argv[2], "permits"))
		r = check_calls(remote, &err);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", strerrorname_np(-r), err.text);
	fprintf(stderr, "stopped %u us\n", remote ? hl_remote_stopped_us(remote) : 0);
	hl_remote_free(remote);
	return r < 0;
}
