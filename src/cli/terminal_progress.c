/* SPDX-License-Identifier: BSD-2-Clause */
/* One line on standard error that is written over; see output.h. */
#include "cli/output.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NS 1000000000 /* what takes less is not worth a line */
#define STEP_NS	 200000000

/* Of all below, and of standard error while a line is shown. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hl_terminal_progress *current; /* NULL: nothing can be shown */

static void wipe(struct hl_terminal_progress *progress)
{
	if (progress->shown)
		fputs("\r\033[K", stderr);
	progress->shown = false;
}

static struct timespec later(struct timespec from, long ns)
{
	from.tv_nsec += ns;
	from.tv_sec += from.tv_nsec / 1000000000;
	from.tv_nsec %= 1000000000;
	return from;
}

static void *run(void *argument)
{
	struct hl_terminal_progress *progress = argument;
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	next = later(next, FIRST_NS);
	pthread_mutex_lock(&lock);
	while (!progress->ends) {
		if (pthread_cond_clockwait(&progress->ended, &lock, CLOCK_MONOTONIC, &next) == 0)
			continue;
		if (progress->detail)
			fprintf(stderr, "\r%s: %u %%\033[K", progress->detail, progress->percent);
		else if (progress->phase)
			fprintf(stderr, "\r%s\033[K", progress->phase);
		progress->shown |= progress->detail || progress->phase;
		fflush(stderr);
		next = later(next, STEP_NS);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void take_report(struct hl_progress *base, const char *what, uint64_t done, uint64_t all)
{
	struct hl_terminal_progress *progress =
		(void *)((char *)base - offsetof(struct hl_terminal_progress, progress));

	pthread_mutex_lock(&lock);
	if (done < all) {
		progress->detail = what;
		progress->percent = (unsigned)((double)done / (double)all * 100);
	} else { /* what comes next may be the report */
		progress->detail = NULL;
		wipe(progress);
	}
	pthread_mutex_unlock(&lock);
}

void hl_terminal_progress_init(struct hl_terminal_progress *progress, const char *phase)
{
	*progress = (struct hl_terminal_progress){
		.progress.report = take_report,
		.ended = PTHREAD_COND_INITIALIZER,
		.phase = phase,
	};
	if (!isatty(STDERR_FILENO))
		return;
	progress->is_running = pthread_create(&progress->thread, NULL, run, progress) == 0;
	current = progress->is_running ? progress : NULL;
}

void hl_terminal_progress_phase(struct hl_terminal_progress *progress, const char *phase)
{
	pthread_mutex_lock(&lock);
	progress->phase = phase;
	progress->detail = NULL;
	wipe(progress);
	pthread_mutex_unlock(&lock);
}

void hl_terminal_progress_clear(struct hl_terminal_progress *progress)
{
	if (!progress->is_running)
		return;
	pthread_mutex_lock(&lock);
	progress->ends = true;
	wipe(progress);
	pthread_cond_signal(&progress->ended);
	pthread_mutex_unlock(&lock);
	pthread_join(progress->thread, NULL);
	progress->is_running = false;
	current = NULL;
}

void hl_terminal_progress_wipe(void)
{
	pthread_mutex_lock(&lock);
	if (current)
		wipe(current);
	pthread_mutex_unlock(&lock);
}
