/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that take the next index; see parallel.h. */
#include "log/parallel.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS_MAX 64u

struct crew {
	size_t count;
	hl_parallel_work *work;
	void *context;
	struct hl_progress *progress;
	const char *what;
	pthread_mutex_t lock; /* of what follows */
	size_t next, done;
	size_t failed_at; /* SIZE_MAX: none has */
	int failure;
};

/* The next index, or count when there is no more to begin. */
static size_t take(struct crew *crew)
{
	pthread_mutex_lock(&crew->lock);
	size_t index = crew->failed_at == SIZE_MAX && crew->next < crew->count ? crew->next++
									       : crew->count;
	pthread_mutex_unlock(&crew->lock);
	return index;
}

static void put_result(struct crew *crew, size_t index, int result)
{
	pthread_mutex_lock(&crew->lock);
	crew->done++;
	if (result && index < crew->failed_at) {
		crew->failed_at = index;
		crew->failure = result;
	}
	hl_progress_report(crew->progress, crew->what, crew->done, crew->count);
	pthread_mutex_unlock(&crew->lock);
}

static void *run(void *context)
{
	struct crew *crew = context;
	size_t index;

	while ((index = take(crew)) < crew->count)
		put_result(crew, index, crew->work(crew->context, index));
	return NULL;
}

static unsigned thread_count(size_t count, const struct hl_log_options *options)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned wanted = options && options->jobs ? options->jobs
			  : cores > 0		   ? (unsigned)cores
						   : 1;

	if (wanted > THREADS_MAX)
		wanted = THREADS_MAX;
	return wanted < count ? wanted : (unsigned)count;
}

int hl_parallel(size_t count, const struct hl_log_options *options, const char *what,
		hl_parallel_work *work, void *context)
{
	struct crew crew = {
		.count = count,
		.work = work,
		.context = context,
		.progress = options ? options->progress : NULL,
		.what = what,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.failed_at = SIZE_MAX,
	};
	pthread_t threads[THREADS_MAX];
	unsigned wanted = thread_count(count, options), started = 0;

	/* Fewer threads than wanted do the same, later. */
	while (started + 1 < wanted && pthread_create(&threads[started], NULL, run, &crew) == 0)
		started++;
	run(&crew);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return crew.failure;
}
