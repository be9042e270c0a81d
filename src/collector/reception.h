/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector's socket: who may speak to it, what a hello must be, how it is answered; and who did not come. */
#pragma once

#include "base/error.h"
#include "collector/archive.h"
#include "collector/tracked.h"
#include "region/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_reception {
	int fd;		/* listening; non-blocking */
	int reserve_fd; /* given up to refuse a caller when no descriptor is left */
	char name[48];	/* abstract, without the leading NUL */
	char token[33];
};

struct hl_caller {
	pid_t pid;
	int fd;
	bool is_foreign; /* neither our user nor root */
};

int hl_reception_init(struct hl_reception *reception, struct hl_error *err);
void hl_reception_release(struct hl_reception *reception);

/*
 * Takes the next caller. 0, -EAGAIN when there is none, -EPERM for one turned away (it cannot be
 * seen from our PID namespace), or -EMFILE and the like for one turned away for want of means.
 */
int hl_reception_accept(struct hl_reception *reception, struct hl_caller *ret_caller);

/* Reads a caller's hello. 0, -EAGAIN when it is not there yet, -EPROTO for anything but a hello
 * with our token. */
int hl_reception_read_hello(const struct hl_reception *reception, const struct hl_caller *caller,
			    struct hl_hello *ret_hello);

/* Answers with a region, or with ${error}, a positive errno, and no region (region_fd -1). */
int hl_reception_answer(const struct hl_caller *caller, int error, int region_fd,
			uint64_t region_bytes);

/* A pidfd of the caller, or a negative errno. */
int hl_reception_pidfd(const struct hl_caller *caller);

/* ---- unrecorded children ---- */

/*
 * Children that should have been recorded and were not. Recorded programs tell in their regions which children
 * started (recorder/kin.h); a child that is recorded says hello. The difference ran unrecorded: in another network
 * namespace, without memory, as a static program, or while the collector was stopped.
 */

#define HL_UNRECORDED_REASONS 8 /* of more, each process has a sentence of its own */
#define HL_UNRECORDED_PIDS    3 /* named in the sentence about a reason */

struct hl_unrecorded {
	uint64_t started; /* children with programs of their own, of processes that have ended */
	uint64_t forked;  /* children without a region, of processes that have ended */
	uint64_t arrived; /* programs that were expected and said hello */
	uint64_t awaited; /* forked children of whom nothing was known when their parent ended */
	uint64_t fork_hellos; /* of forked children, in vain or not */
	uint32_t just_now;    /* hl_unrecorded_steady()'s last count */
	uint32_t refused;     /* of the children, those that said hello in vain */
	struct {
		char reason[96];
		uint32_t count;
		pid_t pids[HL_UNRECORDED_PIDS];
	} reasons[HL_UNRECORDED_REASONS]; /* why processes were refused */
};

/* Process ${pid} said hello and is not recorded: the sentence of the recording about those that
 * were refused for that ${reason} counts it. */
void hl_unrecorded_refuse(struct hl_unrecorded *unrecorded, struct hl_archive *archive, pid_t pid,
			  const char *reason);

/*
 * Whether a program that says hello was told of when it was started. One that ${parent} started,
 * which is not recorded itself, was not: ${tracked} is that process, NULL where none is known.
 * ${is_orphan}: it has another parent than the one that started it.
 */
bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked, bool is_orphan);

/* The region of ${tracked} is about to go. */
void hl_unrecorded_keep(struct hl_unrecorded *unrecorded, const struct hl_tracked *tracked);

/* Whether a child may be about to say hello. So it seems for ever where a child ended without having
 * allocated. */
bool hl_unrecorded_are_awaited(const struct hl_unrecorded *unrecorded,
			       const struct hl_tracked *running);

/* How many there are, with those that the processes in the list ${running} tell of. */
uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running);

/* The same while the recording goes on: without children that are just about to say hello. To be
 * called once a second. */
uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running);
