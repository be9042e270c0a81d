/* SPDX-License-Identifier: BSD-2-Clause */
/* What shells offer to complete a command line with. */
#pragma once

/*
 * `heapline --complete WORD...`: writes what the last of ${words}, which follow the program's name
 * and are ${count}, can be: a line for each, then a tab and what it means where that is known. The
 * shell adds what it knows better: ":recordings" stands for recordings, ":files" for any file,
 * ":commands" for programs. Returns the exit status.
 */
int hl_complete(int count, char **words);
