/* SPDX-License-Identifier: BSD-2-Clause */
/* The rounds of `heapline push`, and how looks reach the sink: at once, in a batch, or by the spool; see push.h. */
#include "push/push.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "fleet/web.h"
#include "open/open.h"
#include "push/sink.h"
#include "push/spool.h"
#include "serve/catalog.h"

#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/stat.h>

/* What is kept between rounds. */
struct hl_push {
	const struct hl_push_settings *settings;
	struct hl_push_sink *sink;
	struct hl_push_spool *spool;
	struct hl_push_session **sessions;
	size_t count, capacity;
	struct hl_push_stacks told;
	struct hl_push_look
		*looks; /* of this round, to be sent together; their labels are the sessions' */
	size_t look_count, look_capacity, look_rows;
	struct hl_groups groups; /* of what is seen in this round */
	bool sends_no_groups;	 /* since the sink refused them, which was said */
	uint32_t *done; /* of the one recording: sequence numbers of processes that have ended */
	size_t done_count, done_capacity;
	int64_t last_ms;	  /* of the round before; 0: none */
	int64_t away_ms;	  /* since when the sink does not answer; 0: it does */
	int64_t pause_ms, try_ms; /* the next attempt is at try_ms */
	size_t backlog;		  /* windows that waited in the spool when the round began */
	bool is_last;  /* the round at hand: what is not sent in it is only in the spool */
	bool is_tried; /* while away: the next window, or question, will tell */
	struct hl_push_figures_sent sent;
	bool was_refused; /* and that was said */
	bool has_read;	  /* profiles, in this round: their memory is free, but not given back */
	bool is_shared;	  /* somebody else sends the same processes, and that was said */
};

#define MS_PER_NS      1000000
#define PAUSE_MOST_MS  60000 /* between attempts while the sink is away */
#define BATCH_ROWS     50000 /* once there are as many, they are sent before the round ends */
#define ROWS_PER_STACK 10    /* the names of a stack take as much as some rows */

/* Says a sentence to whoever called push. */
static void push_say(struct hl_push *push, const char *format, ...)
{
	struct hl_error sentence = {0};
	va_list args;

	va_start(args, format);
	vsnprintf(sentence.text, sizeof(sentence.text), format, args);
	va_end(args);
	push->settings->say(sentence.text);
}

/* CLOCK_REALTIME. */
static int64_t now_ms(void)
{
	return (int64_t)(hl_clock_ns(CLOCK_REALTIME) / MS_PER_NS);
}

/* Whether the sink did not answer when it was tried last, and is not to be tried now. */
static bool is_away(const struct hl_push *push)
{
	return push->away_ms && !push->is_tried;
}

/* Says that the sink does not answer, because of ${why}, and what follows, a clause; once for each outage. */
static void note_away(struct hl_push *push, const struct hl_error *why, const char *consequence)
{
	if (!push->away_ms) {
		push->away_ms = now_ms();
		push->pause_ms = push->settings->every_ms;
		push_say(push, "%s; %s", why->text, consequence);
	} else if (push->pause_ms < PAUSE_MOST_MS) {
		push->pause_ms =
			push->pause_ms * 2 < PAUSE_MOST_MS ? push->pause_ms * 2 : PAUSE_MOST_MS;
	}
	push->try_ms = now_ms() + push->pause_ms;
	push->is_tried = false;
}

static void note_back(struct hl_push *push)
{
	if (push->away_ms)
		push_say(push, "sending again after %" PRId64 " s",
			 (now_ms() - push->away_ms) / 1000);
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

/* Counts a window that the sink refused for good, says so once, and has sessions ask what it has. */
static void note_refused(struct hl_push *push, const struct hl_error *why)
{
	push->sent.dropped++;
	if (!push->was_refused)
		push_say(push, "%s; it was not sent", why->text);
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
		note_refused(push, why);
	} else if (!repeated && !push->is_shared) {
		push_say(push, "%s; all of it counts once, but one push is enough", why->text);
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
		note_away(push, why, consequence);
		return -EAGAIN;
	}
	note_back(push);
	if (r > 0 && why->text[0] && !push->sends_no_groups) {
		push_say(push, "%s; what containers are charged with is not pushed", why->text);
		push->sends_no_groups = true;
	}
	if (r == -EEXIST || r == -ESTALE)
		note_overtaken(push, r, repeated, why);
	else if (r < 0)
		note_refused(push, why);
	else if (r == 0)
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

/* Sends what waits, until the sink does not answer. */
static void empty_spool(struct hl_push *push)
{
	while (hl_push_spool_count(push->spool)) {
		struct hl_error why = {0};
		HL_FREED char *bytes = NULL;
		size_t size;
		int r = hl_push_spool_first(push->spool, &bytes, &size, &why);
		if (r < 0)
			note_refused(push, &why);
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
		push_say(push, "%s; what could not be sent is lost", why.text);
	else if (dropped && !push->sent.dropped)
		push_say(push,
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
	return is_away(push) || hl_push_spool_count(push->spool);
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
		note_refused(push, &why);
	else if (has_to_wait(push))
		keep(push, bytes, size);
	else
		send_or_keep(push, bytes, size, repeated);
	return 0;
}

/* Sends the looks that were taken together. Where that fails, each goes its own way: one may be refused, and the others not. 0 or -ENOMEM. */
static int send_batch(struct hl_push *push)
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

/* Sends ${look}, now or with the batch, or keeps it in the spool. Takes it over, or leaves it. 0 or -ENOMEM. */
static int deliver(struct hl_push *push, struct hl_push_look *look)
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
	return push->look_rows < BATCH_ROWS ? 0 : send_batch(push);
}

/* Sends what the groups of this round's processes are charged with, once one of these was looked at. 0 or -ENOMEM. */
static int send_groups(struct hl_push *push)
{
	const struct hl_push_sink_kind *kind = push->sink->kind;
	HL_FREED char *bytes = NULL;
	char host[HOST_NAME_MAX + 1] = "";
	bool is_any = false;
	size_t size;

	for (size_t i = 0; i < push->count; i++)
		is_any |= push->sessions[i]->is_known && push->sessions[i]->is_seen;
	if (!is_any || !push->groups.count || push->sends_no_groups)
		return 0;
	gethostname(host, sizeof(host) - 1);
	FILE *out = open_memstream(&bytes, &size);
	if (!out)
		return -ENOMEM;
	int r = kind->encode_groups(push->sink, &push->groups, host, now_ms(), out);
	if (fclose(out) != 0 || r < 0)
		return -ENOMEM;
	if (has_to_wait(push))
		keep(push, bytes, size);
	else
		send_or_keep(push, bytes, size, false);
	return 0;
}

/* ---- looking ---- */

#define FRESH_MS	3000 /* a collector saves for the first time before it answers */
#define STATE_DIRECTORY "heapline"
#define EVEN_MS		2000
#define LAST_LOOKS	10 /* others that send the same processes may be faster as often */

/* What the sink has of it. 0; -EAGAIN when that is not known yet; -ENOMEM; or another negative errno, when it cannot be known, which
 * was said. */
static int learn(struct hl_push *push, struct hl_push_session *session)
{
	bool is_new = push->settings->is_new && !session->is_forgotten;
	struct hl_error why = {0};

	if (session->is_known || !push->sink->kind->recall || is_new) {
		session->is_known = true;
		return 0;
	}
	session->is_unanswered = true;
	if (is_away(push) || push->backlog)
		return -EAGAIN;
	int r = push->sink->kind->recall(push->sink, session, &why);
	session->is_known = r == 0;
	session->is_unanswered = r == -EAGAIN;
	if (r == 0)
		return 0; /* but whether it takes anything is not known: its disk may be full */
	hl_push_session_forget(session);
	if (r == -EAGAIN)
		note_away(push, &why, "nothing of it is pushed until it answers what it has");
	else if (r != -ENOMEM)
		note_refused(push, &why);
	return r;
}

/* The time of a look, later than that of the one before. Looks that are rare come at even seconds, which stores keep in fewer bytes. */
static int64_t choose_ms(const struct hl_push *push, const struct hl_push_session *session)
{
	int64_t ms = now_ms(), even = ms - ms % EVEN_MS;
	/* An earlier push may already have chosen the even second for the first one. */
	bool is_rare = session->look_ms && push->settings->every_ms >= 2 * EVEN_MS;

	if (is_rare && even > session->look_ms)
		return even;
	return ms > session->look_ms ? ms : session->look_ms + 1;
}

/* *${ret_done}: it has ended, and all of it was sent. 0 or -ENOMEM. */
static int look_at(struct hl_push *push, struct hl_push_session *session, bool *ret_done)
{
	HL_CLEANUP(hl_push_look_release) struct hl_push_look look = {0};
	struct hl_profile *profile = NULL;
	struct hl_error why = {0};
	bool ended = false;

	session->is_overtaken = false;
	/* A sink without a memory of its own gets all that is in use each time. */
	bool wants_profile = !push->sink->kind->recall || !session->is_seen || !session->is_known;
	int r = hl_push_session_read(session, &push->settings->labels, wants_profile, &profile,
				     &ended, &why);
	if (r == -ENOENT || r == -ENODATA || r == -ESRCH) { /* nothing is saved yet, or any more */
		*ret_done = !session->is_seen;
		return 0;
	}
	if (r < 0 && r != -ENOMEM) {
		if (!push->was_refused)
			push_say(push, "%s", why.text);
		push->was_refused = true;
		push->sent.dropped++;
		*ret_done = true;
		return 0;
	}
	push->has_read |= profile != NULL;
	if (r == 0)
		r = learn(push, session);
	if (r < 0) {
		hl_profile_free(profile);
		*ret_done = r != -EAGAIN;
		return r == -ENOMEM ? r : 0;
	}
	r = hl_push_session_look(session, profile, &push->told, choose_ms(push, session),
				 push->settings->every_ms, ended, &look);
	if (r == 0)
		r = deliver(push, &look);
	*ret_done = ended || !session->is_seen;
	return r;
}

/* ---- whom ---- */

static bool is_done(const struct hl_push *push, uint32_t sequence)
{
	for (size_t i = 0; i < push->done_count; i++)
		if (push->done[i] == sequence)
			return true;
	return false;
}

static int meet(struct hl_push *push, const char *recording, const struct hl_user *owner, pid_t pid,
		uint32_t sequence)
{
	for (size_t i = 0; i < push->count; i++) {
		struct hl_push_session *session = push->sessions[i];
		if (session->pid == pid && session->sequence == sequence &&
		    !strcmp(session->recording, recording)) {
			session->is_seen = true;
			return 0;
		}
	}
	struct hl_push_session *session = hl_push_session_new(recording, owner, pid, sequence);
	if (session)
		session->is_seen = true;
	if (!session || HL_ARRAY_APPEND(push->sessions, push->count, push->capacity, session) < 0) {
		hl_push_session_free(session);
		return -ENOMEM;
	}
	return 0;
}

/* Those that collectors record now; *${ret_any}: one of them may go on. */
static int meet_recorded(struct hl_push *push, bool *ret_any)
{
	const char *wanted = push->settings->recording;
	HL_CLEANUP(hl_catalog_release) struct hl_catalog catalog;
	struct stat recording = {0};
	bool is_there = wanted && stat(wanted, &recording) == 0;

	int r = hl_catalog_read(&catalog, NULL, 0);
	for (size_t i = 0; r == 0 && i < catalog.process_count; i++) {
		const struct hl_catalog_process *process = &catalog.processes[i];
		const struct hl_catalog_recording *where = &catalog.recordings[process->recording];
		if (wanted ? !is_there || where->inode != recording.st_ino ||
				     where->device != recording.st_dev
			   : push->settings->pid && process->pid != push->settings->pid)
			continue;
		*ret_any = true;
		r = meet(push, wanted ? wanted : where->path, wanted ? NULL : where->owner,
			 process->pid, process->sequence);
		if (r == 0 && push->sink->kind->encode_groups)
			r = hl_groups_add(&push->groups, process);
	}
	return r;
}

/* Whether something was written into the directory of the one recording a moment ago. */
static bool is_fresh(const struct hl_push *push)
{
	struct stat recording;

	return stat(push->settings->recording, &recording) == 0 &&
	       now_ms() - (int64_t)recording.st_mtim.tv_sec * 1000 < FRESH_MS;
}

/* All processes of the one recording that were not looked at to their end. *${ret_any}: its collector may just not answer yet. */
static int meet_ended(struct hl_push *push, bool last, bool *ret_any)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	struct hl_error why = {0};

	int r = hl_open_profile(push->settings->recording, NULL, &profile, &why);
	bool is_complete = r == 0 && profile->complete;
	if (!last && (r == 0 || r == -ENOENT) && !is_complete && is_fresh(push)) {
		*ret_any = true;
		return 0;
	}
	if (r < 0 && r != -ENOMEM) {
		if (last || r != -ENOENT) /* else it has not begun */
			push_say(push, "%s", why.text);
		return 0;
	}
	for (size_t i = 0; r == 0 && i < profile->process_count; i++)
		if (!is_done(push, profile->processes[i].sequence))
			r = meet(push, push->settings->recording, NULL,
				 (pid_t)profile->processes[i].pid, profile->processes[i].sequence);
	return r;
}

/* Sessions that were looked at to their end leave; those whose last window the sink refused are looked at again: *${ret_again}. 0 or -ENOMEM. */
static int remove_done(struct hl_push *push, bool *ret_again)
{
	size_t left = 0;
	int r = 0;

	for (size_t i = 0; i < push->count; i++) {
		struct hl_push_session *session = push->sessions[i];
		bool is_over = session->is_done && !session->is_overtaken;
		*ret_again |= session->is_done && !is_over;
		session->is_done = false;
		/* No process of a collector is seen twice. */
		if (r == 0 && is_over && push->settings->recording)
			r = HL_ARRAY_APPEND(push->done, push->done_count, push->done_capacity,
					    session->sequence);
		if (is_over)
			hl_push_session_free(session);
		else
			push->sessions[left++] = session;
	}
	push->count = left;
	return r;
}

static int look_once(struct hl_push *push, bool last, bool *ret_goes_on, bool *ret_again)
{
	int64_t began_ms = now_ms();

	push->is_last = last;
	if (last || !push->away_ms || began_ms >= push->try_ms)
		empty_spool(push);
	push->backlog = hl_push_spool_count(push->spool);
	if (push->away_ms && (last || began_ms >= push->try_ms) && !push->backlog)
		push->is_tried = true; /* nothing waits that could tell */
	for (size_t i = 0; i < push->count; i++)
		push->sessions[i]->is_seen = false;
	hl_groups_release(&push->groups);
	int r = meet_recorded(push, ret_goes_on);
	if (r == 0 && push->settings->recording && (last || !*ret_goes_on))
		r = meet_ended(push, last, ret_goes_on);
	for (size_t i = 0; r == 0 && i < push->count; i++)
		r = look_at(push, push->sessions[i], &push->sessions[i]->is_done);
	if (r == 0)
		r = send_batch(push);
	if (r == 0)
		r = send_groups(push);
	if (r == 0)
		r = remove_done(push, ret_again);
	if (push->has_read)
		malloc_trim(0);
	push->has_read = false;
	push->last_ms = began_ms;
	return r;
}

int hl_push_look_around(struct hl_push *push, bool last, bool *ret_goes_on, struct hl_error *err)
{
	bool again = true;
	int r = 0;

	*ret_goes_on = false;
	for (int i = 0; r == 0 && again && i < (last ? LAST_LOOKS : 1); i++) {
		again = false;
		r = look_once(push, last, ret_goes_on, &again);
	}
	*ret_goes_on |= again;
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

/* ---- all of it ---- */

char *hl_push_spool_path(const char *url)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const char *place = strrchr(url, '@'); /* without a user and a password */
	uint32_t number = hl_hash_bytes(place ? place : url, strlen(place ? place : url));
	char *path = NULL;
	int length = -1;

	if (state && *state == '/')
		length = asprintf(&path, "%s/" STATE_DIRECTORY "/push-%08x", state, number);
	else if (home && *home == '/')
		length = asprintf(&path, "%s/.local/state/" STATE_DIRECTORY "/push-%08x", home,
				  number);
	return length < 0 ? NULL : path;
}

int hl_push_new(const struct hl_push_settings *settings, struct hl_push **ret_push,
		struct hl_error *err)
{
	struct hl_push *push = calloc(1, sizeof(*push));

	if (!push)
		return hl_error_set(err, -ENOMEM, "out of memory");
	push->settings = settings;
	int r = hl_push_sink_open(settings->url, settings->experimental, &push->sink, err);
	if (r == 0)
		r = hl_push_spool_open(settings->spool, settings->spool_bytes, &push->spool, err);
	if (r < 0)
		hl_push_free(push);
	else
		*ret_push = push;
	return r;
}

void hl_push_free(struct hl_push *push)
{
	if (!push)
		return;
	if (push->spool && (!push->is_last || !push->away_ms)) /* else it was just tried */
		empty_spool(push);
	for (size_t i = 0; i < push->look_count; i++)
		hl_push_look_release(&push->looks[i]);
	for (size_t i = 0; i < push->count; i++)
		hl_push_session_free(push->sessions[i]);
	hl_push_sink_free(push->sink);
	hl_push_spool_free(push->spool);
	hl_push_stacks_release(&push->told);
	hl_groups_release(&push->groups);
	free(push->sessions);
	free(push->looks);
	free(push->done);
	free(push);
}

size_t hl_push_unknown(const struct hl_push *push)
{
	size_t unknown = 0;

	for (size_t i = 0; i < push->count; i++)
		unknown += push->sessions[i]->is_unanswered;
	return unknown;
}

struct hl_push_figures_sent hl_push_sent(const struct hl_push *push)
{
	return push->sent;
}

size_t hl_push_waiting(const struct hl_push *push)
{
	return hl_push_spool_count(push->spool);
}
