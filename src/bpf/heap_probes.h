/* SPDX-License-Identifier: BSD-2-Clause */
/* Which functions of a target are probed for `stacks`, and the probes themselves. */
#pragma once

#include "bpf/allocators.h"
#include "bpf/probe.h"

#include <stdbool.h>
#include <stdio.h>

/* Zero-initialize: no probes. */
struct hl_heap_probes {
	pid_t pid;
	enum hl_probe_way way;
	const char *object;   /* part of the path of files to look at; NULL: any */
	bool entry_alone;     /* neither returns nor frees are of interest */
	bool spares_throwing; /* leaves out functions that an exception may leave */
	struct hl_allocators allocators;
	struct hl_probe_links links;
	int missed; /* allocators that were mapped late, and have no probes */
};

/*
 * Finds the allocators of ${pid}; members above allocators must be set. 0, or a negative errno with
 * a sentence.
 */
int hl_heap_probes_find(struct hl_heap_probes *probes, struct hl_error *err);

/* Whether one function that is to be probed may call another one. */
bool hl_heap_probes_may_nest(const struct hl_heap_probes *probes);

/*
 * Runs ${entry_fd} where functions begin, and ${return_fd} (not for sessions, nor when entries are
 * all that is wanted: -1) where they return. 0, or a negative errno with a sentence and with no
 * probe left.
 */
int hl_heap_probes_link(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			struct hl_error *err);

/*
 * The same in files that were mapped since. How many of them have allocators, those that could not
 * be reached (they may be unmapped again) included, which are counted; -ESRCH when the process has
 * ended, or another negative errno with a sentence.
 */
int hl_heap_probes_extend(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			  struct hl_error *err);

/* Takes the probes away. */
void hl_heap_probes_unlink(struct hl_heap_probes *probes);

/* "malloc, free+3 and 6 others in libc.so.6" for each file, for the user. NULL: no memory. */
char *hl_heap_probes_describe(const struct hl_heap_probes *probes);

/* Names of functions of which each call costs some 10 us, with commas; "" when there are none, NULL
 * when there is no memory. */
char *hl_heap_probes_slow(const struct hl_heap_probes *probes);

/* The same for functions that were left out because an exception may leave them. */
char *hl_heap_probes_spared(const struct hl_heap_probes *probes);

void hl_heap_probes_release(struct hl_heap_probes *probes);

/*
 * What would harm a target. A function whose return is watched has its return address replaced, and
 * mostly nobody notices. Two do. The C++ runtime finds no way through the replaced address, so that
 * an exception ends the program; of an allocator's functions operator new can throw, when there is
 * no memory. And from kernel 6.11 on that address leads to a system call that filters (seccomp) do
 * not know, so that they end the program; kernel 6.14 exempts it.
 */

/*
 * Whether the system may refuse memory to ${pid} while the machine has some: limits of the process,
 * or no overcommitment. Then even small requests can fail.
 */
bool hl_heap_probes_memory_is_limited(pid_t pid);

/* Larger requests are refused on any machine like this one: all its memory, in bytes. */
uint64_t hl_heap_probes_request_max(void);

/* Whether returns can be watched in ${pid} without ending it. 0, or -ENOTSUP with a sentence. */
int hl_heap_probes_check_returns(pid_t pid, struct hl_error *err);
