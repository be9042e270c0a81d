/* SPDX-License-Identifier: BSD-2-Clause */
/* Shows on standard error, if that is a terminal, how far work has come that takes over a second.
 */
#pragma once

#include "base/progress.h"

#include <stdbool.h>

struct hl_terminal_progress {
	struct hl_progress progress;
	uint64_t started_ns, shown_ns;
	bool on_terminal, shown;
};

void hl_terminal_progress_init(struct hl_terminal_progress *progress);

/* Wipes what was shown; before anything else is written. */
void hl_terminal_progress_clear(struct hl_terminal_progress *progress);
