/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs with known figures, beside the recordings of make_recording.c. */
#pragma once

#include "recording/recording.h"

/*
 * Write the log of ${process}, with its modules and nodes, to the recording's ${directory_fd}. 0 or
 * a negative errno.
 *
 *	shop	25 intervals: a leak, a cache that fills up, two spikes, a quiet time; marks, events
 *	broken	the same, in small segments of which one is gone, with a hole and lost events
 *	day	864,000 intervals, in each of which 50 of the nodes change
 */
int write_shop_log(int directory_fd, const struct hl_recording_process *process);
int write_broken_log(int directory_fd, const struct hl_recording_process *process);
int write_day_log(int directory_fd, const struct hl_recording_process *process);
