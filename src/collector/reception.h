/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector's socket: who may speak to it, what a hello must be, how it is answered. */
#pragma once

#include "base/error.h"
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
