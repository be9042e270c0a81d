/* SPDX-License-Identifier: BSD-2-Clause */
/* The rounds of `heapline push`; see push.h. */
#include "push/send.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "open/open.h"
#include "serve/catalog.h"

#include <stdio.h>
#include <sys/stat.h>

#define FRESH_MS	3000 /* a collector saves for the first time before it answers */
#define STATE_DIRECTORY "heapline"
#define EVEN_MS		2000
#define LAST_LOOKS	10 /* others that send the same processes may be faster as often */

/* ---- looking ---- */

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
	if (hl_push_is_away(push) || push->backlog)
		return -EAGAIN;
	int r = push->sink->kind->recall(push->sink, session, &why);
	session->is_known = r == 0;
	session->is_unanswered = r == -EAGAIN;
	if (r == 0)
		return 0; /* but whether it takes anything is not known: its disk may be full */
	hl_push_session_forget(session);
	if (r == -EAGAIN)
		hl_push_note_away(push, &why,
				  "nothing of it is pushed until it answers what it has");
	else if (r != -ENOMEM)
		hl_push_note_refused(push, &why);
	return r;
}

/* The time of a look, later than that of the one before. Looks that are rare come at even seconds, which stores keep in fewer bytes. */
static int64_t choose_ms(const struct hl_push *push, const struct hl_push_session *session)
{
	int64_t ms = hl_push_now_ms(), even = ms - ms % EVEN_MS;
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
			hl_push_say(push, "%s", why.text);
		push->was_refused = true;
		push->sent.dropped++;
		*ret_done = true;
		return 0;
	}
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
		r = hl_push_deliver(push, &look);
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
	}
	return r;
}

/* Whether something was written into the directory of the one recording a moment ago. */
static bool is_fresh(const struct hl_push *push)
{
	struct stat recording;

	return stat(push->settings->recording, &recording) == 0 &&
	       hl_push_now_ms() - (int64_t)recording.st_mtim.tv_sec * 1000 < FRESH_MS;
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
			hl_push_say(push, "%s", why.text);
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
	int64_t began_ms = hl_push_now_ms();

	push->is_last = last;
	if (last || !push->away_ms || began_ms >= push->try_ms)
		hl_push_empty_spool(push);
	push->backlog = hl_push_spool_count(push->spool);
	if (push->away_ms && (last || began_ms >= push->try_ms) && !push->backlog)
		push->is_tried = true; /* nothing waits that could tell */
	for (size_t i = 0; i < push->count; i++)
		push->sessions[i]->is_seen = false;
	int r = meet_recorded(push, ret_goes_on);
	if (r == 0 && push->settings->recording && (last || !*ret_goes_on))
		r = meet_ended(push, last, ret_goes_on);
	for (size_t i = 0; r == 0 && i < push->count; i++)
		r = look_at(push, push->sessions[i], &push->sessions[i]->is_done);
	if (r == 0)
		r = hl_push_send_batch(push);
	if (r == 0)
		r = remove_done(push, ret_again);
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
		hl_push_empty_spool(push);
	for (size_t i = 0; i < push->look_count; i++)
		hl_push_look_release(&push->looks[i]);
	for (size_t i = 0; i < push->count; i++)
		hl_push_session_free(push->sessions[i]);
	hl_push_sink_free(push->sink);
	hl_push_spool_free(push->spool);
	hl_push_stacks_release(&push->told);
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
