/* SPDX-License-Identifier: BSD-2-Clause */
/* The command of heapline that answers a request, and the snapshots that it needs. */
#pragma once

#include "serve/catalog.h"
#include "serve/request.h"
#include "serve/run.h"

#define HL_COMMAND_WAITS_MAX 4 /* requests that wait for what a process does, at once */

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
 * ${ret_command}->run is then to be run; it points into ${catalog} and ${request}. 0, or a negative errno with a sentence as hl_run_verb()
 * has them, and -ENOENT and -ESRCH for what is not there. To be released in any case.
 */
int hl_command_make(const struct hl_catalog *catalog, const struct hl_request *request, int stop_fd,
		    int client_fd, struct hl_command *ret_command, struct hl_error *err);

void hl_command_release(struct hl_command *command);
