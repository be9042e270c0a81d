/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the collector for a region; see protocol.h. */
#pragma once

#include "region/protocol.h"

#include <stdbool.h>
#include <stddef.h>

/* Keeps the collector's address, the values of HL_ENV_SOCKET and HL_ENV_TOKEN, for this process and
 * its forked children. False when they are NULL or cannot be an address. */
bool hl_connect_set_collector(const char *socket, const char *token);

/*
 * Gets and maps a region for this process; nothing stays open. NULL when there is no collector, or
 * it refuses, or it does not answer in time, or did not answer another recorder (protocol.h).
 * ${ret_collector_pid} is 0 when the collector is not to be seen in this process' pid namespace.
 * errno is kept.
 */
void *hl_connect_get_region(enum hl_hello_kind kind, size_t *ret_bytes, int32_t *ret_collector_pid);
