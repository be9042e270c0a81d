/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What heapline doctor finds out: which of heapline's ways work for a target, and facts that say
 * why. Looking changes nothing in the target, and stops nothing.
 */
#pragma once

#include "base/compiler.h"
#include "base/error.h"
#include "process/maps.h"
#include "process/process.h"

#include <stdbool.h>
#include <stddef.h>

enum hl_doctor_verdict {
	HL_DOCTOR_NO,
	HL_DOCTOR_PARTLY,
	HL_DOCTOR_YES,
};

/* One of heapline's ways to look at a target. Texts are "" where there is nothing to say. */
struct hl_doctor_way {
	const char *name; /* as on the command line, "heap --stop" */
	enum hl_doctor_verdict verdict;
	char reason[512];
	char remedy[512];
	char command[2048]; /* for a shell: takes the way, or does what the remedy says */
};

struct hl_doctor_fact {
	const char *about; /* "target" or "machine" */
	const char *subject;
	char text[512];
};

#define HL_DOCTOR_WAYS_MAX  16 /* more than there are */
#define HL_DOCTOR_FACTS_MAX 32

struct hl_doctor {
	struct hl_doctor_way ways[HL_DOCTOR_WAYS_MAX];
	struct hl_doctor_fact facts[HL_DOCTOR_FACTS_MAX];
	size_t way_count, fact_count;
};

/* Adds a way; ${format} is its command, "" for none. */
struct hl_doctor_way *hl_doctor_add(struct hl_doctor *doctor, const char *name,
				    enum hl_doctor_verdict verdict, const char *format, ...)
	HL_PRINTF(4, 5);

/* Adds a way that counts nothing because ${pid} is recorded in mode 'closed'. */
void hl_doctor_add_closed(struct hl_doctor *doctor, const char *name,
			  enum hl_doctor_verdict verdict, int pid);

/*
 * Adds a way that does not work because of ${code} and the sentence in ${err}: the reason, and the
 * remedy after the semicolon, of which a command in quotes becomes the way's. Where rights are
 * missing and no command is quoted, it is ${command} as root.
 */
void hl_doctor_refuse(struct hl_doctor *doctor, const char *name, int code,
		      const struct hl_error *err, const char *command);

void hl_doctor_say(struct hl_doctor *doctor, const char *about, const char *subject,
		   const char *format, ...) HL_PRINTF(4, 5);

/* ---- doctor_machine.c ---- */

/* Facts of this machine, and of this user's rights on it. */
void hl_doctor_look_at_machine(struct hl_doctor *doctor);

/* The ways that need no process to be judged: recording, and tracing processes of this user. */
void hl_doctor_judge_machine(struct hl_doctor *doctor);

/* Whether there is what a recording takes of the machine: the library, and memory that both sides
 * share. 0 or a negative errno with a sentence. */
int hl_doctor_try_recording(struct hl_error *err);

/* The traces by BPF. ${try}: whether one may look at ${facts}, by loading its programs here (to
 * look at ourselves): 0 or, of stacks, their enum hl_probe_way; or a negative errno with a sentence. */
struct hl_doctor_trace {
	const char *name;
	int (*try)(const struct hl_process_facts *facts, struct hl_error *err);
};

enum { HL_DOCTOR_STACKS, HL_DOCTOR_PGFAULT, HL_DOCTOR_TRACES };
extern const struct hl_doctor_trace hl_doctor_traces[HL_DOCTOR_TRACES];

/* The ways by BPF for a process with ${maps}, and facts of its code; ${recorded}: what
 * hl_trace_recorded_check() returned. */
void hl_doctor_judge_traces(struct hl_doctor *doctor, const struct hl_process_facts *facts,
			    const struct hl_maps *maps, int recorded);

/* What can be said of looking at ${program} once it runs, started by ${command}. */
void hl_doctor_judge_later(struct hl_doctor *doctor, const char *program, const char *command);

/* ---- doctor_target.c ---- */

/* All ways for a running process, and its facts. 0, or -ESRCH with a sentence when it has ended, or
 * is the kernel's. */
int hl_doctor_judge_process(struct hl_doctor *doctor, const struct hl_process_facts *facts,
			    struct hl_error *err);

/* The same for a command that is not running yet. 0, or a negative errno with a sentence when there
 * is no such program. */
int hl_doctor_judge_command(struct hl_doctor *doctor, char **argv, struct hl_error *err);
