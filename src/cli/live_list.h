/* SPDX-License-Identifier: BSD-2-Clause */
/* What is being recorded, as a list to choose from. */
#pragma once

#include "base/error.h"

/* Writes a table of all recorded processes of this user, for root of all users, to standard output. 0 or a negative errno with a sentence. */
int hl_live_list(struct hl_error *err);
