/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of command lines, as a shell needs them. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Whether a byte of ${word} is a control character of ASCII. */
bool hl_words_has_control(const char *word);

/* Writes ${word}, in quotes where it needs them. */
void hl_words_put(FILE *out, const char *word);
