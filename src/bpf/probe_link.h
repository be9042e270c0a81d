/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Breakpoints in user space (uprobes) that run BPF programs, in three ways:
 *
 *   session  one program runs at the entry of a function and again at its return, and can do
 *            without the return when it sees the entry; kernel 6.13
 *   multi    many places in one call; programs for entry and return apart; kernel 6.10 (older ones
 *            have it but take a process' main thread for the process)
 *   perf     a file descriptor and a call for each place; any kernel
 *
 * libbpf 1.1 knows the last one alone, so the links are made by the system call itself. A link
 * lives as long as its descriptor: when heapline is killed, no probe is left.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum hl_probe_way {
	HL_PROBE_PERF,
	HL_PROBE_MULTI,
	HL_PROBE_SESSION,
};

/* What the kernel calls with: expected_attach_type of a BPF program that is to be linked. */
enum hl_probe_attach_type {
	HL_ATTACH_PERF = 0,	/* none: BPF_PROG_TYPE_KPROBE's default */
	HL_ATTACH_MULTI = 48,	/* BPF_TRACE_UPROBE_MULTI */
	HL_ATTACH_SESSION = 57, /* BPF_TRACE_UPROBE_SESSION */
};

struct hl_probe_site {
	uint64_t offset; /* in the file */
	uint64_t cookie; /* what bpf_get_attach_cookie() says there */
};

/* Where a program is to run. */
struct hl_probe_target {
	pid_t pid;
	const char *path; /* of the file, as this process can open it */
	const struct hl_probe_site *sites;
	size_t site_count;
};

/* Zero-initialize: no links. */
struct hl_probe_links {
	int *fds;
	size_t count, capacity;
};

/* "session", "multi", "perf". */
const char *hl_probe_way_name(enum hl_probe_way way);

/* The attach type that programs need for ${way}. */
enum hl_probe_attach_type hl_probe_attach_type(enum hl_probe_way way);

/* The best way that this kernel has. Needs the right to load BPF programs; without it, the answer
 * is HL_PROBE_PERF. */
enum hl_probe_way hl_probe_best_way(void);

/*
 * Has the program ${program_fd}, loaded for ${way}, run at ${target}'s sites; ${at_return}: when
 * the functions that are entered there return (not for HL_PROBE_SESSION, where it does both).
 * Links are added to ${links}; on failure some may have been. 0, or a negative errno with a
 * sentence in ${err}.
 */
int hl_probe_links_add(struct hl_probe_links *links, enum hl_probe_way way, int program_fd,
		       bool at_return, const struct hl_probe_target *target, struct hl_error *err);

/* Takes all probes away, at once: each link by itself waits for the kernel. */
void hl_probe_links_release(struct hl_probe_links *links);
