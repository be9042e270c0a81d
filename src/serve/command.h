/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command of heapline that answers a request, and the snapshots that it needs. Verbs run each in a process of its own:
 * what a damaged recording or a heap of gigabytes costs ends with it.
 */
#pragma once

#include "base/error.h"
#include "base/user.h"
#include "serve/catalog.h"
#include "serve/request.h"

#include <stddef.h>
#include <stdint.h>

/* What is run, and for whom. */
struct hl_run {
	const char *verb;
	char *const *arguments;	    /* after the verb; NULL-terminated */
	const struct hl_user *user; /* as whom it reads; NULL: as this process */
	int stop_fd,
		client_fd; /* it ends when the first can be read, and when the second was hung up; -1: none */
};

/*
 * Runs a verb and returns a descriptor of what it wrote, ${ret_bytes} long, which the caller closes. A negative errno with
 * a sentence: -EBUSY (too many are running), -ETIMEDOUT, -ECANCELED (nobody wants it any more), -EINVAL (a usage
 * error), -EIO (it failed; the sentence is its own). Thread-safe; waits up to ten seconds for others that run.
 */
int hl_command_run(const struct hl_run *run, uint64_t *ret_bytes, struct hl_error *err);

/* A verb with what its arguments point to. */
struct hl_command {
	char *arguments[HL_REQUEST_OPTIONS_MAX +
			8]; /* NULL-terminated; of what follows and of the request */
	size_t count;
	char process[64];
	char *directory;      /* of snapshots; removed in the end; NULL: none */
	char *before, *after; /* paths of snapshots */
	struct hl_run run;
};

/*
 * Makes the command for ${request}, and waits for as many seconds as that says; ${stop_fd} and ${client_fd} are those of struct hl_run.
 * ${ret_command}->run is then to be run; it points into ${catalog} and ${request}. 0, or a negative errno with a sentence as hl_command_run()
 * has them, and -ENOENT and -ESRCH for what is not there. To be released in any case.
 */
int hl_command_make(const struct hl_catalog *catalog, const struct hl_request *request, int stop_fd,
		    int client_fd, struct hl_command *ret_command, struct hl_error *err);

void hl_command_release(struct hl_command *command);
