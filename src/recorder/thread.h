/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of the target, as recorder.c and the hooks need them beyond recorder.h. */
#pragma once

#include "recorder/recorder.h"

/* Once, before the first thread is entered. False when the system has no key left. */
bool hl_thread_init(void);

/* In a forked child, at its first event: starts its recorder. True when it runs. */
bool hl_recorder_start_in_child(struct hl_recorder *recorder);
