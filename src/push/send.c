/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends looks, and keeps what cannot be sent; see send.h. */
#include "push/send.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "fleet/web.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#define MS_PER_NS      1000000
#define PAUSE_MOST_MS  60000 /* between attempts while the sink is away */
#define BATCH_ROWS     50000 /* once there are as many, they are sent before the round ends */
#define ROWS_PER_STACK 10    /* the names of a stack take as much as some rows */

void hl_push_say(struct hl_push *push, const char *format, ...)
{
	struct hl_error sentence = {0};
	va_list args;

	va_start(args, format);
	vsnprintf(sentence.text, sizeof(sentence.text), format, args);
	va_end(args);
	push->settings->say(sentence.text);
}

int64_t hl_push_now_ms(void)
{
	return (int64_t)(hl_clock_ns(CLOCK_REALTIME) / MS_PER_NS);
}

bool hl_push_is_away(const struct hl_push *push)
{
	return push->away_ms && !push->is_tried;
}

void hl_push_note_away(struct hl_push *push, const struct hl_error *why, const char *consequence)
{
	if (!push->away_ms) {
		push->away_ms = hl_push_now_ms();
		push->pause_ms = push->settings->every_ms;
		hl_push_say(push, "%s; %s", why->text, consequence);
	} else if (push->pause_ms < PAUSE_MOST_MS) {
		push->pause_ms =
			push->pause_ms * 2 < PAUSE_MOST_MS ? push->pause_ms * 2 : PAUSE_MOST_MS;
	}
	push->try_ms = hl_push_now_ms() + push->pause_ms;
	push->is_tried = false;
}

static void note_back(struct hl_push *push)
{
	if (push->away_ms)
		hl_push_say(push, "sending again after %" PRId64 " s",
			    (hl_push_now_ms() - push->away_ms) / 1000);
	push->away_ms = 0;
	push->is_tried = false;
}

/* Sums of what the sink has are not what sessions believe: they ask again. */
static void forget_sessions(struct hl_push *push)
{
	hl_push_stacks_release(&push->told);
	for (size_t i = 0; push->sink->kind->recall && i < push->count; i++)
		hl_push_session_forget(push->sessions[i]);
}

void hl_push_note_refused(struct hl_push *push, const struct hl_error *why)
{
	push->sent.dropped++;
	if (!push->was_refused)
		hl_push_say(push, "%s; it was not sent", why->text);
	push->was_refused = true;
	forget_sessions(push);
}

/* The sink has later figures than a window began with. Of a session that goes on, the next look brings what the window had; of one in the
 * spool that may have ended. */
static void note_overtaken(struct hl_push *push, int r, bool repeated, const struct hl_error *why)
{
	forget_sessions(push);
	for (size_t i = 0; i < push->count; i++)
		push->sessions[i]->is_overtaken = true;
	if (repeated && r == -ESTALE) {
		hl_push_note_refused(push, why);
	} else if (!repeated && !push->is_shared) {
		hl_push_say(push, "%s; all of it counts once, but one push is enough", why->text);
		push->is_shared = true;
	}
}

/* What became of a window that was sent, ${r}. 0 when that is done with, be it refused; -EAGAIN when it is to be kept. */
static int note_sent(struct hl_push *push, int r, bool repeated, const struct hl_error *why)
{
	if (r == -EAGAIN || r == -ENOMEM) {
		char consequence[PATH_MAX + 64];
		snprintf(consequence, sizeof(consequence),
			 "what is pushed waits in '%s' until it can be sent",
			 push->settings->spool);
		hl_push_note_away(push, why, consequence);
		return -EAGAIN;
	}
	note_back(push);
	if (r == -EEXIST || r == -ESTALE)
		note_overtaken(push, r, repeated, why);
	else if (r < 0)
		hl_push_note_refused(push, why);
	else
		push->sent.windows++;
	return 0;
}

/* Sends ${bytes}, which may be changed. As note_sent(). */
static int send_bytes(struct hl_push *push, char *bytes, size_t size, bool repeated)
{
	struct hl_error why = {0};

	int r = push->sink->kind->send(push->sink, bytes, size, repeated, &why);
	return note_sent(push, r, repeated, &why);
}

void hl_push_empty_spool(struct hl_push *push)
{
	while (hl_push_spool_count(push->spool)) {
		struct hl_error why = {0};
		HL_FREED char *bytes = NULL;
		size_t size;
		int r = hl_push_spool_first(push->spool, &bytes, &size, &why);
		if (r < 0)
			hl_push_note_refused(push, &why);
		else
			r = send_bytes(push, bytes, size, true);
		if (r == -EAGAIN)
			return;
		hl_push_spool_pop(push->spool);
	}
}

static void keep(struct hl_push *push, const char *bytes, size_t size)
{
	struct hl_error why = {0};
	uint64_t dropped = 0;

	int r = hl_push_spool_add(push->spool, bytes, size, &dropped, &why);
	if (r < 0 && !push->sent.dropped)
		hl_push_say(push, "%s; what could not be sent is lost", why.text);
	else if (dropped && !push->sent.dropped)
		hl_push_say(push,
			    "the spool '%s' is full: the oldest windows are dropped from now on; "
			    "--spool-max gives it more room",
			    push->settings->spool);
	push->sent.dropped += dropped;
	if (dropped)
		forget_sessions(push);
}

/* False where there is no room. */
static bool keep_if_room(struct hl_push *push, const char *bytes, size_t size)
{
	struct hl_error why;
	uint64_t dropped = 0;

	return hl_push_spool_has_room(push->spool, size) &&
	       hl_push_spool_add(push->spool, bytes, size, &dropped, &why) == 0;
}

/* Nothing overtakes what waits. */
static bool has_to_wait(const struct hl_push *push)
{
	return hl_push_is_away(push) || hl_push_spool_count(push->spool);
}

/* As the encode() of the sink. */
static int encode(struct hl_push *push, const struct hl_push_look *look, char **ret_bytes,
		  size_t *ret_size, struct hl_error *err)
{
	int64_t from_ms =
		push->last_ms ? push->last_ms : look->window.ms - push->settings->every_ms;
	FILE *out = open_memstream(ret_bytes, ret_size);

	if (!out)
		return -ENOMEM;
	int r = push->sink->kind->encode(push->sink, look, from_ms, out, err);
	return fclose(out) == 0 ? r : -ENOMEM;
}

/* ---- what is being sent is in the spool, lest it be lost when this process is killed ---- */

/* What is being sent, while the spool is empty otherwise. */
struct attempt {
	struct hl_push *push;
	const char *bytes; /* NULL: the batch */
	size_t size;
	bool is_kept; /* all of it */
};

static void drop_kept(struct hl_push *push)
{
	while (hl_push_spool_count(push->spool))
		hl_push_spool_pop(push->spool);
}

/* All looks of the batch, or none of them. */
static bool keep_batch(struct hl_push *push)
{
	bool is_kept = true;

	for (size_t i = 0; is_kept && i < push->look_count; i++) {
		HL_FREED char *bytes = NULL;
		struct hl_error why;
		size_t size;
		is_kept = encode(push, &push->looks[i], &bytes, &size, &why) == 0 &&
			  keep_if_room(push, bytes, size);
	}
	if (!is_kept)
		drop_kept(push);
	return is_kept;
}

static void keep_attempt(void *context)
{
	struct attempt *attempt = context;

	if (!attempt->is_kept)
		attempt->is_kept =
			attempt->bytes ? keep_if_room(attempt->push, attempt->bytes, attempt->size)
				       : keep_batch(attempt->push);
}

/* Keeps it at once for the last time, when a kill may follow, and else when the answer takes longer than a second: what is answered sooner
 * is not written at all. */
static void begin_attempt(struct attempt *attempt)
{
	if (attempt->push->is_last)
		keep_attempt(attempt);
	else
		hl_web_when_slow(keep_attempt, attempt);
}

/* Whether it stays in the spool, as ${sent} calls for. */
static bool end_attempt(struct attempt *attempt, int sent)
{
	hl_web_when_slow(NULL, NULL);
	if (attempt->is_kept && sent != -EAGAIN) {
		drop_kept(attempt->push);
		attempt->is_kept = false;
	}
	return attempt->is_kept;
}

/* ${repeated}: a part of it may have arrived. */
static void send_or_keep(struct hl_push *push, const char *bytes, size_t size, bool repeated)
{
	struct attempt attempt = {.push = push, .bytes = bytes, .size = size};
	char *copy = malloc(size + 1); /* for sending changes it */
	int r = -EAGAIN;

	begin_attempt(&attempt);
	if (copy) {
		memcpy(copy, bytes, size + 1);
		r = send_bytes(push, copy, size, repeated);
	}
	free(copy);
	if (!end_attempt(&attempt, r) && r < 0)
		keep(push, bytes, size);
}

/* Encodes one look and sends it, or keeps it. 0 or -ENOMEM. */
static int deliver_alone(struct hl_push *push, const struct hl_push_look *look, bool repeated)
{
	HL_FREED char *bytes = NULL;
	struct hl_error why = {0};
	size_t size;

	int r = encode(push, look, &bytes, &size, &why);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		hl_push_note_refused(push, &why);
	else if (has_to_wait(push))
		keep(push, bytes, size);
	else
		send_or_keep(push, bytes, size, repeated);
	return 0;
}

int hl_push_send_batch(struct hl_push *push)
{
	struct hl_error why = {0};
	bool is_kept = false;
	int sent = -EAGAIN, r = 0;

	if (!push->look_count)
		return 0;
	if (!has_to_wait(push)) {
		struct attempt attempt = {.push = push};
		begin_attempt(&attempt);
		sent = push->sink->kind->send_looks(push->sink, push->looks, push->look_count,
						    &why);
		is_kept = end_attempt(&attempt, sent);
	}
	if (sent == 0) {
		note_back(push);
		push->sent.windows += push->look_count;
	} else if ((sent == -EAGAIN || sent == -ENOMEM) && why.text[0]) {
		note_sent(push, sent, true, &why);
	}
	bool repeated =
		sent != -EEXIST && sent != -ESTALE; /* which are found before anything is sent */
	for (size_t i = 0; i < push->look_count; i++) {
		if (sent < 0 && !is_kept && r == 0)
			r = deliver_alone(push, &push->looks[i], repeated);
		hl_push_look_release(&push->looks[i]);
	}
	push->look_count = push->look_rows = 0;
	return r;
}

int hl_push_deliver(struct hl_push *push, struct hl_push_look *look)
{
	if (!push->sink->kind->send_looks || has_to_wait(push))
		return deliver_alone(push, look, false);
	if (HL_ARRAY_RESERVE(push->looks, push->look_capacity, push->look_count + 1) < 0)
		return -ENOMEM;
	hl_profile_free(look->profile);
	look->profile = NULL;
	push->look_rows += look->window.row_count + ROWS_PER_STACK * look->window.stack_count;
	push->looks[push->look_count++] = *look;
	*look = (struct hl_push_look){0};
	return push->look_rows < BATCH_ROWS ? 0 : hl_push_send_batch(push);
}
