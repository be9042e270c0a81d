/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline's verbs as tools of other programs: what the tables of verbs and options say, as JSON Schema; and from
 * arguments in JSON to command lines and back. An option is a member of the arguments, under its long name; operands
 * are the array "operands", a command to run is the array "command".
 */
#pragma once

#include "base/error.h"
#include "cli/cli.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * All of them, in the order of the verbs. ${may_enter}: those that enter processes may be called. An array, the caller's; NULL for want of memory.
 */
json_t *hl_mcp_tools_list(bool may_enter);

/*
 * The verb that tool ${name} calls, and the words after it for ${arguments}: an array of texts in ${ret_words}, the caller's. -EACCES: it would enter a
 * process or start a program, and ${may_enter} is false; -EINVAL: it takes no such arguments; both with a sentence.
 */
int hl_mcp_tools_words(const char *name, const json_t *arguments, bool may_enter,
		       const struct hl_verb **ret_verb, json_t **ret_words, struct hl_error *err);

/* {"tool", "arguments", "command"} of ${command}, "heapline top app.hl", as a shell would read it. NULL where it is not one of the tools' or memory is short. */
json_t *hl_mcp_tools_parse(const char *command);
