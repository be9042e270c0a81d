/* SPDX-License-Identifier: BSD-2-Clause */
/* The word that was meant, for a word that is misspelt. */
#pragma once

#include <stddef.h>

/*
 * The one of ${words} that ${word} is most likely a misspelling or the beginning of; NULL when none
 * is near, or several are equally near. Letters swapped, missing, added and changed count one each.
 */
const char *hl_nearest_word(const char *word, const char *const *words, size_t count);
