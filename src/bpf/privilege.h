/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether traces may be made here: capabilities, the kernel, what it lacks; and what to do when
 * not. */
#pragma once

#include "base/error.h"
#include "process/process.h"

#include <stdbool.h>
#include <stdint.h>

/* What a trace may need; hl_privilege_check() names what is missing. */
enum hl_privilege_need {
	HL_NEED_BPF = 1 << 0,	       /* programs that read memory: always */
	HL_NEED_TARGET = 1 << 1,       /* /proc/PID of the target: maps, root */
	HL_NEED_PAGEMAP = 1 << 2,      /* /proc/PID/pagemap of the target */
	HL_NEED_PERF_UPROBES = 1 << 3, /* uprobes by perf events: kernels before 6.6 */
};

enum hl_lockdown {
	HL_LOCKDOWN_NONE,
	HL_LOCKDOWN_INTEGRITY, /* is not an obstacle */
	HL_LOCKDOWN_CONFIDENTIALITY,
};

/* What we have. */
struct hl_privileges {
	uint64_t capabilities; /* effective: 1 << CAP_X */
	uint32_t uid;
	bool in_user_namespace; /* then capabilities do not count outside it */
	unsigned kernel_major, kernel_minor;
	bool has_btf; /* of the kernel's types, which programs are fitted to */
	enum hl_lockdown lockdown;
	char program[PATH_MAX]; /* our own, as the remedy names it */
};

void hl_privilege_read(struct hl_privileges *ret_privileges);

/*
 * Whether ${privileges} suffice for ${needs} (enum hl_privilege_need) on ${target}. 0; -EPERM or
 * -ENOTSUP with a sentence that names all that is missing, and the remedy.
 */
int hl_privilege_suffices(const struct hl_privileges *privileges,
			  const struct hl_process_facts *target, unsigned needs,
			  struct hl_error *err);

/* The same with what we have now. */
int hl_privilege_check(const struct hl_process_facts *target, unsigned needs, struct hl_error *err);

/*
 * Makes the sentence for ${code}, a negative errno of libbpf or the kernel, returned on the way to
 * ${what}: "load the programs of 'stacks'". Adds the first of libbpf's complaints. Returns ${code}.
 */
int hl_privilege_explain(const char *what, int code, struct hl_error *err);

/*
 * Keeps what libbpf says off standard error, for hl_privilege_explain(). From here on ${say} (may
 * be NULL) gets each line; without a newline, and with what a terminal would obey still in it.
 */
void hl_privilege_log_start(void (*say)(const char *line));

/* Forgets what libbpf said so far: it does not explain later failures. */
void hl_privilege_log_forget(void);
