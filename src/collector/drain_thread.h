/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that drains the rings of one process, every millisecond. Each process has its own:
 * neither a save, which takes a tenth of a second and more where there are many nodes, nor another
 * process' load then makes a target wait for room.
 */
#pragma once

#include "collector/drain.h"

struct hl_drain_thread;

/*
 * Starts. ${start_ns} is the CLOCK_MONOTONIC of tick 0. 0 or a negative errno. What ${settings}
 * refer to must stay until the stop.
 */
int hl_drain_thread_start(const struct hl_drain_settings *settings, uint64_t start_ns,
			  struct hl_drain_thread **ret_thread);

/* See hl_drain_move(). */
void hl_drain_thread_move(struct hl_drain_thread *thread, int directory_fd);

/* Drains what is left, ends the log and the thread. */
void hl_drain_thread_stop(struct hl_drain_thread *thread, struct hl_log_losses *ret_losses);
