/* SPDX-License-Identifier: BSD-2-Clause */
/* A collector for a program that preloads the recorder without `heapline record`. */
#pragma once

#include "region/protocol.h"

#include <stdbool.h>

/*
 * Starts `heapline record` with the options in HEAPLINE_RECORD, if ${environment} has it, and waits
 * for its answer. The collector is nobody's child here: it is forked twice, so that the program's
 * wait() never returns it. False if there is none, and the program goes on unrecorded. Why stands on
 * the standard error stream, unless there was no memory for the collector, or it did not answer in
 * 10 s. A set-user-id program gets none. For the program's start, before any other thread.
 */
bool hl_own_collector_start(char *const *environment, struct hl_invitation *ret_invitation);
