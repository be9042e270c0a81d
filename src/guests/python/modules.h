/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds CPython among the modules of the process, and makes it a provider of script frames: a module is
 * looked at when it is entered, and opened at the next allocation, outside of all locks.
 */
#pragma once

#include "recorder/exports.h"

#include <stdbool.h>

struct dl_find_object;
struct hl_recorder;

#define HL_PYTHON_MODULES_MAX 2u /* of one process; further ones have no frames */

/* The module ${object} has been entered. True: it must be opened. Under a lock. */
bool hl_python_modules_note(const struct hl_exports *exports, const struct dl_find_object *object);

/* Opens what has been noted. Without locks. */
void hl_python_modules_open(struct hl_recorder *recorder);

/* A library has been unloaded: one that is gone is not asked any more. */
void hl_python_modules_retire_unloaded(void);
