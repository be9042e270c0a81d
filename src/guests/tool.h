/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What guests add to the command line: verbs, and what 'heapline doctor' says. A member that is NULL means "has none". See
 * outside.h for what they know of a process.
 */
#pragma once

#include <stdbool.h>

struct hl_doctor;
struct hl_guest_traits;
struct hl_process_facts;
struct hl_verb;

struct hl_guest_tool {
	const struct hl_guest_traits *traits;
	const struct hl_verb *verb;
	/* Adds its ways to look at the process of ${facts}, if that is of the runtime. */
	void (*judge)(struct hl_doctor *doctor, const struct hl_process_facts *facts);
	/* Whether the file ${path} is of the interpreter, and the loop that runs scripts cannot be found in it, so that stacks
	 * of theirs would be native. */
	bool (*hides_loop)(const char *path);
};

/* Those that are built in, in the order of their verbs; NULL ends them. */
extern const struct hl_guest_tool *const hl_guest_tools[];

/* Each is in the folder of its guest. */
extern const struct hl_guest_tool hl_guest_tool_beam, hl_guest_tool_python, hl_guest_tool_skynet;
