/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the target's allocator for its figures, by its own public functions. In-process code. */
#pragma once

#include "recorder/recorder.h"

/*
 * Answers the collector's question, if no other thread is answering it. To be called by ${thread}
 * in a hook after the real call, where no lock of the allocator is held: in activity RECORDING,
 * which it is again afterwards. errno is kept, but in a process that the recorder was brought into, where it is out of reach.
 */
void hl_introspect(struct hl_recorder *recorder, struct hl_thread *thread);

/* Which functions answer, in a process that the recorder is brought into. Before it runs. */
void hl_introspect_know(const struct hl_answering *answering);
