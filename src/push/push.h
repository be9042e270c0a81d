/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks at recorded processes again and again, and sends what changed. Everything is read from recordings and asked of collectors: the
 * processes themselves are not touched.
 */
#pragma once

#include "push/session.h"

struct hl_push_settings {
	const char *url; /* of the sink, see sink.h */
	bool experimental;
	const char *spool; /* directory */
	uint64_t spool_bytes;
	int64_t every_ms;
	struct hl_push_labels labels;
	/* What is pushed: one recording, one process, or, when both are zero, all that are being recorded on this host. */
	const char *recording;
	bool is_new; /* nothing of the recording can be at the sink yet */
	pid_t pid;
	/* Hears what happened, a sentence at a time: an outage, its end, what was dropped. */
	void (*say)(const char *sentence);
};

struct hl_push_figures_sent {
	uint64_t windows;
	uint64_t dropped; /* windows that never will be */
};

struct hl_push;

/* ${settings} must live as long. 0 or a negative errno with a sentence. */
int hl_push_new(const struct hl_push_settings *settings, struct hl_push **ret_push,
		struct hl_error *err);

/* Sends what is left, as far as the sink takes it now. NULL is fine. */
void hl_push_free(struct hl_push *push);

/*
 * One look at all processes. *${ret_goes_on}: there may be more to see. ${last}: nothing more will be looked at, so that processes which
 * have come and gone are looked at too. 0 or -ENOMEM with a sentence: anything else is said, and tried again.
 */
int hl_push_look_around(struct hl_push *push, bool last, bool *ret_goes_on, struct hl_error *err);

struct hl_push_figures_sent hl_push_sent(const struct hl_push *push);

/* Processes whose last figures were not sent, because the sink could not be asked what it has of them. */
size_t hl_push_unknown(const struct hl_push *push);

/* Windows that wait in the spool. */
size_t hl_push_waiting(const struct hl_push *push);

/* The directory that spools windows for ${url}, or an absolute path, unless another is named, to be freed; NULL where there is no home. */
char *hl_push_spool_path(const char *url);
