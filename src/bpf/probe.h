/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in functions probes are set, and how. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- where ---- */

/*
 * Where in a function a probe costs least: probe_place.c, with what src/arch/MACHINE/bpf/probe_place.c says of instructions.
 *
 * On x86-64 a uprobe is a breakpoint. What stood in its place the kernel emulates if it is a push, a jump, a
 * call or a one-byte nop; all else it copies elsewhere and steps over with the processor's trap
 * flag, which costs ten times as much. So the probe goes to the first instruction that is emulated,
 * as long as what comes before is straight-line code that any call runs, once, and that leaves the
 * stack pointer, the frame pointer, the return address and the arguments to be found.
 */

#define HL_PROBE_ARGUMENTS_MAX 4

struct hl_probe_place {
	uint32_t offset; /* from the function's first byte */
	bool emulated;	 /* else a hit costs about 10 us; aarch64 steps over all at a like price */
	/* Where the arguments are at that point: numbers of registers as instructions have them
	 * (rax 0, rcx 1, rdx 2 ... r15 15; x0 0 ...). */
	uint8_t arguments[HL_PROBE_ARGUMENTS_MAX];
};

/*
 * The place in the function whose first ${bytes} bytes are ${code}, of which the first
 * ${argument_count} integer arguments (at most HL_PROBE_ARGUMENTS_MAX) are wanted. Its first
 * instruction when none is better.
 */
struct hl_probe_place hl_probe_place(const uint8_t *code, size_t bytes, unsigned argument_count);

/*
 * Calls ${visit} with the target of each direct jump and call in ${code}, relative to its first
 * byte, until it returns true. Whether it did.
 */
bool hl_probe_place_visit_branches(const uint8_t *code, size_t bytes,
				   bool (*visit)(int64_t target, void *context), void *context);

/* ---- where: the machine's ---- */

/* What an instruction does, as far as it decides where a probe is set. Masks are of numbers of general registers. */
struct hl_probe_instruction {
	uint32_t bytes;
	uint32_t written,
		copied;	 /* written holds what copied held, or, where that is 0, something else */
	uint64_t target; /* of a branch by a distance */
	bool is_branch;
	bool is_emulated; /* a probe on it is cheap */
	bool may_precede; /* it may run before the probe */
};

/* The instruction at ${address} in ${code}. False where none begins; its bytes are then those to the next place where one may. */
bool hl_probe_read(const uint8_t *code, size_t bytes, uint64_t address,
		   struct hl_probe_instruction *ret_instruction);

/* The registers of the ABI's first integer arguments. */
extern const uint8_t hl_probe_arguments[HL_PROBE_ARGUMENTS_MAX];

/* The place in a function that is hardly more than a system call: of a jump after it, on an error, where the first ${argument_count}
 * arguments are as they were; 0: none. */
uint32_t hl_probe_place_after_call(const uint8_t *code, size_t bytes, unsigned argument_count);

/* The length of a jump that is always taken; 0: ${code} is another instruction. */
size_t hl_probe_place_jump_bytes(const uint8_t *code, size_t bytes);

/* Of a stub of a procedure linkage table at ${address}: the address of the word that it jumps by; 0: ${code} is another instruction. */
uint64_t hl_probe_place_stub_slot(const uint8_t *code, size_t bytes, uint64_t address);

/* ---- how ---- */

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
const char *hl_probe_link_way_name(enum hl_probe_way way);

/* The attach type that programs need for ${way}. */
enum hl_probe_attach_type hl_probe_link_attach_type(enum hl_probe_way way);

/* The best way that this kernel has. Needs the right to load BPF programs; without it, the answer
 * is HL_PROBE_PERF. */
enum hl_probe_way hl_probe_link_best_way(void);

/* Whether the kernel lets us load a program at all: 0 or a negative errno. */
int hl_probe_link_check(void);

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
