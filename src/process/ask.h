/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs heapline's own verbs as bounded child processes, and reads what they answer. */
#pragma once

#include "base/error.h"
#include "base/self.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What a child may use. 0: no limit. After its processor time it gets what SIGTERM does, and SIGKILL 10 s of it later. */
struct hl_ask_bounds {
	unsigned cpu_seconds;
	uint64_t memory_bytes, output_bytes;
	bool is_idle; /* it runs where nothing else wants the processor or the disk */
};

/*
 * Starts heapline with ${arguments}, as hl_self_spawn() does. The child is the first that the kernel kills where memory runs out, and gets
 * ${death_signal} (SIGTERM: others may be ignored) when the calling thread ends. 0 or a negative errno.
 */
int hl_ask_start(char *const *arguments, int out, int complaints, int death_signal,
		 const struct hl_ask_bounds *bounds, pid_t *ret_pid);

/*
 * Sends ${signal} to a child that was started so, and SIGKILL if it has not ended 60 s later. Its status as wait() gives it, or a negative errno;
 * ${ret_cpu_ns}: the processor time that it has used.
 */
int hl_ask_end(pid_t pid, int signal, uint64_t *ret_cpu_ns);

struct hl_ask {
	const char *const *arguments; /* the verb and what follows it; NULL-terminated */
	bool is_text;		      /* "--json" is not added, and the answer is not parsed */
	unsigned seconds;	      /* of wall time; 0: 60 */
	struct hl_ask_bounds
		bounds; /* 0: 30 s of processor time, 1 GiB of memory, 64 MiB of output */
	int stop_fd;	/* the child ends when this can be read; -1: none */
};

/* To be released with hl_answer_release(). */
struct hl_answer {
	json_t *document; /* NULL: none was asked for, or it wrote none */
	char *text; /* all that it wrote to standard output, and a NUL; NULL: it was not started */
	size_t length;
	char said[HL_SELF_SENTENCE_MAX]; /* to standard error, cut off */
	int status;			 /* its exit status; -1: it was ended by a signal */
	uint64_t wall_ns, cpu_ns;
};

/*
 * Runs a verb until it ends, and reads its answer. 0 where it ended with status 0, or wrote a whole document (some verbs do so with status 3).
 * Else a negative errno with a sentence: -ETIMEDOUT and -ECANCELED (by stop_fd): it got SIGTERM, and SIGKILL 60 s later if that did not do;
 * -EINVAL: a usage error; -EFBIG: too large an answer; -EIO: it failed, and the sentence is its own. ${ret_answer} is filled in in any case. Ends
 * its own child only. Thread-safe; the child ends with the thread.
 */
int hl_ask_verb(const struct hl_ask *ask, struct hl_answer *ret_answer, struct hl_error *err);

void hl_answer_release(struct hl_answer *answer);
