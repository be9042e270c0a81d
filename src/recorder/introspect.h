/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the target's allocator what it has, by its own public functions. In-process code. */
#pragma once

#include "recorder/recorder.h"

/*
 * Answers what the collector asked, if nobody else does just now. To be called by ${thread} in a
 * hook after the real call, where no lock of the allocator is held: in activity RECORDING, which it
 * is again afterwards. errno is kept.
 */
void hl_introspect(struct hl_recorder *recorder, struct hl_thread *thread);
