/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reports to the collector what it cannot see: that exec is about to replace a program, and that a
 * child runs without a region.
 *
 * The report stands in the header of the process' region. A forked child keeps its parent's header
 * until it has one of its own; the rest of the parent's region it gives back.
 */
#pragma once

#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The region of this process from now on. Takes ${region} over; a forked child that is recorded
 * gives it back all but its header. */
void hl_kin_take(struct hl_region_header *region, size_t bytes);

/* The process is about to fork; and the child is there. */
void hl_kin_count_forked(void);
void hl_kin_enter_child(void);

/* A forked child could not get a region. */
void hl_kin_count_unrecorded(void);

/* In a child that goes on with an interrupted event of its parent (start.c), and is not recorded:
 * puts memory of its own in the place of the header. */
void hl_kin_leave(void);

/* Whether programs that this process starts are to be recorded. */
bool hl_kin_are_followed(void);

/* What hl_kin_begin_exec() counted, for an exec that fails. */
struct hl_kin_exec {
	_Atomic uint32_t *counter; /* NULL: nothing */
	bool moved;		   /* from the children that got no region */
	bool was_awaited;
};

/* The calling process, or a child by vfork(), is about to become the program at ${path}; NULL: the
 * one that ${fd} has open. */
struct hl_kin_exec hl_kin_begin_exec(const char *path, int fd);

/* The exec failed. */
void hl_kin_fail_exec(struct hl_kin_exec exec);

/* Keeps where the arguments of the program lie: many write a title over them. */
void hl_kin_keep_arguments(char *const *arguments, char *const *environment);

/* Writes the title down when the process is about to end. Makes no system call, since a filter may
 * forbid it. */
void hl_kin_keep_title(void);

/* The process asks for a namespace of libraries, whose allocations are not seen. */
void hl_kin_count_namespace(void);

/* The process has started a child with a program of its own. */
void hl_kin_count_spawned(void);
