/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the collector for a region; see protocol.h. */
#pragma once

#include "recorder/protocol.h"

#include <stdbool.h>
#include <stddef.h>

/* Reads the collector's address from the environment and keeps it for forked children. False when
 * there is none. */
bool hl_connect_read_environment(char *const *environment);

/*
 * Gets and maps a region for this process; nothing stays open. NULL when there is no collector, it
 * refuses, or it does not answer in time. errno is kept.
 */
void *hl_connect_get_region(enum hl_hello_kind kind, size_t *ret_bytes);
