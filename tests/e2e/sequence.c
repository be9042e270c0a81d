/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads one after another: the i-th, called worker-i, allocates i * 1000 bytes and ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

void *kept[1000];

static void *work(void *context)
{
	size_t number = (size_t)context;
	char name[16];

	snprintf(name, sizeof(name), "worker-%zu", number);
	pthread_setname_np(pthread_self(), name);
	kept[number % 1000] = malloc(number * 1000);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 3;

	for (size_t i = 1; i <= count; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, work, (void *)i) != 0)
			return 1;
		pthread_join(thread, NULL);
	}
	return 0;
}
