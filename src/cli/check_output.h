/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a file may be written, asked before the work for it begins. */
#pragma once

#include "base/error.h"

#include <stdbool.h>

/*
 * 0 if ${path} is not there, or is a file and ${force} says to replace it; else -EEXIST with a
 * sentence. A device is neither replaced nor written to.
 */
int hl_check_output(const char *path, bool force, struct hl_error *err);
