/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is read in order, by a second thread before it is needed; see memory.h. */
#include "heap/memory.h"

#include "base/worker.h"

#include <pthread.h>
#include <stdlib.h>

enum state {
	IDLE,
	ASKED, /* the thread is to read, or does */
	READ,
};

struct hl_ahead {
	struct hl_memory *memory;
	uint64_t *bytes; /* of [start, end), once they are read */
	uint64_t start, end;
	int error;
	pthread_t thread;
	bool has_thread, ends;
	enum state state;
	pthread_mutex_t mutex; /* of the state, and of what it says who may use */
	pthread_cond_t changed;
};

static void set_state(struct hl_ahead *ahead, enum state state)
{
	ahead->state = state;
	pthread_cond_signal(&ahead->changed);
}

static void *run(void *context)
{
	struct hl_ahead *ahead = context;

	pthread_mutex_lock(&ahead->mutex);
	for (;;) {
		while (ahead->state != ASKED && !ahead->ends)
			pthread_cond_wait(&ahead->changed, &ahead->mutex);
		if (ahead->state != ASKED)
			break;
		pthread_mutex_unlock(&ahead->mutex);
		ahead->error = hl_memory_read(ahead->memory, ahead->start, ahead->bytes,
					      ahead->end - ahead->start);
		pthread_mutex_lock(&ahead->mutex);
		set_state(ahead, READ);
	}
	pthread_mutex_unlock(&ahead->mutex);
	return NULL;
}

int hl_ahead_new(struct hl_memory *memory, size_t bytes, struct hl_ahead **ret_ahead)
{
	struct hl_ahead *ahead = calloc(1, sizeof(*ahead));

	if (!ahead || !(ahead->bytes = malloc(bytes))) {
		free(ahead);
		return -ENOMEM;
	}
	ahead->memory = memory;
	pthread_mutex_init(&ahead->mutex, NULL);
	pthread_cond_init(&ahead->changed, NULL);
	*ret_ahead = ahead;
	return 0;
}

/* Waits until the thread does nothing. */
static void await(struct hl_ahead *ahead)
{
	pthread_mutex_lock(&ahead->mutex);
	while (ahead->state == ASKED)
		pthread_cond_wait(&ahead->changed, &ahead->mutex);
	pthread_mutex_unlock(&ahead->mutex);
}

void hl_ahead_ask(struct hl_ahead *ahead, uint64_t start, uint64_t end)
{
	await(ahead);
	pthread_mutex_lock(&ahead->mutex);
	ahead->start = start;
	ahead->end = end;
	ahead->has_thread =
		ahead->has_thread || hl_worker_start(&ahead->thread, 0, run, ahead) == 0;
	set_state(ahead, ahead->has_thread ? ASKED : IDLE);
	pthread_mutex_unlock(&ahead->mutex);
}

bool hl_ahead_take(struct hl_ahead *ahead, uint64_t address, uint64_t **window, uint64_t *ret_start,
		   uint64_t *ret_end)
{
	uint64_t *bytes = ahead->bytes;

	await(ahead);
	if (ahead->state != READ || ahead->error || address < ahead->start || address >= ahead->end)
		return false;
	ahead->bytes = *window;
	*window = bytes;
	*ret_start = ahead->start;
	*ret_end = ahead->end;
	ahead->state = IDLE;
	return true;
}

void hl_ahead_forget(struct hl_ahead *ahead)
{
	if (!ahead)
		return;
	await(ahead);
	ahead->state = IDLE;
}

void hl_ahead_free(struct hl_ahead *ahead)
{
	if (!ahead)
		return;
	pthread_mutex_lock(&ahead->mutex);
	ahead->ends = true;
	pthread_cond_signal(&ahead->changed);
	pthread_mutex_unlock(&ahead->mutex);
	if (ahead->has_thread)
		pthread_join(ahead->thread, NULL);
	pthread_mutex_destroy(&ahead->mutex);
	pthread_cond_destroy(&ahead->changed);
	free(ahead->bytes);
	free(ahead);
}
