/* SPDX-License-Identifier: BSD-2-Clause */
/* Empties mailboxes; see mailbox_reader.h. */
#include "collector/mailbox_reader.h"

#include <string.h>

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
