/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services of skynet: their names, and messages that wait in their queues, read out of a process while it goes on. skynet keeps its services in a table
 * behind a static variable, H. Its structures are those of 1.8.0 and of mid-2026, with either kind of locks; nothing is believed before the
 * services agree with it: each stands in the table where its handle says, and has a queue with the same handle.
 */
#pragma once

#include "guests/outside.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ${ret_services}, one for each service, to be freed. 0; -ENOENT when the program's file has no such variable in its symbols;
 * -EPROTO when what is there is not skynet's; -ENOMEM; or what reading failed with. */
int hl_skynet_services_read(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count);
