/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words that a program handed to the kernel, and that only the kernel has until it hands them back.
 * Linux shows those of epoll_ctl(2), in /proc/PID/fdinfo, and of timer_create(2), in /proc/PID/timers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum hl_kernel_holder {
	HL_KERNEL_EPOLL, /* epoll_event.data */
	HL_KERNEL_TIMER, /* sigevent.sigev_value */
};

/* ${words} of the epoll descriptor, or of the timer, ${number}. Non-zero ends the reading. */
typedef int hl_kernel_visit(void *context, enum hl_kernel_holder holder, uint32_t number,
			    const uint64_t *words, size_t count);

/*
 * Calls ${visit} once for each epoll descriptor and timer of ${pid} that has words, until it returns
 * non-zero, and returns that. ${ret_has_io_uring} is whether a descriptor is io_uring's, whose requests
 * have words, too, that Linux does not show. 0, or -ENOMEM; what cannot be read is left out.
 */
int hl_kernel_words_read(pid_t pid, hl_kernel_visit *visit, void *context, bool *ret_has_io_uring);
