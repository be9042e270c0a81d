/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleeps until a mailbox is rung; see bell.h. */
#include "collector/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* It calls nothing that needs more. */
#define STACK_BYTES 65536

struct hl_bell {
	int event_fd;
	pthread_t thread;
	_Atomic bool is_over;
	_Atomic uint32_t changes; /* of is_over and of what follows; a futex */
	pthread_mutex_t lock;	  /* of what follows */
	struct hl_mailbox *mailboxes[HL_BELLS_MAX];
	uint32_t heard[HL_BELLS_MAX]; /* what each bell was when the owner was woken for it */
	size_t count;
};

static long wait_for_any(struct futex_waitv *bells, unsigned count)
{
	return syscall(SYS_futex_waitv, bells, count, 0, NULL, 0);
}

static struct futex_waitv bell_at(const _Atomic uint32_t *word, uint32_t value, uint32_t flags)
{
	return (struct futex_waitv){
		.val = value, .uaddr = (uintptr_t)word, .flags = FUTEX_32 | flags};
}

/*
 * Fills ${ret_bells} with what to sleep on, changes first, and returns their number; 0: some bell has been
 * rung. A mailbox that is unmapped as soon as the lock is free is not a bell to the kernel (EFAULT).
 */
static unsigned collect(struct hl_bell *bell, uint32_t changes, struct futex_waitv *ret_bells)
{
	bool rung = false;
	unsigned count = 0;

	ret_bells[count++] = bell_at(&bell->changes, changes, FUTEX_PRIVATE_FLAG);
	pthread_mutex_lock(&bell->lock);
	for (size_t i = 0; i < bell->count; i++) {
		_Atomic uint32_t *word = &bell->mailboxes[i]->bell;
		uint32_t value = atomic_load(word);
		rung |= value != bell->heard[i];
		bell->heard[i] = value;
		ret_bells[count++] = bell_at(word, value, 0);
	}
	pthread_mutex_unlock(&bell->lock);
	return rung ? 0 : count;
}

static void *run(void *argument)
{
	struct hl_bell *bell = argument;
	struct futex_waitv bells[HL_BELLS_MAX + 1];
	const struct timespec pause = {.tv_nsec = HL_MAILBOX_POLL_MS * 1000000L};

	for (;;) {
		uint32_t changes = atomic_load(&bell->changes);
		if (atomic_load(&bell->is_over))
			return NULL;
		unsigned count = collect(bell, changes, bells);
		/* What is refused for good is looked at as often as a program that rings all the time. */
		if (count && (wait_for_any(bells, count) >= 0 || errno == EAGAIN || errno == EINTR))
			continue;
		eventfd_write(bell->event_fd, 1);
		/* A program that posts all the time costs no more than looking would. */
		syscall(SYS_futex, &bell->changes, FUTEX_WAIT_PRIVATE, changes, &pause, NULL, 0);
	}
}

static int start(struct hl_bell *bell)
{
	pthread_attr_t attributes;
	sigset_t all, before;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	/* Signals are for the thread that supervises the program. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&bell->thread, &attributes, run, bell);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -error;
}

int hl_bell_new(struct hl_bell **ret_bell)
{
	/* Nothing to wait for: EINVAL where the call is known. */
	if (wait_for_any(NULL, 0) < 0 && errno != EINVAL)
		return -errno;
	struct hl_bell *bell = calloc(1, sizeof(*bell));
	if (!bell)
		return -ENOMEM;
	bell->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&bell->lock, NULL);
	int r = bell->event_fd < 0 ? -errno : start(bell);
	if (r < 0) {
		if (bell->event_fd >= 0)
			close(bell->event_fd);
		free(bell);
		return r;
	}
	*ret_bell = bell;
	return 0;
}

static void note_change(struct hl_bell *bell)
{
	atomic_fetch_add(&bell->changes, 1);
	syscall(SYS_futex, &bell->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void hl_bell_free(struct hl_bell *bell)
{
	if (!bell)
		return;
	atomic_store(&bell->is_over, true);
	note_change(bell);
	pthread_join(bell->thread, NULL);
	pthread_mutex_destroy(&bell->lock);
	close(bell->event_fd);
	free(bell);
}

int hl_bell_fd(const struct hl_bell *bell)
{
	return bell->event_fd;
}

void hl_bell_answer(struct hl_bell *bell)
{
	eventfd_t rings;

	eventfd_read(bell->event_fd, &rings);
}

void hl_bell_listen(struct hl_bell *bell, struct hl_mailbox *const *mailboxes, size_t count)
{
	pthread_mutex_lock(&bell->lock);
	for (size_t i = 0; i < count; i++) {
		bell->mailboxes[i] = mailboxes[i];
		/* One that has been rung rings once more. */
		bell->heard[i] = 0;
	}
	bell->count = count;
	pthread_mutex_unlock(&bell->lock);
	note_change(bell);
}
