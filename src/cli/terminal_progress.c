/* SPDX-License-Identifier: BSD-2-Clause */
/* One line on standard error that is written over; see terminal_progress.h. */
#include "cli/terminal_progress.h"

#include "base/compiler.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS UINT64_C(1000000000) /* what takes less is not worth a line */
#define STEP_NS	 UINT64_C(100000000)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void write_line(struct hl_terminal_progress *progress, const char *what, unsigned percent,
		       uint64_t now)
{
	fprintf(stderr, "\r%s: %u %%\033[K", what, percent);
	fflush(stderr);
	progress->shown = true;
	progress->shown_ns = now;
}

static void show(struct hl_progress *base, const char *what, uint64_t done, uint64_t all)
{
	struct hl_terminal_progress *progress =
		(void *)((char *)base - offsetof(struct hl_terminal_progress, progress));
	uint64_t now = now_ns();

	if (done >= all) { /* what comes next may be the report */
		hl_terminal_progress_clear(progress);
		return;
	}
	if (progress->on_terminal && now - progress->started_ns >= FIRST_NS &&
	    now - progress->shown_ns >= STEP_NS)
		write_line(progress, what, (unsigned)((double)done / (double)all * 100), now);
}

void hl_terminal_progress_init(struct hl_terminal_progress *progress)
{
	*progress = (struct hl_terminal_progress){
		.progress.report = show,
		.started_ns = now_ns(),
		.on_terminal = isatty(STDERR_FILENO),
	};
}

void hl_terminal_progress_clear(struct hl_terminal_progress *progress)
{
	if (progress->shown)
		fputs("\r\033[K", stderr);
	progress->shown = false;
}
