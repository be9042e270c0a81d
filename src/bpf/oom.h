/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom the kernel kills for want of memory, as BPF programs see it. One thread. */
#pragma once

#include "base/error.h"
#include "bpf/oom_shared.h"

#include <stdint.h>

struct hl_oom;

/* Gets a record, which is valid during the call. */
typedef void hl_oom_record_fn(void *context, const struct hl_oom_record *record);

/* Begins to watch. 0, or a negative errno with a sentence: without privileges, without BTF, and in a PID namespace. */
int hl_oom_new(hl_oom_record_fn *on_record, void *context, struct hl_oom **ret_oom,
	       struct hl_error *err);

/* Can be polled for records. */
int hl_oom_fd(const struct hl_oom *oom);

/* Hands over all records that are there. */
void hl_oom_take(struct hl_oom *oom);

/* Kills of which there is no record. */
uint64_t hl_oom_lost(const struct hl_oom *oom);

void hl_oom_free(struct hl_oom *oom); /* NULL is fine */
