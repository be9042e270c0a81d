/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One recorded process as `heapline push` knows it: its labels, and the figures of each stack that were taken from it last, so that
 * the next look yields what changed.
 */
#pragma once

#include "base/index.h"
#include "base/user.h"
#include "fleet/store.h"
#include "profile/profile.h"

#include <stdbool.h>
#include <sys/types.h>

struct hl_push_figures {
	int64_t stack;
	/* In use: bytes, objects; allocated: bytes, objects. As they were taken last. */
	int64_t taken[4];
};

/* The same of the look at hand. */
struct hl_push_now {
	int64_t figures[4];
	uint32_t node; /* of the look's profile, which has them; 0: none */
};

/* A node by the recorder's own id, and the index of its figures. */
struct hl_push_node {
	uint32_t node, figures;
};

struct hl_push_session {
	int64_t id;
	pid_t pid;
	uint32_t sequence; /* of the process in its recording */
	char *recording;   /* path */
	struct hl_user *owner;
	char *labels[HL_FLEET_LABEL_COUNT];
	int64_t began_ms;
	bool is_known;	    /* what the sink has of it: nothing, or `figures` */
	bool is_forgotten;  /* once: what the sink has is then never known without asking */
	bool is_unanswered; /* the sink was asked in vain */
	bool is_overtaken; /* what its last look yielded may have been refused, as the sink has later figures */
	bool is_seen; /* when recorders were last looked for */
	bool is_done; /* it has ended, and was looked at to its end */
	struct hl_push_figures *figures;
	size_t count, capacity;
	struct hl_index
		index; /* of figures by stack, while a profile is looked at; ids are indices + 1 */
	struct hl_push_now *now; /* of figures[i], during a look */
	size_t now_count, now_capacity;
	uint32_t *
		nodes; /* of the profile that was just read, by the recorder's own ids; NULL later */
	size_t node_count; /* of the recorder's */
	/* Those that have figures, in rising order, for as long as no new ones come; NULL: not known. */
	struct hl_push_node *known;
	size_t known_count;
	int64_t look_ms; /* of the last look, which the sink has or will have; 0: there was none */
	uint64_t saved_ns; /* when what was read last was written, CLOCK_REALTIME */
};

/* What one look yields. */
struct hl_push_look {
	struct hl_fleet_window window;
	/* Its counters are what was allocated since the look before, and what is in use. NULL: it was not read. */
	struct hl_profile *profile;
	char *texts; /* that the window's frames lie in */
};

/* The stacks that a sink was told the frames of. Zero-initialize for none. */
struct hl_push_stacks {
	int64_t *all;
	size_t count, capacity;
	struct hl_index index; /* by stack; ids are indices + 1 */
};

void hl_push_stacks_release(struct hl_push_stacks *stacks);

/* Labels that the user gives; NULL: as the process has it. */
struct hl_push_labels {
	const char *service, *version;
};

/* The session of a process, whose recording is read as ${owner} (NULL: as this process). Its labels are found when it is looked at. NULL
 * for want of memory. */
struct hl_push_session *hl_push_session_new(const char *recording, const struct hl_user *owner,
					    pid_t pid, uint32_t sequence);
void hl_push_session_free(struct hl_push_session *session); /* NULL is fine */

/* Says that the sink has ${figures} of ${stack}. 0 or -ENOMEM. */
int hl_push_session_add(struct hl_push_session *session, int64_t stack, const int64_t figures[4]);

/* Forgets what the sink has: it is to be asked again. */
void hl_push_session_forget(struct hl_push_session *session);

/*
 * Reads the session's process from its recording and fills its labels in when they are not known yet. *${ret_profile}, to be freed, is NULL
 * where only figures of known stacks have changed, unless ${wants_profile}: naming functions takes most of the time. *${ret_ended}: it has
 * ended. 0 or a negative errno with a sentence; -EINVAL for labels that cannot be stored.
 */
int hl_push_session_read(struct hl_push_session *session, const struct hl_push_labels *given,
			 bool wants_profile, struct hl_profile **ret_profile, bool *ret_ended,
			 struct hl_error *err);

/*
 * What changed since the last look, in ${ret_look}, which takes over ${profile}, just read; what the session knows is then as the look
 * says. Frames are those of stacks that are not in ${told}, to which they are added. ${now_ms}: CLOCK_REALTIME; ${every_ms} until the next look. 0 or -ENOMEM, after which the session is to be forgotten. To be
 * released in any case.
 */
int hl_push_session_look(struct hl_push_session *session, struct hl_profile *profile,
			 struct hl_push_stacks *told, int64_t now_ms, int64_t every_ms, bool ended,
			 struct hl_push_look *ret_look);
void hl_push_look_release(struct hl_push_look *look);
