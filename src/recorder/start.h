/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

/* Starts recording in a fresh program image; called by the library's constructor. Forked children
 * start by themselves. errno is kept. */
void hl_start(char *const *environment);
