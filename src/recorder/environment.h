/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program must find in its environment to be recorded: the recorder first in LD_PRELOAD, and
 * the way to the collector. The program itself may have removed them from its own environment, or
 * from the one that it makes for another.
 */
#pragma once

#include <stddef.h>

/* The value of variable ${name}, or NULL. */
const char *hl_environment_value(char *const *environment, const char *name);

/* Keeps the entries that the functions below add: LD_PRELOAD from the environment of this program's
 * start, which may name the file ${recorder} by another path, and the way to the collector. */
void hl_environment_keep(char *const *environment, const char *recorder, const char *socket,
			 const char *token);

/*
 * Bytes that hl_environment_complete() needs. 0: ${environment} is complete, or must be left alone,
 * because it belongs to another recording or preloads a sanitizer, which refuses to come second.
 */
size_t hl_environment_room(char *const *environment);

/*
 * ${environment} with what is missing, made in the ${bytes} of ${room}, which is aligned as a
 * pointer. The strings stay where they are, but for LD_PRELOAD: there the recorder comes first,
 * then what stood there. Nothing is written beyond ${room} even where another thread adds to
 * ${environment} meanwhile. Both functions are async-signal-safe and allocate nothing.
 */
char *const *hl_environment_complete(char *const *environment, void *room, size_t bytes);
