/* SPDX-License-Identifier: BSD-2-Clause */
/* Questions to a store, in the SQL that both of its kinds understand: profiles, and sums that are not by stack. */
#pragma once

#include "fleet/store.h"
#include "profile/profile.h"

/* ---- questions to a store, in the SQL that both of its kinds understand ---- */

/* Which sessions, and when. Zero: all, now. */
struct hl_fleet_selection {
	const char *labels[HL_FLEET_LABEL_COUNT]; /* NULL: any */
	int64_t at_ms;	  /* what was in use then; 0: at the latest look at any of them */
	int64_t since_ms; /* what was allocated from then to at_ms; 0: from the beginning */
	bool mean; /* figures are divided by the number of processes that were watched at at_ms */
};

/*
 * The text "${url}?service=api&at=1700000000000&..." that says both, to be freed; NULL for want of memory.
 */
char *hl_fleet_selection_write(const struct hl_fleet_selection *selection, const char *url);

/*
 * Reads the selection in ${url}, a copy of which *${ret_storage} holds for as long as it is used, to be freed. 0, -EINVAL with a
 * sentence, or -ENOMEM.
 */
int hl_fleet_selection_read(const char *url, struct hl_fleet_selection *ret_selection,
			    char **ret_storage, struct hl_error *err);

/* Writes which sessions they are as clauses: "service api, host web-1, "; nothing for all of them. */
void hl_fleet_selection_describe(const struct hl_fleet_selection *selection, FILE *out);

/* Writes ${ms} as a local time to the second, and returns ${text}. */
const char *hl_fleet_put_time(int64_t ms, char text[32]);

/* A session that ${selection} chooses, whether or not it was watched at its at_ms. */
struct hl_fleet_session {
	int64_t session;
	int64_t began_ms, last_ms, until_ms, ended_ms;
	const char *labels[HL_FLEET_LABEL_COUNT];
};

struct hl_fleet_sessions {
	struct hl_fleet_session *all; /* in the order of their numbers */
	size_t count, capacity;
	struct hl_strings texts; /* of the labels */
};

/* To be released in any case. As hl_fleet_ask(). */
int hl_fleet_sessions_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			   struct hl_fleet_sessions *sessions, struct hl_error *err);
void hl_fleet_sessions_release(struct hl_fleet_sessions *sessions);

/* Whether it was watched at ${ms}. */
bool hl_fleet_session_is_alive(const struct hl_fleet_session *session, int64_t ms);

/* The latest look at any of them; 0: there is none. */
int64_t hl_fleet_sessions_last_ms(const struct hl_fleet_sessions *sessions);

/* Sums of deltas by a key: a stack or a session. */
struct hl_fleet_sum {
	int64_t key;
	int64_t inuse_bytes, inuse_objects;
	int64_t alloc_bytes, alloc_objects;
};

struct hl_fleet_sums {
	struct hl_fleet_sum *all; /* in the order of their keys */
	size_t count, capacity;
};

/* NULL if there is none. */
const struct hl_fleet_sum *hl_fleet_sums_find(const struct hl_fleet_sums *sums, int64_t key);
void hl_fleet_sums_release(struct hl_fleet_sums *sums);

/* Bytes in use at at_ms of all sessions, by session: of one that ended before, those when it did. Of ${stacks}, a list "1, 2, 3", alone (NULL:
 * of all). As hl_fleet_sums_read(). */
int hl_fleet_levels_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 const char *stacks, struct hl_fleet_sums *sums, struct hl_error *err);

/* By how many bytes that changed between since_ms (not 0) and at_ms, and how many were allocated, by session. As hl_fleet_levels_read(). */
int hl_fleet_changes_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			  const char *stacks, struct hl_fleet_sums *sums, struct hl_error *err);

/* What changed in one session within one step of time. */
struct hl_fleet_step {
	int64_t session, step; /* number ${step} of those that are ${step_ms} long, from 1970 on */
	int64_t inuse_bytes, alloc_bytes;
};

struct hl_fleet_steps {
	struct hl_fleet_step *all;
	size_t count, capacity;
};

/* Between since_ms and at_ms, in any order; ${steps}->all is to be freed. As hl_fleet_levels_read(). */
int hl_fleet_steps_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			int64_t step_ms, const char *stacks, struct hl_fleet_steps *steps,
			struct hl_error *err);

/* Asks for the frames of all stacks of ${selection}; rows are a stack and its frames. As hl_fleet_ask(). */
int hl_fleet_stacks_ask(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			hl_fleet_take_row *take, void *context, struct hl_error *err);

/*
 * The profile of what ${url} names: a store and a selection. 0 or a negative errno with a sentence; -ENODATA when nothing is selected.
 */
int hl_fleet_profile(const char *url, struct hl_profile **ret_profile, struct hl_error *err);

/* ---- sums of a store that are not by stack: by a label of sessions, and by time ---- */

/* Sessions with the same text of one label. */
struct hl_fleet_group {
	const char *name;
	uint64_t processes;   /* watched at at_ms */
	int64_t inuse_bytes;  /* then */
	int64_t before_bytes; /* in use at since_ms */
	int64_t growth_bytes;
	int64_t alloc_bytes; /* between them */
};

struct hl_fleet_groups {
	struct hl_fleet_sessions sessions; /* whose texts names are */
	struct hl_fleet_group *all;
	size_t count, capacity;
	struct hl_fleet_group total; /* named "sum" */
};

/*
 * What the sessions of ${selection}, whose times are both set, have and had in use by ${label}; of ${stacks} alone, as in hl_fleet_levels_read(). Those
 * that grew most come first, or, when ${by_size}, those that are largest. To be released in any case. As hl_fleet_ask().
 */
int hl_fleet_groups_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 enum hl_fleet_label label, const char *stacks, bool by_size,
			 struct hl_fleet_groups *groups, struct hl_error *err);
void hl_fleet_groups_release(struct hl_fleet_groups *groups);

/* One step of time. */
struct hl_fleet_moment {
	char time[32];	     /* of its end, local time */
	int64_t ms;	     /* the same */
	uint64_t processes;  /* watched then */
	int64_t inuse_bytes; /* then */
	int64_t alloc_bytes; /* during the step */
};

struct hl_fleet_moments {
	struct hl_fleet_moment *all; /* in order */
	size_t count, capacity;
};

#define HL_FLEET_STEPS_MAX 10000

/*
 * The steps, ${step_ms} long, from since_ms to at_ms, HL_FLEET_STEPS_MAX at most. moments->all is to be freed. As
 * hl_fleet_groups_read().
 */
int hl_fleet_moments_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			  int64_t step_ms, const char *stacks, struct hl_fleet_moments *moments,
			  struct hl_error *err);

/*
 * The stacks of ${selection} that have a frame in which ${expression} is found, as a list for the functions above, to be freed; "0", which is
 * none, when there are none. 0 or a negative errno with a sentence.
 */
int hl_fleet_stacks_find(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 const char *expression, char **ret_stacks, struct hl_error *err);
