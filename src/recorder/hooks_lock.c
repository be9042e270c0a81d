/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mlockall(): Linux permits MCL_CURRENT only if all mapped addresses fit into RLIMIT_MEMLOCK, among them those that the
 * recorder reserves and never touches. Where Linux refuses, the program's own mappings are locked one by one.
 */
#include "recorder/hooks.h"

#include "base/compiler.h"
#include "recorder/libc.h"
#include "recorder/private_map.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* This library, as the linker has placed it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

/* /proc/self/maps, read without libc. */
struct reader {
	int fd;
	size_t at, count;
	char bytes[1024];
};

static char next_character(struct reader *reader)
{
	if (reader->at == reader->count) {
		long count = HL_SYS(SYS_read, reader->fd, reader->bytes, sizeof(reader->bytes));
		reader->at = 0;
		reader->count = count > 0 ? (size_t)count : 0;
	}
	return reader->at < reader->count ? reader->bytes[reader->at++] : '\0';
}

/* Reads a number in hexadecimal and the character after it. */
static uint64_t next_address(struct reader *reader)
{
	uint64_t address = 0;

	for (char next; (next = next_character(reader)) && next != '-' && next != ' ';)
		address = address << 4 | (uint64_t)(next <= '9' ? next - '0' : next - 'a' + 10);
	return address;
}

static bool is_in(uint64_t address, const void *start, size_t bytes)
{
	return address - (uint64_t)start < bytes;
}

static bool is_ours(uint64_t address)
{
	const struct hl_recorder *recorder = hl_recorder;

	return hl_private_map_has(address) ||
	       is_in(address, __ehdr_start, (size_t)(_end - __ehdr_start)) ||
	       (recorder &&
		(is_in(address, recorder, sizeof(*recorder)) ||
		 is_in(address, recorder->region.header, sizeof(*recorder->region.header))));
}

/* The next mapping that is not the recorder's; false after the last. */
static bool next_own(struct reader *reader, uint64_t *ret_start, uint64_t *ret_bytes)
{
	uint64_t start, end;

	do {
		start = next_address(reader);
		end = next_address(reader);
		for (char next = ' '; next && next != '\n';)
			next = next_character(reader);
	} while (end && is_ours(start));
	*ret_start = start;
	*ret_bytes = end - start;
	return end && end <= INT64_MAX; /* behind them [vsyscall], which is the kernel's */
}

/* Locks all mappings of the program where ${locks}; returns how many bytes they have. */
static uint64_t each_own(struct reader *reader, bool locks, bool on_fault)
{
	uint64_t sum = 0, start, bytes;

	reader->at = reader->count = 0;
	HL_SYS(SYS_lseek, reader->fd, 0, SEEK_SET);
	while (next_own(reader, &start, &bytes)) {
		sum += bytes;
		if (locks) /* like mlockall(), without a word where there is nothing to bring in */
			HL_SYS(SYS_mlock2, start, bytes, on_fault ? MLOCK_ONFAULT : 0);
	}
	return sum;
}

static long lock_own(int flags)
{
	struct rlimit limit = {0};
	struct reader reader = {
		.fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
				   O_RDONLY | O_CLOEXEC, 0, 0, 0),
	};
	long r = reader.fd < 0 ? -ENOMEM : HL_SYS(SYS_getrlimit, RLIMIT_MEMLOCK, &limit, 0);

	if (r == 0 && each_own(&reader, false, false) > limit.rlim_cur)
		r = -ENOMEM;
	if (r == 0 && flags & MCL_FUTURE)
		r = HL_SYS(SYS_mlockall, flags & ~MCL_CURRENT, 0, 0);
	if (r == 0)
		each_own(&reader, true, flags & MCL_ONFAULT);
	if (reader.fd >= 0)
		hl_sys_close(reader.fd);
	return r;
}

/* The reserved memory counts as locked, and would against what the program locks later. */
static void unlock_region(void)
{
	const struct hl_recorder *recorder = hl_recorder;

	if (!recorder)
		return;
	const struct hl_area *rings = &recorder->region.header->areas[HL_AREA_RINGS];
	const char *rings_start = atomic_load(&recorder->region.rings);
	HL_SYS(SYS_munlock, recorder->region.header, rings->offset, 0);
	if (rings_start)
		HL_SYS(SYS_munlock, rings_start, rings->capacity, 0);
}

/* A filter that came after the recorder may forbid what the program does not call itself. */
static bool may_call(void)
{
#ifdef HL_ATTACHED
	return HL_SYS(SYS_prctl, PR_GET_SECCOMP, 0, 0) == 0;
#else
	return true;
#endif
}

HL_EXPORT int HL_HOOK(mlockall)(int flags)
{
	long r = HL_SYS(SYS_mlockall, flags, 0, 0);

	if (r == 0 && hl_recorder && may_call())
		unlock_region();
	else if (r == -ENOMEM && flags & MCL_CURRENT && may_call())
		r = lock_own(flags);
	return r < 0 ? hl_libc_fail_lock(flags, r) : 0;
}
