/* SPDX-License-Identifier: BSD-2-Clause */
/* Proves memory readable without touching it; see saved.h. */
#include "base/machine.h"
#include "base/system_call.h"
#include "unwind/saved.h"

#include "base/seccomp.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#define PAGE_BYTES	 UINT64_C(4096) /* or a part of a larger one */
#define KERNEL_SET_BYTES 8L		/* the size of the kernel's sigset_t */
#define INVALID_HOW	 -1L
/* A walk moves from frame to frame of one stack: farther away lies another stack. */
#define NEAR_BYTES (64 * PAGE_BYTES)

/*
 * rt_sigprocmask copies the set in before it looks at ${how}: EFAULT says unreadable, EINVAL says
 * readable, and nothing changes either way. The instruction itself instead of syscall(3), because
 * that would set errno.
 */
bool hl_memory_page_is_readable(uint64_t page)
{
	if (!hl_seccomp_enter(SYS_rt_sigprocmask, INVALID_HOW, (long)page, 0, KERNEL_SET_BYTES, 0,
			      0))
		return false;
	long result = hl_machine_call(SYS_rt_sigprocmask, INVALID_HOW, (long)page, 0,
				      KERNEL_SET_BYTES, 0, 0);
	hl_seccomp_leave();
	return result == -EINVAL;
}

bool hl_memory_range_is_readable(uint64_t first, uint64_t last)
{
	if (last < first || last >= HL_USER_END)
		return false;
	for (uint64_t page = first & ~(PAGE_BYTES - 1); page <= last; page += PAGE_BYTES)
		if (!hl_memory_page_is_readable(page))
			return false;
	return true;
}

bool hl_memory_object_is_readable(uint64_t address, uint32_t bytes)
{
	return !(address & 7) && hl_memory_range_is_readable(address, address + bytes - 1);
}

/* A wait for no time begins with a comparison: EAGAIN says that the number differs. */
bool hl_memory_has_number(uint64_t address, uint32_t number)
{
	const struct timespec no_time = {0};

	if (!hl_seccomp_enter(SYS_futex, (long)address, FUTEX_WAIT | FUTEX_PRIVATE_FLAG,
			      (long)number, (long)&no_time, 0, 0))
		return false;
	long result = hl_machine_call(SYS_futex, (long)address, FUTEX_WAIT | FUTEX_PRIVATE_FLAG,
				      (long)number, (long)&no_time, 0, 0);
	hl_seccomp_leave();
	return result == -ETIMEDOUT;
}

/* Extends the known range to ${page}; false when a page on the way cannot be read. */
static bool extend_to(struct hl_walk *walk, uint64_t page)
{
	for (; walk->stack_low > page; walk->stack_low -= PAGE_BYTES)
		if (!hl_memory_page_is_readable(walk->stack_low - PAGE_BYTES))
			return false;
	for (; walk->stack_high <= page; walk->stack_high += PAGE_BYTES)
		if (!hl_memory_page_is_readable(walk->stack_high))
			return false;
	return true;
}

bool hl_memory_prove_readable(struct hl_walk *walk, uint64_t address)
{
	uint64_t page = address & ~(PAGE_BYTES - 1);

	if (address >= HL_USER_END)
		return false;
	bool near = walk->stack_low < walk->stack_high && page + NEAR_BYTES >= walk->stack_low &&
		    page < walk->stack_high + NEAR_BYTES;
	if (near && extend_to(walk, page))
		return true;
	if (!hl_memory_page_is_readable(page))
		return false;
	walk->stack_low = page;
	walk->stack_high = page + PAGE_BYTES;
	return true;
}
