/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at stacks of stopped threads; see whereabouts.h. */
#include "hook/whereabouts.h"

#include <string.h>
#include <sys/uio.h>

#define STACK_WORDS 2048

/*
 * A signal frame on x86-64 Linux: the address of the restorer, then the ucontext. rip is the 17th of
 * its registers. Source: arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h of the kernel.
 */
#define SIGNAL_FRAME_RIP_WORD 22

/* mov $15, %rax or %eax; syscall: as the restorers of glibc and of musl. */
static bool is_restorer(const struct hl_remote *remote, uint64_t address)
{
	static const uint8_t with_rax[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	static const uint8_t with_eax[] = {0xb8, 15, 0, 0, 0, 0x0f, 0x05};
	uint8_t code[sizeof(with_rax)];

	return hl_remote_read(remote, address, code, sizeof(code)) &&
	       (!memcmp(code, with_rax, sizeof(with_rax)) ||
		!memcmp(code, with_eax, sizeof(with_eax)));
}

/* All by one call, up to the first page that is not there: threads are stopped meanwhile, and there may be
 * hundreds. Negative where that is forbidden. */
static ssize_t read_at_once(pid_t tid, uint64_t start, uint64_t words[STACK_WORDS])
{
	struct iovec own = {words, STACK_WORDS * sizeof(*words)};
	struct iovec theirs = {(void *)(uintptr_t)start, own.iov_len};

	return process_vm_readv(tid, &own, 1, &theirs, 1, 0);
}

/* Words from the stack pointer on; a page at a time, since the stack may end. */
static size_t read_stack(const struct hl_remote *remote, const struct hl_remote_thread *thread,
			 uint64_t words[STACK_WORDS])
{
	uint64_t start = thread->registers.rsp & ~UINT64_C(7), at = start;
	uint64_t end = start + STACK_WORDS * sizeof(*words);

	ssize_t got = read_at_once(thread->tid, start, words);
	if (got > 0)
		return (size_t)got / sizeof(*words);
	while (at < end) {
		uint64_t next = (at | 4095) + 1;
		next = next < end ? next : end;
		if (!hl_remote_read(remote, at, &words[(at - start) / sizeof(*words)], next - at))
			break;
		at = next;
	}
	return (at - start) / sizeof(*words);
}

bool hl_whereabouts_will_return(const struct hl_remote *remote,
				const struct hl_remote_thread *thread,
				const struct hl_code_range *ranges, size_t count)
{
	uint64_t words[STACK_WORDS];

	size_t read = read_stack(remote, thread, words);
	for (size_t i = 0; i + SIGNAL_FRAME_RIP_WORD < read; i++)
		if (hl_code_range_holds(ranges, count, words[i + SIGNAL_FRAME_RIP_WORD]) &&
		    is_restorer(remote, words[i]))
			return true;
	return false;
}

bool hl_whereabouts_may_return(const struct hl_remote *remote,
			       const struct hl_remote_thread *thread,
			       const struct hl_code_range *ranges, size_t count)
{
	uint64_t words[STACK_WORDS], low = UINT64_MAX, high = 0;

	for (size_t i = 0; i < count; i++) {
		low = ranges[i].start < low ? ranges[i].start : low;
		high = ranges[i].end > high ? ranges[i].end : high;
	}
	size_t read = read_stack(remote, thread, words);
	for (size_t i = 0; i < read; i++)
		if (words[i] > low && words[i] < high &&
		    hl_code_range_holds(ranges, count, words[i]) &&
		    hl_code_range_holds(ranges, count, words[i] - 1))
			return true;
	return false;
}
