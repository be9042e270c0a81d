/* SPDX-License-Identifier: BSD-2-Clause */
/* The program's side of the mailbox; see mailbox.h. */
#include "region/protocol.h"

#include "recorder/sys.h"

#include <linux/futex.h>
#include <string.h>

static bool is_closed(const struct hl_mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->closed, memory_order_relaxed);
}

/* After what was posted. Where the kernel refuses, the collector looks when it saves next. */
static void ring(struct hl_mailbox *mailbox)
{
	atomic_fetch_add_explicit(&mailbox->bell, 1, memory_order_release);
	HL_SYS(SYS_futex, &mailbox->bell, FUTEX_WAKE, 1);
}

/*
 * The slot of the next number, this caller's alone; NULL when the collector has not freed it yet.
 * A failed exchange means that another caller got on, so the loop ends.
 */
static struct hl_mark_slot *claim(struct hl_mailbox *mailbox, uint64_t *ret_number)
{
	uint64_t number = atomic_load_explicit(&mailbox->mark_count, memory_order_relaxed);

	for (;;) {
		struct hl_mark_slot *slot = &mailbox->marks[number % HL_MAILBOX_MARKS];
		/* Acquire: the collector has read what was in it before. */
		uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
		uint64_t seen = number;
		if (turn == HL_MAILBOX_TURN(number)) {
			if (atomic_compare_exchange_strong(&mailbox->mark_count, &number,
							   number + 1)) {
				*ret_number = seen;
				return slot;
			}
			continue;
		}
		number = atomic_load_explicit(&mailbox->mark_count, memory_order_relaxed);
		if (number == seen)
			return NULL;
	}
}

int hl_mailbox_mark(struct hl_mailbox *mailbox, uint64_t time_ns, const char *text)
{
	int length = hl_mark_length(text);
	uint64_t number;

	if (length < 0)
		return length;
	if (is_closed(mailbox))
		return -ENOTCONN;
	struct hl_mark_slot *slot = claim(mailbox, &number);
	if (!slot) {
		atomic_fetch_add_explicit(&mailbox->refused_marks, 1, memory_order_relaxed);
		ring(mailbox);
		return -EAGAIN;
	}
	slot->time_ns = time_ns;
	memcpy(slot->text, text, (size_t)length + 1);
	/* Release: who sees the turn sees the mark. */
	atomic_store_explicit(&slot->turn, HL_MAILBOX_TURN(number) + 1, memory_order_release);
	ring(mailbox);
	return 0;
}

int hl_mailbox_report(struct hl_mailbox *mailbox, const char *path)
{
	size_t length = strnlen(path, HL_REPORT_PATH_BYTES);
	uint32_t none = HL_REPORT_NONE;

	if (length == 0)
		return -EINVAL;
	if (length == HL_REPORT_PATH_BYTES)
		return -ENAMETOOLONG;
	if (is_closed(mailbox))
		return -ENOTCONN;
	if (!atomic_compare_exchange_strong(&mailbox->report_state, &none, HL_REPORT_WRITING))
		return -EBUSY;
	memcpy(mailbox->report_path, path, length + 1);
	atomic_fetch_add_explicit(&mailbox->reports_asked, 1, memory_order_relaxed);
	atomic_store_explicit(&mailbox->report_state, HL_REPORT_ASKED, memory_order_release);
	ring(mailbox);
	return 0;
}

int hl_mailbox_segments(const struct hl_mailbox *mailbox)
{
	uint32_t count = atomic_load_explicit(&mailbox->log_segments, memory_order_relaxed);

	if (is_closed(mailbox))
		return -ENOTCONN;
	return count ? (int)count : -EOPNOTSUPP;
}

int hl_mailbox_set_segments(struct hl_mailbox *mailbox, uint32_t count)
{
	int now = hl_mailbox_segments(mailbox);

	if (now < 0)
		return now;
	if (count == 0 || count > HL_LOG_SEGMENTS_MAX)
		return -EINVAL;
	atomic_store_explicit(&mailbox->log_segments, count, memory_order_relaxed);
	ring(mailbox);
	return 0;
}
