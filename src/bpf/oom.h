/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom the kernel kills for want of memory, and which groups come near their limits, as BPF programs see it. One thread. */
#pragma once

#include "base/error.h"
#include "bpf/oom_shared.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_oom;

/* Gets a record, which is valid during the call. */
typedef void hl_oom_record_fn(void *context, const struct hl_oom_record *record);

/* Gets the inode of a group that passes one of the shares of its limit, upwards. */
typedef void hl_oom_passing_fn(void *context, uint64_t inode);

struct hl_oom_wishes {
	hl_oom_record_fn *on_record;
	hl_oom_passing_fn *on_passing;
	void *context;
	double shares[HL_OOM_SHARES]; /* 0 to 1 */
};

/* Begins to watch. 0, or a negative errno with a sentence: without privileges, without BTF, and in a PID namespace. */
int hl_oom_new(const struct hl_oom_wishes *wishes, struct hl_oom **ret_oom, struct hl_error *err);

/* Whether this kernel lets the programs see groups that pass a share of their limits. */
bool hl_oom_sees_passings(const struct hl_oom *oom);

/* Can be polled for records. */
int hl_oom_fd(const struct hl_oom *oom);

/* Hands over all records that are there. */
void hl_oom_take(struct hl_oom *oom);

/* Kills of which there is no record. */
uint64_t hl_oom_lost(const struct hl_oom *oom);

void hl_oom_free(struct hl_oom *oom); /* NULL is fine */
