/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One question, one page: why is the memory of this process, or this control group, high? Runs heapline's own verbs one after the other
 * (steps.c), keeps what they say as facts (facts.c), judges by a table of rules (rules.c), and writes the page (page.c).
 *
 * Words: a step is a verb that is run, or a wait. The grower is the stack that allocated most of what was kept meanwhile. A verdict is a cause with
 * its certainty.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define HL_WHY_TEXT_MAX	  256
#define HL_WHY_STACK_MAX  6 /* frames of the grower that are shown */
#define HL_WHY_LIST_MAX	  16
#define HL_WHY_JSON_BYTES 4096 /* at most */

struct hl_why_request {
	pid_t pid;	    /* 0: the one of ${cgroup} that grows most, else the largest */
	const char *cgroup; /* NULL: that of ${pid} */
	double seconds;	    /* how long is watched */
	bool outside;	    /* the process is not entered */
	const char *folder; /* for the recording */
	const char *keep;   /* its path; NULL: it is in ${folder} */
	int stop_fd;	    /* what is begun ends when it can be read; -1: none */
	/* What costs something, before it is done; NULL: nobody listens. */
	void (*say)(const char *text);
};

enum hl_why_cause {
	HL_WHY_LEAK,
	HL_WHY_CACHE,
	HL_WHY_RETENTION,
	HL_WHY_FRAGMENTATION,
	HL_WHY_WASTE, /* the allocator's own headers */
	HL_WHY_PAGE_CACHE,
	HL_WHY_NEIGHBOUR,
	HL_WHY_GROWTH, /* whose cause is not known: a leak, or a cache */
	HL_WHY_USUAL,
	HL_WHY_UNKNOWN,
};

enum hl_why_certainty { HL_WHY_CERTAIN, HL_WHY_LIKELY, HL_WHY_POSSIBLE };

/* A figure before and after the time that was watched; -1: not known. */
struct hl_why_pair {
	int64_t before, after;
};

static inline int64_t hl_why_gain(const struct hl_why_pair *pair)
{
	return pair->before < 0 || pair->after < 0 ? 0 : pair->after - pair->before;
}

struct hl_why_frame {
	char function[HL_WHY_TEXT_MAX], file[HL_WHY_TEXT_MAX], module[HL_WHY_TEXT_MAX];
	int64_t line; /* 0: not known */
};

/* What is known. Zero, or "": nothing is. Bytes. */
struct hl_why_facts {
	char command[HL_WHY_TEXT_MAX], program[64];
	double seconds; /* that were watched */
	bool may_attach, may_trace, may_fault, is_recorded, is_idle, is_stopped, was_recorded,
		has_ended, is_forbidden; /* to read: by its user, or its rights */

	/* the process, by heap */
	bool has_heap;
	struct hl_why_pair rss, live, free, shared, files, other; /* other: of no row before */
	struct hl_why_pair in_use; /* live blocks, also those that are not in RAM */
	int64_t unscanned;
	char kind[32], part[64], purge[96]; /* of heap's verdict */
	int64_t heap_bytes, returnable_bytes, pinned_bytes, header_bytes;
	int64_t cold_bytes; /* of RSS, not touched in ${cold_seconds}, which is 0 where that was not looked at */
	double cold_seconds;
	char grown_part[64]; /* that gained most */
	int64_t grown_part_bytes;
	bool is_collected; /* that part: objects that a runtime's collector moves, of which no recorder knows */
	const char *profiles; /* how the program reports who allocates that part, or NULL */
	char memory_file[HL_WHY_TEXT_MAX]; /* the largest of shared memory */

	/* its control group, by pod */
	bool has_group, asks_group;
	char group[HL_WHY_TEXT_MAX];
	int64_t limit; /* -1: none */
	struct hl_why_pair usage, cache, group_shared;
	pid_t neighbour; /* that gained most; 0: none gained */
	char neighbour_name[64];
	int64_t neighbour_gain, own_gain;

	/* the grower */
	const char *source; /* the verb that found it; NULL: none did */
	struct hl_why_frame line;
	bool is_script;	  /* the line is of a language whose runtime frees */
	bool is_unsteady; /* it grew most of all stacks, in steps */
	char stack[HL_WHY_STACK_MAX][HL_WHY_TEXT_MAX]; /* the leaf first */
	char leaf[HL_WHY_TEXT_MAX];
	double grown_seconds; /* in which it was watched */
	int64_t grown_bytes, total_grown_bytes, lost_events;
	int64_t kept_bytes, slack_bytes; /* of what was allocated; beyond what was asked for */

	/* lost blocks, by leaks */
	bool has_leaks;
	int64_t lost_bytes, grower_lost_bytes, grower_lost_blocks;
	char losing_function[HL_WHY_TEXT_MAX]; /* of the grower's stack: its blocks are lost */

	/* by holders */
	char holder[HL_WHY_TEXT_MAX], held_path[HL_WHY_TEXT_MAX];
	int64_t held_bytes;
};

struct hl_why_done {
	char command[HL_WHY_TEXT_MAX], said[HL_WHY_TEXT_MAX];
	uint64_t wall_ns, cpu_ns;
	bool has_failed, has_entered, stays; /* of what entered the process */
};

struct hl_why {
	struct hl_why_request request;
	char target[96]; /* "-p 4711" */
	pid_t pid;
	uint64_t begun_ns; /* CLOCK_REALTIME */
	struct hl_why_facts facts;
	json_t *frames;	  /* of the grower, the leaf last, while it is looked at */
	json_t *unsteady; /* the growth of memory in use of which no stack has most steadily */
	struct hl_why_done done[HL_WHY_LIST_MAX];
	char unseen[HL_WHY_LIST_MAX][HL_WHY_TEXT_MAX];
	size_t done_count, unseen_count;
	char recording[PATH_MAX]; /* "": none */

	/* the verdict, by hl_why_judge() */
	enum hl_why_cause cause;
	enum hl_why_certainty certainty;
	char sentence[2 * HL_WHY_TEXT_MAX], remedy[2 * HL_WHY_TEXT_MAX], next[HL_WHY_TEXT_MAX];
	char evidence[8][HL_WHY_TEXT_MAX], errors[8][HL_WHY_TEXT_MAX];
	size_t evidence_count;
};

/* Takes the steps and judges. 0, or a negative errno with a sentence: there is no such process, or group. ${ret_why} is filled in then, too, as far
 * as it went. */
int hl_why_run(const struct hl_why_request *request, struct hl_why *ret_why, struct hl_error *err);

/* Writes what hl_why_run() would do, and does nothing. */
void hl_why_plan(const struct hl_why_request *request, FILE *out);

/* Whether nothing grew, and little is wasted as far as is known. */
bool hl_why_is_usual(const struct hl_why_facts *facts);

/* Chooses the verdict and fills in what belongs to it. */
void hl_why_judge(struct hl_why *why);

extern const char *const hl_why_cause_keys[];	  /* "page-cache" */
extern const char *const hl_why_certainty_keys[]; /* "certain" */

/* "handle (svc.py:12)"; "" where there is no line. Returns ${text}. */
const char *hl_why_line_text(const struct hl_why_facts *facts, char text[2 * HL_WHY_TEXT_MAX]);

/* The page, for people; on one of ${width} columns. */
void hl_why_write_text(const struct hl_why *why, FILE *out, size_t width);

/* The same as docs/schema/why.json, in HL_WHY_JSON_BYTES at most. 0 or -ENOMEM. */
int hl_why_write_json(const struct hl_why *why, FILE *out);

/* The same with pictures of the recording, and of the parts of the process. */
void hl_why_write_html(const struct hl_why *why, FILE *out);
