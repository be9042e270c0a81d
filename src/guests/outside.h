/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What guests know of a process from outside, beside guest.h, which is for the inside. A member that is NULL means
 * "does not do that".
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_block_owners;
struct hl_inuse_labels;

/* What labels of live blocks say. */
enum hl_guest_label {
	HL_GUEST_TYPES,
	HL_GUEST_AGES, /* how many collections blocks have outlived */
	HL_GUEST_LABELS,
};

#define HL_GUEST_SERVICE_NAME_MAX 48

/* A part of a program, which runs scripts of its own. */
struct hl_guest_service {
	uint32_t handle;
	uint64_t messages, bytes;	      /* that wait for it, and of their contents */
	char name[HL_GUEST_SERVICE_NAME_MAX]; /* "": not known */
};

/* Reads labels of the blocks that process ${pid} has in use, while it goes on, from pages that are in memory. ${owners}: as
 * hl_inuse_labels_open() gives them. 0; or a negative errno with a sentence, -ENOENT when the process has no such runtime. */
typedef int hl_guest_read_labels_fn(pid_t pid, struct hl_block_owners *owners,
				    struct hl_inuse_labels **ret_labels, struct hl_error *err);

struct hl_guest_outside {
	struct {
		const char *what; /* for a sentence: "the types of ..." */
		hl_guest_read_labels_fn *read;
	} labels[HL_GUEST_LABELS];
	/* ${ret_services}, one for each service, to be freed. 0; -ENOENT and -EPROTO when it has none; -ENOMEM; or what
	 * reading failed with. */
	int (*read_services)(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count);
};

/* All of them; NULL ends the table. */
#define HL_GUESTS_OUTSIDE_MAX 4u
extern const struct hl_guest_outside *const hl_guests_outside[HL_GUESTS_OUTSIDE_MAX + 1];
