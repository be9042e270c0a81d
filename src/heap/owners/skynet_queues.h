/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that wait in the queues of skynet's services, read out of a process while it goes on. skynet keeps its services in a table
 * behind a static variable, H. Its structures are those of 1.8.0 and of mid-2026, with either kind of locks; nothing is believed before the
 * services agree with it: each stands in the table where its handle says, and has a queue with the same handle.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_skynet_queue {
	uint32_t handle;
	uint64_t messages, bytes; /* of their contents */
};

/* ${ret_queues}, one for each service, to be freed. 0; -ENOENT when the program's file has no such variable in its symbols;
 * -EPROTO when what is there is not skynet's; -ENOMEM; or what reading failed with. */
int hl_skynet_queues_read(pid_t pid, struct hl_skynet_queue **ret_queues, size_t *ret_count);
