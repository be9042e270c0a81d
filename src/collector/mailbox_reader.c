/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits for mailboxes and empties them; see drain.h. */
#include "base/worker.h"
#include "collector/drain.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- bells ---- */

/* It calls nothing that needs more. */
#define STACK_BYTES 65536

struct hl_bell {
	int event_fd;
	pthread_t thread;
	bool has_thread;
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
	if (bell->event_fd < 0) {
		int r = -errno;
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
	if (bell->has_thread)
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

int hl_bell_listen(struct hl_bell *bell, struct hl_mailbox *const *mailboxes, size_t count)
{
	pthread_mutex_lock(&bell->lock);
	for (size_t i = 0; i < count; i++) {
		bell->mailboxes[i] = mailboxes[i];
		/* One that has been rung rings once more. */
		bell->heard[i] = 0;
	}
	bell->count = count;
	pthread_mutex_unlock(&bell->lock);
	if (bell->has_thread) {
		note_change(bell);
		return 0;
	}
	int r = hl_worker_start(&bell->thread, STACK_BYTES, run, bell);
	bell->has_thread = r == 0;
	return r;
}

void hl_bell_forget(struct hl_bell *bell, const struct hl_mailbox *mailbox)
{
	pthread_mutex_lock(&bell->lock);
	for (size_t i = 0; i < bell->count; i++)
		if (bell->mailboxes[i] == mailbox) {
			bell->mailboxes[i] = bell->mailboxes[--bell->count];
			bell->heard[i] = bell->heard[bell->count];
			break;
		}
	pthread_mutex_unlock(&bell->lock);
}

/* ---- mailboxes ---- */

void hl_mailbox_reader_init(struct hl_mailbox_reader *reader, struct hl_mailbox *mailbox,
			    uint32_t log_segments)
{
	*reader = (struct hl_mailbox_reader){.mailbox = mailbox};
	hl_mailbox_reader_tell_segments(reader, log_segments);
}

/* Reads the mark of the next slot, which is complete, and frees the slot. False: it is not a mark. */
static bool read_mark(struct hl_mailbox_reader *reader, uint64_t *ret_time_ns, char *ret_text)
{
	struct hl_mark_slot *slot = &reader->mailbox->marks[reader->next % HL_MAILBOX_MARKS];
	char text[HL_MARK_MAX + 1];
	uint64_t time_ns = slot->time_ns;

	memcpy(text, slot->text, sizeof(text));
	text[HL_MARK_MAX] = '\0';
	/* Release: it was read before it is written again. */
	atomic_store_explicit(&slot->turn, HL_MAILBOX_TURN(reader->next) + 2, memory_order_release);
	reader->next++;
	if (hl_mark_length(text) < 0)
		return false;
	*ret_time_ns = time_ns;
	memcpy(ret_text, text, sizeof(text));
	return true;
}

bool hl_mailbox_reader_take_mark(struct hl_mailbox_reader *reader, bool last, uint64_t *ret_time_ns,
				 char ret_text[HL_MARK_MAX + 1])
{
	for (uint32_t tries = 0; tries < HL_MAILBOX_MARKS; tries++) {
		const struct hl_mark_slot *slot =
			&reader->mailbox->marks[reader->next % HL_MAILBOX_MARKS];
		uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
		if (turn != HL_MAILBOX_TURN(reader->next) + 1) {
			uint64_t begun = atomic_load(&reader->mailbox->mark_count);
			/* At the end, marks that were begun will never be complete. */
			if (!last || begun <= reader->next ||
			    begun - reader->next > HL_MAILBOX_MARKS)
				return false;
			reader->next++;
		} else if (read_mark(reader, ret_time_ns, ret_text)) {
			return true;
		}
	}
	return false;
}

bool hl_mailbox_reader_take_segments(struct hl_mailbox_reader *reader, uint32_t *ret_segments)
{
	uint32_t wanted = atomic_load(&reader->mailbox->log_segments);

	if (wanted == reader->log_segments || !reader->log_segments)
		return false;
	if (wanted == 0 || wanted > HL_LOG_SEGMENTS_MAX) {
		hl_mailbox_reader_tell_segments(reader, reader->log_segments);
		return false;
	}
	reader->log_segments = *ret_segments = wanted;
	return true;
}

void hl_mailbox_reader_tell_segments(struct hl_mailbox_reader *reader, uint32_t count)
{
	reader->log_segments = count;
	atomic_store(&reader->mailbox->log_segments, count);
}

bool hl_mailbox_reader_take_report(struct hl_mailbox_reader *reader,
				   char ret_path[HL_REPORT_PATH_BYTES])
{
	struct hl_mailbox *mailbox = reader->mailbox;

	if (reader->report_taken ||
	    atomic_load_explicit(&mailbox->report_state, memory_order_acquire) != HL_REPORT_ASKED)
		return false;
	memcpy(ret_path, mailbox->report_path, HL_REPORT_PATH_BYTES);
	ret_path[HL_REPORT_PATH_BYTES - 1] = '\0';
	reader->report_taken = true;
	return true;
}

void hl_mailbox_reader_end_report(struct hl_mailbox_reader *reader, int error)
{
	struct hl_mailbox *mailbox = reader->mailbox;

	reader->report_taken = false;
	atomic_store(&mailbox->report_error, error);
	/* Before the count, so that who has seen its report done can ask for another one. */
	atomic_store(&mailbox->report_state, HL_REPORT_NONE);
	atomic_fetch_add(&mailbox->reports_done, 1);
}

void hl_mailbox_reader_close(struct hl_mailbox_reader *reader)
{
	atomic_store(&reader->mailbox->closed, 1);
}
