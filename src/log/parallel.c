/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs work on several threads, each of which takes the next index; see segment.h. */
#include "log/segment.h"

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
	size_t failed_at; /* SIZE_MAX: nothing has failed */
	int failure;
};

static void *run(void *context)
{
	struct crew *crew = context;

	pthread_mutex_lock(&crew->lock);
	while (crew->failed_at == SIZE_MAX && crew->next < crew->count) {
		size_t index = crew->next++;
		pthread_mutex_unlock(&crew->lock);
		int result = crew->work(crew->context, index);
		pthread_mutex_lock(&crew->lock);
		crew->done++;
		if (result && index < crew->failed_at) {
			crew->failed_at = index;
			crew->failure = result;
		}
		hl_progress_report(crew->progress, crew->what, crew->done, crew->count);
	}
	pthread_mutex_unlock(&crew->lock);
	return NULL;
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
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t wanted = options && options->jobs ? options->jobs : cores > 0 ? (size_t)cores : 1;
	size_t started = 0;

	if (wanted > THREADS_MAX)
		wanted = THREADS_MAX;
	if (wanted > count)
		wanted = count;
	/* Fewer threads than wanted do the same work, slower. */
	while (started + 1 < wanted && pthread_create(&threads[started], NULL, run, &crew) == 0)
		started++;
	run(&crew);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return crew.failure;
}
